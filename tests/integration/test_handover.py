"""Runs that become due while a worker waits are its own at once, and nobody loses one when that goes wrong."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.integration.test_pools import A, B, administered, claim, looking, make_pool, queued, until
from tests.support import jobs, statements

from clockhand import errors
from clockhand.domain import ids, protocol
from clockhand.domain import limits as domain
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.engine.pools import service
from clockhand.store import database

PAIR = (jobs.POOL, jobs.HANDLER)


@pytest.fixture
async def minute(db: database.Database) -> datetime:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        await make_pool(connection, allowed_owners=["*"])
        return (await database.now(connection)).replace(second=0, microsecond=0)


@pytest.fixture
async def pools(db: database.Database, minute: datetime) -> AsyncIterator[service.Pools]:
    async with looking(service.Pools(db, replica="one", lease=jobs.LONG)) as serving:
        yield serving


async def due(
    db: database.Database, count: int, at: datetime, *, owner: str = jobs.OWNER, **fields: Any
) -> Sequence[jobs.Job]:
    async with db.transaction() as connection:
        plan = jobs.pooled(pool="team-a/mailers", **fields)
        return await jobs.make_jobs(connection, count, job=plan, next_slot_at=at, owner=owner)


async def waiting(pools: service.Pools, worker: str = jobs.WORKER, **fields: Any) -> asyncio.Task[protocol.ClaimAnswer]:
    """A claim that waits at the desk, with nothing in its queue."""
    task = asyncio.create_task(pools.claim(jobs.POOL, claim(worker, **{"wait_seconds": 30, **fields})))
    await until(lambda: any(seat.worker == worker and seat.looked.is_set() for seat in pools.desk.sitting(jobs.POOL)))
    return task


async def fire_all(db: database.Database, pools: service.Pools) -> int:
    return await fire.Fire(db, pools.desk).run_once(ids.EVERY_SHARD)


async def counts(db: database.Database) -> dict[str, int]:
    async with db.transaction() as connection:
        return dict(await jobs.query(connection, "SELECT state::text, count(*) FROM live_runs GROUP BY 1"))


async def test_a_due_run_is_the_waiting_workers_with_one_write(
    db: database.Database, minute: datetime, pools: service.Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = await due(db, 1, minute, attempt_timeout_seconds=20)
    task = await waiting(pools)
    names = statements.named(monkeypatch)
    assert await fire_all(db, pools) == 1
    [run] = (await task).runs
    assert names == [
        "installation.now", "firing.lock_due", "firing.hand_over", "firing.insert_runs", "firing.advance",
        "firing.show_fired",
    ]  # fmt: skip
    async with db.transaction() as connection:
        text = """SELECT *, state::text AS now, lease_until - claimed_at AS lease, deadline_at - claimed_at AS timeout,
                         xmin::text = (SELECT xmin::text FROM jobs) AS one_transaction FROM live_runs"""
        [row] = await jobs.query(connection, text)
        assert (row.now, row.worker, row.attempt, row.one_transaction) == ("Claimed", jobs.WORKER, 1, True)
        assert (str(row.token), row.fencing, row.run_id) == (run.token, run.fencing_token, run.run_id)
        assert (row.lease, row.timeout, row.launched_at) == (
            timedelta(seconds=90), timedelta(seconds=20), row.claimed_at,
        )  # fmt: skip
        assert row.fencing >> 40 == 1
        assert await jobs.changes(connection) == [(run.run_id, S.CLAIMED)]
    assert (run.name, run.job, run.owner, run.handler) == (row.name, job.name, job.owner, jobs.HANDLER)
    assert (run.attempt, run.timeout_seconds, run.scheduled_at) == (1, 20, minute)
    assert bytes(run.payload) == b'{"made": "for a test"}'


async def test_waiting_workers_share_what_is_due_and_the_rest_is_queued(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    await due(db, 10, minute)
    tasks = [await waiting(pools, f"w{number}", max=3) for number in range(2)]
    await fire_all(db, pools)
    assert [len((await task).runs) for task in tasks] == [3, 3]
    assert await counts(db) == {"Claimed": 6, "Queued": 4}
    assert len((await pools.claim(jobs.POOL, claim("w3"))).runs) == 4


async def test_the_most_urgent_of_what_is_due_is_handed_over(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    await due(db, 5, minute, owner=A)
    [urgent] = await due(db, 1, minute, owner=B, priority=5)
    task = await waiting(pools, max=1)
    await fire_all(db, pools)
    [run] = (await task).runs
    assert run.owner == urgent.owner


async def test_nobody_is_overtaken_in_the_queue(db: database.Database, minute: datetime, pools: service.Pools) -> None:
    await due(db, 1, minute)
    task = await waiting(pools, max=1)
    async with db.transaction() as connection:
        [older] = await queued(connection, 1)
    await fire_all(db, pools)
    assert [run.run_id for run in (await task).runs] == [older]
    assert await counts(db) == {"Claimed": 1, "Queued": 1}


@pytest.mark.parametrize(
    "caps",
    [
        {"owners": {A: domain.OwnerLimits(max_concurrent_runs=3)}},
        {"pools": {jobs.POOL: domain.PoolLimits(max_concurrent_runs=3)}},
    ],
)
async def test_what_has_to_be_counted_goes_through_the_queue(
    db: database.Database, minute: datetime, caps: dict[str, Any]
) -> None:
    await due(db, 5, minute)
    async with looking(service.Pools(db, replica="one", lease=10, limits=administered(**caps))) as pools:
        task = await waiting(pools)
        await fire_all(db, pools)
        assert len((await task).runs) == 3
    assert await counts(db) == {"Claimed": 3, "Queued": 2}


async def test_an_owner_that_the_pool_does_not_allow_waits(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET allowed_owners = '{}'")
    await due(db, 1, minute, owner=B)
    async with looking(service.Pools(db, replica="one", lease=10)) as pools:
        task = await waiting(pools)
        await fire_all(db, pools)
        assert await counts(db) == {"Queued": 1}
        pools.desk.close()
        assert (await task).runs == ()


async def test_who_is_not_allowed_does_not_end_the_hand_over_of_others(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET allowed_owners = '{}'")
        await queued(connection, 1, owner=B)
    async with looking(service.Pools(db, replica="one", lease=jobs.LONG)) as pools:
        task = await waiting(pools)
        await due(db, 1, minute)
        async with db.transaction() as connection:
            await connection.execute("UPDATE live_runs SET queue_at = queue_at - interval '1 h'")
        assert await fire_all(db, pools) == 1
        assert await counts(db) == {"Queued": 1, "Claimed": 1}
        assert len((await task).runs) == 1


async def test_nothing_is_handed_over_on_a_promoted_database(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    await due(db, 2, minute)
    task = await waiting(pools)
    async with db.transaction() as connection:
        await connection.execute("UPDATE installation SET timeline = 'another'")
    await fire_all(db, pools)
    assert await counts(db) == {"Queued": 2}
    task.cancel()


async def test_a_transaction_that_rolls_back_gives_the_seats_back(
    db: database.Database, minute: datetime, pools: service.Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    await due(db, 3, minute)
    task = await waiting(pools, max=2)

    async def broken(*_: Any, **__: Any) -> None:
        raise errors.Unavailable("the database went away")

    with monkeypatch.context() as patched:
        patched.setattr("clockhand.store.firing.show_fired", broken)
        with pytest.raises(errors.Unavailable):
            await fire_all(db, pools)
    assert await counts(db) == {}
    await fire_all(db, pools)
    assert len((await task).runs) == 2


@pytest.mark.parametrize("stored", [True, False])
async def test_a_commit_that_nobody_is_sure_of_is_looked_up(
    db: database.Database, minute: datetime, pools: service.Pools, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    await due(db, 2, minute)
    asked = claim(max=2, wait_seconds=30.0)
    task = asyncio.create_task(pools.claim(jobs.POOL, asked))
    await until(lambda: bool(pools.desk.spans()) and pools.desk.sitting(jobs.POOL)[0].looked.is_set())
    commit = database._commit

    async def unsure(connection: database.Connection) -> None:
        await (commit(connection) if stored else connection.rollback())
        raise errors.Uncertain("the connection was lost during COMMIT")

    with monkeypatch.context() as patched:
        patched.setattr(database, "_commit", unsure)
        with pytest.raises(errors.Uncertain):
            await fire_all(db, pools)
    assert len((await task).runs) == (2 if stored else 0)
    assert await pools.claim(jobs.POOL, asked.__class__(**{**_fields(asked), "wait_seconds": 0.0})) == await task
    assert await counts(db) == ({"Claimed": 2} if stored else {})


def _fields(asked: protocol.ClaimRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__struct_fields__}


async def test_what_a_stop_finds_under_way_is_still_answered(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    await due(db, 1, minute)
    task = await waiting(pools)
    async with db.transaction() as blocker:
        await blocker.execute("LOCK TABLE job_status IN EXCLUSIVE MODE")
        firing = asyncio.create_task(fire_all(db, pools))
        await statements.until_somebody_waits(db)
        pools.desk.close()
        assert not task.done()
    assert await firing == 1
    assert len((await task).runs) == 1
    with pytest.raises(errors.Unavailable, match="stopping"):
        await pools.claim(jobs.POOL, claim())


async def test_whoever_hangs_up_while_it_is_served_is_given_it_again(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    await due(db, 1, minute)
    asked = claim(request_id=uuid.uuid4(), wait_seconds=30.0)
    task = asyncio.create_task(pools.claim(jobs.POOL, asked))
    await until(lambda: bool(pools.desk.spans()))
    async with db.transaction() as blocker:
        await blocker.execute("LOCK TABLE job_status IN EXCLUSIVE MODE")
        firing = asyncio.create_task(fire_all(db, pools))
        await statements.until_somebody_waits(db)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await firing
    assert await counts(db) == {"Claimed": 1}
    assert len((await pools.claim(jobs.POOL, asked)).runs) == 1


async def test_whoever_hangs_up_while_it_is_looked_up_is_looked_up_again(
    db: database.Database, minute: datetime, pools: service.Pools
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled())
        made = await jobs.make_run(connection, job, S.CLAIMED, fencing=1)
    asked = claim(request_id=uuid.uuid4())
    await pools.settings(jobs.POOL)
    async with db.transaction() as blocker:
        await blocker.execute("SELECT FROM live_runs FOR UPDATE")
        task = asyncio.create_task(pools.claim(jobs.POOL, asked))
        await statements.until_somebody_waits(db)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [run.run_id for run in (await pools.claim(jobs.POOL, asked)).runs] == [made]
