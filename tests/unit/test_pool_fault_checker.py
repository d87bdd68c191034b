"""The checker of the faults of pools must be able to fail: a good story passes, and each rule has one that breaks it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.faults import evidence
from tests.faults.checker import Due
from tests.faults.pools import checker
from tests.faults.pools.witness import BEGUN, EFFECT, TOLD, Line

JOB, RUN = uuid.uuid4(), uuid.uuid4()
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def seen(what: str, token: int, *, after: float, **fields: Any) -> Line:
    """A line about the attempt with that token, by a worker of its own."""
    worker = f"w{token}.told" if what == TOLD else f"w{token}"
    return Line(AT.timestamp() + after, what, worker, str(RUN), str(token), **{"attempt": token, **fields})


def told(token: int, *, after: float, outcome: str = "Succeeded", accepted: bool = True) -> Line:
    return seen(TOLD, token, after=after, outcome=outcome, accepted=accepted)


class World:
    """A run whose first worker was lost, whose second attempt failed, and whose third succeeded."""

    def __init__(self) -> None:
        self.due = [Due(JOB, AT, failing=1, limit=3)]
        self.run = evidence.Run(RUN, JOB, "Slot", "", AT, "Succeeded", None, 3, 1, 1, None, False, token=3, worker="w3")
        self.attempts = [
            evidence.Attempt(RUN, 1, "Unseen", "LeaseLost", None, None, AT + timedelta(seconds=10)),
            evidence.Attempt(RUN, 2, "Failed", "LookupError", None, 2, AT + timedelta(seconds=20)),
        ]
        self.changes = ["Claimed", "Running", *("Retrying", "Queued", "Claimed") * 2, "Succeeded"]
        self.lines = [
            *(seen(BEGUN, token, after=10.0 * token - 9) for token in (1, 2, 3)),
            told(2, after=12, outcome="Failed"),
            seen(EFFECT, 3, after=22),
            told(3, after=23),
        ]
        self.once = False
        self.again = True

    def rules(self) -> set[str]:
        """The names of the rules that are broken."""
        tables = evidence.Tables([self.run], self.attempts, [], [(RUN, state) for state in self.changes])
        once = {JOB} if self.once else set[uuid.UUID]()
        found = checker.violations(self.due, tables, self.lines, once=once, again=self.again)
        return {line.split(":")[0].split(" ")[0] for line in found}

    def change(self, **fields: Any) -> None:
        self.run = dataclasses.replace(self.run, **fields)

    def see(self, *lines: Line) -> None:
        self.lines += lines

    def allow_nothing(self) -> None:
        self.again = False

    def make_once(self) -> None:
        self.once = True

    def drop(self, what: str) -> None:
        self.lines = [line for line in self.lines if line.what != what]


def test_a_good_story_breaks_no_rule() -> None:
    assert World().rules() == set()


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("not-terminal", lambda world: world.change(live=True)),
        ("wrong-state", lambda world: world.change(state="Dead")),
        ("false-failure", lambda world: world.change(state="Dead")),
        ("false-success", lambda world: world.drop(EFFECT)),
        ("unearned-accepted", lambda world: world.drop(EFFECT)),
        ("effect-unbegun", lambda world: world.drop(BEGUN)),
        ("accepted-twice", lambda world: world.see(seen(EFFECT, 1, after=2), told(1, after=30))),
        ("stale-accepted", lambda world: world.see(told(1, after=30, outcome="Failed"))),
        ("repeat-refused", lambda world: world.see(told(3, after=24, accepted=False))),
        ("begun-twice", lambda world: world.see(seen(BEGUN, 3, after=21.5))),
        ("begun-again", World.make_once),
        ("late-effect", lambda world: world.see(seen(EFFECT, 1, after=11))),
        ("wrong-attempts", lambda world: world.change(disruptions=2)),
        ("uncharged", lambda world: world.change(disruptions=0)),
        ("wrong-disruptions", World.allow_nothing),
        ("wrong-claims", lambda world: world.change(attempt=4)),
    ],
)
def test_each_rule_can_be_broken(rule: str, change: Callable[[World], None]) -> None:
    world = World()
    change(world)
    assert rule in world.rules()


def test_a_second_effect_is_allowed_only_where_work_may_begin_again() -> None:
    world = World()
    world.see(seen(EFFECT, 1, after=2))
    assert world.rules() == set()
    world.allow_nothing()
    assert "second-effect" in world.rules()


def test_more_at_a_time_than_a_cap_is_seen() -> None:
    lines = [seen(BEGUN, 1, after=0), seen(BEGUN, 2, after=1), seen(EFFECT, 1, after=2), seen(EFFECT, 2, after=3)]
    assert checker.over_cap(lines, 2) == []
    assert len(checker.over_cap(lines, 1)) == 1
