"""The span in which a job falls due, laid over any kind of due rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clockhand.domain import instants, times


@dataclass(frozen=True, slots=True)
class Bounded:
    """The slots of another rule from `start` to `end`, both included; None: no such bound."""

    inner: times.Times
    start: datetime | None
    end: datetime | None

    def next_after(self, instant: datetime) -> datetime | None:
        if self.end is not None and instant >= self.end:
            return None
        slot = self.inner.next_after(self._from(instant))
        return None if slot is None or (self.end is not None and slot > self.end) else slot

    def count_between(self, after: datetime, until: datetime) -> int:
        return self.inner.count_between(self._from(after), self._until(until))

    def last_before_or_at(self, instant: datetime, *, after: datetime) -> datetime | None:
        return self.inner.last_before_or_at(self._until(instant), after=self._from(after))

    def newest(self, n: int, *, after: datetime, until: datetime) -> tuple[datetime, ...]:
        return self.inner.newest(n, after=self._from(after), until=self._until(until))

    def _from(self, after: datetime) -> datetime:
        return after if self.start is None else max(after, self.start - instants.MILLISECOND)

    def _until(self, until: datetime) -> datetime:
        return until if self.end is None else min(until, self.end)


def within(inner: times.Times, *, start: datetime | None, end: datetime | None) -> times.Times:
    """`inner`, cut to the bounds that there are."""
    return inner if start is None and end is None else Bounded(inner, start, end)
