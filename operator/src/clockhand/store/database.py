"""Connections, transactions, and the translation of driver errors: the one seam between psycopg and everything else.

Callers see three kinds of failure. `Unavailable`: nothing was stored, come again. `Uncertain`: the connection was lost
while COMMIT was on its way, so look for the effect before repeating. Anything else is a mistake in the code or the data
and comes through as it is, after a transaction that rolled back.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString

import psycopg
import psycopg.conninfo
import psycopg_pool
import structlog
from psycopg import rows

from clockhand import errors, metrics
from clockhand.domain import clock as clocks
from clockhand.store import arrays, queries

log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[Any]
Parameters = Mapping[str, Any]

_SESSION = (
    "-c statement_timeout={statement_seconds}s -c lock_timeout=5s -c idle_in_transaction_session_timeout=10s "
    "-c tcp_user_timeout=10000 -c TimeZone=UTC -c jit=off -c synchronous_commit=on -c enable_seqscan=off"
)
_FRESH_SECONDS = 1.0
_PREPARED_AFTER = 5
_AT_ONCE = 50
"""Rows that are read before others have their turn."""
_KEEPALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}


class TooMuch(errors.Unavailable):
    """A statement was given up for its length: where it is about many rows, fewer of them may do."""


class ClockStepped(errors.Unavailable):
    """The database's clock is not where it should be: nothing may be decided by it before that is stored."""

    def __init__(self, stored: clocks.Stored, jump: timedelta) -> None:
        super().__init__(f"the database's clock jumped by {clocks.signed(jump)}")
        self.stored = stored
        self.jump = jump


class _Watch:
    """Holds each reading of the database's clock against this process's own."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._projection: clocks.Projection | None = None

    def see(self, clock: datetime, stored: clocks.Stored, *, since: float) -> None:
        reading = clocks.Reading(clock, stored, before=since, after=self.monotonic())
        self._projection, jump = clocks.observe(self._projection, reading)
        if jump:
            raise ClockStepped(stored, jump)

    def stored(self, stored: clocks.Stored) -> None:
        """This process stored a step itself: that is no news at the next reading."""
        if self._projection is not None:
            self._projection = dataclasses.replace(self._projection, stored=stored)


class _Timed(psycopg.AsyncConnection[Any]):
    """A connection that knows since when its transaction may be open, and whose clock to hold it against."""

    watch: _Watch | None = None
    since: float = -math.inf


class Database:
    """A pool of connections to one database. Open it before use; `url` is a libpq connection string or URI.

    `options=False` is for a transaction pooler: it refuses session settings at connect, and may give the name of a prepared
    statement to a connection that does not know it. `patience` is how many seconds a caller waits for a connection, and
    `statement_seconds` how long a statement may take. Every time that the database tells is held against `monotonic`.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int,
        name: str,
        options: bool = True,
        patience: float = 10,
        statement_seconds: int = 10,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        keywords: dict[str, Any] = {
            "application_name": f"clockhand-{name}",
            "connect_timeout": 5,
            "tcp_user_timeout": 10_000,
            **_KEEPALIVE,
        }
        if options:
            keywords["options"] = _SESSION.format(statement_seconds=statement_seconds)
        self._pool = psycopg_pool.AsyncConnectionPool(
            psycopg.conninfo.make_conninfo(url, **{k: v for k, v in keywords.items() if k not in url}),
            min_size=1,
            max_size=size,
            open=False,
            timeout=patience,
            max_idle=60,
            reconnect_timeout=5,
            name=name,
            connection_class=_Timed,
            kwargs={
                "autocommit": False,
                "row_factory": rows.namedtuple_row,
                "context": arrays.adapters(),
                "prepare_threshold": _PREPARED_AFTER if options else None,
            },
            check=self._check,
        )
        self._watch = _Watch(monotonic)
        self._measure(name, size)
        self._wait = metrics.DATABASE_WAIT.labels(pool=name)
        self._answered: weakref.WeakKeyDictionary[Connection, float] = weakref.WeakKeyDictionary()

    async def open(self) -> None:
        """Starts the pool; does not wait for the database, which may come later."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Closes every connection."""
        await self._pool.close()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction: committed at the end of the block, rolled back on any error inside it.

        Raises Unavailable where nothing was stored, Uncertain where the COMMIT was sent and its answer was lost.
        """
        with _translated():
            asked = time.perf_counter()
            async with self._pool.connection() as connection:
                self._wait.observe(time.perf_counter() - asked)
                connection.watch, connection.since = self._watch, self._watch.monotonic()
                # the pool's own context would hide which of the two happened, so begin and end are spelt out here
                try:
                    yield connection
                except ClockStepped as stepped:
                    await self._note_step(connection, stepped)
                    raise
                except BaseException:
                    with contextlib.suppress(psycopg.Error):
                        await connection.rollback()
                    raise
                await _commit(connection)
                self._answered[connection] = time.monotonic()

    @contextlib.asynccontextmanager
    async def outside_transaction(self) -> AsyncIterator[Connection]:
        """A connection on which each statement commits by itself, for the few that cannot be in a transaction."""
        with _translated():
            async with self._pool.connection() as connection:
                await connection.set_autocommit(True)
                try:
                    yield connection
                finally:
                    if not connection.broken:
                        await connection.set_autocommit(False)

    def _measure(self, name: str, size: int) -> None:
        """Counted by the pool anyway, and asked for when somebody wants to know."""
        pool = weakref.ref(self._pool)

        def told(which: str) -> float:
            there = pool()
            return there.get_stats().get(which, 0) if there is not None else 0

        connections = metrics.DATABASE_CONNECTIONS
        connections.labels(pool=name, state="used").set_function(lambda: told("pool_size") - told("pool_available"))
        connections.labels(pool=name, state="idle").set_function(lambda: told("pool_available"))
        metrics.DATABASE_WAITING.labels(pool=name).set_function(lambda: told("requests_waiting"))
        metrics.DATABASE_MOST.labels(pool=name).set(size)

    async def _note_step(self, connection: Connection, stepped: ClockStepped) -> None:
        """In a transaction of its own: what was to be decided by that clock is rolled back."""
        total = stepped.stored.with_jump(stepped.jump)
        parameters = {
            "total": total.total_seconds() if total is not None else None,
            "step": stepped.stored.step,
            "noticed_at": stepped.stored.noticed_at,
        }
        with contextlib.suppress(psycopg.Error):  # the next reading finds the same
            await connection.rollback()
            noted = await fetch_one(connection, "installation.note_step", parameters)
            await connection.commit()
            if noted is not None:
                self._watch.stored(clocks.Stored(noted.clock_step, noted.clock_noticed_at))
                log.error("clock_stepped", by=clocks.signed(stepped.jump), unconfirmed=clocks.signed(total))

    async def _check(self, connection: Connection) -> None:
        """Asking costs as much as a small statement: a connection that answered a moment ago is taken at its word."""
        if time.monotonic() - self._answered.get(connection, -math.inf) > _FRESH_SECONDS:
            await psycopg_pool.AsyncConnectionPool.check_connection(connection)


async def _commit(connection: Connection) -> None:
    try:
        await connection.commit()
    except psycopg.OperationalError as error:
        if connection.broken:
            raise _counted("Uncertain", errors.Uncertain("the connection was lost during COMMIT")) from error
        raise


@contextlib.contextmanager
def _translated() -> Any:
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise _counted("NoConnection", errors.Unavailable("no database connection could be had in time")) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        sentence = "the database is read-only: connected to a standby?"
        raise _counted("ReadOnly", errors.Unavailable(sentence)) from error
    except psycopg.errors.QueryCanceled as error:
        raise _counted("TooLong", TooMuch("a statement took longer than it may")) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        sentence = f"database: {str(error).splitlines()[0] if str(error) else 'gone'}"
        raise _counted("Lost", errors.Unavailable(sentence)) from error


def _counted(kind: str, error: errors.ClockhandError) -> errors.ClockhandError:
    metrics.DATABASE_ERRORS.labels(kind=kind).inc()
    return error


async def _run(connection: Connection, name: str, parameters: Parameters | None) -> psycopg.AsyncCursor[Any]:
    began = time.perf_counter()
    try:
        return await connection.execute(_text(name), parameters)
    finally:  # what fails may have taken longest
        metrics.query_seconds(name).observe(time.perf_counter() - began)


async def fetch(connection: Connection, name: str, parameters: Parameters | None = None) -> Sequence[Any]:
    """All rows of the named query, as named tuples."""
    cursor = await _run(connection, name, parameters)
    return await cursor.fetchall()


async def parts(connection: Connection, name: str, parameters: Parameters) -> AsyncIterator[Sequence[Any]]:
    """The rows of the named query, some at a time, so that many of them keep nobody waiting."""
    cursor = await _run(connection, name, parameters)
    while some := await cursor.fetchmany(_AT_ONCE):
        yield some
        if len(some) < _AT_ONCE:
            break
        await asyncio.sleep(0)


async def fetch_one(connection: Connection, name: str, parameters: Parameters | None = None) -> Any | None:
    """The first row of the named query, None where there is none."""
    cursor = await _run(connection, name, parameters)
    return await cursor.fetchone()


async def execute(connection: Connection, name: str, parameters: Parameters | None = None) -> int:
    """Runs the named query; returns how many rows it touched."""
    cursor = await _run(connection, name, parameters)
    return cursor.rowcount


async def now(connection: Connection) -> datetime:
    """The installation's time at the start of this transaction: what decides what is due and what has expired.

    It is what the database's clock shows, less a step that nobody has confirmed. Raises ClockStepped where this process
    is the first to see a step.
    """
    row = await fetch_one(connection, "installation.now")
    assert row is not None
    return time_in(connection, row)


def time_in(connection: Connection, row: Any) -> datetime:
    """The installation's time by a row that has `clock`, `clock_step` and `clock_noticed_at`, read in this transaction."""
    stored = clocks.Stored(row.clock_step, row.clock_noticed_at)
    if isinstance(connection, _Timed) and connection.watch is not None:
        connection.watch.see(row.clock, stored, since=connection.since)
    return stored.time_at(row.clock)


def _text(name: str) -> LiteralString:
    return queries.sql(name)
