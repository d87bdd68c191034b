"""What is measured of the installation as a whole: how much there is of what, and what holds the database back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

from clockhand.store import database, partitions

LIMIT = 10_000
"""Of each kind of live runs that are counted: beyond it a number says enough."""
_WEEK = timedelta(weeks=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Horizon:
    """How far back dead rows are kept, for the sake of somebody's transaction."""

    seconds: float
    transactions: int


@dataclasses.dataclass(frozen=True, slots=True)
class Weeks:
    """From when to when there are partitions, in each of the tables that have them."""

    oldest: datetime
    end: datetime


async def live(connection: database.Connection) -> Sequence[Any]:
    """Rows (state, reason, pooled, runs, oldest); `reason` of Blocked runs alone, `oldest` is when the first was ready."""
    return await database.fetch(connection, "survey.live", {"limit": LIMIT})


async def horizon(connection: database.Connection) -> Horizon:
    """What holds vacuum back now."""
    row = await database.fetch_one(connection, "survey.horizon")
    assert row is not None
    return Horizon(row.seconds, row.transactions)


async def weeks(connection: database.Connection) -> Weeks | None:
    """None where a table has no partition at all."""
    starts: dict[str, list[datetime]] = {parent: [] for parent in partitions.PARENTS}
    for row in await database.fetch(connection, "partitions.existing"):
        if monday := partitions.week_of(row.name):
            starts[row.parent].append(datetime.combine(monday, time(), UTC))
    if not all(starts.values()):
        return None
    return Weeks(min(map(min, starts.values())), min(map(max, starts.values())) + _WEEK)
