"""The grammar of a schedule: an expression is read once, strictly, into the times of day and the days that it names.

The minutes of a day are the bits of one number, so that several schedules are joined, counted and searched with the
arithmetic of whole numbers.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from functools import lru_cache

from clockhand.domain import axes
from clockhand.domain import days as dates

FIELD = axes.FIELD
DAY = 86_400
MAX_LENGTH = 256
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_HAS_OWN = re.compile(r"(?:^|[\s,])h(?![a-z])", re.ASCII | re.IGNORECASE)
_NEAREST = re.compile(r"(?:(?P<day>[0-9]+)|(?P<last>l))w")
_NTH = re.compile(r"(?P<weekday>[0-9a-z]+)#(?P<nth>[0-9]+)")
_LAST_WEEKDAY = re.compile(r"l(?P<after>[0-7])|(?P<before>[0-7]|sun|mon|tue|wed|thu|fri|sat)l")


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression as sets."""

    times: int
    """The minutes of a day that match: bit 0 is midnight."""
    days: dates.Days
    fixed: bool
    """Neither minute nor hour starts with *: bound to a time of day, not to real time."""


def read(expression: str) -> Cron:
    """Read a settled expression, or say in one sentence what to write instead."""
    minute, hour, date, month, weekday = _split(expression)
    days = _read_days(date, month, weekday)
    if not days.possible():
        raise axes.wrong("names a date that never comes, such as 30 February: write a day that its months have")
    return Cron(_read_times(minute, hour), days, fixed=not minute.startswith("*") and not hour.startswith("*"))


def settle(expression: str, job_id: uuid.UUID | None) -> str:
    """The expression with each H as what it stands for in one job; without an H, or a job, the expression itself.

    Whatever a user wrote passes here before it is read, so this is also where its length is bounded.
    """
    if len(expression) > MAX_LENGTH:
        raise axes.wrong(f"is longer than {MAX_LENGTH} characters: write several in spec.schedules")
    if job_id is None or _HAS_OWN.search(expression) is None:
        return expression
    texts = _split(expression)
    return " ".join(axis.settle(text, job_id) for axis, text in zip(axes.ALL, texts, strict=True))


def _split(expression: str) -> list[str]:
    if not expression.isascii() or not all(c.isprintable() or c in "\t\r\n" for c in expression):
        raise axes.wrong("holds a character that is not plain ASCII: write ASCII digits, letters and spaces")
    text = expression.strip().lower()
    if text.startswith(("tz=", "cron_tz=")):
        raise axes.wrong("carries a time zone: leave the prefix out and set spec.timeZone")
    if text.startswith("@"):
        return _named(text).split()
    fields = text.split()
    if len(fields) != len(axes.ALL):
        raise axes.wrong(_wrong_count(len(fields)))
    return fields


def _named(text: str) -> str:
    if text.startswith("@every"):
        raise axes.wrong("@every is not a schedule: leave spec.schedule out and set spec.every, such as 90m")
    if text == "@reboot":
        raise axes.wrong("@reboot has no meaning in a cluster: write the time at which to run, such as 0 2 * * *")
    if text not in NAMED:
        raise axes.wrong(f'"{text}" is not known: write 5 fields or one of {", ".join(NAMED)}')
    return NAMED[text]


def _wrong_count(count: int) -> str:
    shape = "minute, hour, day of month, month, day of week"
    hint = ", without seconds or a year" if count > 5 else ""
    return f"has {count} field{'s' if count != 1 else ''} where 5 are needed: write {shape}{hint}"


@lru_cache(maxsize=4_096)
def _read_times(minute: str, hour: str) -> int:
    an_hour = sum(1 << value for value in axes.MINUTE.values(minute))
    return sum(an_hour << 60 * value for value in axes.HOUR.values(hour))


@lru_cache(maxsize=4_096)
def _read_days(date: str, month: str, weekday: str) -> dates.Days:
    numbers, last, nearest = _read_dates(date)
    weekdays, nth = _read_weekdays(weekday)
    return dates.Days(axes.MONTH.values(month), numbers, last, nearest, weekdays, nth)


def _read_dates(text: str) -> tuple[frozenset[int] | None, bool, frozenset[int]]:
    items = axes.DATE.items(text)
    if items == ["?"]:
        return None, False, frozenset()
    numbers: set[int] = set()
    nearest: set[int] = set()
    for item in items:
        match = _NEAREST.fullmatch(item)
        if match is not None:
            nearest.add(31 if match["last"] else axes.DATE.number(match["day"]))
        elif item != "l":
            numbers.update(axes.DATE.range_of(item))
    if "*" in items:  # only now: what stands beside a star is read as well
        return None, False, frozenset()
    return frozenset(numbers), "l" in items, frozenset(nearest)


def _read_weekdays(text: str) -> tuple[frozenset[int] | None, frozenset[tuple[int, int]]]:
    items = axes.WEEKDAY.items(text)
    if items == ["?"]:
        return None, frozenset()
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in items:
        if (match := _LAST_WEEKDAY.fullmatch(item)) is not None:
            nth.add((axes.WEEKDAY.number(match["after"] or match["before"]) % 7, 0))
        elif (match := _NTH.fullmatch(item)) is not None:
            nth.add((axes.WEEKDAY.number(match["weekday"]) % 7, _which(item, int(match["nth"]))))
        else:
            weekdays.update(value % 7 for value in axes.WEEKDAY.range_of(item))
    if "*" in items:
        return None, frozenset()
    return frozenset(weekdays), frozenset(nth)


def _which(item: str, nth: int) -> int:
    if not 1 <= nth <= 5:
        raise axes.wrong(f'"{item}" names a week that no month has: write #1 to #5, or L for the last one')
    return nth
