"""The committed definition is the built one, small enough to apply, and bounded where rules look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from clockhand import cli
from clockhand.domain import crd, definition, jobclass_crd, workerpool_crd

ROOT = Path(__file__).resolve().parents[2]
RULES = "x-kubernetes-validations"
RESOURCES = (crd.RESOURCE, workerpool_crd.RESOURCE, jobclass_crd.RESOURCE)
EACH = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
Schema = dict[str, Any]


def committed(resource: definition.Resource) -> Path:
    return ROOT / f"crds/{resource.kind.lower()}.yaml"


def root(resource: definition.Resource) -> Schema:
    version: Schema = yaml.safe_load(definition.text(resource))["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict) and "description" in schema[key]:
            yield from nodes(schema[key], f"{path}[]")


@EACH
def test_committed_file_is_the_built_one(resource: definition.Resource) -> None:
    assert committed(resource).read_text() == definition.text(resource), "run `make generate` and commit what it writes"


def test_the_command_prints_all_of_them() -> None:
    printed = click.testing.CliRunner().invoke(cli.clockhand, ["crds"])
    assert printed.exit_code == 0
    assert list(yaml.safe_load_all(printed.output)) == [definition.build(resource) for resource in RESOURCES]


@EACH
def test_text_is_the_build(resource: definition.Resource) -> None:
    assert yaml.safe_load(definition.text(resource)) == definition.build(resource)
    assert "&id" not in definition.text(resource)


@EACH
def test_file_stays_small(resource: definition.Resource) -> None:
    assert committed(resource).stat().st_size <= 60 * 1024


@EACH
def test_schema_holds_every_row_of_the_table_and_no_other(resource: definition.Resource) -> None:
    found = {path.removeprefix("spec."): schema for path, schema in nodes(root(resource)) if path.startswith("spec.")}
    rows = resource.table.by_path
    inside_pod = {path for path in found if path.startswith("template.spec.")}
    assert set(found) - inside_pod == set(rows)
    for path, row in rows.items():
        assert found[path]["description"] == row.text


@EACH
def test_each_rule_names_its_field_in_one_sentence(resource: definition.Resource) -> None:
    rules = [(path, rule) for path, schema in nodes(root(resource)) for rule in schema.get(RULES, [])]
    assert len(rules) >= 4
    for path, rule in rules:
        message = rule["message"]
        assert (path.replace("[]", "") or "metadata.name") in message
        assert "\n" not in message
        assert not message.endswith(".")


@EACH
def test_every_string_and_list_of_the_spec_is_bounded(resource: definition.Resource) -> None:
    for path, schema in nodes(root(resource)["properties"]["spec"]):
        if schema.get("type") == "string":
            assert "maxLength" in schema or "enum" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path


@EACH
def test_nested_parts_of_a_kept_object_are_kept_too(resource: definition.Resource) -> None:
    pod = root(resource)["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    preserve = "x-kubernetes-preserve-unknown-fields"
    assert pod[preserve] is True
    assert pod["x-kubernetes-map-type"] == "atomic"
    assert pod["properties"]["containers"]["items"][preserve] is True


def columns_of(resource: definition.Resource, *, wide: bool) -> list[tuple[str, str]]:
    version = definition.build(resource)["spec"]
    assert isinstance(version, dict)
    columns = version["versions"][0]["additionalPrinterColumns"]
    return [(column["name"], column["type"]) for column in columns if ("priority" in column) == wide]


def test_columns() -> None:
    assert columns_of(crd.RESOURCE, wide=False) == [
        ("SCHEDULE", "string"),
        ("TIME ZONE", "string"),
        ("SUSPEND", "boolean"),
        ("ACTIVE", "integer"),
        ("LAST", "date"),
        ("NEXT", "string"),
        ("AGE", "date"),
    ]
    assert [name for name, _ in columns_of(crd.RESOURCE, wide=True)] == ["EVERY", "AT"]
    assert columns_of(workerpool_crd.RESOURCE, wide=False) == [
        ("READY", "integer"),
        ("WANTED", "integer"),
        ("BACKLOG", "integer"),
        ("OLDEST", "integer"),
        ("AGE", "date"),
    ]
    assert [name for name, _ in columns_of(workerpool_crd.RESOURCE, wide=True)] == ["RUNNING", "DISPATCH", "HANDLERS"]
    assert [name for name, _ in columns_of(jobclass_crd.RESOURCE, wide=False)] == [
        "NAMESPACES",
        "ALLOW",
        "ACCOUNT",
        "AGE",
    ]
    assert [name for name, _ in columns_of(jobclass_crd.RESOURCE, wide=True)] == ["IMAGES"]


def test_rules_stand_where_the_parser_checks_too() -> None:
    paths = {path for path, schema in nodes(root(crd.RESOURCE)) if RULES in schema}
    forms = {"spec.schedule", "spec.schedules[]", "spec.every", "spec.at", "spec.startAt", "spec.endAt"}
    forms |= {"spec.run.class", "spec.run.image", "spec.run.env[].name"}
    forms |= {f"spec.run.resources.{kind}[]" for kind in ("requests", "limits")}
    assert paths == {"", "spec", "spec.retry.backoff", "spec.retry.rules[]", "spec.handler", "spec.pool", *forms}
    paths = {path for path, schema in nodes(root(workerpool_crd.RESOURCE)) if RULES in schema}
    lists = {
        f"spec.{name}[]" for name in ("handlers", "allowedNamespaces", "http.allowedHosts", "http.allowedNetworks")
    }
    assert paths == {"", "spec", "spec.image", "spec.http.secretName", *lists}
    paths = {path for path, schema in nodes(root(jobclass_crd.RESOURCE)) if RULES in schema}
    assert paths == {"", *(f"spec.{name}[]" for name in ("namespaces", "images", "maxResources"))}
