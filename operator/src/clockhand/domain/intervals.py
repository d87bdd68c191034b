"""A fixed interval: slots that lie the same real time apart, whatever clocks on walls do.

They are counted from an anchor and not from the run before, so that lateness never adds up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from clockhand import errors
from clockhand.domain import ids

FIELD = "spec.every"
PATTERN = "([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?"
"""The form, in the syntax that Python and the API server's RE2 share; the empty text fits too and is refused apart."""
SENTENCE = "is not an interval: write whole days, hours, minutes and seconds in that order, such as 90m, 1h30m or 7d"
TOO_SHORT = "is no time at all: write 1s or more"
MAX_DAYS = 3_650
_UNITS = (86_400, 3_600, 60, 1)
_FORM = re.compile(PATTERN, re.ASCII)


@lru_cache(maxsize=4_096)
def read(text: str) -> timedelta:
    """The length of an interval, or one sentence that says what to write instead."""
    match = _FORM.fullmatch(text)
    if match is None or not text:
        raise errors.InvalidInput(FIELD, SENTENCE)
    seconds = sum(int(part[:-1]) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part)
    if seconds == 0:
        raise errors.InvalidInput(FIELD, TOO_SHORT)
    if seconds > MAX_DAYS * 86_400:
        raise errors.InvalidInput(FIELD, f"is longer than {MAX_DAYS}d: write a shorter one, or spec.at for one instant")
    return timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Every:
    """Slots at anchor + k * interval, for each k from `first` on."""

    interval: timedelta
    anchor: datetime
    first: int

    def next_after(self, instant: datetime) -> datetime | None:
        try:
            return self._slot(self._last(instant) + 1)
        except OverflowError:  # beyond the year 9999
            return None

    def count_between(self, after: datetime, until: datetime) -> int:
        return max(0, self._last(until) - self._last(after))

    def last_before_or_at(self, instant: datetime, *, after: datetime) -> datetime | None:
        return next(iter(self.newest(1, after=after, until=instant)), None)

    def newest(self, n: int, *, after: datetime, until: datetime) -> tuple[datetime, ...]:
        high = self._last(until) + 1
        low = max(self._last(after) + 1, high - n)
        return tuple(self._slot(k) for k in range(low, high))

    def _last(self, instant: datetime) -> int:
        """The number of the last slot at or before `instant`; the one before the first where there is none yet."""
        return max((instant - self.anchor) // self.interval, self.first - 1)

    def _slot(self, k: int) -> datetime:
        return self.anchor + k * self.interval


def anchored(text: str, *, start: datetime | None, created_at: datetime) -> Every:
    """The slots of an interval: its start is the first one, and a job without a start waits once before its first."""
    if start is not None:
        return Every(read(text), start, 0)
    return Every(read(text), ids.whole_ms(created_at), 1)
