"""What is due, found by looking at a clock on a wall in every minute.

It is slow and plain on purpose, shares no code with the product (no croniter, no grammar, no stretches of constant
offset), and reads only the same zone data. Where it and the product differ, one of them is wrong.
"""

from __future__ import annotations

import calendar
import importlib.resources
import re
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LOOK_BACK = DAY
"""No clock was turned back further: a wall time that comes twice was first seen within it."""
_SCAN = 5 * DAY
"""No clock jumps twice within it."""
Glance = tuple[int, int, int, int]
"""What a wall shows in one minute: minutes since 1970 on the wall, and the same as day, hour and minute."""


@lru_cache(maxsize=64)
def zone(name: str) -> zoneinfo.ZoneInfo:
    """A zone from the data that is shipped with the product."""
    with (importlib.resources.files("tzdata") / "zoneinfo" / name).open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=8)
def glances(name: str, first: datetime, minutes: int) -> tuple[Glance, ...]:
    """The wall in each of so many minutes from `first`."""
    found = []
    clock, start = zone(name), int(first.timestamp()) // 60
    for instant in range(start, start + minutes):
        wall = datetime.fromtimestamp(instant * 60, clock)
        days = wall.toordinal() - EPOCH.toordinal()
        found.append((days * 1440 + wall.hour * 60 + wall.minute, days, wall.hour, wall.minute))
    return tuple(found)


@dataclass
class Expression:
    """Five fields and what they say about a wall."""

    text: str
    minutes: frozenset[int] = field(init=False)
    hours: frozenset[int] = field(init=False)
    fixed: bool = field(init=False)
    _known: dict[int, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._fields = self.text.lower().split()
        minute, hour, *_ = self._fields
        self.minutes, self.hours = frozenset(_numbers(minute, 0, 59)), frozenset(_numbers(hour, 0, 23))
        self.fixed = minute[0] != "*" and hour[0] != "*"

    def shows(self, wall: int) -> bool:
        """Whether a wall, in minutes since 1970 on the wall, shows a time of this expression."""
        days, rest = divmod(wall, 1440)
        return rest % 60 in self.minutes and rest // 60 in self.hours and self.on(days)

    def on(self, days: int) -> bool:
        """Whether a date matches."""
        if days not in self._known:
            self._known[days] = self._on(date.fromordinal(days + EPOCH.toordinal()))
        return self._known[days]

    def _on(self, day: date) -> bool:
        _, _, dates, months, weekdays = self._fields
        if day.month not in _numbers(months, 1, 12, MONTHS):
            return False
        by_date = any(_is_date(day, item) for item in dates.split(","))
        by_weekday = any(_is_weekday(day, item) for item in weekdays.split(","))
        either = not {"*", "?"} & {dates, weekdays}
        return by_date or by_weekday if either else by_date and by_weekday


@dataclass(frozen=True)
class Question:
    """Expressions in a zone, and what they do where its clock jumps."""

    expressions: tuple[str, ...]
    zone: str
    gap: str = "RunAfter"
    overlap: str = "First"


def slots(
    question: Question, *, after: datetime, until: datetime, window: tuple[datetime, int] | None = None
) -> list[datetime]:
    """The slots in (after, until]. `window` is a span that is looked at once for many questions."""
    first, minutes = window or _around(after, until)
    start = (after - LOOK_BACK - first) // MINUTE
    walls = glances(question.zone, first, minutes)[start : (until - first) // MINUTE + 1]
    assert start >= 0
    due: set[int] = set()
    for text in question.expressions:
        due.update(_due(Expression(text), walls, question))
    instants = (first + MINUTE * (start + index) for index in sorted(due))
    return [instant for instant in instants if instant > after]


def first_after(question: Question, after: datetime, *, days: int) -> datetime | None:
    """The first slot after `after`, None if there is none in so many days; looks only where a date matches."""
    read = [Expression(text) for text in question.expressions]
    for ahead in range(days):
        start = after + DAY * ahead
        number = (start - EPOCH).days
        if any(one.on(near) for one in read for near in range(number - 2, number + 4)):
            found = slots(question, after=start, until=min(start + DAY, after + DAY * days))
            if found:
                return found[0]
    return None


@lru_cache(maxsize=64)
def changes(name: str, *, since: int, until: int) -> list[datetime]:
    """When the clock of a zone jumped in these years."""
    found, clock = [], zone(name)
    at, end = datetime(since, 1, 1, tzinfo=UTC), datetime(until, 1, 1, tzinfo=UTC)
    while at < end:
        if at.astimezone(clock).utcoffset() != (at + _SCAN).astimezone(clock).utcoffset():
            found.append(_minute_of_change(clock, at))
        at += _SCAN
    return found


def _minute_of_change(clock: zoneinfo.ZoneInfo, low: datetime) -> datetime:
    before, high = low.astimezone(clock).utcoffset(), low + _SCAN
    while high - low > MINUTE:
        middle = low + (high - low) // MINUTE // 2 * MINUTE
        low, high = (middle, high) if middle.astimezone(clock).utcoffset() == before else (low, middle)
    return high


def _around(after: datetime, until: datetime) -> tuple[datetime, int]:
    first = (after - LOOK_BACK).replace(second=0, microsecond=0)
    return first, (until - first) // MINUTE + 1


def _due(one: Expression, walls: Sequence[Glance], question: Question) -> Iterator[int]:
    """The places in `walls` at which one expression is due."""
    once = one.fixed and question.overlap == "First"
    late = one.fixed and question.gap == "RunAfter"
    newest = walls[0][0] - 1
    for index, (wall, days, hour, minute) in enumerate(walls):
        due = minute in one.minutes and hour in one.hours and one.on(days) and not (once and wall <= newest)
        if late and wall > newest + 1:
            due = due or any(one.shows(lost) for lost in range(newest + 1, wall))
        if due:
            yield index
        if wall > newest:
            newest = wall


def _numbers(text: str, low: int, high: int, names: Sequence[str] = ()) -> set[int]:
    for number, name in enumerate(names, start=low):
        text = re.sub(rf"\b{name}\b", str(number), text)
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(low), str(high)
        elif not last:
            last = str(high) if step else first
        found.update(range(int(first), int(last) + 1, int(step or 1)))
    return found


def _is_date(day: date, item: str) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    if item in ("*", "?"):
        return True
    if item == "l":
        return day.day == length
    if item == "lw":
        return day.day == max(_working(day, length))
    if item.endswith("w"):
        wanted = min(int(item[:-1]), length)
        return day.day == min(_working(day, length), key=lambda one: abs(one - wanted))
    return day.day in _numbers(item, 1, 31)


def _working(day: date, length: int) -> Iterable[int]:
    return [one for one in range(1, length + 1) if day.replace(day=one).isoweekday() <= 5]


def _is_weekday(day: date, item: str) -> bool:
    if item in ("*", "?"):
        return True
    if "#" in item:
        weekday, _, nth = item.partition("#")
        return _is_weekday(day, weekday) and (day.day - 1) // 7 + 1 == int(nth)
    if "l" in item:
        return _is_weekday(day, item.replace("l", "", 1)) and (day + 7 * DAY).month != day.month
    if "/" not in item and "-" not in item:
        return day.isoweekday() % 7 in {number % 7 for number in _numbers(item, 0, 7, WEEKDAYS)}
    top = 7 if "-" in item else 6
    return day.isoweekday() % 7 in {number % 7 for number in _numbers(item, 0, top, WEEKDAYS)}
