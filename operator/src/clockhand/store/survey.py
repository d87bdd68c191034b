"""What is measured of the installation as a whole: how much there is of what, and what holds the database back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

import msgspec

from clockhand.store import database, partitions

LIMIT = 10_000
"""Of each kind of live runs that are counted: beyond it a number says enough."""
_WEEK = timedelta(weeks=1)


class Live(msgspec.Struct, frozen=True):
    """So many live runs are alike. `reason` of Blocked ones alone; `oldest`: for how many seconds the first was ready."""

    state: str
    reason: str | None
    pooled: bool
    runs: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Weeks:
    """From when to when there are partitions, in each of the tables that have them."""

    oldest: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """What was found. `horizon_seconds` and `horizon_transactions`: how far back dead rows are kept for somebody."""

    now: datetime
    live: Sequence[Live]
    horizon_seconds: float
    horizon_transactions: int
    weeks: Weeks | None
    """None where a table has no partition at all."""


async def look(connection: database.Connection) -> Look:
    """All of it at once."""
    row = await database.fetch_one(connection, "survey.look", {"limit": LIMIT})
    assert row is not None
    live = msgspec.convert(row.live, list[Live])
    return Look(database.time_in(connection, row), live, row.seconds, row.transactions, _weeks(row.partitions))


def _weeks(names: Iterable[str]) -> Weeks | None:
    starts: dict[str, list[datetime]] = {parent: [] for parent in partitions.PARENTS}
    for name in names:
        if monday := partitions.week_of(name):
            starts[name.rpartition("_")[0]].append(datetime.combine(monday, time(), UTC))
    if not all(starts.values()):
        return None
    return Weeks(min(map(min, starts.values())), min(map(max, starts.values())) + _WEEK)
