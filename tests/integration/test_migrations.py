"""The schema: applied from empty, by several at once, refused where it does not fit."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import postgres

from clockhand import errors
from clockhand.store import database, migrations


async def test_several_processes_may_migrate_at_once(server: postgres.PostgresServer) -> None:
    url = server.url(server.new_database())
    pools = [database.Database(url, size=1, name=f"m{n}") for n in range(4)]
    for pool in pools:
        await pool.open()
    try:
        applied = await asyncio.gather(*(migrations.apply(pool) for pool in pools))
        assert sorted(name for names in applied for name in names) == [m.name for m in migrations.known()]
        await migrations.check(pools[0])
    finally:
        for pool in pools:
            await pool.close()


async def test_an_empty_database_is_not_ready(server: postgres.PostgresServer) -> None:
    db = database.Database(server.url(server.new_database()), size=1, name="empty")
    await db.open()
    with pytest.raises(errors.SchemaMismatch, match="clockhand migrate"):
        await migrations.check(db)
    await db.close()


async def test_a_newer_database_is_refused(db: database.Database) -> None:
    async with db.transaction() as connection:
        await connection.execute("INSERT INTO schema_migrations VALUES (9999, '9999_after_future.sql', 'x')")
    with pytest.raises(errors.SchemaMismatch, match="newer than this release"):
        await migrations.check(db)


async def test_an_edited_file_is_noticed(db: database.Database) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE schema_migrations SET checksum = 'other' WHERE number = 1")
    with pytest.raises(errors.SchemaMismatch, match="other content"):
        await migrations.check(db)


async def test_the_next_release_may_have_prepared_the_database(db: database.Database) -> None:
    async with db.transaction() as connection:
        await connection.execute("INSERT INTO schema_migrations VALUES (9998, '9998_before_next.sql', 'x')")
    await migrations.check(db)
    assert await migrations.apply(db) == []
