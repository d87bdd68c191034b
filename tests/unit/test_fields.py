"""The table of fields must be whole and consistent, since schema, parser and docs are derived from it."""

from __future__ import annotations

import re

import msgspec
import pytest

from clockhand.domain import classrun, documents, fields, jobclass, jobclass_fields, spec, workerpool, workerpool_fields
from clockhand.domain.table import Field, Kind, Table

TABLES = (fields.TABLE, workerpool_fields.TABLE, jobclass_fields.TABLE)
ROWS = pytest.mark.parametrize(
    ("table", "row"), [pytest.param(table, row, id=row.path) for table in TABLES for row in table]
)
# the fields of ScheduledJob.spec as users know them; written out, so that none is lost unnoticed
TOP_LEVEL = [
    "schedule",
    "schedules",
    "every",
    "at",
    "timeZone",
    "dst",
    "startAt",
    "endAt",
    "jitterSeconds",
    "suspend",
    "startingDeadlineSeconds",
    "catchUp",
    "concurrencyPolicy",
    "queueLimit",
    "maxConcurrentRuns",
    "concurrencyGroup",
    "priority",
    "delivery",
    "onDelete",
    "retry",
    "attemptTimeoutSeconds",
    "runTimeoutSeconds",
    "pendingTimeoutSeconds",
    "pauseAfterFailures",
    "ttlSecondsAfterFinished",
    "payload",
    "podRetention",
    "template",
    "run",
    "handler",
    "pool",
]


def test_table_holds_every_field_once() -> None:
    assert list(fields.TABLE.children("")) == TOP_LEVEL
    for table in TABLES:
        assert len(table.by_path) == len(table)


@ROWS
def test_row_has_a_parent_and_a_sentence(table: Table, row: Field) -> None:
    parent = row.path.removesuffix("[]") if row.path.endswith("[]") else row.path.rpartition(".")[0]
    assert parent == "" or parent in table.by_path
    assert re.fullmatch(r"[A-Z].+\.", row.text)


@ROWS
def test_row_bounds_everything_that_is_not_raw(table: Table, row: Field) -> None:
    bounded = {Kind.INTEGER, Kind.NUMBER, Kind.ARRAY, Kind.LABELS, Kind.MAP}
    if row.kind in bounded or (row.kind is Kind.STRING and not row.enum):
        assert row.high is not None
    assert row.low is None or row.high is None or row.low <= row.high
    assert not row.enum or row.default in (None, *row.enum)
    if isinstance(row.default, int | float) and not isinstance(row.default, bool):
        assert row.low is not None
        assert row.high is not None
        assert row.low <= row.default <= row.high


def test_parsed_values_default_to_the_table() -> None:
    # a spec with nothing but what is needed, once through the parser and once through the constructor
    template: dict[str, object] = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
    parsed = spec.parse({"schedule": "@daily", "template": template})
    assert parsed == spec.JobSpec(schedule="@daily", template=template)
    assert workerpool.parse({}) == workerpool.PoolSpec()
    needed: dict[str, object] = {"namespaces": ["*"], "template": template}
    assert jobclass.parse(needed) == jobclass.ClassSpec(namespaces=("*",), template=template)
    run = spec.parse({"schedule": "@daily", "run": {"class": "batch"}}).run
    assert run == classrun.Run(class_name="batch")


def test_every_accepted_field_reaches_the_parsed_value() -> None:
    names = set(msgspec.to_builtins(spec.JobSpec(schedule="@daily")))
    assert names == set(TOP_LEVEL)
    assert set(msgspec.to_builtins(workerpool.PoolSpec())) == set(workerpool_fields.TABLE.children(""))
    for table, kind, path in (
        (jobclass_fields.TABLE, jobclass.ClassSpec, ""),
        (fields.TABLE, classrun.Run, "run"),
        (fields.TABLE, classrun.Resources, "run.resources"),
    ):
        assert {one.encode_name for one in msgspec.structs.fields(kind)} == set(table.children(path))


def test_default_asks_for_the_right_type() -> None:
    assert fields.TABLE.default("retry.maxAttempts", int) == 3
    with pytest.raises(TypeError, match=r"retry\.maxAttempts"):
        fields.TABLE.default("retry.maxAttempts", str)


def test_design_defaults() -> None:
    filled = documents.check({})
    assert filled == {
        "timeZone": "UTC",
        "dst": {"gap": "RunAfter", "overlap": "First"},
        "jitterSeconds": 0,
        "suspend": False,
        "catchUp": {"policy": "Latest", "limit": 100},
        "concurrencyPolicy": "Allow",
        "queueLimit": 100,
        "priority": 0,
        "delivery": "AtLeastOnce",
        "onDelete": "Finish",
        "retry": {
            "maxAttempts": 3,
            "backoff": {"initialSeconds": 10, "factor": 2, "maxSeconds": 600, "jitter": 0.1},
            "maxDisruptions": 5,
            "rules": [],
        },
        "pendingTimeoutSeconds": 900,
        "payload": {},
        "podRetention": {"succeededSeconds": 60, "failedCount": 3},
    }
