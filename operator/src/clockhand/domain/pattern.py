"""What the clock on the wall shows when a job is due: one or several expressions as one set of minutes.

Several schedules are one set and not several lists to merge, so that an instant which more than one of them names is
one slot by construction, and a union is counted as fast as a single schedule. Walls are seconds since 1970-01-01 00:00
on the wall, and know nothing of clock changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from clockhand.domain import budget, cron
from clockhand.domain import days as dates

DAY = cron.DAY
NEVER = 1 << 40
"""A day that no calendar has."""
_MINUTES = DAY // 60
NextDay = Callable[[dates.Days, int], int]


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """The minutes that any of `crons` names. Compared by identity: it is part of a schedule, which has a text."""

    crons: tuple[cron.Cron, ...]
    days: tuple[dates.Days, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "days", tuple(dict.fromkeys(one.days for one in self.crons)))

    def matches(self, wall: int) -> bool:
        """Whether one wall time is in the set."""
        day, second = divmod(wall, DAY)
        return second % 60 == 0 and self.times_on(day) >> second // 60 & 1 == 1

    def times_on(self, day: int) -> int:
        """The minutes of one day that match, as bits; a day is counted from 1970-01-01."""
        month, first = dates.month_of(dates.index_of(day))
        return _times_in(self, month)[day - first]

    def count(self, low: int, high: int, steps: budget.Budget) -> int:
        """How many matches lie in [low, high): whole months at a time, not day by day."""
        if high <= low or not self.crons:
            return 0
        total = 0
        for month, first in _months(low, high, steps):
            times = _times_in(self, month)
            if low <= first * DAY and (first + month.length) * DAY <= high:
                total += _total(self, month)
            else:
                cut = (_within(bits, first + date, low, high) for date, bits in enumerate(times))
                total += sum(bits.bit_count() for bits in cut)
        return total

    def descending(self, low: int, high: int, steps: budget.Budget) -> Iterator[int]:
        """The matches in [low, high), latest first."""
        if high <= low or not self.crons:
            return
        for month, first in _months(low, high, steps, newest_first=True):
            for date in range(month.length - 1, -1, -1):
                bits = _within(_times_in(self, month)[date], first + date, low, high)
                while bits:
                    minute = bits.bit_length() - 1
                    yield (first + date) * DAY + minute * 60
                    bits ^= 1 << minute

    def first_from(self, wall: int, next_day: NextDay) -> int:
        """The first match at or after a wall time; `next_day` finds the first matching day of a rule, or NEVER."""
        today = wall // DAY
        bits = _within(self.times_on(today), today, wall, (today + 1) * DAY)
        day = today
        while not bits:
            day = min(next_day(days, day + 1) for days in self.days)
            if day == NEVER:
                return NEVER * DAY
            bits = self.times_on(day)
        return day * DAY + ((bits & -bits).bit_length() - 1) * 60


@lru_cache(maxsize=2_048)
def _times_in(pattern: Pattern, month: dates.Month) -> tuple[int, ...]:
    """The matching minutes of each date of a month; dates on which the same minutes match share one number."""
    found = [0] * month.length
    for one in pattern.crons:
        left = one.days.of(month)
        while left:
            date = left.bit_length() - 1
            found[date] = found[date] | one.times if found[date] else one.times
            left ^= 1 << date
    shared = {bits: bits for bits in found}
    return tuple(shared[bits] for bits in found)


@lru_cache(maxsize=4_096)
def _total(pattern: Pattern, month: dates.Month) -> int:
    return sum(bits.bit_count() for bits in _times_in(pattern, month))


def _within(bits: int, day: int, low: int, high: int) -> int:
    """The part of a day's minutes that lies in [low, high)."""
    start = min(max(0, -((day * DAY - low) // 60)), _MINUTES)
    end = min(max(0, -((day * DAY - high) // 60)), _MINUTES)
    return bits >> start << start & (1 << end) - 1


def _months(
    low: int, high: int, steps: budget.Budget, *, newest_first: bool = False
) -> Iterator[tuple[dates.Month, int]]:
    first, last = (dates.index_of(wall // DAY) for wall in (low, high - 1))
    for index in range(last, first - 1, -1) if newest_first else range(first, last + 1):
        steps.spend()
        yield dates.month_of(index)
