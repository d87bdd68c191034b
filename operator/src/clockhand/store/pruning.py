"""What is kept no longer than the installation's retention: whole partitions at once, small tables in small batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from typing import LiteralString

from psycopg import errors as driver_errors
from psycopg import sql

from clockhand.store import database

LIMIT = 5000
_DETACH = sql.SQL("ALTER TABLE {parent} DETACH PARTITION {name} CONCURRENTLY")
_FINALIZE = sql.SQL("ALTER TABLE {parent} DETACH PARTITION {name} FINALIZE")
_DROP = sql.SQL("DROP TABLE IF EXISTS {name}")
_PATIENCE: LiteralString = "SET lock_timeout = '2s'"
_PATIENCE_HERE: LiteralString = "SET LOCAL lock_timeout = '2s'"


async def weeks_in_use(connection: database.Connection, before: datetime) -> Collection[date]:
    """The Mondays of weeks before `before` in which a live run is scheduled."""
    rows = await database.fetch(connection, "pruning.weeks_in_use", {"before": before})
    return frozenset(row.monday for row in rows)


async def drop(db: database.Database, *, parent: str, name: str) -> bool:
    """Detaches and drops one partition without holding up its parent; False where a lock could not be had in time.

    A detach that was cut short is finished first, so the next try goes on where this one ended.
    """
    names = {"parent": sql.Identifier(parent), "name": sql.Identifier(name)}
    async with db.outside_transaction() as connection:
        await connection.execute(_PATIENCE)
        try:
            try:
                await connection.execute(_DETACH.format(**names))
            except driver_errors.ObjectNotInPrerequisiteState:
                await connection.execute(_FINALIZE.format(**names))
        except (driver_errors.LockNotAvailable, driver_errors.QueryCanceled):
            return False
        finally:
            await connection.execute("RESET lock_timeout")
    return await drop_detached(db, name=name)


async def detached(connection: database.Connection) -> Sequence[str]:
    """Partitions that were detached and not dropped: a drop was cut short between the two."""
    return [row.name for row in await database.fetch(connection, "pruning.detached")]


async def drop_detached(db: database.Database, *, name: str) -> bool:
    """Drops a partition that is detached; False where a lock could not be had in time.

    False as well where somebody else was first, who may even have made it anew: that one is in use.
    """
    async with db.transaction() as connection:
        await connection.execute(_PATIENCE_HERE)
        try:
            await database.fetch(connection, "partitions.lock")
            if name not in await detached(connection):
                return False
            await connection.execute(_DROP.format(name=sql.Identifier(name)))
        except (driver_errors.LockNotAvailable, driver_errors.QueryCanceled):
            await connection.rollback()
            return False
    return True


async def sweep(connection: database.Connection, statement: str, *, before: datetime) -> int:
    """Deletes one batch by the named statement of `pruning.sql`; returns its size."""
    return await database.execute(connection, f"pruning.{statement}", {"before": before, "limit": LIMIT})
