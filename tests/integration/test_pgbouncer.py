"""An API process whose database is behind a transaction pooler: claims, heartbeats and reports as ever."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from tests.support import jobs, pgbouncer

from clockhand.domain import protocol
from clockhand.domain.protocol import Outcome, Standing
from clockhand.domain.states import RunState as S
from clockhand.engine.pools import service
from clockhand.store import database

COUNT = 60
WORKERS = 6


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with pgbouncer.before(database_url) as url:
        yield url


@pytest.fixture
async def api(pooled_url: str) -> AsyncIterator[service.Pools]:
    """Its connections are more than the pooler has, and each statement is sent often enough to be prepared."""
    db = database.Database(pooled_url, size=8, name="pooled", options=False)
    await db.open()
    serving = service.Pools(db, replica="api-1", lease=10)
    stop = asyncio.Event()
    task = asyncio.create_task(serving.run(stop))
    yield serving
    stop.set()
    await task
    await db.close()


async def due(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        await connection.execute(
            "INSERT INTO pools (pool, owner, name) VALUES (%s, %s, 'mailers')", (jobs.POOL, jobs.OWNER)
        )
        now = await database.now(connection)
        at = now.replace(second=0, microsecond=0) - timedelta(minutes=1)
        await jobs.make_jobs(connection, COUNT, job=jobs.pooled(jobs.NEVER), next_slot_at=at)


async def work(api: service.Pools, worker: str, done: asyncio.Event) -> list[uuid.UUID]:
    """Claims, says that it lives, reports, and again."""
    mine: list[uuid.UUID] = []
    while not done.is_set():
        request = protocol.ClaimRequest(
            request_id=uuid.uuid4(), worker=worker, handlers=(jobs.HANDLER,), max=4, wait_seconds=0.2
        )
        answer = await api.claim(jobs.POOL, request)
        held = tuple(protocol.Held(run_id=run.run_id, token=run.token) for run in answer.runs)
        beat = await api.heartbeat(jobs.POOL, protocol.HeartbeatRequest(worker=worker, held=held))
        assert [one.standing for one in beat.held] == [Standing.HELD] * len(held)
        if held:
            sent = tuple(protocol.Report(run_id=one.run_id, token=one.token, outcome=Outcome.SUCCEEDED) for one in held)
            reported = await api.report(jobs.POOL, protocol.ReportRequest(worker=worker, reports=sent))
            assert all(one.accepted for one in reported.reports)
        mine += [one.run_id for one in held]
    return mine


async def test_every_run_is_made_and_reported_once(db: database.Database, api: service.Pools) -> None:
    await due(db)
    done = asyncio.Event()
    working = [asyncio.create_task(work(api, f"worker-{number}", done)) for number in range(WORKERS)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while not any(one.done() for one in working) and await left(db):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    done.set()
    made = [run_id for mine in await asyncio.gather(*working) for run_id in mine]
    assert len(made) == len(set(made)) == COUNT
    async with db.transaction() as connection:
        ended = await jobs.query(connection, "SELECT state::text, attempt FROM run_history")
    assert [tuple(row) for row in ended] == [(S.SUCCEEDED, 1)] * COUNT


async def left(db: database.Database) -> bool:
    async with db.transaction() as connection:
        return bool(await jobs.one(connection, "SELECT count(*) < %s FROM run_history", COUNT))
