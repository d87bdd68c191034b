"""Slots that do not run leave a row and are counted, whoever decides that they do not: firing, an edit, a pause, zone data.

In one place, so that no reason is left out of the figures that administrators watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from clockhand import metrics
from clockhand.store import database, firing


async def record(connection: database.Connection, skips: Sequence[firing.NewSkip], *, now: datetime) -> None:
    """Stores why slots do not run."""
    await firing.insert_skips(connection, skips, now=now)
    for skip in skips:
        metrics.SLOTS_SKIPPED.labels(reason=skip.reason.value).inc(skip.count)
