"""Which dates of the calendar match, apart from clocks and zones.

The dates of a month are the bits of a number, and which of them match depends only on the month, its length and the
weekday it begins with: a calendar has no more than 91 such months, so that years are answered without walking days.
"""

from __future__ import annotations

import calendar
import datetime
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_WEEK = 7


class Month(NamedTuple):
    """What a month looks like on a calendar. Weekday 0 is Sunday."""

    number: int
    length: int
    begins: int


@dataclass(frozen=True, slots=True)
class Days:
    """Which dates match. Two restricted fields mean either one; `*/n` is restricted, as in Kubernetes."""

    months: frozenset[int]
    dates: frozenset[int] | None  # None: the field is * or ?
    last: bool
    nearest: frozenset[int]  # the weekday nearest to this date; 31 stands for the last weekday
    weekdays: frozenset[int] | None  # 0 is Sunday; None: the field is * or ?
    nth: frozenset[tuple[int, int]]  # (weekday, n), n = 0 for the last one of a month

    @property
    def every(self) -> bool:
        """Whether all dates match."""
        return self.dates is None and self.weekdays is None and len(self.months) == 12

    def of(self, month: Month) -> int:
        """The matching dates of a month: bit 0 is the first."""
        return _bits(self, month)

    def possible(self) -> bool:
        """Whether any date ever matches; each form of a month comes back within 40 years."""
        return any(_bits(self, form) for number in self.months for form in _forms(number))

    def walkable(self) -> tuple[str, ...]:
        """Plain expressions for midnight whose union is these days, without forms that libraries read differently.

        A library that walks them needs no opinion on "either day field", on mixed lists or on equal ranges.
        """
        months = _join(sorted(self.months), low=1, high=12)
        if self.dates is None and self.weekdays is None:
            return (f"0 0 * {months} *",)
        by_date = [_join(sorted(self.dates), low=1, high=31)] if self.dates else []
        by_date += ["L"] * self.last + [f"{date}W" for date in sorted(self.nearest)]
        by_weekday = [_join(sorted(self.weekdays), low=0, high=6)] if self.weekdays else []
        by_weekday += [f"{day}#{nth}" if nth else f"L{day}" for day, nth in sorted(self.nth)]
        return (*(f"0 0 {date} {months} *" for date in by_date), *(f"0 0 * {months} {day}" for day in by_weekday))

    def matching(self, month: Month) -> Iterator[int]:
        """The matching dates of a month that is in `months`, in no order."""
        if self.dates is None and self.weekdays is None:
            yield from range(1, month.length + 1)
            return
        yield from (date for date in self.dates or () if date <= month.length)
        if self.last:
            yield month.length
        yield from (_nearest_weekday(month, min(date, month.length)) for date in self.nearest)
        for weekday in self.weekdays or ():
            yield from _dates_of(month, weekday)
        for weekday, nth in self.nth:
            yield from _dates_of(month, weekday)[nth - 1 : nth or None]


@lru_cache(maxsize=16_384)
def _bits(days: Days, month: Month) -> int:
    if month.number not in days.months:
        return 0
    bits = 0
    for date in days.matching(month):
        bits |= 1 << date - 1
    return bits


@lru_cache(maxsize=8_192)
def month_of(index: int) -> tuple[Month, int]:
    """The form of a month, counted from the year 0, and the number of its first day."""
    year, month = divmod(index, 12)
    weekday, length = calendar.monthrange(year, month + 1)
    first = datetime.date(year, month + 1, 1).toordinal() - _EPOCH_ORDINAL
    return Month(month + 1, length, (weekday + 1) % _WEEK), first


def index_of(day: int) -> int:
    """Which month a day, counted from 1970-01-01, lies in."""
    date = datetime.date.fromordinal(day + _EPOCH_ORDINAL)
    return date.year * 12 + date.month - 1


def _forms(number: int) -> Iterator[Month]:
    lengths = (28, 29) if number == 2 else (calendar.monthrange(2001, number)[1],)
    return (Month(number, length, begins) for length in lengths for begins in range(_WEEK))


def _dates_of(month: Month, weekday: int) -> range:
    return range((weekday - month.begins) % _WEEK + 1, month.length + 1, _WEEK)


def _nearest_weekday(month: Month, date: int) -> int:
    """The working day nearest to a date, within its month."""
    weekday = (month.begins + date - 1) % _WEEK
    if weekday == 6:
        return date - 1 if date > 1 else date + 2
    if weekday == 0:
        return date + 1 if date < month.length else date - 2
    return date


def _join(values: Iterable[int], *, low: int, high: int) -> str:
    """The shortest plain spelling: a library reads `0-59/5` far faster than twelve numbers."""
    numbers = list(values)
    if len(numbers) > high - low:
        return "*"
    if len(numbers) > 2 and len({b - a for a, b in itertools.pairwise(numbers)}) == 1:
        return f"{numbers[0]}-{numbers[-1]}/{numbers[1] - numbers[0]}"
    return ",".join(map(str, numbers))
