"""What waits costs next to nothing, however many wait."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.integration.test_pools import claim, make_pool, until
from tests.support import jobs, statements

from clockhand.domain import protocol
from clockhand.engine.pools import dispatch, kafka, service
from clockhand.store import database

WORKERS = 200
SECONDS = 60.0
LEASE = 10.0


@pytest.fixture
async def pools(db: database.Database) -> service.Pools:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        await make_pool(connection)
    return service.Pools(db, replica="one", lease=LEASE)


async def test_200_waiting_claims_cost_a_query_a_second(
    db: database.Database, pools: service.Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loops are stepped as their clock would, for as long as their steps ask to sleep; claims come again as ever."""
    steps = pools.steps()
    asked = [claim(f"w{number}", wait_seconds=600.0) for number in range(WORKERS)]
    waiting = [asyncio.create_task(pools.claim(jobs.POOL, one)) for one in asked]
    await until(lambda: len(pools.desk.sitting(jobs.POOL)) == WORKERS)
    for name in ("shards", "pulse", "queue"):
        await steps[name]()
    names = statements.named(monkeypatch)
    due = dict.fromkeys(("shards", "pulse"), 0.0)
    while (now := min(due.values())) < SECONDS:
        name = min(due, key=lambda one: due[one])
        due[name] = now + await steps[name]()
        again = WORKERS * int(now) // 20
        waiting += await _come_again(pools, waiting, again)
    without_brokers = dispatch.Dispatch(db, pools.desk, kafka.Publisher(), replica="one")
    assert len(names) + SECONDS / without_brokers.look_every <= SECONDS, Counter(names)
    assert not pools.desk.marked.is_set()
    pools.desk.close()
    assert all(answer.runs == () for answer in await asyncio.gather(*waiting))


async def _come_again(
    pools: service.Pools, waiting: list[asyncio.Task[protocol.ClaimAnswer]], upto: int
) -> list[asyncio.Task[protocol.ClaimAnswer]]:
    """As many claims as have been answered and sent again since, each of a known worker."""
    fresh = []
    for number in range(len(waiting) - WORKERS, upto):
        worker = f"w{number % WORKERS}"
        for seat in [seat for seat in pools.desk.sitting(jobs.POOL) if seat.worker == worker]:
            pools.desk.rise(seat)
        fresh.append(asyncio.create_task(pools.claim(jobs.POOL, claim(worker, wait_seconds=600.0))))
    await asyncio.sleep(0)
    return fresh
