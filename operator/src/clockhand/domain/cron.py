"""The grammar of a schedule, apart from clocks and zones.

An expression is read once, strictly, into sets of values. Strict, because every dialect of cron reads the
doubtful forms (wrapped ranges, equal ranges, six fields) differently: whoever writes one is told what to
write instead. The sets answer how many wall-clock times lie between two others without walking them.
"""

from __future__ import annotations

import calendar
import datetime
import itertools
import re
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from clockhand import errors
from clockhand.domain import hashing

FIELD = "spec.schedule"
DAY = 86_400
_MAX_LENGTH = 256
_EPOCH_ORDINAL = 719_163
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_TOKEN = re.compile(r"(?:(?P<star>\*)|(?P<low>[0-9a-z]+)(?:-(?P<high>[0-9a-z]+))?)(?:/(?P<step>[0-9]+))?")
_NEAREST = re.compile(r"(?:(?P<day>[0-9]+)|(?P<last>l))w")
_NTH = re.compile(r"(?P<weekday>[0-9a-z]+)#(?P<nth>[0-9]+)")
_LAST_WEEKDAY = re.compile(r"l(?P<after>[0-7])|(?P<before>[0-7]|sun|mon|tue|wed|thu|fri|sat)l")
_OWN = re.compile(r"h(?:\((?P<low>[0-9a-z]+)-(?P<high>[0-9a-z]+)\))?(?:/(?P<step>[0-9]+))?")
_HAS_OWN = re.compile(r"(?:^|[\s,])h(?![a-z])", re.ASCII | re.IGNORECASE)
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class _Axis:
    """One of the five fields: its name for people, its bounds, and the names it allows for numbers."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, word: str) -> int:
        if word.isdigit():
            value = int(word)
        elif word in self.names:
            value = self.low + self.names.index(word)
        else:
            raise _wrong(f'"{word}" is not a {self.name}: write {self._allowed()}')
        if not self.low <= value <= self.high:
            raise _wrong(f"{self.name} {word} is out of range: write {self._allowed()}")
        return value

    def _allowed(self) -> str:
        words = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"a number from {self.low} to {self.high}{words}"

    def range_of(self, token: str) -> range:
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise _wrong(f'"{token}" is not a {self.name}: write a value, a range a-b, */n or a list of them')
        step = 1 if match["step"] is None else int(match["step"])
        if step == 0:
            raise _wrong(f'the step of "{token}" is 0: write a step of 1 or more, or leave it out')
        if match["star"]:
            return range(self.low, self._top() + 1, step)
        low = self.number(match["low"])
        if match["high"] is None:
            return range(low, (self._top() if match["step"] else low) + 1, step)
        high = self.number(match["high"])
        if low > high:
            raise _wrong(self._unwrapped(token, low_word=match["low"], high_word=match["high"]))
        return range(low, high + 1, step)

    def own(self, token: str, job_id: uuid.UUID) -> str:
        """An H as the plain token that it is for this job."""
        match = _OWN.fullmatch(token)
        if match is None:
            raise _wrong(f'"{token}" is not a {self.name}: write H, H/n, H(a-b) or H(a-b)/n')
        low, high = self.low, 28 if self is _DAY else self._top()  # each month has a 28th
        if match["low"]:
            low, high = self.number(match["low"]), self.number(match["high"])
        if low > high:
            raise _wrong(f'"{token}" runs backwards: write H({match["high"]}-{match["low"]})')
        step = high - low + 1 if match["step"] is None else int(match["step"])
        if step == 0:
            raise _wrong(f'the step of "{token}" is 0: write a step of 1 or more, or leave it out')
        start = low + hashing.below(min(step, high - low + 1), job_id=job_id, name=f"H {self.name}")
        return f"{start}-{high}/{step}" if match["step"] else str(start)

    def _top(self) -> int:
        return 6 if self is _WEEKDAY else self.high

    def _unwrapped(self, token: str, *, low_word: str, high_word: str) -> str:
        named = self.names if low_word in self.names else (str(self.low), str(self._top()))
        tail = low_word if low_word == named[-1] else f"{low_word}-{named[-1]}"
        head = high_word if high_word == named[0] else f"{named[0]}-{high_word}"
        return f'"{token}" runs backwards: write {tail},{head}'


_MINUTE = _Axis("minute", 0, 59)
_HOUR = _Axis("hour", 0, 23)
_DAY = _Axis("day of month", 1, 31)
_MONTH = _Axis("month", 1, 12, _MONTH_NAMES)
_WEEKDAY = _Axis("day of week", 0, 7, _WEEKDAY_NAMES)
_AXES = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


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
        return self.dates is None and self.weekdays is None and len(self.months) == 12

    def of_month(self, year: int, month: int) -> tuple[int, ...]:
        """The matching dates of one month, ascending."""
        if month not in self.months:
            return ()
        length = calendar.monthrange(year, month)[1]
        if self.dates is None and self.weekdays is None:
            return tuple(range(1, length + 1))
        found: set[int] = set()
        found.update(self._by_date(year, month, length=length))
        found.update(self._by_weekday(year, month, length=length))
        return tuple(sorted(found))

    def _by_date(self, year: int, month: int, *, length: int) -> Iterator[int]:
        yield from (date for date in self.dates or () if date <= length)
        if self.last:
            yield length
        for date in self.nearest:
            yield _nearest_weekday(year, month, date=min(date, length), length=length)

    def _by_weekday(self, year: int, month: int, *, length: int) -> Iterator[int]:
        if self.weekdays is None:
            return
        first = (calendar.weekday(year, month, 1) + 1) % 7
        for date in range(1, length + 1):
            weekday = (first + date - 1) % 7
            weeks = {(date + 6) // 7, 0} if date + 7 > length else {(date + 6) // 7}
            if weekday in self.weekdays or any((weekday, week) in self.nth for week in weeks):
                yield date


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression as sets. Wall-clock times are seconds since 1970-01-01 00:00 on the wall."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days
    fixed: bool  # neither minute nor hour starts with *: bound to a time of day, not to real time

    def count(self, low: int, high: int) -> int:
        """How many matches lie in [low, high)."""
        if high <= low:
            return 0
        (first, since), (last, until) = divmod(low, DAY), divmod(high, DAY)
        total = self._count_days(first, last) * len(self.hours) * len(self.minutes)
        if until and self._has_day(last):
            total += self._rank(until)
        if since and self._has_day(first):
            total -= self._rank(since)
        return total

    def time_from(self, seconds: int) -> int | None:
        """The first time of day at or after `seconds` since midnight, None where the rest of the day has none."""
        hour, rest = divmod(seconds, 3600)
        index = bisect_left(self.hours, hour)
        if index < len(self.hours) and self.hours[index] == hour:
            later = bisect_left(self.minutes, -(-rest // 60))
            if later < len(self.minutes):
                return hour * 3600 + self.minutes[later] * 60
            index += 1
        return self.hours[index] * 3600 + self.minutes[0] * 60 if index < len(self.hours) else None

    def matches(self, wall: int) -> bool:
        return self.count(wall, wall + 1) == 1

    def descending(self, low: int, high: int) -> Iterator[int]:
        """The matches in [low, high), latest first."""
        if high <= low:
            return
        for day in self._days_descending(low // DAY, (high - 1) // DAY):
            for hour in reversed(self.hours):
                start = day * DAY + hour * 3600
                if start < high and start + 3600 > low:
                    yield from (w for m in reversed(self.minutes) if low <= (w := start + m * 60) < high)

    def possible(self) -> bool:
        """Whether any date ever matches; the calendar repeats its weekdays and leap days within 40 years."""
        return any(self.days.of_month(year, month) for year in range(2000, 2040) for month in range(1, 13))

    def _rank(self, seconds: int) -> int:
        hour, rest = divmod(seconds, 3600)
        index = bisect_left(self.hours, hour)
        rank = index * len(self.minutes)
        if index < len(self.hours) and self.hours[index] == hour:
            rank += bisect_left(self.minutes, -(-rest // 60))
        return rank

    def _count_days(self, first: int, last: int) -> int:
        if self.days.every:
            return last - first
        total = 0
        for year, month in _months(first, last):
            days = _days_of(self.days, year, month)
            total += bisect_left(days, last) - bisect_left(days, first)
        return total

    def _has_day(self, day: int) -> bool:
        return self.days.every or self._count_days(day, day + 1) == 1

    def _days_descending(self, first: int, last: int) -> Iterator[int]:
        for year, month in _months(first, last + 1, newest_first=True):
            yield from (day for day in reversed(_days_of(self.days, year, month)) if first <= day <= last)


def read(expression: str) -> Cron:
    """Read an expression, or say in one sentence what to write instead."""
    minute, hour, date, month, weekday = _split(expression)
    days = _read_days(date, month=month, weekday=weekday)
    cron = Cron(
        minutes=_ascending(_MINUTE, minute),
        hours=_ascending(_HOUR, hour),
        days=days,
        fixed=not minute.startswith("*") and not hour.startswith("*"),
    )
    if not cron.possible():
        raise _wrong("names a date that never comes, such as 30 February: write a day that its months have")
    return cron


def settle(expression: str, job_id: uuid.UUID) -> str:
    """The expression with each H as what it is for this job; without an H the expression itself."""
    if _HAS_OWN.search(expression) is None:
        return expression
    texts = _split(expression)
    return " ".join(_settle(axis, text, job_id) for axis, text in zip(_AXES, texts, strict=True))


def _settle(axis: _Axis, text: str, job_id: uuid.UUID) -> str:
    return ",".join(axis.own(token, job_id) if token.startswith("h") else token for token in text.split(","))


def walkable(days: Days) -> tuple[str, ...]:
    """Plain expressions for midnight whose union is these days, without forms that libraries read differently.

    A library that walks them needs no opinion on "either day field", on mixed lists or on equal ranges.
    """
    months = _join(sorted(days.months), _MONTH)
    if days.dates is None and days.weekdays is None:
        return (f"0 0 * {months} *",)
    dates = [_join(sorted(days.dates), _DAY)] if days.dates else []
    dates += ["L"] * days.last + [f"{date}W" for date in sorted(days.nearest)]
    weekdays = [_join(sorted(days.weekdays), _WEEKDAY)] if days.weekdays else []
    weekdays += [f"{day}#{nth}" if nth else f"L{day}" for day, nth in sorted(days.nth)]
    by_date = [f"0 0 {date} {months} *" for date in dates]
    return (*by_date, *(f"0 0 * {months} {day}" for day in weekdays))


def _split(expression: str) -> list[str]:
    if len(expression) > _MAX_LENGTH:
        raise _wrong(f"is longer than {_MAX_LENGTH} characters: split it over several jobs")
    if not expression.isascii() or not all(c.isprintable() or c in "\t\r\n" for c in expression):
        raise _wrong("holds a character that is not plain ASCII: write ASCII digits, letters and spaces")
    text = expression.strip().lower()
    if text.startswith(("tz=", "cron_tz=")):
        raise _wrong("carries a time zone: leave the prefix out and set spec.timeZone")
    if text.startswith("@"):
        return _named(text).split()
    fields = text.split()
    if len(fields) != 5:
        raise _wrong(_wrong_count(len(fields)))
    return fields


def _named(text: str) -> str:
    if text.startswith("@every"):
        raise _wrong("@every is not a schedule: set spec.every instead, as in every: 90m")
    if text == "@reboot":
        raise _wrong("@reboot has no meaning in a cluster: write the time at which to run, such as 0 2 * * *")
    if text not in _NAMED:
        raise _wrong(f'"{text}" is not known: write 5 fields or one of {", ".join(_NAMED)}')
    return _NAMED[text]


def _wrong_count(count: int) -> str:
    shape = "minute, hour, day of month, month, day of week"
    hint = ", without seconds or a year" if count > 5 else ""
    return f"has {count} field{'s' if count != 1 else ''} where 5 are needed: write {shape}{hint}"


def _tokens(axis: _Axis, text: str) -> list[str]:
    tokens = text.split(",")
    if "" in tokens:
        raise _wrong(f'the {axis.name} "{text}" has a comma with nothing beside it: leave that comma out')
    for token in tokens:
        if re.match(r"[hr](?:\(|/|$)", token):
            raise _wrong(f'"{token}" is not a fixed {axis.name}: write a number, or H for a value of the job\'s own')
        if token.startswith(("+", "-")):
            raise _wrong(f'"{token}" has a sign: write a plain {axis.name}')
    return tokens


def _ascending(axis: _Axis, text: str) -> tuple[int, ...]:
    return tuple(sorted({value for token in _tokens(axis, text) for value in axis.range_of(token)}))


def _read_days(date: str, *, month: str, weekday: str) -> Days:
    dates, last, nearest = _read_dates(date)
    weekdays, nth = _read_weekdays(weekday)
    return Days(frozenset(_ascending(_MONTH, month)), dates, last, nearest, weekdays, nth)


def _read_dates(text: str) -> tuple[frozenset[int] | None, bool, frozenset[int]]:
    tokens = _tokens(_DAY, text)
    if "*" in tokens or tokens == ["?"]:
        return None, False, frozenset()
    dates: set[int] = set()
    nearest: set[int] = set()
    for token in tokens:
        match = _NEAREST.fullmatch(token)
        if match is not None:
            nearest.add(31 if match["last"] else _DAY.number(match["day"]))
        elif token != "l":
            dates.update(_DAY.range_of(token))
    return frozenset(dates), "l" in tokens, frozenset(nearest)


def _read_weekdays(text: str) -> tuple[frozenset[int] | None, frozenset[tuple[int, int]]]:
    tokens = _tokens(_WEEKDAY, text)
    if "*" in tokens or tokens == ["?"]:
        return None, frozenset()
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for token in tokens:
        if (match := _LAST_WEEKDAY.fullmatch(token)) is not None:
            nth.add((_WEEKDAY.number(match["after"] or match["before"]) % 7, 0))
        elif (match := _NTH.fullmatch(token)) is not None:
            nth.add((_WEEKDAY.number(match["weekday"]) % 7, _which(token, int(match["nth"]))))
        else:
            weekdays.update(value % 7 for value in _WEEKDAY.range_of(token))
    return frozenset(weekdays), frozenset(nth)


def _which(token: str, nth: int) -> int:
    if not 1 <= nth <= 5:
        raise _wrong(f'"{token}" names a week that no month has: write #1 to #5, or L for the last one')
    return nth


def _nearest_weekday(year: int, month: int, *, date: int, length: int) -> int:
    weekday = calendar.weekday(year, month, date)
    if weekday == calendar.SATURDAY:
        return date - 1 if date > 1 else date + 2
    if weekday == calendar.SUNDAY:
        return date + 1 if date < length else date - 2
    return date


@lru_cache(maxsize=16_384)
def _days_of(days: Days, year: int, month: int) -> tuple[int, ...]:
    start = _day_number(year, month)
    return tuple(start + date - 1 for date in days.of_month(year, month))


@lru_cache(maxsize=4_096)
def _day_number(year: int, month: int) -> int:
    return datetime.date(year, month, 1).toordinal() - _EPOCH_ORDINAL


def _months(first: int, last: int, *, newest_first: bool = False) -> Iterable[tuple[int, int]]:
    if last <= first:
        return ()
    low, high = (_month_index(day) for day in (first, last - 1))
    indexes = range(high, low - 1, -1) if newest_first else range(low, high + 1)
    return ((index // 12, index % 12 + 1) for index in indexes)


def _month_index(day: int) -> int:
    date = datetime.date.fromordinal(day + _EPOCH_ORDINAL)
    return date.year * 12 + date.month - 1


def _join(values: Iterable[int], axis: _Axis) -> str:
    """The shortest plain spelling: a library reads `0-59/5` far faster than twelve numbers."""
    numbers = list(values)
    if len(numbers) > axis._top() - axis.low:
        return "*"
    if len(numbers) > 2 and len({b - a for a, b in itertools.pairwise(numbers)}) == 1:
        return f"{numbers[0]}-{numbers[-1]}/{numbers[1] - numbers[0]}"
    return ",".join(map(str, numbers))


def _wrong(sentence: str) -> errors.InvalidInput:
    return errors.InvalidInput(FIELD, sentence)
