"""Several schedules as one: an instant that more than one of them names is one slot."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from clockhand import errors
from clockhand.domain import schedule


@dataclass(frozen=True, slots=True)
class Union:
    """Schedules of one job."""

    parts: tuple[schedule.Schedule, ...]

    def next_after(self, instant: datetime) -> datetime:
        return min(part.next_after(instant) for part in self.parts)

    def count_between(self, after: datetime, until: datetime) -> int:
        return sum(1 for _ in self._descending(after, until))

    def last_before_or_at(self, instant: datetime, *, after: datetime) -> datetime | None:
        return next(self._descending(after, instant), None)

    def newest(self, n: int, *, after: datetime, until: datetime) -> tuple[datetime, ...]:
        return tuple(reversed(list(itertools.islice(self._descending(after, until), n))))

    def _descending(self, after: datetime, until: datetime) -> Iterator[datetime]:
        merged = heapq.merge(*(part.descending(after, until) for part in self.parts), reverse=True)
        return (slot for slot, _ in itertools.groupby(merged))


def parse(expressions: tuple[str, ...], *, zone: str, gap: str, overlap: str) -> Union:
    """Read schedules, or raise `InvalidInput` that names the one that is wrong."""
    parts = []
    for index, expression in enumerate(expressions):
        try:
            parts.append(schedule.parse(expression, zone=zone, gap=gap, overlap=overlap))
        except errors.InvalidInput as error:
            at = f"spec.schedules[{index}]" if error.field == schedule.FIELD else error.field
            raise errors.InvalidInput(at, error.sentence) from None
    return Union(tuple(parts))
