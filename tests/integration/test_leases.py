"""Leases of workers: who has what, until when, and who is told so."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from tests.support import jobs

from clockhand.domain.states import RunState as S
from clockhand.store import assigned, database, leases

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
