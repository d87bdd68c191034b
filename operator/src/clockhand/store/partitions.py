"""The weekly partitions of what is over: made before they are needed, dropped whole when their week has passed.

A row whose week has no partition cannot be stored, and a run that cannot be stored cannot end; so they are made for the
whole retention window and two weeks beyond. There is no default partition: with one, none could be detached while others
write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

from psycopg import sql

from clockhand.store import database

PARENTS = ("run_history", "attempts", "skips")
AHEAD = timedelta(weeks=2)
_WEEK = timedelta(weeks=1)
_NAME = re.compile(r"^(?P<parent>run_history|attempts|skips)_(?P<year>\d{4})w(?P<week>\d{2})$")
# made apart and then attached: CREATE ... PARTITION OF would lock out every reader of the parent
_CREATE = sql.SQL("CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
_ATTACH = sql.SQL("ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({start}) TO ({end})")


async def ensure(connection: database.Connection, *, oldest: datetime, newest: datetime) -> Sequence[str]:
    """Makes every missing partition for the weeks from `oldest` to `newest`; returns the names of those it made."""
    return await _ensure(connection, _mondays(oldest, newest))


async def ensure_for(connection: database.Connection, instants: Iterable[datetime], *, now: datetime) -> None:
    """Makes those missing for slots beyond the last week, which every retention covers: without one a run cannot end."""
    old = {_monday(instant) for instant in instants if now - instant > _WEEK}
    if old:
        await _ensure(connection, sorted(old))


async def ensure_window(connection: database.Connection, *, now: datetime, retention_days: int) -> Sequence[str]:
    """The partitions that an installation needs at `now`."""
    return await ensure(connection, oldest=now - timedelta(days=retention_days) - _WEEK, newest=now + AHEAD)


async def expired(connection: database.Connection, before: datetime) -> Sequence[tuple[str, str]]:
    """(parent, partition) of each partition all of whose week lies before `before`, oldest first."""
    rows = await database.fetch(connection, "partitions.existing")
    found = [(week_of(row.name), row.parent, row.name) for row in rows]
    return [
        (parent, name)
        for monday, parent, name in sorted(entry for entry in found if entry[0])
        if monday is not None and _midnight(monday) + _WEEK <= before
    ]


def name_of(parent: str, day: date) -> str:
    """The partition of `parent` for the ISO week of `day`."""
    year, week, _ = day.isocalendar()
    return f"{parent}_{year}w{week:02d}"


def week_of(name: str) -> date | None:
    """The Monday of a partition, None for a table that is not one of ours."""
    match = _NAME.match(name)
    return date.fromisocalendar(int(match["year"]), int(match["week"]), 1) if match else None


async def _ensure(connection: database.Connection, mondays: Iterable[date]) -> Sequence[str]:
    await connection.execute("SET LOCAL TimeZone TO 'UTC'")
    await database.fetch(connection, "partitions.lock")
    there = {row.name for row in await database.fetch(connection, "partitions.existing")}
    made = []
    for monday in mondays:
        for parent in PARENTS:
            name = name_of(parent, monday)
            if name not in there:
                await _make(connection, parent=parent, name=name, monday=monday)
                made.append(name)
    return made


async def _make(connection: database.Connection, *, parent: str, name: str, monday: date) -> None:
    names = {"parent": sql.Identifier(parent), "name": sql.Identifier(name)}
    bounds = {
        "start": sql.Literal(_midnight(monday).isoformat()),
        "end": sql.Literal((_midnight(monday) + _WEEK).isoformat()),
    }
    await connection.execute(_CREATE.format(**names))
    await connection.execute(_ATTACH.format(**names, **bounds))


def _mondays(oldest: datetime, newest: datetime) -> Iterator[date]:
    monday = _monday(oldest)
    while _midnight(monday) <= newest:
        yield monday
        monday += _WEEK


def _monday(instant: datetime) -> date:
    day = instant.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
