"""Who may go on: never more than there are places for, and in order."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies

from clockhand.domain import admission, spec, states
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)


def job(concurrency: Concurrency = Concurrency.ALLOW, most: int | None = None) -> spec.JobSpec:
    return spec.JobSpec(schedule="* * * * *", concurrency_policy=concurrency, max_concurrent_runs=most)


def run(number: int, state: S, ready_at: datetime = NOW, *, serial: bool = False) -> admission.LiveRun:
    return admission.LiveRun(uuid.UUID(int=number), state, ready_at, serial)


def promoted(plan: spec.JobSpec, *live: admission.LiveRun) -> list[int]:
    return [run_id.int for run_id in admission.promote(plan, live, now=NOW)]


@pytest.mark.parametrize(
    ("plan", "places"),
    [
        (job(), None),
        (job(most=3), 3),
        (job(Concurrency.FORBID), 1),
        (job(Concurrency.REPLACE), 1),
        (job(Concurrency.QUEUE), 1),
        (job(Concurrency.QUEUE, most=2), 2),
    ],
)
def test_places(plan: spec.JobSpec, places: int | None) -> None:
    assert admission.places(plan) == places


@pytest.mark.parametrize("holding", sorted(states.HOLDS_PLACE))
def test_a_place_is_held_until_its_pod_is_gone(holding: S) -> None:
    assert promoted(job(most=1), run(1, holding), run(2, S.BLOCKED)) == []


def test_blocked_runs_go_oldest_first_as_far_as_there_are_places() -> None:
    waiting = [run(number, S.BLOCKED) for number in (5, 3, 4)]
    assert promoted(job(most=3), run(1, S.RUNNING), *waiting) == [3, 4]


def test_without_a_limit_every_blocked_run_goes_on() -> None:
    assert promoted(job(), run(1, S.RUNNING), run(2, S.BLOCKED), run(3, S.BLOCKED)) == [2, 3]


def test_a_retrying_run_waits_for_its_back_off() -> None:
    assert promoted(job(), run(1, S.RETRYING, LATER), run(2, S.RETRYING, NOW)) == [2]


def test_a_retrying_run_needs_a_place_again() -> None:
    assert promoted(job(most=1), run(1, S.RETRYING), run(2, S.RUNNING)) == []
    assert promoted(job(most=1), run(1, S.RETRYING), run(2, S.BLOCKED)) == [1]


def test_in_a_queue_a_retrying_run_keeps_its_place() -> None:
    queue = job(Concurrency.QUEUE)
    assert promoted(queue, run(1, S.RETRYING, LATER), run(2, S.BLOCKED)) == []
    assert promoted(queue, run(1, S.RETRYING), run(2, S.BLOCKED)) == [1]


def test_a_serial_run_waits_for_every_earlier_one() -> None:
    second = run(2, S.BLOCKED, serial=True)
    for state in sorted(states.LIVE - {S.BLOCKED}):
        assert 2 not in promoted(job(), run(1, state, LATER), second)
    assert promoted(job(), second, run(3, S.BLOCKED, serial=True)) == [2]
    assert promoted(job(), second, run(3, S.RUNNING)) == [2]


def test_a_serial_run_is_not_held_up_by_its_own_job_limit_twice() -> None:
    assert promoted(job(most=1), run(1, S.BLOCKED, serial=True), run(2, S.BLOCKED, serial=True)) == [1]


policies = strategies.builds(job, strategies.sampled_from(Concurrency), strategies.none() | strategies.integers(1, 4))
runs = strategies.lists(
    strategies.builds(
        run,
        strategies.integers(1, 1000),
        strategies.sampled_from(sorted(states.LIVE)),
        strategies.sampled_from([NOW, LATER]),
        serial=strategies.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.run_id,
)


@hypothesis.given(policies, runs)
def test_the_cap_is_never_exceeded(plan: spec.JobSpec, live: Sequence[admission.LiveRun]) -> None:
    chosen = set(admission.promote(plan, live, now=NOW))
    before = sum(one.state in states.HOLDS_PLACE for one in live)
    limit = admission.places(plan)
    assert limit is None or before + len(chosen) <= max(limit, before) or plan.concurrency_policy is Concurrency.QUEUE
    # in a queue what is promoted may have held its place already, as a Retrying run
    held = admission.taken(plan, live)
    new = [one for one in live if one.run_id in chosen and one.state is S.BLOCKED]
    assert limit is None or held + len(new) <= max(limit, held)


@hypothesis.given(policies, runs)
def test_only_waiting_runs_are_promoted_and_nobody_is_overtaken(
    plan: spec.JobSpec, live: Sequence[admission.LiveRun]
) -> None:
    chosen = set(admission.promote(plan, live, now=NOW))
    by_id = {one.run_id: one for one in live}
    assert all(by_id[run_id].state in (S.BLOCKED, S.RETRYING) for run_id in chosen)
    assert all(by_id[run_id].ready_at <= NOW for run_id in chosen if by_id[run_id].state is S.RETRYING)
    plain = [one for one in sorted(live, key=lambda one: one.run_id) if one.state is S.BLOCKED and not one.serial]
    went = [one.run_id in chosen for one in plain]
    assert went == sorted(went, reverse=True)


def grouped(number: int, state: S, *, waits: bool = False, ready_at: datetime = NOW) -> admission.LiveRun:
    return admission.LiveRun(uuid.UUID(int=number), state, ready_at, group="exports", waits_for_group=waits)


@pytest.mark.parametrize(
    ("most", "live", "expected"),
    [
        # of the job's two places one is free: the oldest may go, and what is behind it leaves the queue of the group
        (2, (run(1, S.RUNNING), grouped(2, S.BLOCKED), grouped(3, S.BLOCKED, waits=True)), ([], [2], [3])),
        (None, (run(1, S.BLOCKED), grouped(2, S.BLOCKED, waits=True)), ([1], [2], [])),
        (None, (grouped(1, S.RETRYING), grouped(2, S.RETRYING, ready_at=LATER)), ([], [1], [])),
        (1, (grouped(1, S.QUEUED), run(2, S.BLOCKED)), ([], [], [])),
        # a run keeps the group that it was made with
        (None, (run(1, S.RETRYING), grouped(2, S.RUNNING)), ([1], [], [])),
    ],
)
def test_what_goes_at_once_and_what_waits_for_its_group(
    most: int | None, live: tuple[admission.LiveRun, ...], expected: tuple[list[int], list[int], list[int]]
) -> None:
    found = admission.admit(job(most=most), live, now=NOW)
    assert [run_id.int for run_id in found.at_once] == expected[0]
    assert {run_id.int: group for run_id, group in found.to_groups.items()} == dict.fromkeys(expected[1], "exports")
    assert [run_id.int for run_id in found.back] == expected[2]
