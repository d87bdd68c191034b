"""Slots that do not run leave a row and are counted, whoever decides that they do not: firing, an edit, a pause, zone data.

In one place, so that no reason is left out of the figures that administrators watch.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from clockhand import metrics
from clockhand.domain import states, times
from clockhand.store import database, firing


def over(job_id: uuid.UUID, span: times.Span, reason: states.SkipReason) -> firing.NewSkip:
    """The slots of `span` as one row."""
    return firing.NewSkip(job_id, span.first, span.last, span.count, reason)


async def record(connection: database.Connection, skipped: Sequence[firing.NewSkip], *, now: datetime) -> None:
    """Stores why slots do not run."""
    await firing.insert_skips(connection, skipped, now=now)
    for skip in skipped:
        metrics.SLOTS_SKIPPED.labels(reason=skip.reason.value).inc(skip.count)
