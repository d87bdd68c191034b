"""What people ask for: run now, cancel, retry; each with its audit row, each refused where it makes no sense."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs, statements

from clockhand import errors
from clockhand.domain import ids, spec, states
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S
from clockhand.engine import requests
from clockhand.store import database, runs

ACTOR = "somebody"


@pytest.fixture
async def job(db: database.Database) -> jobs.Job:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        return await jobs.make_job(connection)


async def ask(connection: database.Connection, job: jobs.Job, name: str = "by-hand", **more: Any) -> uuid.UUID:
    now = await database.now(connection)
    return await requests.request_run(
        connection, owner=job.owner, job_id=job.job_id, name=name, actor=ACTOR, now=now, **more
    )


async def cancel(connection: database.Connection, run_id: uuid.UUID, owner: str = jobs.OWNER) -> S:
    now = await database.now(connection)
    return await requests.cancel(connection, owner=owner, run_id=run_id, actor=ACTOR, now=now)


async def retry(connection: database.Connection, run_id: uuid.UUID, owner: str = jobs.OWNER) -> None:
    await requests.retry(connection, owner=owner, run_id=run_id, actor=ACTOR, now=await database.now(connection))


async def audited(connection: database.Connection) -> list[tuple[str, str, uuid.UUID]]:
    return [tuple(row) for row in await jobs.query(connection, "SELECT actor, action, run_id FROM audit")]


async def test_a_manual_run(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        run_id = await ask(connection, job, payload={"to": ["you", 1.5, None]})
        [row] = await jobs.query(connection, "SELECT *, kind::text AS why, state::text AS now FROM live_runs")
        assert run_id == ids.run_id(job_id=job.job_id, scheduled_at=now, kind=states.RunKind.MANUAL, key="by-hand")
        assert (row.run_id, row.name, row.why, row.key, row.now) == (run_id, "by-hand", "Manual", "by-hand", "Queued")
        assert (row.scheduled_at, row.payload) == (now, {"to": ["you", 1.5, None]})
        assert await audited(connection) == [(ACTOR, "run", run_id)]
        assert await jobs.changes(connection) == [(run_id, S.BLOCKED), (run_id, S.QUEUED)]


async def test_no_payload_and_an_explicit_null_differ(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        await ask(connection, job, "without")
        await ask(connection, job, "null", payload=None)
        holder = await jobs.hold_all(connection)
        now = await database.now(connection)
        claims = {one.name: one for one in await jobs.claim(connection, holder=holder, limit=5, now=now)}
    assert not claims["without"].own_payload
    assert claims["null"].own_payload
    assert claims["null"].payload is None


async def test_a_name_is_taken_once(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        run_id = await ask(connection, job)
    for _ in range(2):
        async with db.transaction() as connection:
            with pytest.raises(errors.Conflict, match="by-hand"):
                await ask(connection, job)
        async with db.transaction() as connection:
            if await jobs.one(connection, "SELECT count(*) FROM live_runs"):
                await cancel(connection, run_id)  # the second time round it is history


async def test_two_at_the_same_time_get_one_run(db: database.Database, job: jobs.Job) -> None:
    async def one() -> uuid.UUID | None:
        async with db.transaction() as connection:
            try:
                return await ask(connection, job)
            except errors.Conflict:
                return None

    made = await asyncio.gather(*(one() for _ in range(6)))
    assert sum(run is not None for run in made) == 1
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM live_runs") == 1


async def test_a_request_that_meets_an_edit_runs_under_the_new_spec(db: database.Database, job: jobs.Job) -> None:
    async def edited_priority() -> int:
        async with db.transaction() as connection:
            await ask(connection, job)
            found: int = await jobs.one(connection, "SELECT priority FROM live_runs")
            return found

    async with db.transaction() as editing:
        await editing.execute(
            "WITH new AS (INSERT INTO job_specs (job_id, generation, spec, stored_at) VALUES (%s, 2, %s, now()) "
            "RETURNING spec_id) UPDATE jobs SET spec_id = new.spec_id, generation = 2 FROM new",
            (job.job_id, spec.encode(jobs.plan(priority=7)).decode()),
        )
        asking = asyncio.create_task(edited_priority())
        await statements.until_somebody_waits(db)
    assert await asking == 7


async def test_a_manual_run_waits_its_turn(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        queue = await jobs.make_job(connection, jobs.plan(concurrency_policy=Concurrency.QUEUE))
        await jobs.make_run(connection, queue, S.RUNNING)
        run_id = await ask(connection, queue)
        assert await jobs.state_of(connection, run_id) == (S.BLOCKED,)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE jobs SET deleted_at = now()", errors.NotFound),
        ("UPDATE jobs SET owner = 'k8s/another'", errors.NotFound),
        ("UPDATE jobs SET parked = 'spec.schedule: is wrong'", errors.Conflict),
    ],
)
async def test_a_job_that_cannot_run(
    db: database.Database, job: jobs.Job, change: str, error: type[errors.ClockhandError]
) -> None:
    async with db.transaction() as connection:
        await connection.execute("INSERT INTO owners (owner) VALUES ('k8s/another')")
        await connection.execute(change.encode())
        with pytest.raises(error):
            await ask(connection, job)
        assert await jobs.query(connection, "TABLE audit") == []


@pytest.mark.parametrize("payload", [{"a": "\x00"}, {"a": "\ud800"}, "x" * 65_537, {"a": float("nan")}])
async def test_a_payload_that_cannot_be_stored(db: database.Database, job: jobs.Job, payload: object) -> None:
    async with db.transaction() as connection:
        with pytest.raises(errors.InvalidInput, match=r"spec\.payload"):
            await ask(connection, job, payload=payload)


@pytest.mark.parametrize("state", sorted(states.LIVE))
async def test_cancel_of_each_live_state(db: database.Database, job: jobs.Job, state: S) -> None:
    async with db.transaction() as connection:
        run_id = await jobs.make_run(connection, job, state)
        answer = await cancel(connection, run_id)
        wanted = S.CANCELLED if state in states.WAITING else S.STOPPING
        assert answer is wanted
        assert await jobs.state_of(connection, run_id) == (wanted,)
        assert await jobs.changes(connection) == ([] if state is S.STOPPING else [(run_id, wanted)])
        assert await audited(connection) == [(ACTOR, "cancel", run_id)]


@pytest.mark.parametrize("state", sorted(states.OVER))
async def test_what_is_over_cannot_be_cancelled(db: database.Database, job: jobs.Job, state: S) -> None:
    async with db.transaction() as connection:
        run_id = await jobs.make_run(connection, job, state)
        with pytest.raises(errors.Conflict, match=state):
            await cancel(connection, run_id)


async def test_nobody_reaches_another_owners_run(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        live = await jobs.make_run(connection, job, S.RETRYING)
        other = await jobs.make_job(connection, name="other")
        dead = await jobs.make_run(connection, other, S.DEAD)
        for run_id in (live, dead, uuid.UUID(int=5)):
            for act in (cancel, retry):
                with pytest.raises(errors.NotFound):
                    await act(connection, run_id, "k8s/another")
        assert await jobs.changes(connection) == []


@pytest.mark.parametrize("state", [S.DEAD, S.UNKNOWN, S.CANCELLED])
async def test_a_redrive_keeps_the_run_id(db: database.Database, job: jobs.Job, state: S) -> None:
    async with db.transaction() as connection:
        run_id = await jobs.make_run(
            connection, job, state, attempt=3, failures=3, disruptions=1, reason="why", payload='{"own": 1}'
        )
        await retry(connection, run_id)
        assert await jobs.one(connection, "SELECT count(*) FROM run_history") == 0
        assert await jobs.changes(connection) == [(run_id, S.BLOCKED), (run_id, S.QUEUED)]
        assert await audited(connection) == [(ACTOR, "retry", run_id)]
        holder = await jobs.hold_all(connection)
        now = await database.now(connection)
        [claimed] = await jobs.claim(connection, holder=holder, limit=5, now=now)
        assert (claimed.run_id, claimed.attempt, claimed.payload) == (run_id, 4, {"own": 1})
        [row] = await jobs.query(connection, "SELECT failures, disruptions FROM live_runs")
        assert tuple(row) == (0, 0)


async def test_a_redriven_run_may_end_again(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        run_id = await jobs.make_run(connection, job, S.DEAD)
        await retry(connection, run_id)
        now = await database.now(connection)
        [ended] = await runs.cancel_waiting(connection, run_ids=[run_id], reason="again", now=now)
        assert ended.kept
        assert await jobs.state_of(connection, run_id) == (S.CANCELLED,)


async def test_a_retrying_run_goes_on_at_once(db: database.Database, job: jobs.Job) -> None:
    async with db.transaction() as connection:
        later = await database.now(connection) + timedelta(hours=1)
        run_id = await jobs.make_run(connection, job, S.RETRYING, ready_at=later, attempt=1, failures=1)
        await retry(connection, run_id)
        assert await jobs.state_of(connection, run_id) == (S.QUEUED,)
        assert await jobs.one(connection, "SELECT failures FROM live_runs") == 1


@pytest.mark.parametrize("state", sorted({*states.LIVE, S.SUCCEEDED} - {S.RETRYING}))
async def test_what_cannot_be_retried(db: database.Database, job: jobs.Job, state: S) -> None:
    async with db.transaction() as connection:
        run_id = await jobs.make_run(connection, job, state)
        with pytest.raises(errors.Conflict, match=state):
            await retry(connection, run_id)
        assert await jobs.state_of(connection, run_id) == (state,)
        assert await jobs.changes(connection) == []
