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
