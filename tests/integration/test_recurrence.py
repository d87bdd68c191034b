"""Every kind of due rule from an object to its runs: what ends, is bounded, waits out its jitter, or is edited."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import sighted, told_time

from clockhand import metrics
from clockhand.domain import ids, instants, sightings, states
from clockhand.engine import pauses
from clockhand.store import database, runs

EVERYWHERE = range(ids.SHARDS)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(milliseconds=1)


@pytest.fixture
async def world(db: database.Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[told_time.World]:
    async with told_time.world(db, monkeypatch) as made:
        yield made


def once(at: datetime, **fields: Any) -> dict[str, Any]:
    """The fields of a one-shot."""
    return {"schedule": None, "at": at.isoformat(), **fields}


async def test_a_one_shot_runs_once_and_is_finished(world: told_time.World) -> None:
    at = world.clock.at + 10 * MINUTE
    seen = sighted.job(created_at=world.clock.at, **once(at, ttlSecondsAfterFinished=3_600))
    await world.see(seen)
    found = await world.row(seen)
    assert (found.next_slot_at, found.next_run_at, found.last_slot_at) == (at, at, seen.created_at)
    assert (found.zone, found.ttl_seconds, found.expires_at) == (None, 3_600, None)
    assert (await world.shown(seen))[:2] == (f"{at:%Y-%m-%dT%H:%M:%SZ}", "Scheduled")
    world.clock.at = at - TICK
    assert await world.fire() == 0
    world.clock.at = at
    assert await world.fire() == 1
    assert await world.runs(seen) == [at]
    found = await world.row(seen)
    assert (found.next_slot_at, found.next_run_at, found.last_slot_at) == (None, None, at)
    next_run, reason, message = await world.shown(seen)
    assert (next_run, reason) == (None, "Finished")
    assert "later instant" in message
    world.clock.pass_by(days=300)
    assert await world.fire() == 0
    async with world.db.transaction() as connection:
        assert (await runs.wake(connection, shards=EVERYWHERE)).next_due is None


@pytest.mark.parametrize("age", [timedelta(), MINUTE, 9 * HOUR, timedelta(days=2_000)])
async def test_a_new_one_shot_of_the_past_runs_at_once(world: told_time.World, age: timedelta) -> None:
    at = world.clock.at - age
    seen = sighted.job(created_at=world.clock.at, **once(at))
    world.clock.pass_by(seconds=5)
    await world.see(seen)
    assert (await world.row(seen)).last_slot_at < at
    assert await world.fire() == 1
    assert await world.runs(seen) == [at]
    assert await world.skips(seen) == []
    # a run as old as that can end too
    async with world.db.transaction() as connection:
        await runs.cancel_waiting(connection, job_ids=[seen.uid], reason="why", now=world.clock.at)
    assert await world.runs(seen) == [at]
    await world.see(sighted.edited(seen, **once(at, priority=1)))
    assert await world.fire() == 0
    assert await world.runs(seen) == [at]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [({"startingDeadlineSeconds": 30}, "Deadline"), ({"catchUp": {"policy": "None"}}, "CatchUp")],
)
async def test_a_one_shot_that_is_too_late_is_skipped_and_says_so(
    world: told_time.World, policy: dict[str, Any], reason: str
) -> None:
    at = world.clock.at - 2 * MINUTE
    seen = sighted.job(created_at=world.clock.at, **once(at, **policy))
    await world.see(seen)
    await world.written()
    assert await world.fire() == 1
    assert await world.runs(seen) == []
    assert await world.skips(seen) == [(reason, 1, at, at)]
    # no run was made, and still the object has to show that nothing comes any more
    assert (await world.shown(seen))[:2] == (None, "Finished")


async def test_a_one_shot_that_is_edited_into_the_past_never_runs(world: told_time.World) -> None:
    seen = sighted.job(created_at=world.clock.at, **once(world.clock.at + HOUR))
    await world.see(seen)
    world.clock.pass_by(minutes=10)
    past = sighted.edited(seen, **once(world.clock.at - MINUTE))
    await world.see(past)
    assert await world.fire() == 0
    assert (await world.runs(seen), await world.skips(seen)) == ([], [])
    next_run, reason, message = await world.shown(seen)
    assert (next_run, reason) == (None, "Finished")
    assert "never retroactive" in message
    later = world.clock.at + HOUR
    again = sighted.edited(past, **once(later))
    await world.see(again)
    assert (await world.shown(seen))[1] == "Scheduled"
    world.clock.pass_by(hours=1)
    assert await world.fire() == 1
    # and another one after that
    world.clock.pass_by(hours=1)
    await world.see(sighted.edited(again, **once(world.clock.at + MINUTE)))
    world.clock.pass_by(minutes=1)
    assert await world.fire() == 1
    assert await world.runs(seen) == [later, world.clock.at]


async def test_a_one_shot_that_was_suspended_over_its_instant(world: told_time.World) -> None:
    at = world.clock.at + MINUTE
    seen = sighted.job(created_at=world.clock.at, **once(at, suspend=True, ttlSecondsAfterFinished=60))
    await world.see(seen)
    assert (await world.shown(seen))[:2] == (None, "Suspended")
    world.clock.pass_by(hours=1)
    assert await world.fire() == 0
    await world.see(sighted.edited(seen, **once(at, ttlSecondsAfterFinished=60)))
    assert await world.fire() == 0
    assert (await world.runs(seen), await world.skips(seen)) == ([], [("Suspended", 1, at, at)])
    assert (await world.shown(seen))[:2] == (None, "Finished")


async def test_a_suspended_one_shot_of_the_past_is_accounted_for_when_it_goes(world: told_time.World) -> None:
    at = world.clock.at - HOUR
    seen = sighted.job(created_at=world.clock.at, **once(at, suspend=True))
    await world.see(seen)
    await world.see(sighted.deleted(seen))
    assert await world.skips(seen) == [("Suspended", 1, at, at)]


async def test_an_edit_has_the_end_of_a_finished_one_shot_reckoned_anew(world: told_time.World) -> None:
    at = world.clock.at + MINUTE
    seen = sighted.job(created_at=world.clock.at, **once(at, ttlSecondsAfterFinished=60))
    await world.see(seen)
    world.clock.pass_by(minutes=1)
    await world.fire()
    await world.query("UPDATE jobs SET expires_at = %s RETURNING 1", at + HOUR)
    await world.see(sighted.edited(seen, **once(at, ttlSecondsAfterFinished=90)))
    found = await world.row(seen)
    assert (found.next_slot_at, found.ttl_seconds, found.expires_at) == (None, 90, None)


async def test_bounds_are_slots_and_nothing_lies_beyond_them(world: told_time.World) -> None:
    start, end = world.clock.at + HOUR, world.clock.at + HOUR + 3 * MINUTE
    bounds: dict[str, Any] = {"startAt": start.isoformat(), "endAt": end.isoformat(), "catchUp": {"policy": "All"}}
    seen = sighted.job(created_at=world.clock.at, schedule=sighted.EVERY_MINUTE, **bounds)
    interval = sighted.job("other", created_at=world.clock.at, schedule=None, every="2m", **bounds)
    await world.see(seen, interval)
    assert (await world.row(seen)).next_slot_at == start
    world.clock.at = start
    assert await world.fire() == 2
    world.clock.pass_by(days=1)
    assert await world.fire() == 2
    assert await world.runs(seen) == [start + number * MINUTE for number in range(4)]
    assert await world.runs(interval) == [start, start + 2 * MINUTE]
    assert await world.fire() == 0
    assert (await world.shown(seen))[:2] == (None, "Finished")


async def test_a_suspension_counts_no_slot_beyond_the_bounds(world: told_time.World) -> None:
    began = world.clock.at
    when = {"schedule": sighted.EVERY_MINUTE, "endAt": (began + 10 * MINUTE).isoformat()}
    seen = sighted.job(created_at=began, suspend=True, **when)
    await world.see(seen)
    world.clock.pass_by(days=1)
    await world.see(sighted.edited(seen, **when))
    assert await world.skips(seen) == [("Suspended", 10, began + MINUTE, began + 10 * MINUTE)]
    assert (await world.shown(seen))[:2] == (None, "Finished")


async def test_an_interval_counts_from_the_creation_however_late_it_fires(world: told_time.World) -> None:
    created = world.clock.at + timedelta(seconds=17)
    seen = sighted.job(created_at=created, schedule=None, every="90s")
    world.clock.at = created + timedelta(seconds=40)
    await world.see(seen)
    for late in (0, 20, 70):
        world.clock.at = (await world.row(seen)).next_run_at + timedelta(seconds=late)
        assert await world.fire() == 1
    assert await world.runs(seen) == [created + number * timedelta(seconds=90) for number in (1, 2, 3)]
    # an edit of something else does not shift the slots
    await world.see(sighted.edited(seen, schedule=None, every="90s", priority=1))
    assert (await world.row(seen)).next_slot_at == created + timedelta(seconds=360)


async def test_a_slot_of_several_schedules_is_one_run(world: told_time.World) -> None:
    began = world.clock.at
    when: dict[str, Any] = {
        "schedule": None,
        "schedules": ["*/20 * * * *", "*/30 * * * *"],
        "catchUp": {"policy": "All"},
    }
    seen = sighted.job(created_at=began, timeZone="Europe/Berlin", **when)
    await world.see(seen)
    assert (await world.row(seen)).zone == "Europe/Berlin"
    world.clock.pass_by(hours=1)
    await world.fire()
    assert await world.runs(seen) == [began + number * MINUTE for number in (20, 30, 40, 60)]
    await world.see(sighted.edited(seen, schedule=None, every="1h"))
    assert (await world.row(seen)).zone is None


async def test_an_edit_settles_what_is_due_under_the_old_spec(world: told_time.World) -> None:
    seen = sighted.job(created_at=world.clock.at, schedule=sighted.EVERY_MINUTE, payload="old")
    await world.see(seen)
    before = await world.row(seen)
    now = world.clock.pass_by(minutes=5, seconds=10)
    await world.see(sighted.edited(seen, schedule="*/2 * * * *", payload="new"))
    found = await world.row(seen)
    last = now - timedelta(seconds=10)
    [run] = await world.query("SELECT spec_id, scheduled_at FROM live_runs WHERE job_id = %s", seen.uid)
    assert (run.spec_id, run.scheduled_at) == (before.spec_id, last)
    assert await world.skips(seen) == [("CatchUp", 4, last - 4 * MINUTE, last - MINUTE)]
    assert (found.last_slot_at, found.next_slot_at) == (now, last + MINUTE)
    assert await world.fire() == 0, "an edit is never retroactive"
    payload = "SELECT s.payload FROM jobs JOIN job_specs s USING (spec_id) WHERE s.job_id = %s"
    assert await world.query(payload, seen.uid) == [("new",)]


async def test_resume_records_one_summary_and_no_burst(world: told_time.World) -> None:
    seen = sighted.job(created_at=world.clock.at, schedule=sighted.EVERY_MINUTE)
    suspended = sighted.edited(seen, schedule=sighted.EVERY_MINUTE, suspend=True)
    await world.see(seen)
    began = world.clock.pass_by(seconds=10)
    await world.see(suspended)
    found = await world.row(seen)
    assert (found.suspended, found.next_run_at) == (True, None)
    assert (await world.shown(seen))[1] == "Suspended"
    now = world.clock.pass_by(hours=2)
    await world.see(sighted.edited(suspended, schedule=sighted.EVERY_MINUTE))
    first = began + timedelta(seconds=50)
    assert await world.skips(seen) == [("Suspended", 120, first, first + 119 * MINUTE)]
    found = await world.row(seen)
    assert (found.suspended, found.last_slot_at, found.next_run_at) == (False, now, first + 120 * MINUTE)
    assert await world.fire() == 0
    assert await world.runs(seen) == []


async def test_every_slot_that_does_not_run_is_counted_by_its_reason(world: told_time.World) -> None:
    """Administrators watch the counter: a reason that only rows tell of would go unseen."""
    reasons = [reason.value for reason in states.SkipReason]
    before = {reason: metrics.SLOTS_SKIPPED.labels(reason=reason)._value.get() for reason in reasons}
    when: dict[str, Any] = {"schedule": sighted.EVERY_MINUTE, "pauseAfterFailures": 1}
    resumed, mended, returned = (sighted.job(name, created_at=world.clock.at, **when) for name in ("a", "b", "c"))
    await world.see(resumed, mended, returned)
    suspended = sighted.edited(resumed, suspend=True, **when)
    await world.see(suspended)
    await world.query("UPDATE job_status SET consecutive_failures = 1 WHERE job_id = %s RETURNING 1", mended.uid)
    await pauses.pause(world.db, [mended.uid])
    await world.query(
        "UPDATE jobs SET parked = 'why', next_slot_at = NULL, next_run_at = NULL WHERE job_id = %s RETURNING 1",
        returned.uid,
    )
    world.clock.pass_by(minutes=10)
    await world.see(sighted.edited(suspended, **when), sighted.edited(mended, **when), sighted.edited(returned, **when))
    await world.query("UPDATE job_status SET consecutive_failures = 1 WHERE job_id = %s RETURNING 1", mended.uid)
    await pauses.pause(world.db, [mended.uid])
    world.clock.pass_by(minutes=3)
    await world.fire()
    await world.query("UPDATE job_status SET last_manual_success_at = now() WHERE job_id = %s RETURNING 1", mended.uid)
    assert await pauses.resume(world.db, [mended.uid]) == 1
    counted = {reason: metrics.SLOTS_SKIPPED.labels(reason=reason)._value.get() - before[reason] for reason in reasons}
    assert {reason: count for reason, count in counted.items() if count} == {
        "Suspended": 10, "Paused": 10 + 3, "Edited": 10, "CatchUp": 2 * 2,
    }  # fmt: skip
    stored = await world.query("SELECT reason::text, sum(count) FROM skips GROUP BY reason")
    assert dict(map(tuple, stored)) == {reason: count for reason, count in counted.items() if count}


async def test_an_edit_while_suspended_keeps_both_spans_apart(world: told_time.World) -> None:
    seen = sighted.job(created_at=world.clock.at, schedule=sighted.EVERY_MINUTE, suspend=True)
    await world.see(seen)
    world.clock.pass_by(hours=1)
    other = sighted.edited(seen, schedule="*/30 * * * *", suspend=True)
    await world.see(other)
    world.clock.pass_by(hours=1)
    await world.see(sighted.edited(other, schedule="*/30 * * * *"))
    assert [(why, count) for why, count, _, _ in await world.skips(seen)] == [("Suspended", 60), ("Suspended", 2)]


async def test_suspended_slots_of_any_age_are_accounted_for(world: told_time.World) -> None:
    seen = sighted.job(created_at=sighted.LONG_AGO, schedule="0 0 1 1 *", suspend=True)
    await world.see(seen)
    await world.query("UPDATE jobs SET last_slot_at = '2020-01-02' WHERE job_id = %s RETURNING 1", seen.uid)
    world.clock.at = max(world.clock.at, datetime(2026, 1, 2, tzinfo=UTC))
    await world.see(sighted.edited(seen, schedule="0 0 1 1 *"))
    assert (await world.row(seen)).parked is None
    years = world.clock.at.year - 2020
    assert [(why, count) for why, count, _, _ in await world.skips(seen)] == [("Suspended", years)]


async def test_a_creation_in_the_future_holds_nothing_up(world: told_time.World) -> None:
    ahead = world.clock.at + HOUR
    minutely = sighted.job("a", created_at=ahead, schedule=sighted.EVERY_MINUTE)
    shot = sighted.job("b", created_at=ahead, **once(world.clock.at + MINUTE))
    moved = sighted.job("c", created_at=ahead, **once(world.clock.at + 30 * MINUTE))
    await world.see(minutely, shot, moved)
    await world.see(sighted.edited(moved, **once(world.clock.at + MINUTE)))
    world.clock.pass_by(minutes=1)
    assert await world.fire() == 3
    for seen in (minutely, shot, moved):
        assert await world.runs(seen) == [world.clock.at]


async def test_a_clock_that_was_set_back_decides_no_slot_again(world: told_time.World) -> None:
    seen = sighted.job(created_at=world.clock.at, schedule=sighted.EVERY_MINUTE)
    await world.see(seen)
    world.clock.pass_by(minutes=30)
    await world.fire()
    last = world.clock.at
    world.clock.pass_by(minutes=-20)
    await world.see(sighted.edited(seen, schedule="*/5 * * * *"))
    assert (await world.row(seen)).next_slot_at == last + 5 * MINUTE
    assert len(await world.runs(seen)) + sum(count for _, count, _, _ in await world.skips(seen)) == 30


async def test_a_thousand_jobs_of_a_minute_spread_over_it(world: told_time.World) -> None:
    crowd = [
        sighted.replaced(
            sighted.job(f"job-{number}", created_at=world.clock.at, schedule=sighted.EVERY_MINUTE, jitterSeconds=60),
            uid=uuid.uuid5(uuid.NAMESPACE_URL, str(number)),
        )
        for number in range(1_000)
    ]
    await world.see(*crowd)
    slot = world.clock.at + MINUTE
    delays: dict[uuid.UUID, timedelta] = {}
    for job_id, at, start in await world.query("SELECT job_id, next_slot_at, next_run_at FROM jobs"):
        assert at == slot
        delays[job_id] = start - at
    assert min(delays.values()) >= timedelta()
    assert max(delays.values()) < MINUTE
    in_seconds = Counter(delay // timedelta(seconds=1) for delay in delays.values())
    assert len(in_seconds) == 60
    # 1,000 over 60 seconds: 16.7 a second, give or take four
    assert max(in_seconds.values()) <= 35
    in_quarters = Counter(delay // timedelta(seconds=15) for delay in delays.values())
    assert all(200 <= count <= 300 for count in in_quarters.values())
    world.clock.at = slot + timedelta(seconds=30) - TICK
    early = sum(delay < timedelta(seconds=30) for delay in delays.values())
    assert await world.fire() == early
    world.clock.at = slot + MINUTE - TICK
    assert await world.fire() == 1_000 - early
    assert await world.query("SELECT 1 FROM live_runs WHERE scheduled_at <> %s", slot) == []
    assert await world.query("SELECT 1 FROM skips") == []
    again = await world.query("SELECT job_id, next_run_at - next_slot_at, next_slot_at FROM jobs")
    assert {job_id: delay for job_id, delay, _ in again} == delays
    assert {at for _, _, at in again} == {slot + MINUTE}


def jittered(clock: told_time.Clock, **fields: Any) -> tuple[sightings.Sighting, timedelta]:
    """A job with a delay of more than ten minutes, and the delay."""
    while True:
        seen = sighted.job(created_at=clock.at, jitterSeconds=3_600, **fields)
        delay = sightings.read_new(seen, now=clock.at).delay
        if delay > 10 * MINUTE:
            return seen, delay


async def test_nothing_starts_before_its_jitter_is_over(world: told_time.World) -> None:
    slot = world.clock.at + HOUR
    seen, delay = jittered(world.clock, schedule="0 * * * *", startingDeadlineSeconds=30)
    await world.see(seen)
    assert (await world.shown(seen))[0] == instants.rfc3339_ms(slot + delay)
    world.clock.at = slot + delay - TICK
    assert await world.fire() == 0
    world.clock.at = slot + delay + timedelta(seconds=30)
    assert await world.fire() == 1
    assert await world.runs(seen) == [slot]
    found = await world.row(seen)
    assert (found.last_slot_at, found.next_slot_at, found.next_run_at) == (slot, slot + HOUR, slot + HOUR + delay)


@pytest.mark.parametrize("change", ["edit", "suspend", "delete"])
async def test_a_change_settles_slots_whose_jitter_is_not_over(world: told_time.World, change: str) -> None:
    slot = world.clock.at + HOUR
    seen, _ = jittered(world.clock, schedule="0 * * * *")
    await world.see(seen)
    before = await world.row(seen)
    world.clock.at = slot + MINUTE
    assert await world.fire() == 0
    after = {
        "edit": sighted.edited(seen, schedule="30 * * * *"),
        "suspend": sighted.edited(seen, schedule="0 * * * *", suspend=True, jitterSeconds=3_600),
        "delete": sighted.deleted(seen),
    }[change]
    await world.see(after)
    [run] = await world.query("SELECT scheduled_at, spec_id, state::text FROM runs WHERE job_id = %s", seen.uid)
    assert (run.scheduled_at, run.spec_id) == (slot, before.spec_id)
    assert run.state == ("Cancelled" if change == "delete" else "Queued")
    assert await world.skips(seen) == []
    found = await world.row(seen)
    if change == "edit":
        assert found.next_slot_at == found.next_run_at == slot + HOUR / 2
    else:
        assert found.next_run_at is None


async def test_an_object_with_a_fault_never_counts_and_a_repair_begins_anew(world: told_time.World) -> None:
    wrong = sighted.job(created_at=world.clock.at, **once(world.clock.at + MINUTE, priority=1_000))
    await world.see(wrong)
    assert (await world.shown(wrong))[1] == "InvalidSpec"
    world.clock.pass_by(minutes=2)
    repaired = sighted.edited(wrong, **once(world.clock.at - MINUTE))
    await world.see(repaired)
    assert (await world.runs(wrong), await world.skips(wrong)) == ([], [])
    assert (await world.shown(wrong))[1] == "Finished"
    await world.see(sighted.edited(repaired, schedule=None, every="1h"))
    assert (await world.row(wrong)).next_slot_at == wrong.created_at + HOUR


async def test_slots_that_passed_while_the_resource_was_gone_are_recorded(world: told_time.World) -> None:
    at = world.clock.at + MINUTE
    seen = sighted.job(created_at=world.clock.at, **once(at))
    await world.see(seen)
    await world.stop_all()
    world.clock.pass_by(hours=1)
    assert await world.fire() == 0
    await world.see(seen)
    assert await world.skips(seen) == [("Edited", 1, at, at)]
    assert (await world.shown(seen))[:2] == (None, "Finished")


@pytest.mark.parametrize(
    "when", [once(instants.END - TICK), {"schedule": None, "every": "1s", "startAt": "9998-12-31T23:59:59Z"}]
)
async def test_the_last_slot_of_the_calendar_has_room_for_its_jitter(
    world: told_time.World, when: dict[str, Any]
) -> None:
    """A date that cannot be read back would keep the status of every other job from being written."""
    seen = [
        sighted.job(f"far-{number}", created_at=world.clock.at, jitterSeconds=86_400, **when) for number in range(9)
    ]
    await world.see(*seen)
    for one in seen:
        next_run, reason, _ = await world.shown(one)
        assert reason == "Scheduled"
        assert next_run is not None
        assert next_run.startswith(("9998-12-31T23:59:59", "9999-01-01T"))
    async with world.db.transaction() as connection:
        assert (await runs.wake(connection, shards=EVERYWHERE)).next_due is not None


async def test_a_slot_that_no_run_id_can_name_parks_its_job_alone(world: told_time.World) -> None:
    """Refused where specs are read; a row that another release wrote must not stop the others."""
    old = sighted.job("old", created_at=world.clock.at, **once(world.clock.at + HOUR))
    good = sighted.job("good", created_at=world.clock.at, **once(world.clock.at))
    await world.see(old, good)
    long_ago = datetime(1969, 12, 31, tzinfo=UTC)
    await world.query(
        "UPDATE jobs SET last_slot_at = %s, next_slot_at = %s, next_run_at = %s WHERE job_id = %s RETURNING 1",
        long_ago - TICK, long_ago, long_ago, old.uid,
    )  # fmt: skip
    assert await world.fire() == 2
    assert (await world.row(old)).parked
    assert await world.runs(good) == [world.clock.at]
