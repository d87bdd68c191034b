"""Where the slots of new jobs begin, remembered: never anything else than what would be worked out."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clockhand.domain import declared, spec, times
from clockhand.engine.jobs import begins

NOON = datetime(2026, 10, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def written(**fields: Any) -> declared.Written:
    return declared.written(spec.parse({"handler": "x", **fields}))


def origin(now: datetime) -> times.Origin:
    return times.Origin(uuid.uuid4(), now)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The specs for which it was worked out."""
    found: list[str] = []
    real = declared.begin

    def counted(job: spec.JobSpec, *arguments: Any, **named: Any) -> declared.Begin:
        found.append(spec.encode(job).decode())
        return real(job, *arguments, **named)

    monkeypatch.setattr(declared, "begin", counted)
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "*/5 * * * *"},
        {"schedule": "0 13 * * *", "timeZone": "Europe/Berlin", "endAt": "2026-10-20T13:00:00Z"},
        {"at": "2026-10-20T12:03:00Z"},
        {"every": "7m"},
        {"schedule": "H * * * *"},
        {"schedule": "*/2 * * * *", "jitterSeconds": 30},
        {"schedule": "0 0 1 1 *", "endAt": "2026-10-20T13:00:00Z"},
    ],
)
def test_what_is_remembered_is_what_would_be_worked_out(fields: dict[str, Any]) -> None:
    remembered, job = begins.Begins(), written(**fields)
    for minutes in (0, 1, 3, 4, 5, 2, 90, -200, 91):  # time may also be read earlier by another transaction
        now = NOON + minutes * MINUTE
        who = origin(now)
        assert remembered.of(job, who, now=now) == declared.begin(job.job, who, after=now, new=True), minutes


def test_it_is_worked_out_once_for_a_spec_and_slot(asked: list[str]) -> None:
    remembered = begins.Begins()
    one, other = written(schedule="*/5 * * * *"), written(schedule="*/7 * * * *")
    for seconds in (0, 10, 299):
        for job in (one, other, one):
            now = NOON + timedelta(seconds=seconds)
            remembered.of(job, origin(now), now=now)
    assert asked == [one.spec_json, other.spec_json]
    remembered.of(one, origin(NOON), now=NOON + 5 * MINUTE)
    assert asked[2:] == [one.spec_json], "its slot has come"


def test_jobs_that_spread_begin_each_by_itself(asked: list[str]) -> None:
    remembered, job = begins.Begins(), written(schedule="H H * * *")
    found = {remembered.of(job, origin(NOON), now=NOON).first_slot_at for _ in range(20)}
    assert len(asked) == 20
    assert len(found) > 1


def test_memory_is_bounded(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begins, "_MOST", 2)
    remembered = begins.Begins()
    jobs = [written(schedule=f"{minute} 3 * * *") for minute in range(3)]
    for job in (*jobs, jobs[2]):
        remembered.of(job, origin(NOON), now=NOON)
    assert len(asked) == 3
    remembered.of(jobs[0], origin(NOON), now=NOON)
    assert len(asked) == 4
    monkeypatch.setattr(begins, "_REMEMBERED_CHARACTERS", 10)
    for _ in range(2):
        remembered.of(jobs[0], origin(NOON), now=NOON)
    assert len(asked) == 6
