"""The transition table says what the design says, and the groups of states fit it."""

from __future__ import annotations

import pytest

from clockhand.domain import states
from clockhand.domain.states import RunState as S

ALLOWED = {
    (None, S.QUEUED), (None, S.BLOCKED), (None, S.CLAIMED),
    (S.BLOCKED, S.QUEUED), (S.BLOCKED, S.CANCELLED), (S.BLOCKED, S.DEAD),
    (S.QUEUED, S.CLAIMED), (S.QUEUED, S.CANCELLED), (S.QUEUED, S.DEAD),
    (S.RETRYING, S.QUEUED), (S.RETRYING, S.CANCELLED), (S.RETRYING, S.DEAD),
    (S.RETRYING, S.BLOCKED),  # for a place of its group: docs/adr/0041
    (S.CLAIMED, S.RUNNING), (S.CLAIMED, S.QUEUED), (S.CLAIMED, S.SUCCEEDED), (S.CLAIMED, S.RETRYING),
    (S.CLAIMED, S.DEAD), (S.CLAIMED, S.UNKNOWN), (S.CLAIMED, S.STOPPING), (S.CLAIMED, S.CANCELLED),
    (S.RUNNING, S.SUCCEEDED), (S.RUNNING, S.RETRYING), (S.RUNNING, S.DEAD), (S.RUNNING, S.UNKNOWN),
    (S.RUNNING, S.STOPPING), (S.RUNNING, S.CANCELLED),
    (S.STOPPING, S.CANCELLED), (S.STOPPING, S.RETRYING), (S.STOPPING, S.DEAD), (S.STOPPING, S.UNKNOWN),
    (S.STOPPING, S.SUCCEEDED),
    (S.DEAD, S.QUEUED), (S.DEAD, S.BLOCKED), (S.UNKNOWN, S.QUEUED), (S.UNKNOWN, S.BLOCKED),
    (S.CANCELLED, S.QUEUED), (S.CANCELLED, S.BLOCKED),
}  # fmt: skip


@pytest.mark.parametrize("old", [None, *S])
@pytest.mark.parametrize("new", list(S))
def test_a_move_is_allowed_exactly_where_the_design_lists_it(old: S | None, new: S) -> None:
    assert states.may_become(old, new) is ((old, new) in ALLOWED)


def test_every_state_has_a_row() -> None:
    assert set(states.TRANSITIONS) == {None, *S}


def test_live_and_over_part_the_states() -> None:
    assert set(S) == states.LIVE | states.OVER
    assert not states.LIVE & states.OVER
    assert {state for state in S if state.is_over} == states.OVER
    assert states.WAITING | states.ATTEMPT_OPEN == states.LIVE
    assert not states.WAITING & states.ATTEMPT_OPEN


def test_a_claim_needs_no_place_of_its_own() -> None:
    assert states.ATTEMPT_OPEN | {S.QUEUED} == states.HOLDS_PLACE


@pytest.mark.parametrize("start", sorted(states.LIVE))
def test_every_live_state_can_end(start: S) -> None:
    reached, open_ends = {start}, [start]
    while open_ends:
        for new in states.TRANSITIONS[open_ends.pop()] - reached:
            reached.add(new)
            open_ends.append(new)
    assert S.SUCCEEDED in reached
    assert S.CANCELLED in reached


def test_a_succeeded_run_never_runs_again() -> None:
    assert states.TRANSITIONS[S.SUCCEEDED] == frozenset()
