"""A duty has one holder, and who lost it can write nothing under it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from clockhand import errors
from clockhand.store import database, duties

LEASE = timedelta(minutes=1)


async def take(db: database.Database, replica: str) -> duties.Held | None:
    async with db.transaction() as connection:
        return await duties.take(connection, duties.MIRROR, replica=replica, lease=LEASE)


async def expire(db: database.Database) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE duty_leases SET expires_at = now()")


async def test_one_of_many_takes_it(db: database.Database) -> None:
    taken = await asyncio.gather(*(take(db, f"replica-{number}") for number in range(8)))
    assert sum(held is not None for held in taken) == 1


async def test_a_lapsed_lease_may_be_renewed_until_somebody_took_it(db: database.Database) -> None:
    first = await take(db, "one")
    assert first
    await expire(db)
    async with db.transaction() as connection:
        await duties.renew(connection, first, lease=LEASE)
    assert await take(db, "two") is None
    await expire(db)
    second = await take(db, "two")
    assert second
    assert second.generation == first.generation + 1
    async with db.transaction() as connection:
        with pytest.raises(errors.Stale):
            await duties.renew(connection, first, lease=LEASE)


async def test_the_same_replica_again_is_another_holder(db: database.Database) -> None:
    first = await take(db, "one")
    assert first
    await expire(db)
    second = await take(db, "one")
    assert second
    async with db.transaction() as connection:
        with pytest.raises(errors.Stale):
            await duties.hold(connection, first)
        await duties.hold(connection, second)


async def test_resigning_frees_it_at_once_and_only_once(db: database.Database) -> None:
    first = await take(db, "one")
    assert first
    async with db.transaction() as connection:
        await duties.resign(connection, first)
    second = await take(db, "two")
    assert second
    async with db.transaction() as connection:
        await duties.resign(connection, first)
    assert await take(db, "three") is None


async def test_nobody_takes_over_in_the_middle_of_a_write(db: database.Database) -> None:
    first = await take(db, "one")
    assert first
    await expire(db)
    async with db.transaction() as connection:
        await duties.hold(connection, first)
        taking = asyncio.create_task(take(db, "two"))
        done, _ = await asyncio.wait([taking], timeout=0.3)
        assert not done
    assert await taking is not None
