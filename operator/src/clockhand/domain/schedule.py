"""When a job is due: instants of a cron expression in a time zone, right also where clocks change.

croniter finds the next day on a calendar whose clock never jumps; it is wrong at many clock changes, so this
module maps wall times to instants itself, one stretch of constant offset at a time (`zones`). Counting and
listing missed slots use the value sets of the expression (`cron`) instead of a walk, so that a job which was off
for a year costs no more than one which was off for an hour. All four questions speak of the same instants.

A schedule bound to a time of day (neither minute nor hour starts with `*`) runs straight after a gap that
swallowed it, and once where a wall time comes twice. Any other schedule follows real time.
"""

from __future__ import annotations

import copy
import datetime
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from croniter import croniter

from clockhand import errors
from clockhand.domain import cron as crons
from clockhand.domain import zones

FIELD = crons.FIELD
HORIZON_YEARS = 40
_HORIZON = HORIZON_YEARS * 366 * crons.DAY
_MAX_STEPS = 2_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_WALL_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)
_GAP_RULES = ("RunAfter", "Skip")
_OVERLAP_RULES = ("First", "Both")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A due rule. Equal when written alike; every instant that goes in or out is an aware UTC datetime."""

    expression: str
    zone: str
    gap: str
    overlap: str
    _cron: crons.Cron = field(compare=False, repr=False)

    def next_after(self, instant: datetime.datetime) -> datetime.datetime:
        """The first slot strictly later than `instant`."""
        return _moment(_next(self, _second(instant)))

    def count_between(self, after: datetime.datetime, until: datetime.datetime) -> int:
        """How many slots lie in (after, until]; costs the same for a slot a minute and a slot a year."""
        low, high = _second(after) + 1, _second(until) + 1
        if high <= low:
            return 0
        total = 0
        for stretch in zones.forward(self.zone, since=low, until=high - 1):
            total += self._cron.count(*self._walls(stretch, low=low, high=high))
            total += low <= stretch.start < high and self._runs_after_gap(stretch)
        return total

    def last_before_or_at(self, instant: datetime.datetime, *, after: datetime.datetime) -> datetime.datetime | None:
        """The newest slot in (after, instant], None where there is none."""
        return next(iter(self.newest(1, after=after, until=instant)), None)

    def newest(self, n: int, *, after: datetime.datetime, until: datetime.datetime) -> tuple[datetime.datetime, ...]:
        """The newest `n` slots in (after, until], oldest first."""
        slots = itertools.islice(self._descending(_second(after) + 1, _second(until) + 1), n)
        return tuple(_moment(slot) for slot in reversed(list(slots)))

    def descending(self, after: datetime.datetime, until: datetime.datetime) -> Iterator[datetime.datetime]:
        """The slots in (after, until], latest first."""
        return map(_moment, self._descending(_second(after) + 1, _second(until) + 1))

    def _descending(self, low: int, high: int) -> Iterator[int]:
        if high <= low:
            return
        for stretch in zones.backward(self.zone, since=low, until=high - 1):
            for wall in self._cron.descending(*self._walls(stretch, low=low, high=high)):
                yield wall - stretch.offset
            if low <= stretch.start < high and self._runs_after_gap(stretch):
                yield stretch.start

    def _walls(self, stretch: zones.Stretch, *, low: int, high: int) -> tuple[int, int]:
        """The part of [low, high) within a stretch as wall times, less repeated ones that do not count."""
        start = max(low, stretch.start) + stretch.offset
        if stretch.fresh_from is not None and self._once:
            start = max(start, stretch.fresh_from)
        return start, min(high, stretch.end) + stretch.offset

    def _runs_after_gap(self, stretch: zones.Stretch) -> bool:
        """Whether the gap before a stretch swallowed a slot, and its first instant is not one already."""
        if stretch.gap_from is None or not self._late:
            return False
        first = stretch.start + stretch.offset
        return self._cron.count(stretch.gap_from, first) > 0 and not self._cron.matches(first)

    @property
    def _late(self) -> bool:
        return self._cron.fixed and self.gap == "RunAfter"

    @property
    def _once(self) -> bool:
        return self._cron.fixed and self.overlap == "First"


@lru_cache(maxsize=4_096)
def parse(expression: str, *, zone: str = "UTC", gap: str = "RunAfter", overlap: str = "First") -> Schedule:
    """Read a schedule, or raise `InvalidInput` with one sentence that says what to write instead."""
    if gap not in _GAP_RULES:
        raise errors.InvalidInput("spec.dst.gap", f"is not known: write {' or '.join(_GAP_RULES)}")
    if overlap not in _OVERLAP_RULES:
        raise errors.InvalidInput("spec.dst.overlap", f"is not known: write {' or '.join(_OVERLAP_RULES)}")
    zones.load(zone)
    return Schedule(expression=expression, zone=zone, gap=gap, overlap=overlap, _cron=crons.read(expression))


class _Walk:
    """The wall, forwards, with a budget: asked again only when the last answer no longer serves."""

    def __init__(self, cron: crons.Cron) -> None:
        self._cron = cron
        self._steps = 0
        self._asked = 0
        self._found: int | None = None

    def first_at_or_after(self, wall: int) -> int:
        if self._found is None or not self._asked <= wall <= self._found:
            self._asked, self._found = wall, self._ask(wall)
        return self._found

    def _ask(self, wall: int) -> int:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _never()
        today, seconds = divmod(wall, crons.DAY)
        day = _day_from(self._cron.days, today)
        time = self._cron.time_from(seconds if day == today else 0)
        if time is None:
            day, time = _day_from(self._cron.days, today + 1), self._cron.time_from(0)
        assert time is not None, "every day has a first time"
        return day * crons.DAY + time


@lru_cache(maxsize=32_768)
def _day_from(days: crons.Days, day: int) -> int:
    """The first matching day at or after `day`, as croniter finds it; most schedules share their days."""
    if days.every:
        return day
    return min(_ask_croniter(walker, day) for walker in _walkers(days))


def _ask_croniter(walker: croniter, day: int) -> int:
    before = _WALL_EPOCH + datetime.timedelta(days=day) - _SECOND
    try:
        # a copy, since a walker keeps its place and threads share the original
        found: datetime.datetime = copy.copy(walker).get_next(datetime.datetime, start_time=before)
    except (ValueError, OverflowError):  # no such date in time, or none before the year 10000
        return day + 2 * HORIZON_YEARS * 366
    return (found - _WALL_EPOCH).days


@lru_cache(maxsize=4_096)
def _walkers(days: crons.Days) -> tuple[croniter, ...]:
    expressions = crons.walkable(days)
    return tuple(croniter(text, _WALL_EPOCH, max_years_between_matches=HORIZON_YEARS) for text in expressions)


@lru_cache(maxsize=32_768)
def _next(schedule: Schedule, after: int) -> int:
    try:
        slot = _search(schedule, after)
    except OverflowError:
        raise _never() from None
    assert slot > after, "a schedule must move forward"
    return slot


def _search(schedule: Schedule, after: int) -> int:
    walk = _Walk(schedule._cron)
    for stretch in zones.forward(schedule.zone, since=after + 1, until=after + _HORIZON):
        gap = stretch.gap_from if schedule._late and stretch.start > after else None
        if gap is not None and walk.first_at_or_after(gap) < stretch.start + stretch.offset:
            return stretch.start
        low, high = schedule._walls(stretch, low=after + 1, high=stretch.end)
        if low < high and (wall := walk.first_at_or_after(low)) < high:
            return wall - stretch.offset
    raise _never()


def _never() -> errors.InvalidInput:
    return errors.InvalidInput(FIELD, f"has no instant in {HORIZON_YEARS} years: write a date that comes")


def _second(instant: datetime.datetime) -> int:
    return (instant - _EPOCH) // _SECOND


def _moment(second: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=second)
