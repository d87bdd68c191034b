"""What a schedule will do, row by row, told to people before it happens.

Each row that a clock change touched carries a mark, and what a gap swallowed for good has a row of its own: a schedule
that looks right in a list of instants may still surprise whoever reads the clock on the wall.
"""

from __future__ import annotations

import datetime
import enum
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from clockhand import errors
from clockhand.domain import cron as crons
from clockhand.domain import cronjob, instants, zones
from clockhand.domain import schedule as schedules

_TWO_DAYS = 2 * crons.DAY  # no clock has been turned back further
_MOST_NAMED = 3


class Side(enum.StrEnum):
    """Who fires at an instant, where a schedule is compared with CronJob."""

    BOTH = "both"
    HERE = "only Clockhand"
    CRONJOB = "only CronJob"


@dataclass(frozen=True, slots=True)
class Row:
    """An instant with its offset from UTC, or the end of a gap whose times do not run (`runs` is False)."""

    instant: datetime.datetime
    offset: datetime.timedelta
    mark: str = ""
    runs: bool = True
    since: datetime.timedelta | None = None
    side: Side = Side.BOTH


@dataclass(frozen=True, slots=True)
class Comparison:
    """What CronJob does over the same span; `remark` says why it does less than that."""

    instants: tuple[datetime.datetime, ...]
    remark: str = ""


def slots_after(schedule: schedules.Schedule, *, after: datetime.datetime, count: int) -> tuple[datetime.datetime, ...]:
    """The next slots: `count` of them, or fewer where the calendar ends; at least one, or `InvalidInput`."""
    found: list[datetime.datetime] = []
    while len(found) < count:
        try:
            after = schedule.next_after(after)
        except errors.InvalidInput:
            if found:
                break
            raise
        found.append(after)
    return tuple(found)


def rows(
    schedule: schedules.Schedule, *, after: datetime.datetime, slots: Sequence[datetime.datetime]
) -> tuple[Row, ...]:
    """The slots, marked where clocks change, and a row for each gap between them that swallowed some."""
    found = heapq.merge(_slots(schedule, slots), _swallowed(schedule, after=after, slots=slots), key=_when)
    return tuple(_spaced(found))


def compare(expression: str, *, zone: str, after: datetime.datetime, until: datetime.datetime) -> Comparison:
    """When CronJob would fire in (after, until]."""
    found: list[datetime.datetime] = []
    try:
        there = cronjob.parse(expression, zone=zone)
        while (instant := there.next_after(after)) is not None and instant <= until:
            found.append(instant)
            after = instant
    except cronjob.RefusedError as error:
        return Comparison((), f"CronJob refuses this schedule: {error}")
    except cronjob.EndlessError:
        return Comparison(tuple(found), "CronJob would search for the next time without end")
    remark = "CronJob stops here: it looks no further than five years ahead" if instant is None else ""
    return Comparison(tuple(found), remark)


def beside(schedule: schedules.Schedule, own: Sequence[Row], there: Comparison) -> tuple[Row, ...]:
    """Rows that also say who fires; without a mark of their own for what CronJob alone does."""
    theirs = set(there.instants)
    ours = {row.instant for row in own if row.runs}
    sided = [replace(row, side=Side.BOTH if row.instant in theirs else Side.HERE) if row.runs else row for row in own]
    alone = _slots(schedule, [instant for instant in there.instants if instant not in ours])
    return tuple(_spaced(heapq.merge(sided, (replace(row, side=Side.CRONJOB) for row in alone), key=_when)))


def _when(row: Row) -> tuple[datetime.datetime, bool]:
    return row.instant, row.runs


def _spaced(found: Iterable[Row]) -> Iterator[Row]:
    """With the time since the slot before; rows of one side count from slots of that side."""
    before: dict[bool, datetime.datetime] = {}
    for row in found:
        foreign = row.side is Side.CRONJOB
        since = row.instant - before[foreign] if row.runs and foreign in before else None
        yield replace(row, since=since)
        if row.runs:
            before[foreign] = row.instant


def _slots(schedule: schedules.Schedule, slots: Sequence[datetime.datetime]) -> Iterator[Row]:
    if not slots:
        return
    first, last = instants.second_of(slots[0]), instants.second_of(slots[-1])
    stretches = zones.forward(schedule.zone, since=first, until=last + _TWO_DAYS)
    wall = _Wall(schedule)
    here, later = next(stretches), next(stretches, None)
    for slot in slots:
        second = instants.second_of(slot)
        while later is not None and later.start <= second:
            here, later = later, next(stretches, None)
        mark = wall.gap_mark(here, slot=second) or wall.overlap_mark(here, later, slot=second)
        yield Row(slot, datetime.timedelta(seconds=here.offset), mark)


def _swallowed(
    schedule: schedules.Schedule, *, after: datetime.datetime, slots: Sequence[datetime.datetime]
) -> Iterator[Row]:
    """A row for each gap up to the last slot whose times do not run at all."""
    wall = _Wall(schedule)
    if not slots or wall.late:
        return
    for stretch in zones.forward(
        schedule.zone, since=instants.second_of(after) + 1, until=instants.second_of(slots[-1])
    ):
        if stretch.start > instants.second_of(after) and (lost := wall.lost(stretch)):
            mark = f"gap: {_named(lost, stretch)} not exist, no run"
            offset = datetime.timedelta(seconds=stretch.offset)
            yield Row(instants.at_second(stretch.start), offset, mark, runs=False)


class _Wall:
    """A schedule on a clock that never jumps, and what it makes of one that does."""

    def __init__(self, schedule: schedules.Schedule) -> None:
        self._times = schedules.parse(schedule.expression)
        fixed = crons.read(schedule.expression).fixed
        self.late = fixed and schedule.gap == "RunAfter"
        self._once = fixed and schedule.overlap == "First"

    def lost(self, stretch: zones.Stretch) -> tuple[int, ...]:
        """The wall times of the schedule that the clock left out at the start of a stretch."""
        if stretch.gap_from is None:
            return ()
        low, high = instants.at_second(stretch.gap_from - 1), instants.at_second(stretch.start + stretch.offset - 1)
        return tuple(instants.second_of(time) for time in self._times.newest(crons.DAY, after=low, until=high))

    def gap_mark(self, here: zones.Stretch, *, slot: int) -> str:
        """For the slot at the end of a gap that stands for what the gap swallowed."""
        if slot != here.start or not self.late or not (lost := self.lost(here)):
            return ""
        first = here.start + here.offset
        if self._times.count_between(instants.at_second(first - 1), instants.at_second(first)):
            return f"gap: {_named(lost, here)} not exist, this run stands for it as well"
        return f"gap: {_named(lost, here)} not exist, runs {'' if len(lost) == 1 else 'once '}after it"

    def overlap_mark(self, here: zones.Stretch, later: zones.Stretch | None, *, slot: int) -> str:
        """For a slot whose wall time is shown twice."""
        wall = slot + here.offset
        if here.fresh_from is not None and wall < here.fresh_from:
            return f"overlap: {_clock(wall)} comes twice, second of two"
        if later is not None and later.fresh_from is not None and wall >= later.start + later.offset:
            return f"overlap: {_clock(wall)} comes twice, first {'one' if self._once else 'of two'}"
        return ""


def _named(walls: Sequence[int], stretch: zones.Stretch) -> str:
    """The wall times with their verb; of many the first and the last."""
    today = (stretch.start + stretch.offset) // crons.DAY
    texts = [
        _clock(wall) if wall // crons.DAY == today else f"{instants.at_second(wall):%Y-%m-%d %H:%M}" for wall in walls
    ]
    if len(texts) == 1:
        return f"{texts[0]} does"
    if len(texts) > _MOST_NAMED:
        return f"{texts[0]} to {texts[-1]} ({len(texts)} times) do"
    return f"{', '.join(texts[:-1])} and {texts[-1]} do"


def _clock(wall: int) -> str:
    return f"{instants.at_second(wall):%H:%M}"
