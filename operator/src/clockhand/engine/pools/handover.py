"""Runs that have just become due go to waiting workers at once: one write for insertion and claim, and no second wait.

Only past an empty queue, and where no cap has to be counted: everything else is the queue's to decide.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from clockhand.domain import states
from clockhand.engine.pools import desk as desks
from clockhand.store import assigned, database, firing


class HandOver:
    """What one transaction that fires gives to the seats of a desk, and what it leaves to the queue."""

    def __init__(self, desk: desks.Desk, handing: desks.Handing) -> None:
        self._desk = desk
        self._handing = handing
        self._seats: dict[uuid.UUID, desks.Seat] = {}
        self.queued: set[desks.Pair] = set()
        """For whom runs were queued."""

    async def insert(
        self,
        connection: database.Connection,
        runs: Sequence[firing.NewRun],
        due: Mapping[uuid.UUID, firing.DueJob],
        *,
        now: datetime,
    ) -> Mapping[uuid.UUID, firing.Made]:
        """Inserts `runs`, those that find a seat as Claimed; `due` are their jobs that run in pools."""
        ready = [run for run in runs if run.job_id in due and run.state is states.RunState.QUEUED] if due else []
        epoch, given = await self._seated(connection, ready, due)
        made = await firing.insert_runs(connection, runs, now=now, given=given, epoch=epoch)
        for run in ready:
            found, job = made.get(run.run_id), due[run.job_id]
            if run.run_id not in given:
                self.queued.add(_pair(job))
            elif found is not None:
                self._handing.give(self._seats[run.run_id], _assigned(job, run, given[run.run_id], found), now=now)
        return made

    async def _seated(
        self, connection: database.Connection, ready: Sequence[firing.NewRun], due: Mapping[uuid.UUID, firing.DueJob]
    ) -> tuple[int | None, Mapping[uuid.UUID, firing.Given]]:
        """The epoch, and who is given which run; the most urgent are seated first."""
        pairs = {_pair(job) for run in ready if self._may_have(job := due[run.job_id])}
        if not pairs:
            return None, {}
        epoch, free = await firing.hand_over(connection, sorted(pairs))
        given: dict[uuid.UUID, firing.Given] = {}
        for run in sorted(ready, key=lambda run: -run.priority) if epoch is not None else ():
            job = due[run.job_id]
            if (pair := _pair(job)) not in free or not self._may_have(job):
                continue
            if (seat := self._handing.take(*pair)) is not None:
                self._seats[run.run_id] = seat
                lease = self._desk.settings_of(seat.pool).lease_seconds
                given[run.run_id] = firing.Given(secrets.randbits(63), seat.worker, lease)
        return epoch, given

    def _may_have(self, job: firing.DueJob) -> bool:
        return self._desk.hands_over(*_pair(job), job.owner)


def _pair(job: firing.DueJob) -> desks.Pair:
    assert job.pool is not None
    assert job.handler is not None
    return job.pool, job.handler


def _assigned(job: firing.DueJob, run: firing.NewRun, given: firing.Given, made: firing.Made) -> assigned.Assigned:
    assert made.fencing is not None
    assert made.payload is not None
    return assigned.Assigned(
        run_id=run.run_id,
        token=given.token,
        name=run.name,
        job_name=job.name,
        owner=job.owner,
        handler=_pair(job)[1],
        kind=run.kind.value,
        scheduled_at=run.scheduled_at,
        attempt=1,
        fencing=made.fencing,
        attempt_timeout=run.attempt_timeout,
        payload=made.payload,
        worker=given.worker,
    )
