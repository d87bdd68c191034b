"""Applies the numbered SQL files of this folder, one transaction each, one process at a time.

A file is named `NNNN_<before|after>_<what>.sql`. *before* files may run while the previous release is live, and that
release goes on working with them; *after* files come once it is gone. An empty database has no previous release: it gets
all of them at once. Applied files are recorded with their checksum, so that an edited file is noticed, and a database that
a newer release has left for good is refused by name instead of by a strange error later.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import itertools
import re
from collections.abc import Sequence
from typing import LiteralString

import msgspec

from clockhand import errors
from clockhand.store import database

_NAME = re.compile(r"^(?P<number>\d{4})_(?P<phase>before|after)_[a-z0-9_]+\.sql$")
_LEDGER: LiteralString = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      int PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now())
"""
_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(hashtext('clockhand.schema')::bigint)"


class Migration(msgspec.Struct, frozen=True):
    """One file."""

    number: int
    name: str
    phase: str
    sql: LiteralString

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> Sequence[Migration]:
    """Every migration of this release, in order."""
    folder = importlib.resources.files(__name__)
    found = []
    for file in folder.iterdir():
        match = _NAME.match(file.name)
        if match:
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(match["number"]), file.name, match["phase"], text))
    return sorted(found, key=lambda migration: migration.number)


async def apply(db: database.Database, *, after: bool = False) -> Sequence[str]:
    """Applies what is missing, with `after` also what ends the previous release; returns the names applied.

    Safe to run from several processes at once: one works, the others wait and find nothing left.
    """
    applied: list[str] = []
    while True:
        async with db.transaction() as connection:
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute("SET LOCAL lock_timeout = 0")
            await connection.execute(_LOCK)
            await connection.execute("SET LOCAL lock_timeout = '5s'")
            await connection.execute(_LEDGER)
            recorded = await _recorded(connection)
            missing = _missing(recorded)
            pending = missing if after else _first_phase(missing)
            if recorded and not pending:
                _refuse_what_is_blocked(missing)
                return applied
            step = pending[:1] if recorded else missing
            for migration in step:
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO schema_migrations (number, name, checksum) VALUES (%s, %s, %s)",
                    (migration.number, migration.name, migration.checksum),
                )
        applied += [migration.name for migration in step]


async def check(db: database.Database) -> Sequence[str]:
    """Raises SchemaMismatch unless this release can work on the database; returns its *after* files that are still to come.

    It needs its own *before* files, and may meet those of the next release, which are made for it to go on.
    """
    missing = _missing(await _applied(db))
    pending = _first_phase(missing)
    if pending:
        raise errors.SchemaMismatch(f"the database lacks {pending[0].name}: run `clockhand migrate`")
    _refuse_what_is_blocked(missing)
    return [migration.name for migration in missing]


async def is_there(db: database.Database) -> bool:
    """Whether the database has a schema at all, of whatever release."""
    return bool(await _applied(db))


async def _applied(db: database.Database) -> dict[int, tuple[str, str]]:
    async with db.transaction() as connection:
        cursor = await connection.execute("SELECT to_regclass('schema_migrations') IS NOT NULL AS there")
        row = await cursor.fetchone()
        return await _recorded(connection) if row and row.there else {}


async def _recorded(connection: database.Connection) -> dict[int, tuple[str, str]]:
    cursor = await connection.execute("SELECT number, name, checksum FROM schema_migrations")
    return {row.number: (row.name, row.checksum) for row in await cursor.fetchall()}


def _first_phase(missing: Sequence[Migration]) -> Sequence[Migration]:
    """Those that may be applied while the previous release is live: up to the first that ends it."""
    return list(itertools.takewhile(lambda migration: migration.phase == "before", missing))


def _refuse_what_is_blocked(missing: Sequence[Migration]) -> None:
    """What comes first may end the release that runs now, or only one before it: that one knows, and this one does not."""
    blocked = next((migration for migration in missing if migration.phase == "before"), None)
    if blocked is not None:
        raise errors.SchemaMismatch(
            f"the database lacks {blocked.name}, and {missing[0].name} comes before it: run `clockhand migrate --after` "
            "of the release that runs now, then `clockhand migrate` of this one. If a release is skipped, the one that "
            "runs does not know it: scale all parts to 0, then run `clockhand migrate --after` of this one"
        )


def _missing(recorded: dict[int, tuple[str, str]]) -> Sequence[Migration]:
    mine = {migration.number: migration for migration in known()}
    for number, (name, checksum) in sorted(recorded.items()):
        if number not in mine:
            if "_after_" in name:
                raise errors.SchemaMismatch(f"the database is newer than this release: it has {name}")
        elif mine[number].checksum != checksum:
            raise errors.SchemaMismatch(f"{name} was applied with other content than this release has")
    return [migration for number, migration in sorted(mine.items()) if number not in recorded]
