"""When a Kubernetes CronJob would fire: what people compare a schedule with before they move it over.

CronJob reads and walks its schedules with a Go library, robfig/cron 3.0.1, whose answers at clock changes follow from
how it walks. So it is walked here in the same steps: a month, a day, an hour, a minute forward until all fields match.
Where a wall time does not exist Go picks an instant beside it, and some of what follows looks odd; it is what CronJob
does. `tests/unit/test_cronjob.py` holds answers of the library itself.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from clockhand.domain import instants, zones

_WALL_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)
_HOUR_SECONDS = 3_600
_MAX_STEPS = 50_000  # the longest walk that ends takes some 2,000; a few end nowhere
_YEARS = 5
_GO_SPACE = re.compile(r"[\t\n\v\f\r \x85\xa0]+")
_GO_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMED: Mapping[str, str] = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)


class RefusedError(ValueError):
    """CronJob would refuse the schedule; the text is the reason that its API server gives."""


class EndlessError(ValueError):
    """The library would search without end, and the CronJob controller with it."""


@dataclass(frozen=True, slots=True)
class _Axis:
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, word: str) -> int:
        if word.lower() in self.names:
            return self.low + self.names.index(word.lower())
        return _integer(word)


_MINUTE = _Axis(0, 59)
_HOUR = _Axis(0, 23)
_DATE = _Axis(1, 31)
_MONTH = _Axis(1, 12, _MONTHS)
_WEEKDAY = _Axis(0, 6, _WEEKDAYS)


@dataclass(frozen=True, slots=True)
class _Values:
    numbers: frozenset[int]
    star: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as CronJob understands it, in a time zone."""

    expression: str
    zone: str
    _fields: tuple[_Values, ...] = field(repr=False)

    def next_after(self, instant: datetime.datetime) -> datetime.datetime | None:
        """When CronJob fires next after `instant`; None where it would not within five years."""
        found = _Walk(self._fields, zone=self.zone, at=instants.second_of(instant) + 1).first()
        return None if found is None else instants.at_second(found)


def parse(expression: str, *, zone: str = "UTC") -> Schedule:
    """Read a schedule as CronJob does, or raise `RefusedError` with its reason. Intervals (`@every`) are not for here."""
    zones.load(zone)
    if not expression:
        raise RefusedError("empty spec string")
    if expression.startswith("@"):
        if expression not in NAMED:
            raise RefusedError(f"unrecognized descriptor: {expression}")
        words = NAMED[expression].split()
    else:
        words = [word for word in _GO_SPACE.split(expression) if word]
    if len(words) != 5:
        raise RefusedError(f"expected exactly 5 fields, found {len(words)}: [{' '.join(words)}]")
    axes = (_MINUTE, _HOUR, _DATE, _MONTH, _WEEKDAY)
    fields = tuple(_field(axis, word) for axis, word in zip(axes, words, strict=True))
    return Schedule(expression=expression, zone=zone, _fields=fields)


def _field(axis: _Axis, text: str) -> _Values:
    numbers: set[int] = set()
    star = False
    for item in filter(None, text.split(",")):
        found, starred = _item(axis, item)
        numbers.update(found)
        star = star or starred
    return _Values(frozenset(numbers), star)


def _item(axis: _Axis, text: str) -> tuple[range, bool]:
    """One of the comma's parts. `*-5` is `*`, and `*/1` is a star where `*/2` is not."""
    parts = text.split("/")
    ends = parts[0].split("-")
    star = ends[0] in ("*", "?")
    low, high = (axis.low, axis.high) if star else _ends(axis, ends, text=text)
    if len(parts) > 2:
        raise RefusedError(f"too many slashes: {text}")
    step = 1
    if len(parts) == 2:
        step = _integer(parts[1])
        high = axis.high if len(ends) == 1 else high
    _check(axis, low=low, high=high, step=step, text=text)
    return range(low, high + 1, step), star and step == 1


def _ends(axis: _Axis, ends: list[str], *, text: str) -> tuple[int, int]:
    low = axis.number(ends[0])
    if len(ends) == 1:
        return low, low
    if len(ends) == 2:
        return low, axis.number(ends[1])
    raise RefusedError(f"too many hyphens: {text}")


def _check(axis: _Axis, *, low: int, high: int, step: int, text: str) -> None:
    if low < axis.low:
        raise RefusedError(f"beginning of range ({low}) below minimum ({axis.low}): {text}")
    if high > axis.high:
        raise RefusedError(f"end of range ({high}) above maximum ({axis.high}): {text}")
    if low > high:
        raise RefusedError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise RefusedError(f"step of range should be a positive number: {text}")


def _integer(word: str) -> int:
    if not _GO_INTEGER.fullmatch(word):
        raise RefusedError(f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": invalid syntax')
    digits = word.lstrip("+-").lstrip("0")
    number = int(digits[:20] or "0")
    if number >= 2**63:
        raise RefusedError(f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": value out of range')
    if word.startswith("-") and number:
        raise RefusedError(f"negative number ({-number}) not allowed: {word}")
    return number


class _Walk:
    """One search. `at` is an instant in seconds since 1970; what matches are the fields of its wall time."""

    def __init__(self, fields: tuple[_Values, ...], *, zone: str, at: int) -> None:
        self._minutes, self._hours, self._dates, self._months, self._weekdays = fields
        self._zone = zones.load(zone)
        self._at = at
        self._reset = False  # whether the smaller fields were set to their start already
        self._steps = 0

    def first(self) -> int | None:
        """The first instant at which all fields match, None if there is none within five years."""
        limit = self._wall().year + _YEARS
        if not self._minutes.numbers:  # nothing but commas: the library looks at every minute of five years
            return None
        while self._wall().year <= limit:
            if self._month() and self._day() and self._hour() and self._minute() and self._second():
                return self._at
        return None

    # Each of these moves to where its field matches, or says that a larger field must be looked at again.

    def _month(self) -> bool:
        while (wall := self._wall()).month not in self._months.numbers:
            if self._starts():
                self._at = self._instant(wall.replace(day=1, hour=0, minute=0, second=0))
            self._at = self._instant(self._wall(), months=1)
            if self._wall().month == 1:
                return False
        return True

    def _day(self) -> bool:
        while not self._day_matches(wall := self._wall()):
            if self._starts():
                self._at = self._instant(wall.replace(hour=0, minute=0, second=0))
            self._at = self._instant(self._wall(), days=1)
            hour = self._wall().hour
            if hour:  # this midnight does not exist, or the day before began late
                self._at += ((24 if hour > 12 else 0) - hour) * _HOUR_SECONDS
            if self._wall().day == 1:
                return False
        return True

    def _hour(self) -> bool:
        while (wall := self._wall()).hour not in self._hours.numbers:
            if self._starts():
                self._at = self._instant(wall.replace(minute=0, second=0))
            self._at += _HOUR_SECONDS
            if self._wall().hour == 0:
                return False
        return True

    def _minute(self) -> bool:
        while self._wall().minute not in self._minutes.numbers:
            if self._starts():
                self._at -= self._at % 60
            self._at += 60
            if self._wall().minute == 0:
                return False
        return True

    def _second(self) -> bool:
        if (second := self._wall().second) == 0:
            return True
        self._starts()
        self._at += 60 - second
        return False

    def _day_matches(self, wall: datetime.datetime) -> bool:
        date = wall.day in self._dates.numbers
        weekday = wall.isoweekday() % 7 in self._weekdays.numbers
        if self._dates.star or self._weekdays.star:
            return date and weekday
        return date or weekday

    def _starts(self) -> bool:
        """Whether this is the first step of the search; counts steps, since not every search ends."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise EndlessError("the library behind CronJob would search for it without end")
        first, self._reset = not self._reset, True
        return first

    def _wall(self) -> datetime.datetime:
        return _WALL_EPOCH + datetime.timedelta(seconds=self._at + self._offset(self._at))

    def _instant(self, wall: datetime.datetime, *, months: int = 0, days: int = 0) -> int:
        """The instant that Go gives a wall time, some months and days on; beside it where it does not exist."""
        first = datetime.datetime(wall.year + (wall.month - 1 + months) // 12, (wall.month - 1 + months) % 12 + 1, 1)
        moved = first + (wall - wall.replace(day=1, hour=0, minute=0, second=0)) + datetime.timedelta(days=days)
        guess = (moved - _WALL_EPOCH) // _SECOND
        offset = self._offset(guess)
        return guess - (self._offset(guess - offset) if offset else 0)

    def _offset(self, instant: int) -> int:
        offset = datetime.datetime.fromtimestamp(instant, self._zone).utcoffset()
        assert offset is not None, "a zone has an offset at every instant"
        return round(offset.total_seconds())
