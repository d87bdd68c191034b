"""New zone data reach jobs whose next slots were computed under the old ones: what is to come moves, what was stays."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.support import jobs, zonedata

from clockhand.domain import spec, times, zones
from clockhand.engine import rezone
from clockhand.store import database

ROOT = Path(__file__).resolve().parents[2]
ZONE = "Asia/Dubai"  # at UTC+4, all the year round
WEST, EAST = "Etc/GMT-3", "Etc/GMT-5"  # POSIX counts the other way
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
LEASE = 3.0
OLD = "2000a"
COUNT = 1_000


@pytest.fixture
async def now(db: database.Database) -> datetime:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        return (await database.now(connection)).replace(second=0, microsecond=0)


def daily(instant: datetime, *, offset: int = 4, **fields: object) -> spec.JobSpec:
    """A job of the wall time that `instant` has so many hours ahead of UTC."""
    wall = instant.astimezone(timezone(timedelta(hours=offset)))
    return jobs.plan(f"{wall.minute} {wall.hour} * * *", time_zone=ZONE, **fields)


async def make(
    db: database.Database, plan: spec.JobSpec, when: datetime, *, count: int = 1, name: str = "job"
) -> Sequence[jobs.Job]:
    """Jobs that are due at `when`, as under whatever data, and ran a day before."""
    async with db.transaction() as connection:
        made = await jobs.make_jobs(connection, count, job=plan, next_slot_at=when, name=name)
        await connection.execute(
            "UPDATE jobs SET zone = %s, last_slot_at = next_slot_at - interval '1 day' WHERE job_id = ANY(%s)",
            (ZONE, [one.job_id for one in made]),
        )
    return made


async def stored(db: database.Database, version: str | None) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE installation SET zone_version = %s", (version,))


async def version(db: database.Database) -> str | None:
    async with db.transaction() as connection:
        found: str | None = await jobs.one(connection, "SELECT zone_version FROM installation")
    return found


async def next_of(db: database.Database, job_id: uuid.UUID) -> datetime | None:
    async with db.transaction() as connection:
        found: datetime | None = await jobs.one(connection, "SELECT next_slot_at FROM jobs WHERE job_id = %s", job_id)
    return found


async def skips(db: database.Database) -> list[tuple[uuid.UUID, datetime, int, str]]:
    async with db.transaction() as connection:
        found = await jobs.query(connection, "SELECT job_id, first_at, count, reason::text FROM skips")
    return [tuple(row) for row in found]


def fresh(db: database.Database, **fields: int) -> rezone.Rezone:
    return rezone.Rezone(db, version=zones.version(), lease=LEASE, **fields)


async def test_what_is_to_come_moves_and_what_is_due_stays(db: database.Database, now: datetime) -> None:
    """The rows are as data would have left them under which Dubai lay an hour to the west."""
    [coming] = await make(db, daily(now + 5 * HOUR), now + 6 * HOUR, name="coming")
    [right] = await make(db, daily(now + 3 * HOUR), now + 3 * HOUR, name="right")
    [due] = await make(db, daily(now - HOUR - MINUTE), now - MINUTE, name="due")
    await stored(db, OLD)
    assert await fresh(db).run_once() == 1
    assert await next_of(db, coming.job_id) == now + 5 * HOUR
    assert await next_of(db, right.job_id) == now + 3 * HOUR
    assert await next_of(db, due.job_id) == now - MINUTE
    assert await version(db) == zones.version()
    assert await skips(db) == []
    async with db.transaction() as connection:
        dirty = await jobs.query(connection, "SELECT job_id FROM job_status WHERE dirty_at IS NOT NULL")
    assert [row.job_id for row in dirty] == [coming.job_id]
    assert await fresh(db).run_once() == 0


async def test_a_slot_that_moves_into_the_past_is_accounted_for_and_not_run(
    db: database.Database, now: datetime
) -> None:
    [gone] = await make(db, daily(now - 30 * MINUTE), now + 30 * MINUTE)
    await stored(db, OLD)
    await fresh(db).run_once()
    assert await next_of(db, gone.job_id) == now - 30 * MINUTE + DAY
    assert await skips(db) == [(gone.job_id, now - 30 * MINUTE, 1, "Edited")]
    await stored(db, OLD)
    await fresh(db).run_once()
    assert len(await skips(db)) == 1


async def test_a_slot_that_ran_does_not_run_again_and_no_past_one_does(db: database.Database, now: datetime) -> None:
    """It ran half an hour ago; under these data it ought to have been an hour and a half ago."""
    [job] = await make(db, daily(now - 90 * MINUTE), now - 30 * MINUTE + DAY)
    await stored(db, OLD)
    await fresh(db).run_once()
    assert await next_of(db, job.job_id) == now - 90 * MINUTE + DAY
    assert await skips(db) == []


async def test_a_slot_that_ran_and_moves_behind_now_does_not_run_again(db: database.Database, now: datetime) -> None:
    [job] = await make(db, daily(now + 30 * MINUTE), now - 30 * MINUTE + DAY)
    await stored(db, OLD)
    await fresh(db).run_once()
    assert await next_of(db, job.job_id) == now + 30 * MINUTE + DAY
    assert await skips(db) == [(job.job_id, now + 30 * MINUTE, 1, "Edited")]


async def test_a_new_job_that_has_not_run_keeps_the_slot_of_today(db: database.Database, now: datetime) -> None:
    """Its mark is no slot under any data."""
    [job] = await make(db, daily(now + 30 * MINUTE), now + 90 * MINUTE)
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET last_slot_at = %s", (now - 17 * MINUTE,))
    await stored(db, OLD)
    await fresh(db).run_once()
    assert await next_of(db, job.job_id) == now + 30 * MINUTE
    assert await skips(db) == []


async def test_an_hourly_job_goes_on_each_hour(db: database.Database, now: datetime) -> None:
    hour = now.replace(minute=0)
    [job] = await make(db, jobs.plan("0 * * * *", time_zone=ZONE), hour + HOUR)
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET last_slot_at = %s", (hour,))
    await stored(db, OLD)
    assert await fresh(db).run_once() == 0
    assert await next_of(db, job.job_id) == hour + HOUR


async def test_the_delay_goes_with_the_slot(db: database.Database, now: datetime) -> None:
    plan = daily(now + 5 * HOUR, jitter_seconds=600)
    [job] = await make(db, plan, now + 6 * HOUR)
    await stored(db, OLD)
    await fresh(db).run_once()
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT next_slot_at, next_run_at FROM jobs")
    assert row.next_slot_at == now + 5 * HOUR
    assert row.next_run_at == now + 5 * HOUR + plan.delay(job.job_id)


@pytest.mark.parametrize("column", ["suspended = true", "paused_at = now()", "parked = 'why'", "deleted_at = now()"])
async def test_jobs_that_do_not_fire_are_left_alone(db: database.Database, now: datetime, column: str) -> None:
    [job] = await make(db, daily(now + 5 * HOUR), now + 6 * HOUR)
    async with db.transaction() as connection:
        await connection.execute(f"UPDATE jobs SET next_slot_at = NULL, next_run_at = NULL, {column}".encode())
    await stored(db, OLD)
    assert await fresh(db).run_once() == 0
    assert await next_of(db, job.job_id) is None
    assert await version(db) == zones.version()


async def test_a_job_that_cannot_be_evaluated_is_parked_alone(db: database.Database, now: datetime) -> None:
    [bad] = await make(db, daily(now + 5 * HOUR), now + 6 * HOUR, name="bad")
    [good] = await make(db, daily(now + 5 * HOUR), now + 6 * HOUR, name="good")
    async with db.transaction() as connection:
        await connection.execute(
            "UPDATE job_specs SET spec = jsonb_set(spec::jsonb, '{timeZone}', '\"No/Where\"') WHERE job_id = %s",
            (bad.job_id,),
        )
    await stored(db, OLD)
    assert await fresh(db).run_once() == 1
    assert await next_of(db, good.job_id) == now + 5 * HOUR
    async with db.transaction() as connection:
        assert "No/Where" in await jobs.one(connection, "SELECT parked FROM jobs WHERE job_id = %s", bad.job_id)


@pytest.mark.parametrize(
    "state",
    [
        "INSERT INTO replicas (replica, role, started_at, last_seen, zone_version) "
        "VALUES ('old', 'operator', now(), now(), '2001b')",
        "INSERT INTO replicas (replica, role, started_at, last_seen) VALUES ('older', 'operator', now(), now())",
        "UPDATE installation SET clock_step = '1 hour', clock_noticed_at = now()",
        "UPDATE installation SET zone_version = '2999z'",
    ],
    ids=["an older replica", "one that does not say", "the clock has jumped", "newer data were there before"],
)
async def test_it_waits(db: database.Database, now: datetime, state: str) -> None:
    [job] = await make(db, daily(now + 5 * HOUR), now + 6 * HOUR)
    await stored(db, OLD)
    async with db.transaction() as connection:
        await connection.execute(state.encode())
    assert await fresh(db).run_once() == 0
    assert await next_of(db, job.job_id) == now + 6 * HOUR
    assert await version(db) != zones.version()


async def test_one_at_a_time(db: database.Database, now: datetime) -> None:
    await make(db, daily(now + 5 * HOUR), now + 6 * HOUR, count=20)
    await stored(db, OLD)
    async with db.transaction() as connection:
        await jobs.one(connection, "SELECT pg_try_advisory_xact_lock(hashtext('clockhand.zones')::bigint)")
        assert await fresh(db).run_once() == 0
    moved = await asyncio.gather(*(fresh(db, batch=3).run_once() for _ in range(4)))
    assert sum(moved) <= 20
    await fresh(db).run_once()
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM jobs WHERE next_slot_at = %s", now + 5 * HOUR) == 20


@contextlib.asynccontextmanager
async def replica(url: str, name: str, data: Path | None) -> AsyncIterator[asyncio.subprocess.Process]:
    """A whole replica as a process of its own, with the true zone data or others."""
    one = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.clocked_operator", url, name, cwd=ROOT,
        env=zonedata.environment(data), stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            one.kill()
        await one.wait()


async def until(db: database.Database, condition: str, *parameters: object) -> None:
    async with asyncio.timeout(120):
        while True:
            async with db.transaction() as connection:
                if await jobs.one(connection, f"SELECT {condition}", *parameters):
                    return
            await asyncio.sleep(0.1)


async def accounted(db: database.Database, due: Sequence[jobs.Job], at: datetime) -> None:
    """What was due ran once, as it was stored; nothing else did."""
    async with db.transaction() as connection:
        rows = await jobs.query(connection, "SELECT job_id, scheduled_at FROM runs")
    assert sorted((row.job_id, row.scheduled_at) for row in rows) == sorted((job.job_id, at) for job in due)


async def test_a_country_moves_its_clock_while_an_older_replica_lives_and_another_dies_midway(
    db: database.Database, database_url: str, now: datetime, tmp_path: Path
) -> None:
    data = zonedata.doctored(tmp_path, version=zonedata.LATER, zone=ZONE, becomes=EAST)
    made = await make(db, daily(now + 6 * HOUR), now + 6 * HOUR, count=COUNT)
    [job] = await make(db, daily(now + 2 * HOUR), now + 2 * HOUR, name="held")
    assert daily(now + 6 * HOUR).due(times.ANYBODY).next_after(now) == now + 6 * HOUR
    at_new = "(SELECT count(*) FROM jobs WHERE next_slot_at = %s)"
    async with replica(database_url, "older", None) as older:
        await until(db, "zone_version IS NOT NULL FROM installation")
        async with replica(database_url, "newer", data):
            await until(db, "EXISTS (SELECT FROM replicas WHERE zone_version = %s)", zonedata.LATER)
            due = await make(db, daily(now - MINUTE), now - MINUTE, count=5, name="due")
            await until(db, "(SELECT count(*) FROM runs) = 5")
            await asyncio.sleep(2 * LEASE)
            async with db.transaction() as connection:
                assert await jobs.one(connection, f"SELECT {at_new}", now + 5 * HOUR) == 0
        assert await version(db) == zones.version()
        older.kill()
        await older.wait()
    blocked = sorted(one.job_id for one in made)[COUNT // 2]
    async with db.transaction() as holding:
        await jobs.query(holding, "SELECT FROM jobs WHERE job_id = %s FOR UPDATE", blocked)
        async with replica(database_url, "midway", data):
            await until(db, f"{at_new} > 0", now + 5 * HOUR)
            await holding.execute("SELECT 1")
    async with db.transaction() as connection:
        done = await jobs.one(connection, f"SELECT {at_new}", now + 5 * HOUR)
    assert 0 < done < COUNT
    assert await version(db) == zones.version()
    async with replica(database_url, "last", data):
        await until(db, "zone_version = %s FROM installation", zonedata.LATER)
    async with db.transaction() as connection:
        assert await jobs.one(connection, f"SELECT {at_new}", now + 5 * HOUR) == COUNT
    assert await next_of(db, job.job_id) == now + HOUR
    await accounted(db, due, now - MINUTE)
    assert await skips(db) == []


async def test_a_move_to_the_west_delays_what_is_to_come(
    db: database.Database, database_url: str, now: datetime, tmp_path: Path
) -> None:
    data = zonedata.doctored(tmp_path, version=zonedata.LATER, zone=ZONE, becomes=WEST)
    await make(db, daily(now + 6 * HOUR), now + 6 * HOUR, count=20)
    due = await make(db, daily(now - MINUTE), now - MINUTE, count=5, name="due")
    await stored(db, zones.version())
    async with replica(database_url, "newer", data):
        await until(db, "zone_version = %s FROM installation", zonedata.LATER)
        await until(db, "(SELECT count(*) FROM runs) = 5")
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM jobs WHERE next_slot_at = %s", now + 7 * HOUR) == 20
    await accounted(db, due, now - MINUTE)
