"""Leases of workers: who has what, until when, and who is told so."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import pytest
from tests.support import jobs

from clockhand.domain import states
from clockhand.domain.states import RunState as S
from clockhand.store import assigned, database, leases, runs

LEASE = 90
LONG_AGO = timedelta(minutes=1)


def beat(*held: tuple[uuid.UUID, int], worker: str = jobs.WORKER, pool: str = jobs.POOL) -> leases.Beat:
    return leases.Beat(pool, worker, LEASE, held)


async def give_again(connection: database.Connection, *beats: leases.Beat) -> list[assigned.Assigned]:
    now = await database.now(connection)
    return list(await leases.unlisted(connection, beats, now=now, claimed_before=now))


async def lease_of(connection: database.Connection, run_id: uuid.UUID) -> datetime:
    lease: datetime = await jobs.one(connection, "SELECT lease_until FROM live_runs WHERE run_id = %s", run_id)
    return lease


async def test_what_a_worker_does_not_list_is_given_to_it_again_under_a_new_lease(db: database.Database) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        job = await jobs.make_job(connection, jobs.pooled())
        lost = await jobs.make_run(connection, job, S.CLAIMED, lease_until=now)
        known = await jobs.make_run(connection, job, S.CLAIMED, at=now - LONG_AGO)
        [given] = await give_again(connection, beat((known, jobs.TOKEN)))
        assert (given.run_id, given.token, given.worker) == (lost, jobs.TOKEN, jobs.WORKER)
        assert given.payload == '{"made": "for a test"}'
        assert await lease_of(connection, lost) == now + timedelta(seconds=LEASE)
        # an old token says nothing of the attempt that is open now
        assert len(await give_again(connection, beat((known, 1), (lost, 1)))) == 2


async def test_only_what_is_claimed_and_the_workers_own_is_given_again(db: database.Database) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        job = await jobs.make_job(connection, jobs.pooled())
        for minutes, state in enumerate((S.RUNNING, S.STOPPING, S.QUEUED, S.RETRYING)):
            await jobs.make_run(connection, job, state, at=now - minutes * LONG_AGO)
        claimed = await jobs.make_run(connection, job, S.CLAIMED, at=now - 9 * LONG_AGO)
        assert await give_again(connection, beat(worker="worker-2"), beat(pool="k8s/team-a/others")) == []
        assert not await leases.unlisted(connection, [beat()], now=now, claimed_before=now - LONG_AGO)
        assert [given.run_id for given in await give_again(connection, beat())] == [claimed]


async def test_what_a_worker_drops_is_not_kept_for_it_for_ever(db: database.Database) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        job = await jobs.make_job(connection, jobs.pooled())
        claimed_at = now - timedelta(seconds=LEASE)
        dropped = await jobs.make_run(connection, job, S.CLAIMED, claimed_at=claimed_at, lease_until=now)
        await connection.execute("UPDATE installation SET served_since = %s", [claimed_at])
        assert await give_again(connection, beat()) == []
        assert await lease_of(connection, dropped) == now
        # while nobody could be asked, nobody could say what it has
        await connection.execute("UPDATE installation SET served_since = %s", [now])
        assert [given.run_id for given in await give_again(connection, beat())] == [dropped]


async def _renew(connection: database.Connection, attempt: leases.Attempt) -> None:
    held = (attempt.run_id, attempt.token)
    beats = [leases.Beat(attempt.pool, attempt.worker or jobs.WORKER, LEASE, [held])]
    await leases.renew(connection, beats, now=await database.now(connection))
    await leases.start(connection, beats, now=await database.now(connection))


async def _release(connection: database.Connection, attempt: leases.Attempt) -> None:
    await leases.release(connection, [attempt])


async def _succeed(connection: database.Connection, attempt: leases.Attempt) -> None:
    fields = dataclasses.asdict(attempt)
    outcome = runs.Outcome(**fields, state=S.SUCCEEDED, reported=True)
    await runs.finish(connection, [outcome], now=await database.now(connection))


async def _fail(connection: database.Connection, attempt: leases.Attempt) -> None:
    now = await database.now(connection)
    for row in await leases.lock_open(connection, [attempt]):
        assert (row.run_id, row.pool, row.worker) == (attempt.run_id, attempt.pool, attempt.worker)
        outcome = runs.Outcome(**dataclasses.asdict(attempt), state=S.RETRYING, failures=1, disruptions=0, ready_at=now)
        await runs.retry(connection, [outcome])


Act = Callable[[database.Connection, leases.Attempt], Awaitable[None]]
MOVES: Mapping[str, tuple[Act, S, frozenset[S]]] = {
    "renew": (_renew, S.RUNNING, frozenset({S.CLAIMED})),
    "release": (_release, S.QUEUED, frozenset({S.CLAIMED})),
    "succeed": (_succeed, S.SUCCEEDED, states.ATTEMPT_OPEN),
    "fail": (_fail, S.RETRYING, states.ATTEMPT_OPEN),
}


@pytest.mark.parametrize("name", MOVES)
async def test_what_a_worker_says_moves_its_own_open_attempt_and_nothing_else(db: database.Database, name: str) -> None:
    act, new, allowed_from = MOVES[name]
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        job = await jobs.make_job(connection, jobs.pooled())
    for old in sorted(states.LIVE):
        async with db.transaction() as connection:
            run_id = await jobs.make_run(connection, job, old)
            mine = leases.Attempt(run_id, jobs.TOKEN, jobs.POOL, jobs.WORKER)
            strange = (
                dataclasses.replace(mine, token=4710),
                dataclasses.replace(mine, pool="k8s/team-b/mailers"),
                dataclasses.replace(mine, worker="worker-2"),
            )
            for attempt in strange:
                await act(connection, attempt)
            assert await jobs.state_of(connection, run_id) == (old,)
            await act(connection, mine)
            moved = old in allowed_from
            assert await jobs.state_of(connection, run_id) == (new if moved else old,), old
            assert await jobs.changes(connection) == ([(run_id, new)] if moved else [])
            assert not moved or states.may_become(old, new)
            await connection.rollback()
