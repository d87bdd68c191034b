"""The product's answers about schedules held against the oracle's, for as many random cases as wanted.

`python -m tests.support.trials --cases 100000` prints the figures; the unit tests run a few thousand. Cases gather
around clock changes and the ends of months, since that is where evaluations go wrong.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click
from tests.support import oracle

from clockhand import errors
from clockhand.domain import schedule

SINCE, UNTIL = 2010, 2038
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Sao_Tome",
    "America/Asuncion",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Fakaofo",
    "Pacific/Norfolk",
    "UTC",
)
_REACH = timedelta(days=4)
_A_WINDOW = 20
"""Cases that share one look at the wall."""
_STEPS = (2, 3, 5, 7, 10, 15, 20, 29, 30)
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True)
class Trial:
    """One question about a span, with the window that answers many of them."""

    question: oracle.Question
    after: datetime
    until: datetime
    window: tuple[datetime, int]


def trials(cases: int, *, seed: int) -> Iterator[Trial]:
    """Random cases, the same ones for the same seed."""
    chance = random.Random(seed)
    moments = [(name, at) for name in ZONES for at in oracle.changes(name, since=SINCE, until=UNTIL)]
    left = cases
    while left > 0:
        name, at = chance.choice(moments) if chance.random() < 0.8 else (chance.choice(ZONES), _end_of_month(chance))
        first = (at - _REACH - oracle.LOOK_BACK).replace(second=0, microsecond=0)
        window = first, (2 * _REACH + oracle.LOOK_BACK) // oracle.MINUTE
        for _ in range(min(left, _A_WINDOW)):
            yield _trial(chance, name=name, at=at, window=window)
        left -= _A_WINDOW


def differences(trial: Trial, *, seed: int = 0) -> list[str]:
    """What the product answers otherwise than the oracle; empty where they agree."""
    question, after, until = trial.question, trial.after, trial.until
    slots = oracle.slots(question, after=after, until=until, window=trial.window)
    due = schedule.union(question.expressions, zone=question.zone, gap=question.gap, overlap=question.overlap)
    found = []

    def compare(asked: str, answer: object, right: object) -> None:
        if answer != right:
            found.append(f"{trial}: {asked} is {answer}, not {right}")

    compare("count", due.count_between(after, until), len(slots))
    compare("newest", due.newest(100_000, after=after, until=until), tuple(slots))
    compare("last", due.last_before_or_at(until, after=after), slots[-1] if slots else None)
    for base in _bases(trial, slots, random.Random(seed)):
        following = _following(due, base)
        right = next((slot for slot in slots if slot > base), None)
        compare(f"next after {base}", following if following and following <= until else None, right)
        compare(f"next > {base}", following is None or following > base, True)
        compare(f"count to {base}", due.count_between(after, base), sum(slot <= base for slot in slots))
        compare(f"last by {base}", due.last_before_or_at(base, after=after), _last(slots, base))
    return found


def _following(due: schedule.Schedule, base: datetime) -> datetime | None:
    """The next slot; None for a schedule whose times always fall into a gap."""
    try:
        return due.next_after(base)
    except errors.InvalidInput as error:
        if error.sentence != schedule.NO_INSTANT:
            raise
        return None


def _last(slots: list[datetime], base: datetime) -> datetime | None:
    return next((slot for slot in reversed(slots) if slot <= base), None)


def _bases(trial: Trial, slots: list[datetime], chance: random.Random) -> Iterator[datetime]:
    """Where to ask for the next slot: at the edges, at and just before some slots, and anywhere."""
    yield trial.after
    for slot in chance.sample(slots, min(3, len(slots))):
        yield slot
        yield max(trial.after, slot - timedelta(microseconds=1))
    for _ in range(2):
        yield trial.after + (trial.until - trial.after) * chance.random()


def _trial(chance: random.Random, *, name: str, at: datetime, window: tuple[datetime, int]) -> Trial:
    after = at - timedelta(seconds=chance.randrange(48 * 3600))
    until = min(after + timedelta(seconds=chance.randrange(60, 72 * 3600)), at + _REACH - oracle.MINUTE)
    wall = _near(chance, name=name, at=at)
    several = chance.choice((1, 1, 1, 2, 2, 3, 5))
    question = oracle.Question(
        tuple(_expression(chance, wall) for _ in range(several)),
        zone=name,
        gap=chance.choice(("RunAfter", "RunAfter", "Skip")),
        overlap=chance.choice(("First", "First", "Both")),
    )
    return Trial(question, after, until, window)


def _near(chance: random.Random, *, name: str, at: datetime) -> datetime:
    """A wall time that a jump skips or repeats, at its very edges more often than not."""
    clock = oracle.zone(name)
    before, after = (
        (at - oracle.MINUTE).astimezone(clock).replace(tzinfo=None),
        at.astimezone(clock).replace(tzinfo=None),
    )
    edge = chance.choice((before + oracle.MINUTE, before, after, after - oracle.MINUTE))
    return edge + timedelta(minutes=chance.choice((0, 0, 0, -30, 30, -60, 60, chance.randrange(-90, 150))))


def _end_of_month(chance: random.Random) -> datetime:
    month = chance.randrange(12 * (UNTIL - SINCE))
    return datetime(SINCE + month // 12, month % 12 + 1, 1, chance.randrange(24), tzinfo=UTC)


def _expression(chance: random.Random, wall: datetime) -> str:
    minute, hour = _clock(chance, wall.minute, 59), _clock(chance, wall.hour, 23)
    if chance.random() < 0.3:
        minute, hour = chance.choice(("0", "0,30", "*/30", "15,45")), _hours_around(chance, wall.hour)
    month = chance.choice(("*", "*", "*", "*", str(wall.month), _MONTHS[wall.month - 1], f"{wall.month}-12", "*/2"))
    weekday = wall.isoweekday() % 7
    dates, weekdays = chance.choice(
        (
            ("*", "*"),
            ("*", "*"),
            ("?", "*"),
            (_date(chance, wall), "*"),
            (_date(chance, wall), "?"),
            ("*", _weekday(chance, weekday, wall)),
            ("*", _weekday(chance, weekday, wall)),
            (_date(chance, wall), _weekday(chance, weekday, wall)),
        )
    )
    return f"{minute} {hour} {dates} {month} {weekdays}"


def _clock(chance: random.Random, near: int, top: int) -> str:
    anywhere, step = chance.randint(0, top), chance.choice(_STEPS)
    low, high = sorted((near, anywhere))
    return chance.choice(
        (
            "*",
            f"*/{step}",
            f"*/{step}",
            str(near),
            str(near),
            str(anywhere),
            f"{near:02},{anywhere}",
            f"{low}-{high}",
            f"{low}-{high}/{step}",
            f"{near}/{step}",
            f"{near}-{near}",
            f"*/{step},{anywhere}",
            f"{anywhere},*/{step}",
        )
    )


def _hours_around(chance: random.Random, near: int) -> str:
    low, high = max(0, near - chance.choice((0, 1, 2))), min(23, near + chance.choice((0, 1, 2)))
    return f"{low}-{high}"


def _date(chance: random.Random, wall: datetime) -> str:
    near = min(28, max(1, wall.day + chance.randint(-1, 1)))
    anywhere = chance.randint(1, 28)
    low, high = sorted((near, anywhere))
    one = (str(near), str(near), "L", "LW", f"{near}W", f"{wall.day}W", f"{low}-{high}", f"*/{chance.choice(_STEPS)}")
    return ",".join(chance.sample(one, chance.choice((1, 1, 1, 2))))


def _weekday(chance: random.Random, near: int, wall: datetime) -> str:
    later = chance.randint(near, 7)
    nth = (wall.day - 1) // 7 + 1
    one = (
        str(near),
        _WEEKDAYS[near],
        f"{near}-{later}",
        f"{near}L",
        f"L{near}",
        f"{_WEEKDAYS[near].upper()}L",
        f"{near}#{nth}",
        f"{_WEEKDAYS[near]}#{chance.randint(1, 5)}",
        "*/2",
        "1-5",
        "7",
    )
    return ",".join(chance.sample(one, chance.choice((1, 1, 1, 2))))


@click.command()
@click.option("--cases", default=100_000, show_default=True, help="How many random cases.")
@click.option("--seed", default=1, show_default=True, help="Which ones.")
def _command(cases: int, seed: int) -> None:
    """Hold the product's answers about schedules against the oracle's."""
    sys.exit(report(cases, seed=seed, say=click.echo))


def report(cases: int, *, seed: int, say: Callable[[str], None]) -> int:
    """Runs the cases and says what differs; the number of cases that do."""
    wrong = 0
    for done, trial in enumerate(trials(cases, seed=seed), start=1):
        if found := differences(trial, seed=done):
            wrong += 1
            say(found[0])
        if done % 10_000 == 0:
            say(f"{done} cases, {wrong} wrong")
    say(f"{cases} cases over {len(ZONES)} zones, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    _command()
