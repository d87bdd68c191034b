"""What becomes of due slots: every policy against hand-written tables, and nothing due is ever left out."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

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


def minute(number: int) -> datetime:
    return NOON + number * MINUTE


def job(
    catch_up: Policy = Policy.LATEST,
    concurrency: Concurrency = Concurrency.ALLOW,
    *,
    limit: int = 100,
    deadline: int | None = None,
    most: int | None = None,
    queue: int = 100,
    schedule: str = "* * * * *",
) -> spec.JobSpec:
    return spec.JobSpec(
        schedule=schedule,
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


plans = strategies.builds(
    job,
    strategies.sampled_from(Policy),
    strategies.sampled_from(Concurrency),
    limit=strategies.integers(1, 20),
    deadline=strategies.none() | strategies.integers(0, 7200),
    most=strategies.none() | strategies.integers(1, 3),
    queue=strategies.integers(1, 5),
    schedule=strategies.sampled_from(["* * * * *", "*/7 * * * *", "5,50 * * * *", "0 2 * * *", "30 1 * * 0"]),
)
running = strategies.lists(strategies.sampled_from(sorted(states.LIVE)), max_size=5).map(lambda found: live(*found))


@hypothesis.given(plans, running, strategies.integers(0, 20 * 24 * 3600), strategies.integers(0, 86_400))
@hypothesis.settings(deadline=None, max_examples=300)
def test_every_due_slot_runs_or_is_skipped_once(
    plan: spec.JobSpec, found: tuple[admission.LiveRun, ...], start: int, late: int
) -> None:
    times = plan.due(due_times.ANYBODY)
    first = times.next_after(NOON + timedelta(seconds=start))
    assert first is not None
    now = first + timedelta(seconds=late)
    fired = firing.fire(plan, origin=due_times.ANYBODY, next_slot_at=first, live=found, now=now)
    just_before = first - timedelta(milliseconds=1)
    assert len(fired.slots) + sum(skip.count for skip in fired.skips) == times.count_between(just_before, now)
    assert fired.next_slot_at is not None
    assert first <= fired.last_slot_at <= now < fired.next_slot_at
    assert fired.next_slot_at == times.next_after(now)
    instants = [slot.scheduled_at for slot in fired.slots]
    assert instants == sorted(set(instants))
    assert all(first <= instant <= fired.last_slot_at for instant in instants)
    assert all(times.next_after(at - timedelta(milliseconds=1)) == at for at in instants)
    for skip in fired.skips:
        assert skip.count > 0
        assert times.count_between(skip.first - timedelta(milliseconds=1), skip.last) >= skip.count
        assert first <= skip.first <= skip.last <= fired.last_slot_at


@hypothesis.given(plans, strategies.lists(strategies.integers(0, 4000), min_size=1, max_size=6))
@hypothesis.settings(deadline=None, max_examples=100)
def test_pass_after_pass_the_mark_only_rises_and_leaves_no_hole(plan: spec.JobSpec, waits: list[int]) -> None:
    times = plan.due(due_times.ANYBODY)
    began, following = NOON, times.next_after(NOON)
    due, done, mark, now = 0, 0, NOON, NOON
    for wait in waits:
        assert following is not None
        now = max(now, following) + timedelta(seconds=wait)
        fired = firing.fire(plan, origin=due_times.ANYBODY, next_slot_at=following, live=(), now=now)
        done += len(fired.slots) + sum(skip.count for skip in fired.skips)
        assert fired.last_slot_at > mark
        mark, following = fired.last_slot_at, fired.next_slot_at
    due = times.count_between(began, now)
    assert done == due
