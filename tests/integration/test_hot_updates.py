"""What is written again and again must not touch an index: heartbeats and launches are heap-only updates."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import timedelta

from tests.support import jobs

from clockhand.domain import sharding
from clockhand.domain.states import RunState as S
from clockhand.store import database, duties, groups, leases, runs, shards

ROUNDS = 20


@dataclasses.dataclass
class Updates:
    """What a block did to a table: all updates, and those that touched no index."""

    every: int = 0
    hot: int = 0


@contextlib.asynccontextmanager
async def updates(connection: database.Connection, table: str) -> AsyncIterator[Updates]:
    """Counts what happens to `table` in the block."""
    text = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = %s"
    [before] = await jobs.query(connection, text, table)
    found = Updates()
    yield found
    [after] = await jobs.query(connection, text, table)
    found.every = after.n_tup_upd - before.n_tup_upd
    found.hot = after.n_tup_hot_upd - before.n_tup_hot_upd


async def test_leases_are_renewed_in_place(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.hold_all(connection)
    total = Updates()
    for _ in range(ROUNDS):
        async with db.transaction() as connection, updates(connection, "shard_leases") as found:
            await shards.beat(connection, replica="one", role=sharding.Role.OPERATOR, lease=10, zone_version="2026a")
        total.every, total.hot = total.every + found.every, total.hot + found.hot
    assert total.every == ROUNDS * 256
    assert total.hot >= 0.9 * total.every


async def test_heartbeats_are_stamped_in_place(db: database.Database) -> None:
    async with db.transaction() as connection:
        await shards.beat(connection, replica="one", role=sharding.Role.OPERATOR, lease=10, zone_version="2026a")
    for _ in range(ROUNDS):
        async with db.transaction() as connection, updates(connection, "replicas") as found:
            await shards.beat(connection, replica="one", role=sharding.Role.OPERATOR, lease=10, zone_version="2026a")
        assert found == Updates(1, 1)


async def test_duties_are_renewed_in_place(db: database.Database) -> None:
    lease = timedelta(minutes=1)
    async with db.transaction() as connection:
        held = await duties.take(connection, duties.MIRROR, replica="one", lease=lease)
        assert held
    for _ in range(ROUNDS):
        async with db.transaction() as connection, updates(connection, "duty_leases") as found:
            await duties.renew(connection, held, lease=lease)
        assert found == Updates(1, 1)


async def test_a_launch_touches_no_index(db: database.Database) -> None:
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        now = await database.now(connection)
        items = []
        for job in await jobs.make_jobs(connection, 200):
            run_id = await jobs.make_run(connection, job, S.CLAIMED)
            items.append(runs.Launched(run_id, jobs.TOKEN, job.shard, run_id, now))
    # as many of each page as its fill factor leaves room for
    async with db.transaction() as connection, updates(connection, "live_runs") as found:
        await runs.launched(connection, holder=holder, items=items[::5])
    assert found == Updates(40, 40)


async def test_a_heartbeat_touches_no_index_but_the_first_time(db: database.Database) -> None:
    async with db.transaction() as connection:
        made = [
            await jobs.make_run(connection, job, S.CLAIMED)
            for job in await jobs.make_jobs(connection, 200, job=jobs.pooled())
        ]
    beat = leases.Beat(jobs.POOL, jobs.WORKER, 90, [(run_id, jobs.TOKEN) for run_id in made])
    total = Updates()
    for rounds in range(ROUNDS):
        async with db.transaction() as connection, updates(connection, "live_runs") as found:
            await leases.renew(connection, [beat], now=await database.now(connection))
        assert found.every == len(made)
        if rounds:
            total.every, total.hot = total.every + found.every, total.hot + found.hot
    assert total.hot >= 0.9 * total.every


async def test_why_a_run_waits_touches_no_index(db: database.Database) -> None:
    async with db.transaction() as connection:
        claimed = await jobs.make_jobs(connection, 200)
        made = [await jobs.make_run(connection, job, S.CLAIMED) for job in claimed]
        waits = [runs.Waits(run_id, jobs.TOKEN, "ImagePullBackOff", "no such image") for run_id in made[::5]]
    async with db.transaction() as connection, updates(connection, "live_runs") as found:
        await runs.waiting_for_pod(connection, waits)
    assert found == Updates(40, 40)


async def test_what_a_queue_says_touches_no_index(db: database.Database) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        for number, job in enumerate(await jobs.make_jobs(connection, 500)):
            # the first of the queue are as many of each page as its fill factor leaves room for
            at = now - timedelta(hours=number % 5 == 0)
            await jobs.make_run(
                connection, job, S.BLOCKED, reason="GroupLimit", concurrency_group="exports", queue_at=at
            )
    async with db.transaction() as connection, updates(connection, "live_runs") as found:
        await groups.tell(connection, {"exports": "no places"})
    assert found == Updates(100, 100)
