"""When a job is due: instants of cron expressions in a time zone, right also where clocks change.

croniter finds the next day on a calendar whose clock never jumps; it is wrong at many clock changes, so this module
maps wall times to instants itself, one stretch of constant offset at a time (`zones`). Counting and listing missed slots
use the sets of an expression (`pattern`) instead of a walk, so that a job which was off for a year costs no more than
one which was off for an hour. All four questions speak of the same instants.

An expression bound to a time of day (neither minute nor hour starts with `*`) runs straight after a gap that swallowed
it, and once where a wall time comes twice. Any other follows real time. A zone that skips a whole day is no exception:
what that day swallowed runs once, at the first instant after it, and the next day's slots follow at their own times.
"""

from __future__ import annotations

import copy
import datetime
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ParamSpec, TypeVar

from croniter import croniter

from clockhand import errors
from clockhand.domain import budget, cron, instants, pattern, zones
from clockhand.domain import days as dates

P = ParamSpec("P")
T = TypeVar("T")
FIELD = cron.FIELD
UNION_FIELD = "spec.schedules"
HORIZON_YEARS = 40
NO_INSTANT = f"has no instant in {HORIZON_YEARS} years: write a date that comes"
MAX_WALKS = 128
_HORIZON = HORIZON_YEARS * 366 * cron.DAY
_WALL_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)
_GAP_RULES = ("RunAfter", "Skip")
_OVERLAP_RULES = ("First", "Both")
_Span = tuple[int, int, pattern.Pattern]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A due rule. Equal when written alike; every instant that goes in or out is an aware UTC datetime."""

    expressions: tuple[str, ...]
    zone: str
    gap: str
    overlap: str
    at: str = field(compare=False, repr=False)
    _whole: pattern.Pattern = field(compare=False, repr=False)
    _again: pattern.Pattern = field(compare=False, repr=False)  # counts also where the wall shows a time once more
    _late: pattern.Pattern = field(compare=False, repr=False)  # runs after a gap that swallowed it

    @property
    def expression(self) -> str:
        """The text, with each H settled; those of a union stand side by side."""
        return " | ".join(self.expressions)

    def next_after(self, instant: datetime.datetime) -> datetime.datetime:
        """The first slot strictly later than `instant`."""
        return instants.at_second(_next(self, instants.second_of(instant)))

    def count_between(self, after: datetime.datetime, until: datetime.datetime) -> int:
        """How many slots lie in (after, until]; costs the same for a slot a minute and a slot a year."""
        return self.count(instants.second_of(after) + 1, instants.second_of(until) + 1, budget.Budget(self.at))

    def last_before_or_at(self, instant: datetime.datetime, *, after: datetime.datetime) -> datetime.datetime | None:
        """The newest slot in (after, instant], None where there is none."""
        return next(iter(self.newest(1, after=after, until=instant)), None)

    def newest(self, n: int, *, after: datetime.datetime, until: datetime.datetime) -> tuple[datetime.datetime, ...]:
        """The newest `n` slots in (after, until], oldest first."""
        steps = budget.Budget(self.at)
        low, high = instants.second_of(after) + 1, instants.second_of(until) + 1
        slots = itertools.islice(self.descending(low, high, steps), n)
        return tuple(instants.at_second(slot) for slot in reversed(list(slots)))

    def first(self, low: int, steps: budget.Budget) -> int:
        """The first slot at or after `low`, in seconds since 1970."""
        walks = {each: _Walk(each, steps) for each in (self._whole, self._again)}
        for stretch in zones.forward(self.zone, since=low, until=low + _HORIZON):
            steps.spend()
            if low <= stretch.start and self._runs_after_gap(stretch, steps):
                return stretch.start
            for start, end, part in self._spans(stretch, low=low, high=stretch.end):
                if (wall := walks[part].first_from(start)) < end:
                    return wall - stretch.offset
        raise errors.InvalidInput(self.at, NO_INSTANT)

    def count(self, low: int, high: int, steps: budget.Budget) -> int:
        """How many slots lie in [low, high), in seconds since 1970."""
        if high <= low:
            return 0
        total = 0
        for stretch in zones.forward(self.zone, since=low, until=high - 1):
            steps.spend()
            spans = self._spans(stretch, low=low, high=high)
            total += sum(part.count(start, end, steps) for start, end, part in spans)
            total += low <= stretch.start < high and self._runs_after_gap(stretch, steps)
        return total

    def descending(self, low: int, high: int, steps: budget.Budget) -> Iterator[int]:
        """The slots in [low, high), latest first, in seconds since 1970."""
        if high <= low:
            return
        for stretch in zones.backward(self.zone, since=low, until=high - 1):
            steps.spend()
            for start, end, part in reversed(self._spans(stretch, low=low, high=high)):
                yield from (wall - stretch.offset for wall in part.descending(start, end, steps))
            if low <= stretch.start < high and self._runs_after_gap(stretch, steps):
                yield stretch.start

    def _spans(self, stretch: zones.Stretch, *, low: int, high: int) -> list[_Span]:
        """The part of [low, high) within a stretch as wall times, each with what counts there."""
        start, end = max(low, stretch.start) + stretch.offset, min(high, stretch.end) + stretch.offset
        fresh = start if stretch.fresh_from is None else min(max(start, stretch.fresh_from), end)
        spans = [(start, fresh, self._again), (fresh, end, self._whole)]
        return [span for span in spans if span[0] < span[1] and span[2].crons]

    def _runs_after_gap(self, stretch: zones.Stretch, steps: budget.Budget) -> bool:
        """Whether the gap before a stretch swallowed a slot, and its first instant is not one already."""
        if stretch.gap_from is None:
            return False
        first = stretch.start + stretch.offset
        return self._late.count(stretch.gap_from, first, steps) > 0 and not self._whole.matches(first)


def parse(
    expression: str,
    *,
    zone: str = "UTC",
    gap: str = "RunAfter",
    overlap: str = "First",
    job_id: uuid.UUID | None = None,
) -> Schedule:
    """Read one expression, or raise `InvalidInput` with one sentence that says what to write instead.

    `job_id` is the job that an H is hashed from; without it an H is refused.
    """
    return _parse((cron.settle(expression, job_id),), zone, gap=gap, overlap=overlap, at=FIELD)


def union(
    expressions: Sequence[str],
    *,
    zone: str = "UTC",
    gap: str = "RunAfter",
    overlap: str = "First",
    job_id: uuid.UUID | None = None,
) -> Schedule:
    """Read several expressions as one rule; an error names the one that is wrong."""
    settled = (_named(f"{UNION_FIELD}[{at}]", cron.settle, one, job_id) for at, one in enumerate(expressions))
    return _parse(tuple(settled), zone, gap=gap, overlap=overlap, at=UNION_FIELD)


@lru_cache(maxsize=4_096)
def _parse(settled: tuple[str, ...], zone: str, *, gap: str, overlap: str, at: str) -> Schedule:
    if gap not in _GAP_RULES:
        raise errors.InvalidInput("spec.dst.gap", f"is not known: write {' or '.join(_GAP_RULES)}")
    if overlap not in _OVERLAP_RULES:
        raise errors.InvalidInput("spec.dst.overlap", f"is not known: write {' or '.join(_OVERLAP_RULES)}")
    zones.load(zone)
    names = [at] if at == FIELD else [f"{at}[{index}]" for index in range(len(settled))]
    crons = tuple(_named(name, cron.read, text) for name, text in zip(names, settled, strict=True))
    whole = pattern.Pattern(crons)
    if sum(len(days.walkable()) for days in whole.days) > MAX_WALKS:
        sentence = f"names more than {MAX_WALKS} kinds of day: write fewer of L, W and #, or make it several jobs"
        raise errors.InvalidInput(at, sentence)
    again = whole if overlap == "Both" else pattern.Pattern(tuple(one for one in crons if not one.fixed))
    late = pattern.Pattern(tuple(one for one in crons if one.fixed and gap == "RunAfter"))
    return Schedule(settled, zone, gap, overlap, at, whole, again, late)


def _named(name: str, read: Callable[P, T], *words: P.args, **more: P.kwargs) -> T:
    """What `read` makes of `words`, or its error with the name of the field that they came from."""
    try:
        return read(*words, **more)
    except errors.InvalidInput as error:
        raise errors.InvalidInput(name, error.sentence) from None


class _Walk:
    """A pattern forwards, asked again only when the last answer no longer serves."""

    def __init__(self, part: pattern.Pattern, steps: budget.Budget) -> None:
        self._part = part
        self._steps = steps
        self._asked = 0
        self._found: int | None = None

    def first_from(self, wall: int) -> int:
        if self._found is None or not self._asked <= wall <= self._found:
            self._asked, self._found = wall, self._part.first_from(wall, self._next_day)
        return self._found

    def _next_day(self, days: dates.Days, day: int) -> int:
        self._steps.spend(budget.ASK * len(_walkers(days)))
        return _day_from(days, day)


@lru_cache(maxsize=32_768)
def _day_from(days: dates.Days, day: int) -> int:
    """The first matching day at or after `day`, as croniter finds it; most schedules share their days."""
    return day if days.every else min(_ask_croniter(walker, day) for walker in _walkers(days))


def _ask_croniter(walker: croniter, day: int) -> int:
    try:
        before = _WALL_EPOCH + datetime.timedelta(days=day) - _SECOND
        # a copy, since a walker keeps its place and threads share the original
        found: datetime.datetime = copy.copy(walker).get_next(datetime.datetime, start_time=before)
    except (ValueError, OverflowError):  # no such date in time, or none before the year 10000
        return pattern.NEVER
    return (found - _WALL_EPOCH).days


@lru_cache(maxsize=4_096)
def _walkers(days: dates.Days) -> tuple[croniter, ...]:
    expressions = days.walkable()
    return tuple(croniter(text, _WALL_EPOCH, max_years_between_matches=HORIZON_YEARS) for text in expressions)


@lru_cache(maxsize=32_768)
def _next(schedule: Schedule, after: int) -> int:
    slot = schedule.first(after + 1, budget.Budget(schedule.at))
    assert slot > after, "a schedule must move forward"
    return slot
