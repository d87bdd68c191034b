"""Tokens that came by a message: whoever presents one first has the attempt, and no one else."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs

from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.engine import loops
from clockhand.engine.pools import starts
from clockhand.store import database, pools

TOKEN = str(jobs.TOKEN)
SETTINGS = pools.Settings(jobs.POOL, jobs.OWNER)


@pytest.fixture
async def taken(db: database.Database) -> AsyncIterator[starts.Starts]:
    opened = starts.Starts(db)
    task = asyncio.create_task(loops.forever("starts", opened.step))
    yield opened
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def sent(db: database.Database, state: S = S.CLAIMED, **columns: Any) -> uuid.UUID:
    """A run whose attempt a message carries."""
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled())
        return await jobs.make_run(connection, job, state, **{"worker": None, "attempt_timeout": 60, **columns})


async def present(
    taken: starts.Starts, worker: str, *runs: uuid.UUID, token: str = TOKEN, settings: pools.Settings = SETTINGS
) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """Runs that are the worker's now, and those it was refused."""
    held = tuple(protocol.Held(run_id=run_id, token=token) for run_id in runs)
    answer = await taken.start(settings, protocol.StartRequest(worker=worker, held=held))
    return [run.run_id for run in answer.runs], [one.run_id for one in answer.refused]


async def row_of(db: database.Database, run_id: uuid.UUID) -> Any:
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT * FROM live_runs WHERE run_id = %s", run_id)
        return row


async def test_the_first_to_present_a_token_has_the_attempt(db: database.Database, taken: starts.Starts) -> None:
    run_id = await sent(db)
    assert await present(taken, "worker-1", run_id) == ([run_id], [])
    row = await row_of(db, run_id)
    assert (row.worker, row.state) == ("worker-1", S.CLAIMED)
    assert row.deadline_at - row.started_at == timedelta(minutes=1)
    assert row.lease_until - row.started_at == timedelta(seconds=90)
    assert await present(taken, "worker-2", run_id) == ([], [run_id])
    # the answer was lost, or the message came once more
    assert await present(taken, "worker-1", run_id, run_id) == ([run_id], [])
    again = await row_of(db, run_id)
    assert (again.deadline_at, again.started_at) == (row.deadline_at, row.started_at)
    assert again.lease_until > row.lease_until


async def test_of_many_at_once_one_has_it(db: database.Database, taken: starts.Starts) -> None:
    made = [await sent(db) for _ in range(5)]
    workers = [f"worker-{number}" for number in range(12)]
    ways = [made, made[::-1]]
    answers = await asyncio.gather(*(present(taken, name, *ways[n % 2]) for n, name in enumerate(workers)))
    assert sorted(run_id for began, _ in answers for run_id in began) == sorted(made)
    for name, (began, _) in zip(workers, answers, strict=True):
        for run_id in began:
            assert (await row_of(db, run_id)).worker == name


async def test_two_processes_agree_on_who_has_it(db: database.Database, taken: starts.Starts) -> None:
    made = [await sent(db) for _ in range(20)]
    other = starts.Starts(db)
    task = asyncio.create_task(loops.forever("starts", other.step))
    answers = await asyncio.gather(present(taken, "worker-1", *made), present(other, "worker-2", *made[::-1]))
    task.cancel()
    assert sorted([*answers[0][0], *answers[1][0]]) == sorted(made)


@pytest.mark.parametrize("state", [S.QUEUED, S.STOPPING, S.RETRYING])
async def test_what_is_not_open_any_more_is_refused(db: database.Database, taken: starts.Starts, state: S) -> None:
    run_id = await sent(db, state)
    assert await present(taken, "worker-1", run_id) == ([], [run_id])


async def test_a_stale_token_another_pool_and_a_stranger_are_refused(
    db: database.Database, taken: starts.Starts
) -> None:
    run_id = await sent(db)
    stranger = uuid.uuid4()
    assert await present(taken, "worker-1", run_id, token="4710") == ([], [run_id])
    assert await present(taken, "worker-1", run_id, token="9" * 19) == ([], [run_id])
    assert await present(taken, "worker-1", stranger) == ([], [stranger])
    elsewhere = pools.Settings("k8s/team-b/mailers", "k8s/team-b")
    answers = await asyncio.gather(
        present(taken, "worker-1", run_id, settings=elsewhere), present(taken, "worker-1", run_id)
    )
    assert list(answers) == [([], [run_id]), ([run_id], [])]
