"""The change log of runs, read in the order of its numbers by whoever watches.

Commit order is not the order in which a sequence gives out its values: a transaction that took a lower value may commit
later, and a reader who has passed it would never see it. So writers leave their rows unnumbered, and one sequencer at a
time numbers those rows below which no transaction is open any more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from clockhand.store import database

KEPT = timedelta(minutes=15)
_ROWS = 2_000
_TRIES = 5
_RETRY_SECONDS = 0.05
_EPOCH_BITS = 40


class Standing(msgspec.Struct, frozen=True):
    """How far the log is numbered, whether rows wait for a number, and when that was seen."""

    epoch: int
    newest: int
    pending: bool
    at: datetime


class Change(msgspec.Struct, frozen=True):
    """One run's move: its number in the log, the state it moved to, and the instant of its transaction."""

    number: int
    run_id: uuid.UUID
    state: str
    at: datetime


async def number(connection: database.Connection) -> int | None:
    """Numbers what can be numbered; returns how many rows, None where another process is just doing that.

    Needs a transaction of its own: the numbers are seen, and the lock is free, when it commits.
    """
    row = await database.fetch_one(connection, "changes.lock")
    if row is None or not row.held:
        return None
    # a statement of its own: its snapshot must be younger than the lock
    return await database.execute(connection, "changes.number", {"rows": _ROWS})


async def number_pending(db: database.Database) -> None:
    """Numbers until nothing is left below the horizon; for the process that has just written changes."""
    for _ in range(_TRIES):
        counted: int | None = _ROWS
        while counted == _ROWS:
            async with db.transaction() as connection:
                counted = await number(connection)
        if counted is not None:
            return
        # the other process may have looked before our commit: wait for it to end, then look again
        await asyncio.sleep(_RETRY_SECONDS)


async def newest(connection: database.Connection) -> Standing:
    """Where the log stands."""
    row = await database.fetch_one(connection, "changes.standing")
    assert row is not None
    return Standing(epoch=row.epoch, newest=row.last_change, pending=row.pending, at=row.at)


async def is_kept(connection: database.Connection, after: int, *, standing: Standing) -> bool:
    """Whether every change after number `after` is still in the log."""
    if after >= standing.newest:
        return after == standing.newest
    row = await database.fetch_one(connection, "changes.oldest")
    return row is not None and row.first_number <= after + 1


async def read_after(connection: database.Connection, after: int, *, rows: int = _ROWS) -> Sequence[Change]:
    """The changes that follow number `after`, in order, from at most `rows` rows."""
    found = []
    for row in await database.fetch(connection, "changes.read_after", {"after": after, "rows": rows}):
        for offset, (run_id, state) in enumerate(zip(row.runs, row.states, strict=True)):
            if row.first_number + offset > after:
                found.append(Change(row.first_number + offset, run_id, state, row.changed_at))
    return found


async def trim(connection: database.Connection, now: datetime) -> int:
    """Deletes a bounded number of numbered rows older than 15 minutes; returns how many."""
    return await database.execute(connection, "changes.trim", {"before": now - KEPT, "rows": 5_000})


def version(epoch: int, newest_number: int) -> int:
    """The resourceVersion: a single growing integer, also across epochs."""
    return (epoch << _EPOCH_BITS) + newest_number


def parts(version_number: int) -> tuple[int, int]:
    """(epoch, number) of a resourceVersion."""
    return version_number >> _EPOCH_BITS, version_number & ((1 << _EPOCH_BITS) - 1)
