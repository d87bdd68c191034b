"""Scaling decisions: bounded, paced, and never by what workers cannot help."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhand.domain.workerpool import PoolSpec
from clockhand.domain.workerpool_scale import PACE_SECONDS, Load, Scale, next_scale

IDLE = Load(0, 0.0, 0)
SPEC = PoolSpec(min_replicas=1, max_replicas=20, concurrency=10)


def late(backlog: int, *, running: int) -> Load:
    return Load(backlog, SPEC.scale_up_after_seconds + 1, running)


def test_a_late_backlog_brings_workers_in_proportion() -> None:
    assert next_scale(SPEC, Scale(8), late(25, running=80), now=0.0) == Scale(11, 0.0)


def test_workers_are_doubled_at_most_and_not_again_at_once() -> None:
    first = next_scale(SPEC, Scale(2), late(5_000, running=20), now=100.0)
    assert first == Scale(4, 100.0)
    soon = next_scale(SPEC, first, late(5_000, running=40), now=100.0 + PACE_SECONDS - 1)
    assert soon.wanted == 4
    assert next_scale(SPEC, soon, late(5_000, running=40), now=100.0 + PACE_SECONDS).wanted == 8


def test_a_young_backlog_brings_none() -> None:
    assert next_scale(SPEC, Scale(2), Load(500, 1.0, 20), now=0.0) == Scale(2)


def test_workers_that_stand_idle_beside_a_backlog_are_not_multiplied() -> None:
    assert next_scale(SPEC, Scale(4), late(5_000, running=19), now=0.0).wanted == 4
    assert next_scale(SPEC, Scale(4), late(5_000, running=20), now=0.0).wanted == 8


def test_from_nothing_there_comes_one() -> None:
    spec = PoolSpec(min_replicas=0, max_replicas=20)
    assert next_scale(spec, Scale(0), late(3, running=0), now=0.0).wanted == 1


def test_spare_workers_go_after_a_while_down_to_what_was_needed_meanwhile() -> None:
    scale = next_scale(SPEC, Scale(8), Load(0, 0.0, 20), now=0.0)
    scale = next_scale(SPEC, scale, Load(0, 0.0, 55), now=100.0)
    scale = next_scale(SPEC, scale, IDLE, now=SPEC.scale_down_after_seconds - 1.0)
    assert scale.wanted == 8
    scale = next_scale(SPEC, scale, IDLE, now=float(SPEC.scale_down_after_seconds))
    assert scale == Scale(6)


def test_they_go_by_half_at_most_and_then_after_another_while() -> None:
    scale, steps = Scale(16), []
    for now in range(0, 5 * SPEC.scale_down_after_seconds, 10):
        scale = next_scale(SPEC, scale, IDLE, now=float(now))
        steps.append(scale.wanted)
    assert sorted(set(steps), reverse=True) == [16, 8, 4, 2, 1]


def test_full_workers_end_the_wait_to_go_down() -> None:
    scale = next_scale(SPEC, Scale(4), IDLE, now=0.0)
    assert scale.spare_from == 0.0
    assert next_scale(SPEC, scale, Load(0, 0.0, 40), now=10.0).spare_from is None


def test_new_bounds_hold_at_once() -> None:
    assert next_scale(PoolSpec(replicas=3), Scale(9), IDLE, now=0.0).wanted == 3
    assert next_scale(PoolSpec(replicas=3), Scale(1), late(100, running=10), now=0.0).wanted == 3


loads = st.builds(Load, st.integers(0, 5_000), st.floats(0, 1e5), st.integers(0, 5_000))
specs = st.builds(
    lambda low, more, concurrency, up, down: PoolSpec(
        min_replicas=low,
        max_replicas=low + more,
        concurrency=concurrency,
        scale_up_after_seconds=up,
        scale_down_after_seconds=down,
    ),
    st.integers(0, 50),
    st.integers(1, 500),
    st.integers(1, 50),
    st.integers(1, 60),
    st.integers(10, 600),
)


@given(specs, st.integers(0, 600), st.lists(st.tuples(loads, st.floats(0.1, 60)), max_size=40))
def test_whatever_happens(spec: PoolSpec, first: int, story: list[tuple[Load, float]]) -> None:
    scale, now, raised = next_scale(spec, Scale(first), IDLE, now=0.0), 0.0, -math.inf
    lowered = 0.0
    for load, pause in story:
        now += pause
        before, scale = scale.wanted, next_scale(spec, scale, load, now=now)
        assert spec.fewest <= scale.wanted <= spec.most
        if scale.wanted > before:
            assert scale.wanted <= max(1, 2 * before)
            assert now - raised >= PACE_SECONDS
            assert load.oldest_seconds > spec.scale_up_after_seconds
            raised = now
        if scale.wanted < before:
            assert scale.wanted >= before // 2
            assert now - lowered >= spec.scale_down_after_seconds
            assert scale.wanted * spec.concurrency >= min(load.running, spec.most * spec.concurrency)
            lowered = now


@pytest.mark.parametrize("replicas", [0, 1, 7])
@given(load=loads)
def test_a_fixed_number_is_fixed(replicas: int, load: Load) -> None:
    assert next_scale(PoolSpec(replicas=replicas), Scale(3), load, now=0.0).wanted == replicas
