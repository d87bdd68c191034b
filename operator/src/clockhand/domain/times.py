"""What every kind of due rule answers, so that firing and counting need not know which kind a job has."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose slots they are: hashed values come from `job_id`, an interval without startAt counts from `created_at`."""

    job_id: uuid.UUID
    created_at: datetime


ANYBODY = Origin(uuid.UUID(int=0), datetime(1970, 1, 1, tzinfo=UTC))
"""For questions whose answer is the same for every job, such as whether a rule can be read."""


class Times(Protocol):
    """The slots of one job. Instants are aware UTC datetimes in whole milliseconds."""

    def next_after(self, instant: datetime) -> datetime | None:
        """The first slot strictly later than `instant`; None where there is none any more."""

    def count_between(self, after: datetime, until: datetime) -> int:
        """How many slots lie in (after, until], without walking them."""

    def last_before_or_at(self, instant: datetime, *, after: datetime) -> datetime | None:
        """The newest slot in (after, instant], None where there is none."""

    def newest(self, n: int, *, after: datetime, until: datetime) -> tuple[datetime, ...]:
        """The newest `n` slots in (after, until], oldest first."""


@dataclass(frozen=True, slots=True)
class Span:
    """Slots that lie side by side: `count` of them from `first` to `last`."""

    first: datetime
    last: datetime
    count: int


def span(times: Times, *, after: datetime, until: datetime) -> Span | None:
    """The slots in (after, until], without walking them; None where there is none."""
    first, last = times.next_after(after), times.last_before_or_at(until, after=after)
    if first is None or last is None:
        return None
    return Span(first, last, times.count_between(after, until))
