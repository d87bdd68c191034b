"""Run ids are names: the same everywhere, in the order of time, and one that says its instant."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import ids, names, states

JOB = uuid.UUID("5f0c1f2e-6a57-4f55-9d0e-2f6a8f7c1b11")
AT = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
SLOT, MANUAL, BACKFILL = states.RunKind.SLOT, states.RunKind.MANUAL, states.RunKind.BACKFILL
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)

instants = strategies.datetimes(
    min_value=datetime(1970, 1, 1), max_value=LAST.replace(tzinfo=None), timezones=strategies.just(UTC)
).map(ids.whole_ms)
kinds = strategies.sampled_from(states.RunKind)


def slot(at: datetime = AT, job: uuid.UUID = JOB) -> uuid.UUID:
    return ids.run_id(job_id=job, scheduled_at=at, kind=SLOT, key="")


def test_an_id_never_changes_over_releases() -> None:
    assert str(slot()) == "01a19596-07c0-8e7a-b727-3be54b13a056"
    assert (
        str(ids.run_id(job_id=JOB, scheduled_at=AT, kind=MANUAL, key="by-hand"))
        == "01a19596-07c0-82a5-9d88-7cea61f06ff7"
    )


@hypothesis.given(strategies.uuids(), instants, kinds, strategies.text(max_size=80))
def test_every_id_is_a_uuid_of_version_8_that_carries_its_instant(
    job: uuid.UUID, at: datetime, kind: states.RunKind, key: str
) -> None:
    made = ids.run_id(job_id=job, scheduled_at=at, kind=kind, key=key)
    assert made.version == 8
    assert made.variant == uuid.RFC_4122
    assert ids.scheduled_at_of(made) == at


@hypothesis.given(strategies.uuids(), strategies.uuids(), instants, instants)
def test_ids_sort_by_time(one: uuid.UUID, two: uuid.UUID, first: datetime, second: datetime) -> None:
    hypothesis.assume(first < second)
    assert slot(first, one) < slot(second, two)


def test_whatever_makes_a_run_unique_makes_another_id() -> None:
    made = {
        slot(),
        slot(job=uuid.UUID(int=JOB.int + 1)),
        slot(AT + timedelta(milliseconds=1)),
        ids.run_id(job_id=JOB, scheduled_at=AT, kind=MANUAL, key=""),
        ids.run_id(job_id=JOB, scheduled_at=AT, kind=MANUAL, key="a"),
        ids.run_id(job_id=JOB, scheduled_at=AT, kind=BACKFILL, key="a"),
        ids.run_id(job_id=JOB, scheduled_at=AT, kind=BACKFILL, key="A"),
    }
    assert len(made) == 7


def test_less_than_a_millisecond_makes_no_difference() -> None:
    assert slot(AT + timedelta(microseconds=999)) == slot()
    assert ids.whole_ms(AT + timedelta(microseconds=1999)) == AT + timedelta(milliseconds=1)
    assert ids.whole_ms(AT - timedelta(microseconds=1)) == AT - timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (SLOT, "", "nightly-20261101t053000z"),
        (MANUAL, "by-hand", "by-hand"),
        (BACKFILL, "b1", "nightly-20261101t053000z-7dc96f77"),
    ],
)
def test_a_run_has_a_name_for_people(kind: states.RunKind, key: str, name: str) -> None:
    assert ids.run_name(job_name="nightly", scheduled_at=AT, kind=kind, key=key) == name


job_names = strategies.from_regex("[a-z]{1,2}(-[0-9]{8}t[0-9]{6}z(-[0-9a-f]{8})?)?", fullmatch=True)


@hypothesis.given(job_names, job_names, instants, instants)
@hypothesis.example("a", "a-20261101t053000z", AT, AT)
@hypothesis.example("a", "a-20261101t053000z-7dc96f77", AT, AT)
def test_names_of_slots_tell_jobs_and_seconds_apart(one: str, other: str, first: datetime, second: datetime) -> None:
    def name(job: str, at: datetime, kind: states.RunKind = SLOT, key: str = "") -> str:
        return ids.run_name(job_name=job, scheduled_at=at, kind=kind, key=key)

    same = (one, first.replace(microsecond=0)) == (other, second.replace(microsecond=0))
    assert (name(one, first) == name(other, second)) == same
    assert (name(one, first, BACKFILL, "b1") == name(other, second, BACKFILL, "b1")) == same
    others = {name(other, second, BACKFILL, "b1"), names.of_skip(other, second, 7)}
    assert name(one, first) not in others, "a backfill's run and a skipped slot are never called like a slot's"
    assert names.mistake(name(one, first)), "and nobody can give a run such a name by hand"


def test_a_shard_is_the_owners_and_stays_within_bounds() -> None:
    jobs = [uuid.UUID(int=number * 7919) for number in range(2_000)]
    narrow = {ids.shard_of("k8s/team-a", job_id=job) for job in jobs}
    wide = {ids.shard_of("k8s/team-a", job_id=job, width=16) for job in jobs}
    assert narrow == {213}
    assert len(wide) == 16
    assert narrow < wide
    assert wide <= set(range(ids.SHARDS))


def test_owners_spread_over_the_shards() -> None:
    used = [ids.shard_of(f"k8s/team-{number}", job_id=JOB) for number in range(20_000)]
    counts = [used.count(shard) for shard in range(ids.SHARDS)]
    assert min(counts) > 40
    assert max(counts) < 130
