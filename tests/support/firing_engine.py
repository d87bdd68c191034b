"""An engine without pods, as a process of its own that a test may kill: leases, fires, goes on with backfills, claims, and
ends what is claimed.

What it finds claimed in a shard that it gains it ends too, as an operator adopts the pods of the one before.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Collection

from clockhand.domain import ids
from clockhand.domain.states import RunKind, RunState
from clockhand.engine import backfill, claim, fire, limits, shards
from clockhand.store import database, runs

LEASE = 2.0
BATCH = 100


async def main(url: str, name: str) -> None:
    """Runs until it is killed."""
    db = database.Database(url, size=4, name=name)
    await db.open()
    held = shards.Shards(db, replica=name, lease=LEASE)
    await asyncio.gather(_leases(db, held), _fire(db, held), _backfill(db, held), _claim(db, held))


async def _leases(db: database.Database, held: shards.Shards) -> None:
    while True:
        gained = await held.run_once()
        if gained:
            await _adopt(db, held, gained)
        await asyncio.sleep(LEASE / 3)


async def _fire(db: database.Database, held: shards.Shards) -> None:
    firer = fire.Fire(db)
    while True:
        await firer.run_once(held.holder().generations)
        await firer.run_once(range(ids.SHARDS), anybodys=True)
        await asyncio.sleep(0.01)


async def _backfill(db: database.Database, held: shards.Shards) -> None:
    while True:
        await backfill.Backfill(db).run_once(held.holder().generations)
        await asyncio.sleep(0.05)


async def _claim(db: database.Database, held: shards.Shards) -> None:
    taker = claim.Claims(limits.LimitsFile(None))
    while True:
        async with db.transaction() as connection:
            now = await database.now(connection)
            claims = await taker.take(connection, holder=held.holder(), limit=BATCH, now=now)
        await _end(db, held, claims)
        await asyncio.sleep(0 if claims else 0.01)


async def _adopt(db: database.Database, held: shards.Shards, gained: Collection[int]) -> None:
    after = runs.NO_RUN
    while True:
        async with db.transaction() as connection:
            claims = await runs.open_of_shards(connection, shards=gained, after=after, limit=BATCH)
        if not claims:
            return
        await _end(db, held, claims)
        after = claims[-1].run_id


async def _end(db: database.Database, held: shards.Shards, claims: Collection[runs.Claim]) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        keys = [runs.Key(one.run_id, one.token, one.shard) for one in claims]
        ours = await runs.lock_open(connection, holder=held.holder(), items=keys)
        outcomes = [runs.Outcome(row.run_id, row.token, RunState.SUCCEEDED, None, None, 0, 0, None) for row in ours]
        ended = await runs.finish(connection, outcomes, now=now)
    for backfill_id in {uuid.UUID(row.key) for row in ended if row.kind == RunKind.BACKFILL}:
        await backfill.Backfill(db).look(backfill_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
