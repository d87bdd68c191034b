"""What becomes of due slots: every policy against hand-written tables, and nothing due is ever left out."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import admission, firing, spec, states
from clockhand.domain import times as due_times
from clockhand.domain.spec import CatchUpPolicy as Policy
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S
from clockhand.domain.states import SkipReason as Why

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SOMEBODY = due_times.Origin(uuid.UUID(int=7), NOON - 60 * MINUTE)


def minute(number: float) -> datetime:
    return NOON + number * MINUTE


def job(
    catch_up: Policy = Policy.LATEST,
    concurrency: Concurrency = Concurrency.ALLOW,
    *,
    limit: int = 100,
    deadline: int | None = None,
    most: int | None = None,
    queue: int = 100,
    jitter: int = 0,
    **when: Any,
) -> spec.JobSpec:
    return spec.JobSpec(
        **(when or {"schedule": "* * * * *"}),
        jitter_seconds=jitter,
        catch_up=spec.CatchUp(policy=catch_up, limit=limit),
        concurrency_policy=concurrency,
        starting_deadline_seconds=deadline,
        max_concurrent_runs=most,
        queue_limit=queue,
    )


def live(*found: S) -> tuple[admission.LiveRun, ...]:
    return tuple(admission.LiveRun(uuid.UUID(int=n), state, NOON) for n, state in enumerate(found, 1))


def decide(
    plan: spec.JobSpec, *, minutes: int, seconds: int = 1, runs: Sequence[admission.LiveRun] = ()
) -> firing.Firing:
    """Fires the slots of minutes 0 to `minutes`, `seconds` after the last."""
    return firing.fire(
        plan, origin=due_times.ANYBODY, next_slot_at=NOON, live=runs, now=minute(minutes) + timedelta(seconds=seconds)
    )


def shown(fired: firing.Firing) -> tuple[list[tuple[int, S]], list[tuple[int, int, int, Why]]]:
    """Slots and skips, in minutes after noon."""
    slots = [(int((slot.scheduled_at - NOON) / MINUTE), slot.state) for slot in fired.slots]
    skips = [
        (int((skip.first - NOON) / MINUTE), int((skip.last - NOON) / MINUTE), skip.count, skip.reason)
        for skip in fired.skips
    ]
    return slots, skips


Q, B = S.QUEUED, S.BLOCKED


@pytest.mark.parametrize(
    ("plan", "minutes", "seconds", "slots", "skips"),
    [
        # one due slot, on time: it runs, whatever the policy
        (job(Policy.LATEST), 0, 1, [(0, Q)], []),
        (job(Policy.ALL), 0, 1, [(0, Q)], []),
        (job(Policy.NONE), 0, 1, [(0, Q)], []),
        # one due slot, up to 60 s late
        (job(Policy.NONE), 0, 59, [(0, Q)], []),
        # five due slots, the newest on time
        (job(Policy.LATEST), 4, 1, [(4, Q)], [(0, 3, 4, Why.CATCH_UP)]),
        (job(Policy.ALL), 4, 1, [(0, Q), (1, B), (2, B), (3, B), (4, B)], []),
        (job(Policy.ALL, limit=2), 4, 1, [(3, Q), (4, B)], [(0, 2, 3, Why.CATCH_UP)]),
        (job(Policy.ALL, limit=1), 4, 1, [(4, Q)], [(0, 3, 4, Why.CATCH_UP)]),
        (job(Policy.NONE), 4, 1, [(4, Q)], [(0, 3, 4, Why.CATCH_UP)]),
        # the starting deadline looks at what catch-up has chosen
        (job(Policy.LATEST, deadline=30), 4, 31, [], [(0, 3, 4, Why.CATCH_UP), (4, 4, 1, Why.DEADLINE)]),
        (job(Policy.LATEST, deadline=30), 4, 30, [(4, Q)], [(0, 3, 4, Why.CATCH_UP)]),
        (job(Policy.ALL, deadline=90), 4, 1, [(3, Q), (4, B)], [(0, 2, 3, Why.DEADLINE)]),
        (
            job(Policy.ALL, deadline=90, limit=3),
            4,
            1,
            [(3, Q), (4, B)],
            [(0, 1, 2, Why.CATCH_UP), (2, 2, 1, Why.DEADLINE)],
        ),
        (job(Policy.NONE, deadline=10), 4, 1, [(4, Q)], [(0, 3, 4, Why.CATCH_UP)]),
        (job(Policy.NONE, deadline=10), 4, 11, [], [(0, 3, 4, Why.CATCH_UP), (4, 4, 1, Why.DEADLINE)]),
    ],
)
def test_catch_up_and_deadline(
    plan: spec.JobSpec,
    minutes: int,
    seconds: int,
    slots: list[tuple[int, S]],
    skips: list[tuple[int, int, int, Why]],
) -> None:
    assert shown(decide(plan, minutes=minutes, seconds=seconds)) == (slots, skips)


@pytest.mark.parametrize(
    ("policy", "runs"),
    [(Policy.LATEST, [(0, Q)]), (Policy.ALL, [(0, Q)]), (Policy.NONE, [])],
)
def test_an_hourly_slot_that_is_61_s_late(policy: Policy, runs: list[tuple[int, S]]) -> None:
    fired = decide(job(policy, schedule="0 * * * *"), minutes=1, seconds=1)
    skips = [] if runs else [(0, 0, 1, Why.CATCH_UP)]
    assert shown(fired) == (runs, skips)
    assert fired.next_slot_at == NOON + timedelta(hours=1)


@pytest.mark.parametrize(
    ("concurrency", "found", "slots", "skips", "replaces"),
    [
        (Concurrency.ALLOW, live(S.RUNNING), [(0, Q)], [], False),
        (Concurrency.FORBID, (), [(0, Q)], [], False),
        (Concurrency.FORBID, live(S.RUNNING), [], [(0, 0, 1, Why.FORBID)], False),
        (Concurrency.FORBID, live(S.RETRYING), [], [(0, 0, 1, Why.FORBID)], False),
        (Concurrency.FORBID, live(S.BLOCKED), [], [(0, 0, 1, Why.FORBID)], False),
        (Concurrency.REPLACE, (), [(0, Q)], [], False),
        # one that is only waiting is cancelled in the same transaction
        (Concurrency.REPLACE, live(S.RETRYING), [(0, Q)], [], True),
        # one that may have a pod, or may get one at this moment, holds its place until that is gone
        (Concurrency.REPLACE, live(S.QUEUED), [(0, B)], [], True),
        (Concurrency.REPLACE, live(S.CLAIMED), [(0, B)], [], True),
        (Concurrency.REPLACE, live(S.STOPPING), [(0, B)], [], True),
        (Concurrency.QUEUE, (), [(0, Q)], [], False),
        (Concurrency.QUEUE, live(S.RUNNING), [(0, B)], [], False),
        # a run between two attempts keeps its place in the queue
        (Concurrency.QUEUE, live(S.RETRYING), [(0, B)], [], False),
        (Concurrency.QUEUE, live(S.BLOCKED), [(0, B)], [], False),
    ],
)
def test_concurrency(
    concurrency: Concurrency,
    found: tuple[admission.LiveRun, ...],
    slots: list[tuple[int, S]],
    skips: list[tuple[int, int, int, Why]],
    replaces: bool,
) -> None:
    fired = decide(job(concurrency=concurrency), minutes=0, runs=found)
    assert shown(fired) == (slots, skips)
    assert fired.replaces is replaces


@pytest.mark.parametrize(
    ("concurrency", "found", "slots", "skips"),
    [
        (Concurrency.ALLOW, (), [(0, Q), (1, B), (2, B)], []),
        (Concurrency.FORBID, (), [(0, Q)], [(1, 2, 2, Why.FORBID)]),
        (Concurrency.FORBID, live(S.RUNNING), [], [(0, 2, 3, Why.FORBID)]),
        (Concurrency.REPLACE, (), [(2, Q)], [(0, 1, 2, Why.CATCH_UP)]),
        (Concurrency.REPLACE, live(S.RUNNING), [(2, B)], [(0, 1, 2, Why.CATCH_UP)]),
        (Concurrency.QUEUE, (), [(0, Q), (1, B), (2, B)], []),
        (Concurrency.QUEUE, live(S.RUNNING), [(0, B), (1, B), (2, B)], []),
    ],
)
def test_all_missed_slots_under_each_concurrency(
    concurrency: Concurrency,
    found: tuple[admission.LiveRun, ...],
    slots: list[tuple[int, S]],
    skips: list[tuple[int, int, int, Why]],
) -> None:
    fired = decide(job(Policy.ALL, concurrency), minutes=2, runs=found)
    assert shown(fired) == (slots, skips)
    if concurrency is Concurrency.ALLOW:
        assert all(slot.serial for slot in fired.slots)


@pytest.mark.parametrize(
    ("plan", "found", "state"),
    [
        (job(most=2), live(S.RUNNING), Q),
        (job(most=2), live(S.RUNNING, S.QUEUED), B),
        (job(most=2), live(S.RUNNING, S.STOPPING), B),
        (job(most=2), live(S.RUNNING, S.RETRYING), Q),
        # nobody overtakes one who waits already
        (job(most=2), live(S.RUNNING, S.BLOCKED), B),
    ],
)
def test_a_limit_of_the_job(plan: spec.JobSpec, found: tuple[admission.LiveRun, ...], state: S) -> None:
    assert shown(decide(plan, minutes=0, runs=found)) == ([(0, state)], [])


@pytest.mark.parametrize(
    ("missed", "found", "slots", "skips"),
    [
        (0, live(S.RUNNING, S.BLOCKED, S.BLOCKED), [], [(0, 0, 1, Why.QUEUE_FULL)]),
        (0, live(S.RUNNING, S.BLOCKED), [(0, B)], []),
        # missed slots fill the queue as well, and no further
        (4, (), [(0, Q), (1, B), (2, B)], [(3, 4, 2, Why.QUEUE_FULL)]),
        (4, live(S.RUNNING), [(0, B), (1, B)], [(2, 4, 3, Why.QUEUE_FULL)]),
    ],
)
def test_a_queue_has_a_limit(
    missed: int,
    found: tuple[admission.LiveRun, ...],
    slots: list[tuple[int, S]],
    skips: list[tuple[int, int, int, Why]],
) -> None:
    plan = job(Policy.ALL, Concurrency.QUEUE, queue=2)
    assert shown(decide(plan, minutes=missed, runs=found)) == (slots, skips)


def test_a_year_of_missed_minutes_is_counted_not_walked() -> None:
    fired = firing.fire(job(), origin=due_times.ANYBODY, next_slot_at=NOON, live=(), now=NOON + timedelta(days=365))
    [skip] = fired.skips
    assert skip.count == 365 * 24 * 60
    assert fired.last_slot_at == NOON + timedelta(days=365)


def text(instant: datetime) -> str:
    return instant.isoformat()


def later(plan: spec.JobSpec, *, seconds: float, early: bool = False) -> firing.Firing:
    """Fires the slot of noon, and what else is due by then, `seconds` after the end of its jitter."""
    delay = timedelta() if early else plan.delay(SOMEBODY.job_id)
    now = NOON + delay + timedelta(seconds=seconds)
    return firing.fire(plan, origin=SOMEBODY, next_slot_at=NOON, live=(), now=now, early=early)


@pytest.mark.parametrize(
    ("plan", "seconds", "slots", "skips"),
    [
        (job(at=text(NOON)), 1, [(0, Q)], []),
        (job(at=text(NOON)), 86_400, [(0, Q)], []),
        (job(Policy.ALL, at=text(NOON)), 86_400, [(0, Q)], []),
        (job(Policy.NONE, at=text(NOON)), 60, [(0, Q)], []),
        (job(Policy.NONE, at=text(NOON)), 61, [], [(0, 0, 1, Why.CATCH_UP)]),
        (job(deadline=30, at=text(NOON)), 31, [], [(0, 0, 1, Why.DEADLINE)]),
        # the end is a slot itself, and nothing comes after it, however late the last ones are decided
        (job(every="1m", end_at=text(NOON)), 1, [(0, Q)], []),
        (job(every="1m", end_at=text(minute(2))), 3_600, [(2, Q)], [(0, 1, 2, Why.CATCH_UP)]),
        (job(Policy.ALL, every="1m", end_at=text(minute(2))), 3_600, [(0, Q), (1, B), (2, B)], []),
        (job(schedule="* * * * *", end_at=text(minute(1.5))), 86_400, [(1, Q)], [(0, 0, 1, Why.CATCH_UP)]),
        (
            job(schedules=("0 12 1 6 *", "*/2 * * * *"), end_at=text(minute(4))),
            300,
            [(4, Q)],
            [(0, 2, 2, Why.CATCH_UP)],
        ),
    ],
)
def test_what_has_a_last_slot_is_finished_after_it(
    plan: spec.JobSpec, seconds: float, slots: list[tuple[int, S]], skips: list[tuple[int, int, int, Why]]
) -> None:
    fired = later(plan, seconds=seconds)
    assert shown(fired) == (slots, skips)
    assert fired.next_slot_at is None


def test_a_slot_of_two_schedules_is_one_slot() -> None:
    fired = later(job(Policy.ALL, schedules=("*/2 * * * *", "*/3 * * * *")), seconds=6 * 60)
    assert [number for number, _ in shown(fired)[0]] == [0, 2, 3, 4, 6]
    assert fired.next_slot_at == minute(8)


HOURLY: dict[str, Any] = {"schedule": "0 * * * *"}


@pytest.mark.parametrize(
    ("plan", "seconds", "slots", "skips"),
    [
        (job(Policy.NONE, jitter=600, **HOURLY), 60, [(0, Q)], []),
        (job(Policy.NONE, jitter=600, **HOURLY), 61, [], [(0, 0, 1, Why.CATCH_UP)]),
        (job(deadline=30, jitter=600, **HOURLY), 30, [(0, Q)], []),
        (job(deadline=30, jitter=600, **HOURLY), 31, [], [(0, 0, 1, Why.DEADLINE)]),
        # a later slot whose jitter is not over does not make an earlier one missed
        (job(jitter=600), 59, [(0, Q)], []),
        (job(jitter=600), 60, [(1, Q)], [(0, 0, 1, Why.CATCH_UP)]),
    ],
)
def test_lateness_counts_from_the_end_of_the_jitter(
    plan: spec.JobSpec, seconds: float, slots: list[tuple[int, S]], skips: list[tuple[int, int, int, Why]]
) -> None:
    fired = later(plan, seconds=seconds)
    assert fired.delay > 2 * MINUTE, "or this test would show nothing"
    assert shown(fired) == (slots, skips)


@pytest.mark.parametrize(
    ("plan", "seconds", "slots", "skips"),
    [
        (job(Policy.NONE, deadline=1, jitter=600, **HOURLY), 1, [(0, Q)], []),
        (job(Policy.NONE, deadline=1, jitter=600), 119, [(1, Q)], [(0, 0, 1, Why.CATCH_UP)]),
        (job(Policy.ALL, jitter=600), 119, [(0, Q), (1, B)], []),
    ],
)
def test_a_slot_that_is_settled_before_its_jitter_is_over_is_not_late(
    plan: spec.JobSpec, seconds: float, slots: list[tuple[int, S]], skips: list[tuple[int, int, int, Why]]
) -> None:
    assert shown(later(plan, seconds=seconds, early=True)) == (slots, skips)


schedules = strategies.sampled_from(["* * * * *", "*/7 * * * *", "5,50 * * * *", "0 2 * * *", "30 1 * * 0"])
whens: strategies.SearchStrategy[dict[str, Any]] = strategies.one_of(
    strategies.builds(dict, schedule=schedules),
    strategies.builds(dict, schedules=strategies.lists(schedules, min_size=1, max_size=3).map(tuple)),
    strategies.builds(dict, every=strategies.sampled_from(["1s", "90s", "7m", "1h30m", "1d"])),
)
offsets = strategies.integers(-40_000, 20 * 86_400).map(lambda seconds: text(NOON + timedelta(seconds=seconds)))
bounds = strategies.fixed_dictionaries({}, optional={"start_at": offsets, "end_at": offsets})
plans = strategies.builds(
    lambda when, bounds, **fields: job(**fields, **when, **bounds),
    catch_up=strategies.sampled_from(Policy),
    concurrency=strategies.sampled_from(Concurrency),
    limit=strategies.integers(1, 20),
    deadline=strategies.none() | strategies.integers(0, 7200),
    most=strategies.none() | strategies.integers(1, 3),
    queue=strategies.integers(1, 5),
    jitter=strategies.sampled_from([0, 0, 1, 60, 3_600]),
    when=whens,
    bounds=bounds,
) | strategies.builds(
    job,
    strategies.sampled_from(Policy),
    strategies.sampled_from(Concurrency),
    deadline=strategies.none() | strategies.integers(0, 7200),
    jitter=strategies.sampled_from([0, 60]),
    at=offsets,
)
running = strategies.lists(strategies.sampled_from(sorted(states.LIVE)), max_size=5).map(lambda found: live(*found))


@hypothesis.given(
    plans, running, strategies.integers(0, 20 * 24 * 3600), strategies.integers(0, 86_400), strategies.booleans()
)
@hypothesis.settings(deadline=None, max_examples=400)
def test_every_due_slot_runs_or_is_skipped_once(
    plan: spec.JobSpec, found: tuple[admission.LiveRun, ...], start: int, late: int, early: bool
) -> None:
    times = plan.due(SOMEBODY)
    first = times.next_after(NOON + timedelta(seconds=start))
    hypothesis.assume(first is not None)
    assert first is not None
    delay = plan.delay(SOMEBODY.job_id)
    until = first + timedelta(seconds=late)
    now = until if early else until + delay
    fired = firing.fire(plan, origin=SOMEBODY, next_slot_at=first, live=found, now=now, early=early)
    just_before = first - timedelta(milliseconds=1)
    assert len(fired.slots) + sum(skip.count for skip in fired.skips) == times.count_between(just_before, until)
    assert first <= fired.last_slot_at <= until
    assert fired.next_slot_at == times.next_after(until)
    assert fired.delay == delay
    instants = [slot.scheduled_at for slot in fired.slots]
    assert instants == sorted(set(instants))
    assert all(first <= instant <= fired.last_slot_at for instant in instants)
    assert all(times.next_after(at - timedelta(milliseconds=1)) == at for at in instants)
    for skip in fired.skips:
        assert skip.count > 0
        assert times.count_between(skip.first - timedelta(milliseconds=1), skip.last) >= skip.count
        assert first <= skip.first <= skip.last <= fired.last_slot_at
        assert not any(skip.first == instant or skip.last == instant for instant in instants)


@hypothesis.given(plans, strategies.lists(strategies.integers(0, 4000), min_size=1, max_size=6))
@hypothesis.settings(deadline=None, max_examples=200)
def test_pass_after_pass_the_mark_only_rises_and_leaves_no_hole(plan: spec.JobSpec, waits: list[int]) -> None:
    times, delay = plan.due(SOMEBODY), plan.delay(SOMEBODY.job_id)
    following = times.next_after(NOON)
    done, mark, until = 0, NOON, NOON
    for wait in waits:
        if following is None:
            break
        until = max(until, following) + timedelta(seconds=wait)
        fired = firing.fire(plan, origin=SOMEBODY, next_slot_at=following, live=(), now=until + delay)
        done += len(fired.slots) + sum(skip.count for skip in fired.skips)
        assert fired.last_slot_at > mark
        mark, following = fired.last_slot_at, fired.next_slot_at
    assert done == times.count_between(NOON, until)
