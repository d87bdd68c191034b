"""Instants as people write and read them, and the one slot of a job that has only one.

A time without an offset means another instant in each reader's zone, and the fraction beyond a millisecond is lost in a
run's id: both are refused rather than guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from clockhand import errors

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(9999, 1, 1, tzinfo=UTC)
"""The calendar of dates has one more year: what is added to an instant, such as jitter, must still be a date."""
MILLISECOND = timedelta(milliseconds=1)
"""The resolution of every slot: the last instant before another one is this much earlier."""
_SECOND = timedelta(seconds=1)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
PATTERN = f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}:[0-5][0-9]([.][0-9]{{1,3}}0*)?(Z|[+-]{_TIME})"
"""The form, in the syntax that Python and the API server's RE2 share."""
SENTENCE = (
    "is not an instant from 1970 to 9998: write date, time and offset, such as 2026-12-24T18:00:00Z"
    " or 2026-12-24T18:00:00+01:00"
)
_FORM = re.compile(PATTERN, re.ASCII)


@lru_cache(maxsize=4_096)
def read(text: str, field: str) -> datetime:
    """The instant in UTC of an RFC 3339 text, or `InvalidInput` for `field`."""
    try:
        instant = datetime.fromisoformat(text).astimezone(UTC) if _FORM.fullmatch(text) else None
    except (ValueError, OverflowError):  # no such date, or none within the calendar
        instant = None
    if instant is None or not EPOCH <= instant < END:
        raise errors.InvalidInput(field, SENTENCE)
    return instant


def rfc3339_ms(instant: datetime) -> str:
    """RFC 3339 in UTC, with milliseconds where there are any."""
    utc = instant.astimezone(UTC)
    precision = "milliseconds" if utc.microsecond >= 1000 else "seconds"
    return utc.isoformat(timespec=precision).replace("+00:00", "Z")


def rfc3339(instant: datetime) -> str:
    """RFC 3339 in UTC, cut to whole seconds: what metav1.Time can hold."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def second_of(instant: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    return (instant - EPOCH) // _SECOND


def at_second(second: int) -> datetime:
    """The instant in UTC that lies so many seconds after 1970."""
    return EPOCH + timedelta(seconds=second)


@dataclass(frozen=True, slots=True)
class Once:
    """The one slot of a one-shot."""

    instant: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        return self.instant if self.instant > instant else None

    def count_between(self, after: datetime, until: datetime) -> int:
        return int(after < self.instant <= until)

    def last_before_or_at(self, instant: datetime, *, after: datetime) -> datetime | None:
        return self.instant if after < self.instant <= instant else None

    def newest(self, n: int, *, after: datetime, until: datetime) -> tuple[datetime, ...]:
        return (self.instant,) if n > 0 and after < self.instant <= until else ()
