"""The epoch: nothing is claimed on a database that may have gone back in time, until its counters start higher."""

from __future__ import annotations

from clockhand.engine import shards
from clockhand.store import database, installation


async def _epoch(db: database.Database) -> int:
    async with db.transaction() as connection:
        cursor = await connection.execute("SELECT epoch FROM installation")
        row = await cursor.fetchone()
    assert row is not None
    epoch: int = row.epoch
    return epoch


async def test_an_ordinary_start_leaves_the_epoch(db: database.Database) -> None:
    before = await _epoch(db)
    await shards.Shards(db, replica="one", lease=10).run_once()
    assert await _epoch(db) == before


async def test_a_promotion_raises_the_epoch_once(db: database.Database) -> None:
    before = await _epoch(db)
    async with db.transaction() as connection:
        await connection.execute("UPDATE installation SET timeline = '0000000F'")
    for replica in ("one", "two"):
        await shards.Shards(db, replica=replica, lease=10).run_once()
    assert await _epoch(db) == before + 1


async def test_a_restored_backup_says_so_itself(db: database.Database) -> None:
    before = await _epoch(db)
    async with db.transaction() as connection:
        assert await installation.settle_epoch(connection) is None
        assert await installation.settle_epoch(connection, restored=True) == before + 1
