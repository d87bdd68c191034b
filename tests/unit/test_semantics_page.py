"""The examples of docs/semantics.md are true: each is worked out here by the code that it speaks of."""

from __future__ import annotations

import dataclasses
import pathlib
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import sighted

from clockhand import errors
from clockhand.domain import admission, declared, firing, leases, schedule, sightings, spec, states, times, verdict
from clockhand.domain.spec import CatchUpPolicy, ConcurrencyPolicy
from clockhand.domain.states import RunState as S
from clockhand.domain.states import SkipReason

HOURLY = "0 * * * *"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-04T{clock}:00+00:00")


def test_a_backward_range_is_told_what_to_write_instead() -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        schedule.parse("50-10 * * * *")
    assert str(refused.value) == 'spec.schedule: "50-10" runs backwards: write 50-59,0-10'


@pytest.mark.parametrize(
    ("midnight", "due"),
    [
        ("2026-03-29T00:00:00+01:00", "2026-03-29T01:00:00+00:00"),
        ("2026-10-25T00:00:00+02:00", "2026-10-25T00:30:00+00:00"),
    ],
)
def test_half_past_two_in_berlin_when_clocks_change(midnight: str, due: str) -> None:
    berlin = schedule.parse("30 2 * * *", zone="Europe/Berlin")
    found = berlin.next_after(datetime.fromisoformat(midnight).astimezone(UTC))
    assert found == datetime.fromisoformat(due)
    assert berlin.next_after(found) - found > timedelta(hours=22)


@pytest.mark.parametrize(
    ("policy", "limit", "ran", "skipped"),
    [
        (CatchUpPolicy.LATEST, 100, ["14:00"], 3),
        (CatchUpPolicy.ALL, 2, ["13:00", "14:00"], 2),
        (CatchUpPolicy.NONE, 100, [], 4),
    ],
)
def test_an_outage_from_half_past_ten_to_ten_past_two(
    policy: CatchUpPolicy, limit: int, ran: list[str], skipped: int
) -> None:
    job = spec.JobSpec(schedule=HOURLY, catch_up=spec.CatchUp(policy=policy, limit=limit))
    fired = firing.fire(job, origin=times.ANYBODY, next_slot_at=at("11:00"), live=(), now=at("14:10"))
    assert [slot.scheduled_at for slot in fired.slots] == [at(clock) for clock in ran]
    assert [(skip.count, skip.reason) for skip in fired.skips] == [(skipped, SkipReason.CATCH_UP)]
    # one row for all of them, and the second of two waits for the first
    assert [slot.state for slot in fired.slots] == [S.QUEUED, S.BLOCKED][: len(ran)]


def seen(created: str, **fields: Any) -> sightings.Sighting:
    """A new object; the uid is that of docs/time.md, whose delay is known."""
    made = sighted.job(created_at=at(created), schedule=None, **fields)
    return sighted.replaced(made, uid=uuid.UUID("6e1f9a52-3c1e-4b7c-9d59-0b6a5c0e2d11"))


def fired(reading: declared.Reading, now: datetime, *, early: bool = False) -> firing.Firing:
    assert reading.job is not None
    assert reading.first_slot_at is not None
    origin = times.Origin(reading.declared.uid, reading.declared.created_at)
    return firing.fire(reading.job, origin=origin, next_slot_at=reading.first_slot_at, live=(), now=now, early=early)


@pytest.mark.parametrize(("deadline", "ran"), [(None, True), (60, False)])
def test_at_noon_applied_five_minutes_later(deadline: int | None, ran: bool) -> None:
    applied = seen("12:05", at=at("12:00").isoformat(), startingDeadlineSeconds=deadline)
    decided = fired(sightings.read_new(applied, now=at("12:05")), at("12:05"))
    assert [slot.scheduled_at for slot in decided.slots] == ([at("12:00")] if ran else [])
    assert [skip.reason for skip in decided.skips] == ([] if ran else [SkipReason.DEADLINE])
    assert decided.next_slot_at is None


def test_an_interval_that_was_fired_a_quarter_of_an_hour_late() -> None:
    decided = fired(sightings.read_new(seen("08:10", every="90m"), now=at("08:10")), at("09:55"))
    assert [slot.scheduled_at for slot in decided.slots] == [at("09:40")]
    assert decided.next_slot_at == at("11:10")


def test_an_outage_over_the_end() -> None:
    job = spec.JobSpec(schedule=HOURLY, end_at=at("14:00").isoformat())
    decided = firing.fire(job, origin=times.ANYBODY, next_slot_at=at("13:00"), live=(), now=at("18:00"))
    assert [slot.scheduled_at for slot in decided.slots] == [at("14:00")]
    assert [(skip.count, skip.reason) for skip in decided.skips] == [(1, SkipReason.CATCH_UP)]
    assert decided.next_slot_at is None


def test_a_delay_of_357_seconds() -> None:
    jittered = sightings.read_new(seen("11:30", schedules=[HOURLY], jitterSeconds=600), now=at("11:30"))
    assert jittered.first_slot_at == at("12:00")
    starts = at("12:00") + jittered.delay
    assert f"{starts:%H:%M:%S}" == "12:05:57"
    # on time when it starts, and when an edit has it start early
    for now, early in ((starts, False), (at("12:03"), True)):
        assert [slot.scheduled_at for slot in fired(jittered, now, early=early).slots] == [at("12:00")]


@pytest.mark.parametrize(("moved_to", "runs"), [("12:00", False), ("12:40", True)])
def test_a_one_shot_that_is_moved_at_half_past_twelve(moved_to: str, runs: bool) -> None:
    reading = sightings.read(seen("12:05", at=at(moved_to).isoformat()), after=at("12:30"))
    assert reading.first_slot_at == (at(moved_to) if runs else None)
    assert sightings.ready(reading).reason == ("Scheduled" if runs else "Finished")


def test_a_one_shot_that_is_suspended_over_its_instant() -> None:
    once = spec.JobSpec(at=at("13:00").isoformat()).due(times.ANYBODY)
    assert times.span(once, after=at("12:50"), until=at("13:20")) == times.Span(at("13:00"), at("13:00"), 1)
    resumed = sightings.read(seen("12:05", at=at("13:00").isoformat()), after=at("13:20"))
    assert sightings.ready(resumed).reason == "Finished"


def test_every_reason_to_skip_is_told() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "semantics.md").read_text()
    told = page[page.index("## Slots that do not run") :]
    assert all(f"\n| {reason} |" in told for reason in SkipReason)


def test_seven_minutes_every_five_under_forbid() -> None:
    job = spec.JobSpec(schedule="*/5 * * * *", concurrency_policy=ConcurrencyPolicy.FORBID)
    running = (admission.LiveRun(uuid.UUID(int=1), S.RUNNING, at("12:00")),)
    outcomes: dict[str, list[str]] = {}
    for clock, live in (("12:00", ()), ("12:05", running), ("12:10", ())):
        fired = firing.fire(job, origin=times.ANYBODY, next_slot_at=at(clock), live=live, now=at(clock))
        outcomes[clock] = [*(slot.state for slot in fired.slots), *(skip.reason for skip in fired.skips)]
    assert outcomes == {"12:00": [S.QUEUED], "12:05": [SkipReason.FORBID], "12:10": [S.QUEUED]}


def test_a_failure_an_eviction_a_failure_and_a_success() -> None:
    job = spec.JobSpec(schedule=HOURLY)
    run = verdict.OpenRun(
        run_id=uuid.UUID(int=7),
        state=S.RUNNING,
        attempt=1,
        failures=0,
        disruptions=0,
        stop_reason=None,
        job_is_deleted=False,
    )
    waits = []
    for ending, code in (
        (verdict.Ending.FAILED, 1),
        (verdict.Ending.DISRUPTED, None),
        (verdict.Ending.FAILED, 1),
        (verdict.Ending.SUCCEEDED, 0),
    ):
        decided = verdict.judge(job, run, verdict.AttemptEnd(ending, exit_code=code), now=at("12:00"))
        if decided.ready_at is not None:
            waits.append((decided.ready_at - at("12:00")).total_seconds())
        run = verdict.OpenRun(
            run_id=run.run_id,
            state=S.RUNNING,
            attempt=run.attempt + 1,
            failures=decided.failures,
            disruptions=decided.disruptions,
            stop_reason=None,
            job_is_deleted=False,
        )
    assert decided.state is S.SUCCEEDED
    assert (decided.failures, decided.disruptions) == (2, 1)
    assert waits == [pytest.approx(10, rel=0.1), pytest.approx(10, rel=0.1), pytest.approx(20, rel=0.1)]


def test_an_attempt_that_hangs_is_retried() -> None:
    job = spec.JobSpec(schedule=HOURLY, attempt_timeout_seconds=600)
    run = verdict.OpenRun(
        run_id=uuid.UUID(int=7),
        state=S.STOPPING,
        attempt=1,
        failures=0,
        disruptions=0,
        stop_reason=states.Reason.ATTEMPT_TIMEOUT,
        job_is_deleted=False,
    )
    killed = verdict.AttemptEnd(verdict.Ending.DISRUPTED, "Deleted", 137, asked=True)
    decided = verdict.judge(job, run, killed, now=at("12:00"))
    assert (decided.state, decided.reason, decided.failures) == (S.RETRYING, states.Reason.ATTEMPT_TIMEOUT, 1)


def test_an_edit_at_half_past_twelve_makes_nothing_up() -> None:
    times = schedule.parse("*/10 * * * *")
    assert times.newest(3, after=at("12:30"), until=at("13:00")) == (at("12:40"), at("12:50"), at("13:00"))


def test_six_hours_of_a_pause_and_the_slot_after_the_edit() -> None:
    hourly = schedule.parse(HOURLY)
    assert times.span(hourly, after=at("03:00"), until=at("09:20")) == times.Span(at("04:00"), at("09:00"), 6)
    assert hourly.next_after(at("09:20")) == at("10:00")


@pytest.mark.parametrize(("held", "failures", "disruptions"), [(1, 1, 0), (2, 0, 1)])
def test_a_worker_that_was_killed_twenty_seconds_after_it_was_heard(held: int, failures: int, disruptions: int) -> None:
    heard = at("12:00")
    seen = leases.Standing(
        pool="k8s/a/p", worker="w", held=held, last_lease=heard + timedelta(seconds=90), lapsed=held, forgotten=0,
        overdue=0, lease=90, heartbeat=30, rescue_from=at("00:00"),
    )  # fmt: skip
    killed = heard + timedelta(seconds=20)
    assert leases.decide([dataclasses.replace(seen, lapsed=0)], now=killed + timedelta(seconds=69)).lapsed == []
    [lapsed] = leases.decide([seen], now=killed + timedelta(seconds=70)).lapsed
    end = verdict.AttemptEnd(verdict.Ending.GONE, reason="LeaseLost", alone="w" in lapsed.alone)
    run = verdict.OpenRun(uuid.UUID(int=1), S.RUNNING, 1, 0, 0, None, job_is_deleted=False)
    decided = verdict.judge(spec.JobSpec(schedule=HOURLY), run, end, now=killed)
    assert (decided.state, decided.reason) == (S.RETRYING, "LeaseLost")
    assert (decided.failures, decided.disruptions) == (failures, disruptions)


def test_leases_count_from_the_return_of_the_api() -> None:
    returned = at("12:06")
    seen = leases.Standing(
        pool="k8s/a/p", worker="w", held=1, last_lease=at("12:01"), lapsed=1, forgotten=1, overdue=0, lease=90,
        heartbeat=30, rescue_from=returned + timedelta(seconds=90),
    )  # fmt: skip
    assert leases.decide([seen], now=returned + timedelta(seconds=89)).lapsed == []
    assert len(leases.decide([seen], now=returned + timedelta(seconds=90)).lapsed) == 1
