"""The five fields of a cron expression: bounds, names for numbers, ranges and steps, and what H stands for.

Strict, because every dialect of cron reads the doubtful forms (wrapped ranges, signs, empty items) differently: whoever
writes one is told what to write instead.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from clockhand import errors
from clockhand.domain import hashing

FIELD = "spec.schedule"
_RANGE = re.compile(r"(?:(?P<star>\*)|(?P<low>[0-9a-z]+)(?:-(?P<high>[0-9a-z]+))?)(?:/(?P<step>[0-9]+))?")
_OWN = re.compile(r"h(?:\((?P<low>[0-9a-z]+)-(?P<high>[0-9a-z]+)\))?(?:/(?P<step>[0-9]+))?")
_HASHED_OR_RANDOM = re.compile(r"[hr](?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Axis:
    """One field: its bounds, and the names it allows for numbers."""

    name: str
    """What people call it, and what its H is hashed from: a change of it would move jobs."""
    low: int
    high: int
    top: int
    """The highest number that is meant by *, since Sunday is both 0 and 7."""
    own_top: int
    """The highest number that H stands for, so that each month has it."""
    names: tuple[str, ...] = ()

    def items(self, text: str) -> list[str]:
        """The items of a list, none of them empty or signed."""
        items = text.split(",")
        if "" in items:
            raise wrong(f'the {self.name} "{text}" has a comma with nothing beside it: leave that comma out')
        for item in items:
            if item.startswith(("+", "-")):
                raise wrong(f'"{item}" has a sign: write a plain {self.name}, {self._allowed()}')
            if _HASHED_OR_RANDOM.match(item):
                raise wrong(f'"{item}" is not a fixed {self.name}: write {self._allowed()}')
        return items

    def values(self, text: str) -> frozenset[int]:
        """The numbers that a list of plain items stands for."""
        return frozenset(value for item in self.items(text) for value in self.range_of(item))

    def number(self, word: str) -> int:
        """The number that a word stands for."""
        if word.isdigit():
            value = int(word)
        elif word in self.names:
            value = self.low + self.names.index(word)
        else:
            raise wrong(f'"{word}" is not a {self.name}: write {self._allowed()}')
        if not self.low <= value <= self.high:
            raise wrong(f"{self.name} {word} is out of range: write {self._allowed()}")
        return value

    def range_of(self, item: str) -> range:
        """The numbers that one plain item stands for."""
        match = _RANGE.fullmatch(item)
        if match is None:
            raise wrong(f'"{item}" is not a {self.name}: write a value, a range a-b, */n or a list of them')
        step = _step(item, match["step"])
        if match["star"]:
            return range(self.low, self.top + 1, step or 1)
        low = self.number(match["low"])
        if match["high"] is None:
            return range(low, (self.top if step else low) + 1, step or 1)
        high = self.number(match["high"])
        if low > high:
            raise wrong(self._unwrapped(item, low_word=match["low"], high_word=match["high"]))
        return range(low, high + 1, step or 1)

    def settle(self, text: str, job_id: uuid.UUID) -> str:
        """A list with each H as the plain item that it stands for in this job."""
        return ",".join(self._own(item, job_id) if item.startswith("h") else item for item in text.split(","))

    def _own(self, item: str, job_id: uuid.UUID) -> str:
        match = _OWN.fullmatch(item)
        if match is None:
            raise wrong(f'"{item}" is not a {self.name}: write H, H/n, H(a-b) or H(a-b)/n')
        low, high = self.low, self.own_top
        if match["low"]:
            low, high = self.number(match["low"]), self.number(match["high"])
        if low > high:
            raise wrong(f'"{item}" runs backwards: write H({match["high"]}-{match["low"]})')
        width, step = high - low + 1, _step(item, match["step"])
        start = low + hashing.below(min(step or width, width), job_id=job_id, name=self.name)
        return f"{start}-{high}/{step}" if step and step < width else str(start)

    def _allowed(self) -> str:
        words = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"a number from {self.low} to {self.high}{words}"

    def _unwrapped(self, item: str, *, low_word: str, high_word: str) -> str:
        named = self.names if low_word in self.names else (str(self.low), str(self.top))
        tail = low_word if low_word == named[-1] else f"{low_word}-{named[-1]}"
        head = high_word if high_word == named[0] else f"{named[0]}-{high_word}"
        return f'"{item}" runs backwards: write {tail},{head}'


def _step(item: str, digits: str | None) -> int | None:
    if digits is None:
        return None
    if int(digits) == 0:
        raise wrong(f'the step of "{item}" is 0: write a step of 1 or more, or leave it out')
    return int(digits)


def wrong(sentence: str) -> errors.InvalidInput:
    """The error for an expression that is not read."""
    return errors.InvalidInput(FIELD, sentence)


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MINUTE = Axis("minute", 0, 59, top=59, own_top=59)
HOUR = Axis("hour", 0, 23, top=23, own_top=23)
DATE = Axis("day of month", 1, 31, top=31, own_top=28)
MONTH = Axis("month", 1, 12, top=12, own_top=12, names=_MONTHS)
WEEKDAY = Axis("day of week", 0, 7, top=6, own_top=6, names=_WEEKDAYS)
ALL = (MINUTE, HOUR, DATE, MONTH, WEEKDAY)
