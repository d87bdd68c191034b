"""A database whose clock can be set, and operators on it whose own clocks cannot be fooled.

Functions in `public` stand before those of `pg_catalog` for every connection to the database: `now()` and its kin add an
offset that a table holds. What is bound to `pg_catalog` at its creation, such as the default of a column, would escape:
those defaults are made anew. `escapes` names what is left.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
from tests.support import postgres

from clockhand import errors
from clockhand.engine import admit, backfill, claim, deadlines, fire, launch, limits, observe, pulse, shards
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, queries

LEASE = 60.0
NOBODY = connections.Connection(server="http://127.0.0.1:1")
_CLOCKS = ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp")
_KEYWORDS = re.compile(
    r"\b(current_timestamp|current_date|current_time|localtimestamp|localtime|timeofday)\b|'now'", re.I
)
_OFFSET = "CREATE TABLE clock_offset (by interval NOT NULL); INSERT INTO clock_offset VALUES ('0')"
_FUNCTION = """
CREATE FUNCTION public.{name}() RETURNS timestamptz LANGUAGE sql STABLE
AS 'SELECT pg_catalog.{name}() + (SELECT by FROM public.clock_offset)'
"""
_DEFAULTS = """
SELECT attrelid::regclass::text, attname, pg_get_expr(adbin, adrelid)
FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
WHERE pg_get_expr(adbin, adrelid) ~ 'pg_catalog.*(now|timestamp)|CURRENT_|LOCALTIME'
"""


def make(server: postgres.PostgresServer, name: str) -> None:
    """Gives the database `name` a clock that `set_offset` moves."""
    server.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
    server.execute(_OFFSET, database=name)
    for function in _CLOCKS:
        server.execute(_FUNCTION.format(name=function), database=name)
    for table, column, text in defaults(server.url(name)):
        server.execute(
            f"ALTER TABLE {table} ALTER {column} SET DEFAULT {text.replace('pg_catalog.', 'public.')}", database=name
        )


def defaults(url: str) -> Sequence[tuple[str, str, str]]:
    """Columns whose default reads the true clock: table, column, expression."""
    with psycopg.connect(url) as connection:
        return connection.execute(_DEFAULTS.encode()).fetchall()


def escapes() -> Sequence[str]:
    """Named queries that read the clock in a way that no function can stand before."""
    return [name for name, text in queries.all_queries().items() if _KEYWORDS.search(text) or "pg_catalog." in text]


def set_offset(url: str, seconds: float) -> None:
    """Sets the database's clock that many seconds ahead of the true one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE clock_offset SET by = make_interval(secs => %s)", (seconds,))


@dataclass
class Time:
    """True time, which a test may hurry along, and the database's clock, which it may set."""

    url: str
    hurried: float = 0.0
    ahead: float = 0.0

    def monotonic(self) -> float:
        """What every process's own clock shows."""
        return time.monotonic() + self.hurried

    def hurry(self, by: timedelta) -> None:
        """Time goes by, for everybody."""
        self.hurried += by.total_seconds()
        set_offset(self.url, self.hurried + self.ahead)

    def leap(self, by: timedelta) -> None:
        """The database's clock alone jumps."""
        self.ahead += by.total_seconds()
        set_offset(self.url, self.hurried + self.ahead)


@dataclass
class Operator:
    """What of a replica acts by time, whole, and on connections of its own. Its API server cannot be reached."""

    db: database.Database
    held: shards.Shards
    pulse: pulse.Pulse
    observer: observe.Observe
    launcher: launch.Launch
    refused: list[str] = field(default_factory=list)

    async def turn(self) -> None:
        """Each loop once; what failed is tried again the next time, as `loops.forever` does."""
        for step in (self.held.run_once, self.pulse.run_once, self.observer.run_once):
            try:
                await step()
            except errors.ClockhandError as error:
                self.refused.append(str(error))

    async def settle(self, turns: int = 4) -> None:
        for _ in range(turns):
            await self.turn()


@contextlib.asynccontextmanager
async def operator(at: Time, name: str) -> AsyncIterator[Operator]:
    """A replica that ends without a word, as a killed one does."""
    db = database.Database(at.url, size=3, name=name, monotonic=at.monotonic)
    await db.open()
    try:
        async with clients.connect(NOBODY) as client:
            api = pods.Pods(client)
            held = shards.Shards(db, replica=name, lease=LEASE, clock=at.monotonic)
            observer = observe.Observe(db, api, held=held, clock=at.monotonic)
            reports = launch.Reports(
                launched=observer.note_launched,
                ended=observer.note_claim_end,
                waits=observer.note_waits,
                hand_back=observer.note_hand_back,
                seen=observer.note_pod,
            )
            launcher = launch.Launch(db, api, held=held, reports=reports)
            steps = pulse.Steps(
                fire.Fire(db),
                admit.Admit(db),
                backfill.Backfill(db),
                deadlines.Deadlines(db),
                pulse.Pods(claim.Claims(limits.LimitsFile(None)), launcher, observer),
            )
            beating = pulse.Pulse(db, held=held, steps=steps, monotonic=at.monotonic)
            yield Operator(db, held, beating, observer, launcher)
            await launcher.drain(0)
    finally:
        await db.close()
