"""Schedules against an oracle that looks at a clock in every minute, at real clock changes of 24 zones.

`CLOCKHAND_TRIALS=100000` runs more of them; so does `python -m tests.support.trials`, which also prints figures.
"""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, datetime, timedelta

import click.testing
import pytest
from tests.support import oracle, trials

from clockhand import cli
from clockhand.domain import instants, schedule

CASES = int(os.environ.get("CLOCKHAND_TRIALS", "3000"))
BATCHES = 6


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_answer_agrees_with_the_oracle(batch: int) -> None:
    said: list[str] = []
    assert trials.report(CASES // BATCHES, seed=batch, say=said.append) == 0, said[0]


def test_preview_agrees_with_the_oracle() -> None:
    shown = 0
    for trial in trials.trials(600, seed=99):
        if len(trial.question.expressions) > 1:
            continue  # a union has no expression of its own
        slots = oracle.slots(trial.question, after=trial.after, until=trial.until, window=trial.window)[:20]
        if slots:
            assert instants_shown(trial, len(slots)) == [instants.rfc3339(slot) for slot in slots], trial
            shown += 1
    assert shown >= 100


def instants_shown(trial: trials.Trial, count: int) -> object:
    """What `clockhand preview` prints for a trial."""
    question = trial.question
    options = {
        "--time-zone": question.zone,
        "--after": trial.after.isoformat(),
        "--count": str(count),
        "--dst-gap": question.gap,
        "--dst-overlap": question.overlap,
        "-o": "json",
    }
    words = ["preview", *itertools.chain.from_iterable(options.items()), "--", question.expressions[0]]
    return json.loads(click.testing.CliRunner().invoke(cli.clockhand, words).stdout)["instants"]


def test_zones_have_real_changes_of_every_kind() -> None:
    """What the trials are made of: without jumps in them they would prove nothing."""
    jumps = set()
    for name in trials.ZONES:
        clock = oracle.zone(name)
        for at in oracle.changes(name, since=trials.SINCE, until=trials.UNTIL):
            before, after = ((at - oracle.MINUTE * n).astimezone(clock).utcoffset() for n in (1, 0))
            assert before is not None
            assert after is not None
            jumps.add(after - before)
    assert len(trials.ZONES) >= 16
    assert {timedelta(hours=1), timedelta(hours=-1), timedelta(minutes=30), timedelta(minutes=-30)} <= jumps
    assert {timedelta(hours=2), timedelta(hours=-2), timedelta(hours=24)} <= jumps


RARE = (
    ("0 0 29 2 *",),
    ("30 2 29 2 *", "0 12 * 2 1#5"),
    ("30 2 8 3 *",),
    ("30 1 * 11 0#1",),
    ("15 0 31W 2,12 *",),
    ("0 4 LW 2 *", "30 2 * 3 SUNL"),
    ("59 23 31 12 ?",),
    ("0 1 1,L 1 MON#1",),
)


@pytest.mark.parametrize("expressions", RARE, ids=" | ".join)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia"])
def test_next_slot_may_be_years_away(expressions: tuple[str, ...], zone: str) -> None:
    question = oracle.Question(expressions, zone)
    due = schedule.union(expressions, zone=zone)
    start = after = datetime(2011, 3, 13, 6, 59, 59, 999_999, tzinfo=UTC)
    slots = []
    for _ in range(3):
        slot = due.next_after(after)
        assert slot == oracle.first_after(question, after, days=9 * 366)
        slots.append(slot)
        after = slot
    assert due.newest(10, after=start, until=after) == tuple(slots)
    assert due.count_between(start, after) == 3
