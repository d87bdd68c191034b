"""Three engines on one database, some of them killed midway: no slot is lost and none runs twice, now or in the past."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support import jobs

from clockhand.domain import backfill, ids
from clockhand.domain.states import RunState as S
from clockhand.engine import requests
from clockhand.store import database

ROOT = Path(__file__).resolve().parents[2]
COUNT = 10_000
ENGINES = 3
PAST, PLACES = 600, 10


@pytest.fixture
async def minute(db: database.Database) -> datetime:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        found = (await database.now(connection)).replace(second=0, microsecond=0)
        await jobs.make_jobs(connection, COUNT, next_slot_at=found)
    return found


async def engine(url: str, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.firing_engine", url, name, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )


async def until(db: database.Database, condition: str, at_least: int) -> None:
    async with asyncio.timeout(120):
        while True:
            async with db.transaction() as connection:
                if await jobs.one(connection, condition) >= at_least:
                    return
            await asyncio.sleep(0.02)


async def test_10_000_due_runs_three_engines_and_one_killed_midway(
    db: database.Database, database_url: str, minute: datetime
) -> None:
    engines = [await engine(database_url, f"engine-{number}") for number in range(ENGINES)]
    try:
        await until(db, "SELECT count(*) FROM run_history", COUNT // 10)
        os.kill(engines[0].pid, signal.SIGKILL)
        await engines[0].wait()
        async with db.transaction() as connection:
            left = await jobs.one(connection, "SELECT count(*) FROM jobs WHERE next_slot_at = %s", minute)
            ended = await jobs.one(connection, "SELECT count(*) FROM run_history")
        assert left + (COUNT - ended) > 0, "it was killed when all was over: that shows nothing"
        await until(
            db,
            f"SELECT count(*) FROM run_history WHERE scheduled_at = '{minute.isoformat()}'",
            COUNT,
        )
    finally:
        for one in engines:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            await one.wait()
    async with db.transaction() as connection:
        rows = await jobs.query(
            connection, "SELECT job_id, attempt, state::text AS state FROM runs WHERE scheduled_at = %s", minute
        )
        assert len(rows) == len({row.job_id for row in rows}) == COUNT
        assert {row.state for row in rows} == {S.SUCCEEDED}
        assert {row.attempt for row in rows} == {1}
        moves = Counter(
            (run, state)
            for run, state in await jobs.changes(connection)
            if ids.scheduled_at_of(run) < minute + timedelta(milliseconds=1)
        )
        assert max(moves.values()) == 1
        by_state = Counter(state for _, state in moves)
        assert by_state == {S.QUEUED: COUNT, S.CLAIMED: COUNT, S.SUCCEEDED: COUNT}


async def ask(db: database.Database, job: jobs.Job, name: str, span: backfill.Span) -> uuid.UUID:
    async with db.transaction() as connection:
        return await requests.request_backfill(
            connection,
            owner=job.owner,
            job_id=job.job_id,
            name=name,
            wanted=backfill.Wanted(span, PLACES, 30),
            actor="somebody",
            now=await database.now(connection),
        )


async def test_two_backfills_of_one_job_three_engines_and_two_killed_midway(
    db: database.Database, database_url: str
) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        now = (await database.now(connection)).replace(second=0, microsecond=0)
        job = await jobs.make_job(connection, next_slot_at=now + timedelta(days=300))
    first, middle, last = (now - timedelta(minutes=count) for count in (2 * PAST, PAST, 1))
    asked = {
        await ask(db, job, "older", backfill.Span(first, middle + timedelta(minutes=PAST // 2))),
        await ask(db, job, "newer", backfill.Span(middle, last, backfill.Order.NEWEST_FIRST)),
    }
    engines = [await engine(database_url, f"engine-{number}") for number in range(ENGINES)]
    try:
        for number, done in enumerate((PAST // 4, PAST)):
            await until(db, "SELECT count(*) FROM run_history", done)
            engines[number].kill()
            await engines[number].wait()
        async with db.transaction() as connection:
            assert await jobs.one(connection, "SELECT count(*) FROM backfills WHERE ended_at IS NULL"), "too late"
        await until(db, "SELECT count(*) FROM backfills WHERE ended_at IS NOT NULL", len(asked))
    finally:
        for one in engines:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            await one.wait()
    async with db.transaction() as connection:
        rows = await jobs.query(connection, "SELECT scheduled_at, state::text AS state, kind::text AS kind FROM runs")
        through = await jobs.query(connection, "SELECT slots, made, passed, succeeded, open_at FROM backfills")
    assert sorted(row.scheduled_at for row in rows) == [first + timedelta(minutes=count) for count in range(2 * PAST)]
    assert {(row.kind, row.state) for row in rows} == {("Backfill", S.SUCCEEDED)}
    assert all(row.made + row.passed == row.slots and row.succeeded == row.made for row in through)
    assert sum(row.made for row in through) == 2 * PAST
