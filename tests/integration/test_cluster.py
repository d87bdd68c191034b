"""Three engines on one database, one of them killed midway: no slot is lost and none runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support import jobs

from clockhand.domain import ids
from clockhand.domain.states import RunState as S
from clockhand.store import database

ROOT = Path(__file__).resolve().parents[2]
COUNT = 10_000
ENGINES = 3


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
