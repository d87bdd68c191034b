"""The committed definition is the built one, small enough to apply, and bounded where rules look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from clockhand.domain import crd, fields

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "crds/scheduledjob.yaml"
RULES = "x-kubernetes-validations"
Schema = dict[str, Any]


def root() -> Schema:
    version: Schema = yaml.safe_load(crd.text())["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name)
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], f"{path}[]")


def test_committed_file_is_the_built_one() -> None:
    assert COMMITTED.read_text() == crd.text(), "run `clockhand crds` and commit what it writes"


def test_text_is_the_build() -> None:
    assert yaml.safe_load(crd.text()) == crd.build()
    assert "&id" not in crd.text()


def test_file_stays_small() -> None:
    assert COMMITTED.stat().st_size <= 60 * 1024


def test_schema_holds_every_row_of_the_table_and_no_other() -> None:
    found = {path.removeprefix("spec."): schema for path, schema in nodes(root()) if path.startswith("spec.")}
    rows = fields.by_path()
    inside_pod = {path for path in found if path.startswith("template.spec.")}
    assert set(found) - inside_pod == set(rows)
    for path, row in rows.items():
        assert found[path]["description"] == row.text


def test_each_rule_names_its_field_in_one_sentence() -> None:
    rules = [(path, rule) for path, schema in nodes(root()) for rule in schema.get(RULES, [])]
    assert len(rules) >= 45
    for path, rule in rules:
        message = rule["message"]
        assert (path.removesuffix("[]") or "metadata.name") in message
        assert "\n" not in message
        assert not message.endswith(".")


def test_every_string_and_list_of_the_spec_is_bounded() -> None:
    for path, schema in nodes(root()["properties"]["spec"]):
        if schema.get("type") == "string":
            assert "maxLength" in schema or "enum" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path


def test_nested_parts_of_a_kept_object_are_kept_too() -> None:
    pod = root()["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    preserve = "x-kubernetes-preserve-unknown-fields"
    assert pod[preserve] is True
    assert pod["x-kubernetes-map-type"] == "atomic"
    assert pod["properties"]["containers"]["items"][preserve] is True


def test_columns() -> None:
    version = crd.build()["spec"]
    assert isinstance(version, dict)
    columns = version["versions"][0]["additionalPrinterColumns"]
    assert [(column["name"], column["type"]) for column in columns if "priority" not in column] == [
        ("SCHEDULE", "string"),
        ("TIME ZONE", "string"),
        ("SUSPEND", "boolean"),
        ("ACTIVE", "integer"),
        ("LAST", "date"),
        ("NEXT", "string"),
        ("AGE", "date"),
    ]
    assert [column["name"] for column in columns if column.get("priority") == 1] == ["EVERY", "AT"]


def test_rules_stand_where_the_parser_checks_too() -> None:
    paths = {path for path, schema in nodes(root()) if RULES in schema}
    forms = {"spec.schedule", "spec.schedules[]", "spec.every", "spec.at", "spec.startAt", "spec.endAt"}
    assert paths == {"", "spec", "spec.retry.backoff", "spec.retry.rules[]", "spec.handler", "spec.pool", *forms}
