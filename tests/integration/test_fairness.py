"""Turns: a small owner does not wait behind a big one's backlog, nor anybody behind an owner at its cap."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support import jobs, plans
from tests.support import limits as files

from clockhand.domain import ids, protocol
from clockhand.domain.states import RunState as S
from clockhand.engine import admit, beside, claim, fire, limits, loops
from clockhand.engine.pools import service
from clockhand.store import database, runs

BIG, SMALL = "k8s/big", "k8s/small"
BACKLOG = 100_000
LIMIT = 64
RARELY = jobs.plan(schedule="0 0 29 2 *")
"""Not due a second time while a test goes on."""

# of one job a run each millisecond, over 64 shards as a large owner is
_MANY = """
INSERT INTO live_runs (run_id, job_id, owner, job_name, name, kind, scheduled_at, created_at, shard, pool, handler, spec_id,
                       state, queue_at, ready_at, pending_timeout)
SELECT gen_random_uuid(), %(job_id)s, %(owner)s, 'many', 'many-' || n, 'Slot', at, at,
       CASE WHEN %(pool)s::text IS NULL THEN n %% 64 ELSE 256 + n %% 64 END, %(pool)s, %(handler)s, %(spec_id)s, 'Queued',
       at, at, 900
FROM (SELECT n, now() - interval '1 hour' + n * interval '1 ms' AS at FROM generate_series(1, %(count)s) AS n) AS timed
"""


async def many(
    connection: database.Connection, job: jobs.Job, *, count: int = BACKLOG, handler: str | None = None
) -> None:
    """So many Queued runs of one job, older than any other."""
    await connection.execute("SET LOCAL statement_timeout = '60s'")
    values = {"job_id": job.job_id, "owner": job.owner, "spec_id": job.spec_id, "pool": job.pool}
    await connection.execute(_MANY.encode(), {**values, "handler": handler, "count": count})


async def owned(connection: database.Connection, owners: Sequence[str], *, each: int = 1) -> None:
    """Queued runs of these owners."""
    for owner in owners:
        for job in await jobs.make_jobs(connection, each, owner=owner):
            await jobs.make_run(connection, job, S.QUEUED)


async def taken(
    connection: database.Connection, claims: claim.Claims, holder: runs.Holder, limit: int = LIMIT
) -> Counter[str]:
    """How many runs of each owner the next claim takes."""
    found = await claims.take(connection, holder=holder, limit=limit, now=await database.now(connection))
    return Counter(one.owner for one in found)


async def test_a_small_owners_pod_is_next_beside_a_backlog_of_100_000(db: database.Database) -> None:
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        await many(connection, await jobs.make_job(connection, owner=BIG))
        await owned(connection, [SMALL])
    async with db.transaction() as connection:
        claims = claim.Claims(limits.LimitsFile(None))
        assert await taken(connection, claims, holder) == {BIG: LIMIT - 1, SMALL: 1}


async def test_an_owner_at_its_cap_is_stepped_over_and_its_backlog_is_not_read(
    db: database.Database, tmp_path: Path
) -> None:
    file = files.file(tmp_path, f"owners: {{{BIG}: {{maxConcurrentRuns: 5}}}}")
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        await many(connection, await jobs.make_job(connection, owner=BIG), count=20_000)
        await owned(connection, [SMALL], each=10)
    async with db.outside_transaction() as connection:
        await connection.execute("VACUUM ANALYZE live_runs")
    async with db.transaction() as connection:
        claims = claim.Claims(file)
        assert await taken(connection, claims, holder, limit=8) == {BIG: 4, SMALL: 4}
        explainer = plans.Explainer(connection, "force_custom_plan")
        assert await taken(explainer.connection, claims, holder) == {BIG: 1, SMALL: 6}
        assert await taken(connection, claims, holder) == {}
    read = [scan for one in explainer.explained for scan in one.scans() if scan.relation == "live_runs"]
    assert sum(scan.read for scan in read) < 3 * LIMIT


async def test_owners_are_given_as_their_weights_say(db: database.Database, tmp_path: Path) -> None:
    file = files.file(tmp_path, f"owners: {{{SMALL}: {{weight: 3}}}}")
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        for owner in (BIG, SMALL):
            await many(connection, await jobs.make_job(connection, owner=owner), count=2_000)
        claims = claim.Claims(file)
        total: Counter[str] = Counter()
        for limit in (1, 1, 2, 4, 7, 25):
            total += await taken(connection, claims, holder, limit=limit)
    assert total == {BIG: 10, SMALL: 30}


@pytest.mark.parametrize("capped", [False, True])
async def test_each_of_very_many_owners_has_its_turn(db: database.Database, tmp_path: Path, capped: bool) -> None:
    owners = [f"k8s/team-{number:04}" for number in range(700)]
    closed = owners[:600] if capped else []
    file = files.file(tmp_path, "owners:\n" + "".join(f"  {one}: {{maxConcurrentRuns: 0}}\n" for one in closed) or "{}")
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        await owned(connection, owners, each=2)
        claims = claim.Claims(file)
        total: Counter[str] = Counter()
        for _ in range(24):
            total += await taken(connection, claims, holder)
    assert total == Counter(dict.fromkeys(owners[len(closed) :], 2))


async def test_what_is_retried_again_and_again_does_not_come_before_what_is_fresh(db: database.Database) -> None:
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        storm = await jobs.make_jobs(connection, 300, name="storm")
        for job in storm:
            at = await database.now(connection) - timedelta(hours=1)
            await jobs.make_run(connection, job, S.RETRYING, at=at, attempt=1, failures=1, ready_at=at)
        fresh = await jobs.make_job(connection, name="fresh")
        at = await database.now(connection) - timedelta(seconds=1)
        await jobs.make_run(connection, fresh, S.QUEUED, queue_at=at)
    assert await admit.Admit(db).run_once(holder.generations) == len(storm)
    async with db.transaction() as connection:
        claims = claim.Claims(limits.LimitsFile(None))
        names = set()
        for limit in (256, 44):
            now = await database.now(connection)
            names |= {one.job_name for one in await claims.take(connection, holder=holder, limit=limit, now=now)}
        assert fresh.name in names


async def test_a_small_owners_run_goes_to_a_worker_beside_a_backlog_of_100_000(db: database.Database) -> None:
    plan = jobs.pooled(pool="team-a/mailers")
    async with db.transaction() as connection:
        text = "INSERT INTO pools (pool, owner, name, allowed_owners) VALUES (%s, %s, 'mailers', '{*}')"
        await connection.execute(text.encode(), (jobs.POOL, jobs.OWNER))
        await many(connection, await jobs.make_job(connection, plan, owner=BIG), handler=jobs.HANDLER)
        await jobs.make_run(connection, await jobs.make_job(connection, plan, owner=SMALL), S.QUEUED)
    pools = service.Pools(db, replica="one", lease=jobs.LONG)
    asked = protocol.ClaimRequest(
        request_id=uuid.uuid4(), worker=jobs.WORKER, handlers=(jobs.HANDLER,), max=10, wait_seconds=0
    )
    async with serving(pools):
        answer = await pools.claim(jobs.POOL, asked)
    assert Counter(run.owner for run in answer.runs)[SMALL] == 1


async def test_a_workers_fresh_run_does_not_wait_for_what_is_retried_again_and_again(db: database.Database) -> None:
    plan = jobs.pooled(pool="team-a/mailers")
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        text = "INSERT INTO pools (pool, owner, name) VALUES (%s, %s, 'mailers')"
        await connection.execute(text.encode(), (jobs.POOL, jobs.OWNER))
        at = await database.now(connection) - timedelta(hours=1)
        storm = await jobs.make_jobs(connection, 300, job=plan, name="storm")
        for job in storm:
            await jobs.make_run(connection, job, S.RETRYING, at=at, attempt=1, failures=1, ready_at=at)
        fresh = await jobs.make_job(connection, plan, name="fresh")
        await jobs.make_run(connection, fresh, S.QUEUED, queue_at=at + timedelta(minutes=59))
    assert await admit.Admit(db).run_once([ids.twin(shard, pooled=True) for shard in holder.generations]) == len(storm)
    pools = service.Pools(db, replica="one", lease=jobs.LONG)
    asked = protocol.ClaimRequest(
        request_id=uuid.uuid4(), worker=jobs.WORKER, handlers=(jobs.HANDLER,), max=10, wait_seconds=0
    )
    async with serving(pools):
        answer = await pools.claim(jobs.POOL, asked)
    assert fresh.name in {run.job for run in answer.runs}


@contextlib.asynccontextmanager
async def serving(pools: service.Pools) -> AsyncIterator[None]:
    """Its loop over queues that are waited for runs in the block."""
    task = asyncio.create_task(loops.forever("queue", pools.steps()["queue"]))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def backlog(db: database.Database, sizes: Mapping[str, int]) -> None:
    """So many jobs of each owner are due, all at one instant, in shards that they share."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        at = (await database.now(connection)).replace(microsecond=0) - timedelta(seconds=10)
        for owner, count in sizes.items():
            await jobs.make_jobs(connection, count, job=RARELY, owner=owner, next_slot_at=at)


async def fired(db: database.Database) -> Counter[str]:
    """How many runs of each owner there are."""
    async with db.transaction() as connection:
        return Counter(dict(await jobs.query(connection, "SELECT owner, count(*) FROM live_runs GROUP BY owner")))


async def test_a_small_owner_does_not_wait_for_a_big_ones_due_slots(db: database.Database) -> None:
    await backlog(db, {BIG: 20_000, SMALL: 60})
    firer = fire.Fire(db)
    for _ in range(2):  # the first one shows that there is a backlog
        assert await firer.run_once(ids.POD_SHARDS) == fire.BATCH
    assert (await fired(db))[SMALL] == 60
    for round_ in range(1, 4):
        async with db.transaction() as connection:
            at = ids.whole_ms(await database.now(connection))
            await jobs.make_jobs(connection, 40, job=RARELY, name=f"new-{round_}", owner=SMALL, next_slot_at=at)
        assert await firer.run_once(ids.POD_SHARDS) == fire.BATCH
        assert await fired(db) == {SMALL: 60 + 40 * round_, BIG: (2 + round_) * fire.BATCH - 60 - 40 * round_}


async def test_batches_are_smaller_while_jobs_of_others_become_due_beside_a_backlog(db: database.Database) -> None:
    async def due(owner: str, name: str) -> None:
        async with db.transaction() as connection:
            at = ids.whole_ms(await database.now(connection))
            await jobs.make_jobs(connection, 1, job=RARELY, name=name, owner=owner, next_slot_at=at)

    await backlog(db, {BIG: 60_000})
    firer = fire.Fire(db)
    for number in range(3):
        await due(BIG, f"more-{number}")
        await firer.run_once(ids.POD_SHARDS, most=firer.size)
        assert firer.size == fire.BATCH, "an owner alone waits for nobody"
    await due(SMALL, "new")
    await firer.run_once(ids.POD_SHARDS, most=firer.size)
    assert firer.size == fire.SHARED_BATCH
    async with asyncio.timeout(60):
        while firer.size == fire.SHARED_BATCH:
            assert await firer.run_once(ids.POD_SHARDS, most=firer.size) == fire.SHARED_BATCH
    assert firer.size == fire.BATCH, "nobody came any more"


async def test_owners_have_turns_beside_a_backlog_however_many_are_big(db: database.Database) -> None:
    small = {f"k8s/small-{number}": 20 for number in range(40)}
    await backlog(db, {BIG: 5_000, "k8s/large": 3_000, "k8s/growing": 65, **small})
    firer = fire.Fire(db)
    await firer.run_once(ids.POD_SHARDS)
    before = await fired(db)
    await firer.run_once(ids.POD_SHARDS)
    given = await fired(db) - before
    assert {given[owner] for owner in small} <= {*range(5, 20)}, "each has had its turns, of half the batch"
    for _ in range(3):
        await firer.run_once(ids.POD_SHARDS)
    found = await fired(db)
    assert {found[owner] for owner in small} == {20}
    assert found.total() == 5 * fire.BATCH, "the other half is for those who wait for longest"


async def test_replicas_that_share_a_backlog_fire_each_slot_once(db: database.Database) -> None:
    sizes = {BIG: 2_500, SMALL: 90, "k8s/other": 30}
    await backlog(db, sizes)
    firers = [fire.Fire(db) for _ in range(2)]
    while sum(await asyncio.gather(*(firer.run_once(ids.POD_SHARDS) for firer in firers))):
        pass
    assert await fired(db) == sizes
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(DISTINCT job_id) FROM live_runs") == sum(sizes.values())


async def test_none_of_very_many_owners_is_forgotten_beside_a_backlog(db: database.Database) -> None:
    async with db.transaction() as connection:
        at = ids.whole_ms(await database.now(connection))
        await jobs.make_jobs(connection, 1_100, job=RARELY, owner=SMALL, next_slot_at=at)
        await connection.execute("INSERT INTO owners (owner) SELECT 'k8s/' || name FROM jobs")
        await connection.execute("UPDATE jobs SET owner = 'k8s/' || name")
        aside = beside.Beside()
        looks = [await aside.first(connection, shards=ids.POD_SHARDS, before=at, most=fire.BATCH) for _ in range(3)]
    assert len({job_id for look in looks for job_id in look}) == 1_100
