"""A condition's time moves with its status, and other conditions stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime

from clockhand.domain import conditions

FIRST, LATER = datetime(2026, 11, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, 13, tzinfo=UTC)
GOOD = conditions.Condition(conditions.READY, conditions.TRUE, "Scheduled", "fine")
SUSPENDED = conditions.Condition(conditions.READY, conditions.TRUE, "Suspended", "waits")
BAD = conditions.Condition(conditions.READY, conditions.FALSE, "InvalidSpec", "not fine")
VALID = conditions.Condition(conditions.TEMPLATE_VALID, conditions.TRUE, "Accepted", "")


def test_the_time_moves_with_the_status_only() -> None:
    stored = conditions.merge([], [GOOD], now=FIRST, generation=1)
    same = conditions.merge(stored, [SUSPENDED], now=LATER, generation=2)
    assert same[0]["reason"] == "Suspended"
    assert same[0]["observedGeneration"] == 2
    assert same[0]["lastTransitionTime"] == "2026-11-01T12:00:00Z"
    other = conditions.merge(same, [BAD], now=LATER, generation=2)
    assert other[0]["lastTransitionTime"] == "2026-11-01T13:00:00Z"


def test_what_somebody_else_wrote_without_a_time_gets_one() -> None:
    bare = {"type": "Ready", "status": "True"}
    [one] = conditions.merge([bare], [GOOD], now=FIRST, generation=1)
    assert (one["reason"], one["lastTransitionTime"]) == ("Scheduled", "2026-11-01T12:00:00Z")


def test_others_stay_unless_dropped() -> None:
    paused = {"type": "Paused", "status": "True", "reason": "Failures", "message": "", "more": 1}
    stored = conditions.merge([paused], [GOOD, VALID], now=FIRST, generation=1)
    assert [one["type"] for one in stored] == ["Paused", "Ready", "TemplateValid"]
    assert stored[0] == paused
    left = conditions.merge(stored, [BAD], now=LATER, generation=2, dropped=[conditions.TEMPLATE_VALID])
    assert [one["type"] for one in left] == ["Paused", "Ready"]
    assert conditions.status_of(left, conditions.TEMPLATE_VALID) is None
    assert conditions.status_of(left, conditions.READY) == conditions.FALSE


def test_a_long_message_is_cut() -> None:
    long = conditions.Condition(conditions.READY, conditions.FALSE, "InvalidSpec", "x" * 5_000)
    [one] = conditions.merge([], [long], now=FIRST, generation=1)
    assert len(str(one["message"])) == conditions.MESSAGE_LIMIT
