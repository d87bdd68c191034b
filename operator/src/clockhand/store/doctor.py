"""What `clockhand doctor` reads of a database, and the little that it sets right there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from clockhand import errors
from clockhand.store import database, partitions, pruning

READ_SECONDS = 5
"""How long a statement may take that only looks."""
_CONNECT_SECONDS = 5
_URL = "CLOCKHAND_DATABASE_URL"
_OPTIONS: Mapping[str, frozenset[str]] = {
    "replicas": frozenset({"fillfactor=50"}),
    "shard_leases": frozenset({"fillfactor=50"}),
    "duty_leases": frozenset({"fillfactor=50"}),
    "jobs": frozenset({"fillfactor=80"}),
    "job_specs": frozenset(),
    "job_status": frozenset({"fillfactor=70"}),
    "backfills": frozenset({"fillfactor=70"}),
    "live_runs": frozenset(
        {
            "fillfactor=70",
            "autovacuum_vacuum_scale_factor=0.02",
            "autovacuum_vacuum_threshold=500",
            "autovacuum_analyze_scale_factor=0.05",
            "autovacuum_vacuum_cost_limit=2000",
        }
    ),
    "run_changes": frozenset({"fillfactor=70"}),
}
"""The storage parameters of each table as the migrations set them."""
TABLES = tuple(_OPTIONS)
_RESET = sql.SQL("ALTER TABLE {name} RESET ({options})")
_SET = sql.SQL("ALTER TABLE {name} SET ({options})")
_VACUUM = sql.SQL("VACUUM (ANALYZE) {name}")


async def reach(url: str) -> None:
    """Connects once. Raises Unavailable, or InvalidInput for a URL that is none; there is no password in either."""
    if url.count("@") > 1:
        # libpq would take what follows the first for a host, and say its name
        raise errors.InvalidInput(_URL, "has more than one @: write one in a password as %40")
    try:
        connection = await psycopg.AsyncConnection.connect(url, connect_timeout=_CONNECT_SECONDS, autocommit=True)
    except psycopg.OperationalError as error:
        raise errors.Unavailable(_said(error)) from None
    except psycopg.Error:
        # libpq quotes what it cannot read, and a password may be in it
        raise errors.InvalidInput(_URL, "is no connection string that libpq can read") from None
    await connection.close()


@contextlib.asynccontextmanager
async def reading(db: database.Database) -> AsyncIterator[database.Connection]:
    """A transaction for looking, each of whose statements is given up soon."""
    async with db.transaction() as connection:
        await connection.execute(f"SET LOCAL statement_timeout = '{READ_SECONDS}s'".encode())
        yield connection


async def one(connection: database.Connection, name: str, **parameters: object) -> Any:
    """The one row of a query of `doctor.sql`."""
    row = await database.fetch_one(connection, f"doctor.{name}", parameters)
    assert row is not None
    return row


async def some(connection: database.Connection, name: str, **parameters: object) -> Sequence[Any]:
    """The rows of a query of `doctor.sql`."""
    return await database.fetch(connection, f"doctor.{name}", parameters)


async def changed_options(connection: database.Connection) -> Mapping[str, Sequence[str]]:
    """By table, the storage parameters that are not as the migrations set them, as they are now."""
    rows = await some(connection, "options", tables=list(TABLES))
    found = {row.name: (frozenset(row.options), _OPTIONS[row.name]) for row in rows}
    return {
        name: sorted(there - meant) or [f"without {option}" for option in sorted(meant - there)]
        for name, (there, meant) in found.items()
        if there != meant
    }


async def restore_options(connection: database.Connection) -> Sequence[str]:
    """Sets the storage parameters of the tables back; returns which tables."""
    rows = await some(connection, "options", tables=list(TABLES))
    wrong = [row for row in rows if frozenset(row.options) != _OPTIONS[row.name]]
    for row in wrong:
        name = sql.Identifier(row.name)
        extra = {option.partition("=")[0] for option in row.options} - {_key(option) for option in _OPTIONS[row.name]}
        if extra:
            await connection.execute(_RESET.format(name=name, options=_names(sorted(extra))))
        if _OPTIONS[row.name]:
            await connection.execute(_SET.format(name=name, options=_values(sorted(_OPTIONS[row.name]))))
    return [row.name for row in wrong]


async def vacuum(db: database.Database, tables: Collection[str]) -> None:
    """Vacuums and analyses some of `TABLES`, one after the other."""
    async with db.outside_transaction() as connection:
        for name in sorted(tables):
            await connection.execute(_VACUUM.format(name=sql.Identifier(name)))


async def make_partitions(db: database.Database, *, now: datetime, retention_days: int) -> Sequence[str]:
    """Makes the partitions that are missing; returns which."""
    async with db.transaction() as connection:
        return await partitions.ensure_window(connection, now=now, retention_days=retention_days)


async def drop_detached(db: database.Database) -> Sequence[str]:
    """Drops partitions that were detached and left; returns which."""
    async with db.transaction() as connection:
        left = await pruning.detached(connection)
    return [name for name in left if await pruning.drop_detached(db, name=name)]


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Whatever the server refuses within the block is Unavailable: a right that is missing, a table that is not there."""
    try:
        yield
    except psycopg.Error as error:
        raise errors.Unavailable(f"database: {_said(error)}") from error


def _said(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _key(option: str) -> str:
    return option.partition("=")[0]


def _names(keys: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, keys))


def _values(options: Sequence[str]) -> sql.Composable:
    pairs = (option.partition("=") for option in options)
    return sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(key), sql.Literal(value)) for key, _, value in pairs
    )
