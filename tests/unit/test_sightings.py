"""Whatever an object holds, reading it gives a job or a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import sighted

from clockhand import errors
from clockhand.domain import sightings

CREATED = datetime(2026, 11, 1, 12, 0, 30, tzinfo=UTC)


def raw(**metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "6f53f020-1f82-4406-af1d-a6a7fc58dc01",
            "namespace": "team-a",
            "name": "nightly",
            "creationTimestamp": "2026-11-01T12:00:30Z",
            "resourceVersion": "12345",
            "generation": 4,
            "managedFields": [{"manager": "kubectl"}],
            **metadata,
        },
        "spec": sighted.spec(),
        "status": {"active": 1},
    }


def test_an_object_as_the_api_server_sends_it() -> None:
    seen = sightings.from_object(raw(labels={"a": "b"}))
    assert (seen.owner, seen.name, seen.generation, seen.resource_version) == ("k8s/team-a", "nightly", 4, 12345)
    assert seen.created_at == CREATED
    assert seen.labels == {"a": "b"}
    assert seen.spec == sighted.spec()
    assert not seen.deleted


def test_an_object_being_deleted_is_deleted() -> None:
    assert sightings.from_object(raw(deletionTimestamp="2026-11-01T13:00:00Z")).deleted


@pytest.mark.parametrize("field", ["uid", "resourceVersion", "creationTimestamp"])
@pytest.mark.parametrize("value", [None, "?", []])
def test_what_is_no_object_is_said(field: str, value: object) -> None:
    with pytest.raises(errors.InvalidInput, match="metadata"):
        sightings.from_object(raw(**{field: value}))


@pytest.mark.parametrize("thing", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"uid": []}}])
def test_what_has_no_metadata_is_said(thing: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput, match="metadata"):
        sightings.from_object(thing)


@pytest.mark.parametrize("spec", [None, [], "text", 5])
def test_a_spec_that_is_no_object_is_read_as_empty(spec: object) -> None:
    seen = sightings.from_object({**raw(), "spec": spec})
    reading = sightings.read(seen, after=CREATED)
    assert reading.job is None
    assert reading.fault is not None


def test_the_first_slot_follows_the_watermark() -> None:
    reading = sightings.read(sighted.job(schedule="* * * * *"), after=CREATED)
    assert reading.first_slot_at == CREATED + timedelta(seconds=30)
    assert reading.fault is None


def instant(seconds: float) -> str:
    return (CREATED + timedelta(seconds=seconds)).isoformat()


MS = timedelta(milliseconds=1)
AT: dict[str, Any] = {"schedule": None, "at": "2026-11-01T12:00:00Z"}
DUE = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seen_after", "when", "counts_from", "first"),
    [
        # seconds after the creation; by then a slot may be due
        (90, {"schedule": "* * * * *"}, 0, 30),
        (90, {"schedule": None, "every": "45s"}, 0, 45),
        (90, {"schedule": None, "schedules": ["0 13 * * *", "1 12 * * *"]}, 0, 30),
        (90, {"schedule": None, "at": instant(60)}, 0, 60),
        (90, {"schedule": "* * * * *", "startAt": instant(3_600)}, 0, 3_630),
        (90, {"schedule": None, "every": "1h", "startAt": instant(-600)}, 0, 3_000),
        (90, {"schedule": "* * * * *", "endAt": instant(29)}, 0, None),
        # a one-shot of the past is due, however long it is past
        (90, {"schedule": None, "at": instant(0)}, -0.001, 0),
        (90, {"schedule": None, "at": instant(-1_000_000)}, -1_000_000.001, -1_000_000),
        # the clock that stamped the creation is ahead: what is to come by the other clock comes
        (-90, {"schedule": "* * * * *"}, -90, -30),
        (-90, {"schedule": None, "at": instant(-60)}, -90, -60),
        (-90, {"schedule": None, "at": instant(-120)}, -120.001, -120),
        (-90, {"schedule": None, "every": "45s"}, -90, 45),
    ],
)
def test_a_new_object_counts_from_its_creation(
    seen_after: int, when: dict[str, Any], counts_from: float, first: float | None
) -> None:
    seen = sighted.job(created_at=CREATED, **when)
    reading = sightings.read_new(seen, now=CREATED + timedelta(seconds=seen_after))
    assert reading.fault is None
    assert reading.counts_from == CREATED + timedelta(seconds=counts_from)
    assert reading.first_slot_at == (None if first is None else CREATED + timedelta(seconds=first))


def test_an_edit_is_never_retroactive() -> None:
    for at in (DUE, DUE - timedelta(days=1)):
        seen = sighted.job(schedule=None, at=at.isoformat())
        assert sightings.read(seen, after=DUE).first_slot_at is None
    later = sightings.read(sighted.job(schedule=None, at=(DUE + MS).isoformat()), after=DUE)
    assert (later.first_slot_at, later.counts_from) == (DUE + MS, DUE)


@pytest.mark.parametrize(
    ("when", "reason", "words"),
    [
        ({}, "Scheduled", "fall due"),
        ({"suspend": True}, "Suspended", "until it is false"),
        ({**AT, "suspend": True}, "Suspended", "until it is false"),
        (AT, "Finished", "set a later instant"),
        ({"endAt": "2026-11-01T12:00:00Z"}, "Finished", "spec.endAt to a later instant"),
    ],
)
def test_ready_says_what_to_expect(when: dict[str, Any], reason: str, words: str) -> None:
    condition = sightings.ready(sightings.read(sighted.job(**when), after=CREATED))
    assert (condition.type, condition.status, condition.reason) == ("Ready", "True", reason)
    assert words in condition.message


@pytest.mark.parametrize(
    ("when", "reason", "field"),
    [
        ({"schedule": "61 * * * *"}, "InvalidSchedule", "spec.schedule"),
        ({"schedule": None, "schedules": ["* * * * *", "61 * * * *"]}, "InvalidSchedule", "spec.schedules[1]"),
        ({"schedule": None, "every": "soon"}, "InvalidInterval", "spec.every"),
        ({"schedule": None, "at": "tomorrow"}, "InvalidInstant", "spec.at"),
        ({"startAt": "2026-11-01"}, "InvalidInstant", "spec.startAt"),
        ({"endAt": "2026-11-01"}, "InvalidInstant", "spec.endAt"),
        ({"timeZone": "Mars/Base"}, "InvalidTimeZone", "spec.timeZone"),
        ({"template": {"spec": {"containers": []}}}, "TemplateInvalid", "spec.template"),
        ({"payload": "x" * 70_000}, "PayloadTooLarge", "spec.payload"),
        # begins like another field, and is none
        ({"attemptTimeoutSeconds": 0}, "InvalidSpec", "spec.attemptTimeoutSeconds"),
        ({"schedule": None}, "InvalidSpec", "spec"),
    ],
)
def test_a_fault_has_a_reason_and_names_its_field(when: dict[str, Any], reason: str, field: str) -> None:
    reading = sightings.read_new(sighted.job(**when), now=CREATED)
    condition = sightings.ready(reading)
    assert (condition.status, condition.reason) == ("False", reason)
    assert condition.message.startswith(field)


@pytest.mark.parametrize(
    ("when", "zone"),
    [
        ({}, None),
        ({"timeZone": "Etc/UTC"}, None),
        ({"timeZone": "Europe/Berlin"}, "Europe/Berlin"),
        ({"timeZone": "Europe/Berlin", "schedule": None, "schedules": ["0 0 * * *"]}, "Europe/Berlin"),
        ({"schedule": None, "every": "1h"}, None),
        (AT, None),
        ({"timeZone": "Mars/Base"}, None),
    ],
)
def test_the_zone_is_noted_where_its_rules_decide(when: dict[str, Any], zone: str | None) -> None:
    assert sightings.read(sighted.job(**when), after=CREATED).zone == zone


def test_what_else_firing_needs_of_a_spec() -> None:
    plain = sightings.read(sighted.job(), after=CREATED)
    assert (plain.delay, plain.ttl_seconds) == (timedelta(), None)
    seen = sighted.job(**AT, jitterSeconds=60, ttlSecondsAfterFinished=0)
    reading = sightings.read_new(seen, now=CREATED)
    assert reading.ttl_seconds == 0
    assert reading.job is not None
    assert timedelta() <= reading.delay == reading.job.delay(seen.uid) < timedelta(seconds=60)


def test_templates_are_equal_however_their_keys_are_ordered() -> None:
    one = sighted.job(template={"spec": {"containers": [{"name": "a", "image": "b"}], "hostname": "c"}})
    two = sighted.job(template={"spec": {"hostname": "c", "containers": [{"image": "b", "name": "a"}]}})
    other = sighted.job(template={"spec": {"hostname": "d", "containers": [{"image": "b", "name": "a"}]}})
    hashes = [sightings.read(seen, after=CREATED).template_hash for seen in (one, two, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_name_that_no_label_can_hold_is_refused() -> None:
    reading = sightings.read(sighted.job("n" * 64), after=CREATED)
    assert reading.fault is not None
    assert "63" in reading.fault.sentence


def test_bottomless_nesting_is_a_sentence() -> None:
    payload: object = 1
    for _ in range(100_000):
        payload = [payload]
    reading = sightings.read(sighted.job(payload=payload), after=CREATED)
    assert reading.fault is not None
    assert "nested" in reading.fault.sentence
    while isinstance(payload, list):
        payload = payload.pop()
