"""Retention: weeks are made ahead and dropped whole, what a live run needs stays, small tables shrink in batches."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.support import jobs

from clockhand.domain.states import RunState as S
from clockhand.engine import prune
from clockhand.store import database, duties, partitions, pruning, runs

DAYS = 14
DAY = timedelta(days=1)


@pytest.fixture
async def now(db: database.Database) -> datetime:
    async with db.transaction() as connection:
        return await database.now(connection)


def pruner(db: database.Database, name: str = "one") -> prune.Prune:
    return prune.Prune(db, replica=name, retention_days=DAYS)


async def weeks(db: database.Database, parent: str = "run_history") -> set[str]:
    async with db.transaction() as connection:
        rows = await database.fetch(connection, "partitions.existing")
    return {row.name for row in rows if row.parent == parent}


def name(at: datetime, parent: str = "run_history") -> str:
    return partitions.name_of(parent, at.astimezone(UTC).date())


async def make_old_weeks(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        await partitions.ensure(connection, oldest=now - 70 * DAY, newest=now)


async def test_weeks_are_made_from_before_the_window_to_two_weeks_ahead(db: database.Database, now: datetime) -> None:
    await pruner(db).run_once(now)
    for parent in partitions.PARENTS:
        there = await weeks(db, parent)
        assert {name(now + days * DAY, parent) for days in range(-DAYS, 14)} <= there


async def test_old_weeks_go_and_the_window_stays(db: database.Database, now: datetime) -> None:
    await make_old_weeks(db, now)
    await pruner(db).run_once(now)
    for parent in partitions.PARENTS:
        there = await weeks(db, parent)
        assert name(now - 70 * DAY, parent) not in there
        assert name(now - 35 * DAY, parent) not in there
        assert name(now - DAYS * DAY, parent) in there
    again = await weeks(db)
    await pruner(db).run_once(now)
    assert await weeks(db) == again


async def test_the_week_of_a_live_run_is_kept_and_the_run_can_end(db: database.Database, now: datetime) -> None:
    await make_old_weeks(db, now)
    old = now - 50 * DAY
    async with db.transaction() as connection:
        job = await jobs.make_job(connection)
        run_id = await jobs.make_run(connection, job, S.BLOCKED, at=old)
    await pruner(db).run_once(now)
    assert name(old) in await weeks(db)
    assert name(now - 36 * DAY) not in await weeks(db)
    async with db.transaction() as connection:
        await runs.cancel_waiting(connection, run_ids=[run_id], reason="why", now=now)
        assert await jobs.state_of(connection, run_id) == (S.CANCELLED,)
    await pruner(db).run_once(now)
    assert name(old) not in await weeks(db)


async def test_a_reader_delays_a_drop_and_nothing_else(db: database.Database, now: datetime) -> None:
    await make_old_weeks(db, now)
    victim = name(now - 60 * DAY)
    async with db.transaction() as reader:
        await reader.execute(f"SELECT count(*) FROM {victim}".encode())
        assert not await pruning.drop(db, parent="run_history", name=victim)
    assert await pruning.drop(db, parent="run_history", name=victim)
    assert victim not in await weeks(db)
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT to_regclass(%s) IS NULL", victim)


async def test_a_week_that_was_detached_and_not_dropped_goes_the_next_time(
    db: database.Database, now: datetime
) -> None:
    await make_old_weeks(db, now)
    victim = name(now - 60 * DAY)
    async with db.transaction() as connection:
        await connection.execute(f"ALTER TABLE run_history DETACH PARTITION {victim}".encode())
    await pruner(db).run_once(now)
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT to_regclass(%s) IS NULL", victim)
        assert await partitions.ensure(connection, oldest=now - 60 * DAY, newest=now - 60 * DAY)


async def test_a_detached_week_that_somebody_else_dropped_or_made_anew_is_left_alone(
    db: database.Database, now: datetime
) -> None:
    await make_old_weeks(db, now)
    victim = name(now - 60 * DAY)
    async with db.transaction() as connection:
        await connection.execute(f"ALTER TABLE run_history DETACH PARTITION {victim}".encode())
        assert await pruning.detached(connection) == [victim]
    async with db.transaction() as reader:
        await reader.execute(f"SELECT count(*) FROM {victim}".encode())
        assert not await pruning.drop_detached(db, name=victim)
    assert await pruning.drop_detached(db, name=victim)
    assert not await pruning.drop_detached(db, name=victim)
    async with db.transaction() as connection:
        await partitions.ensure(connection, oldest=now - 60 * DAY, newest=now - 60 * DAY)
    assert not await pruning.drop_detached(db, name=victim)
    assert victim in await weeks(db)


async def test_specs_jobs_keys_and_audit(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        made = await jobs.make_jobs(connection, 4)
        alive, gone, held, fresh = made
        for job, deleted in ((gone, 60), (held, 60), (fresh, 1)):
            at = now - deleted * DAY
            await connection.execute("UPDATE jobs SET deleted_at = %s WHERE job_id = %s", (at, job.job_id))
        await partitions.ensure(connection, oldest=now, newest=now)
        await jobs.make_run(connection, held, S.RUNNING)
        await connection.execute("UPDATE job_specs SET stored_at = %s", (now - 100 * DAY,))
        edit = "INSERT INTO job_specs (job_id, generation, spec, stored_at) VALUES (%s, 2, '{}', %s) RETURNING spec_id"
        middle = await jobs.one(connection, edit, alive.job_id, now - 90 * DAY)
        newest = await jobs.one(connection, edit, alive.job_id, now - 50 * DAY)
        await connection.execute("UPDATE jobs SET spec_id = %s WHERE job_id = %s", (newest, alive.job_id))
        await jobs.make_run(connection, alive, S.RUNNING, spec_id=middle)
        for hours in (23, 25):
            key = "INSERT INTO idempotency_keys VALUES ('job', %s, %s, %s)"
            await connection.execute(key, (f"{hours} h", alive.job_id, now - timedelta(hours=hours)))
        for days in (1, 15):
            entry = "INSERT INTO audit (at, owner, actor, action) VALUES (%s, 'k8s/a', %s, 'run')"
            await connection.execute(entry, (now - days * DAY, f"{days} d"))
    await pruner(db).run_once(now)
    async with db.transaction() as connection:
        kept = {row.job_id for row in await jobs.query(connection, "SELECT job_id FROM jobs")}
        assert kept == {alive.job_id, held.job_id, fresh.job_id}
        specs = {row.spec_id for row in await jobs.query(connection, "SELECT spec_id FROM job_specs")}
        assert specs == {newest, middle, held.spec_id, fresh.spec_id}
        assert await jobs.query(connection, "SELECT key FROM idempotency_keys") == [("23 h",)]
        assert await jobs.query(connection, "SELECT actor FROM audit") == [("1 d",)]
        assert await jobs.one(connection, "SELECT count(*) FROM job_status") == 3


async def test_a_deleted_job_that_comes_back_meanwhile_stays(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        back, _ = await jobs.make_jobs(connection, 2)
        await connection.execute("UPDATE jobs SET deleted_at = %s", (now - 60 * DAY,))
    async with db.transaction() as edit:
        await edit.execute("UPDATE jobs SET deleted_at = NULL WHERE job_id = %s", (back.job_id,))
        async with db.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            assert await pruning.sweep(connection, "deleted_jobs", before=now - DAYS * DAY) == 1
    async with db.transaction() as connection:
        assert await jobs.query(connection, "SELECT job_id FROM jobs") == [(back.job_id,)]
        assert await jobs.query(connection, "SELECT job_id FROM job_status") == [(back.job_id,)]


async def test_one_replica_at_a_time_prunes(db: database.Database, now: datetime) -> None:
    one, two = pruner(db, "one"), pruner(db, "two")
    await one.step()
    await make_old_weeks(db, now)
    there = await weeks(db)
    await two.step()
    assert await weeks(db) == there
    async with db.transaction() as connection:
        holder = "SELECT holder FROM duty_leases WHERE duty = %s"
        assert await jobs.one(connection, holder, duties.PRUNE) == "one"


async def test_two_that_make_the_same_weeks_do_not_collide(db: database.Database, now: datetime) -> None:
    async def make() -> int:
        async with db.transaction() as connection:
            return len(await partitions.ensure_window(connection, now=now, retention_days=DAYS))

    made = await asyncio.gather(make(), make(), make())
    assert sorted(made)[:2] == [0, 0]
    assert max(made) > 0
