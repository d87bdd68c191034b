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
from clockhand.store import assigned, database, firing, pools

_Ready = tuple[firing.NewRun, firing.DueJob]
_Seated = tuple[firing.NewRun, firing.DueJob, desks.Seat, firing.Given]


class HandOver:
    """What one transaction that fires gives to the seats of a desk, and what it leaves to the queue."""

    def __init__(self, desk: desks.Desk, handing: desks.Handing) -> None:
        self._desk = desk
        self._handing = handing
        self.queued: set[pools.Pair] = set()
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
        ready = [(run, due[run.job_id]) for run in runs if run.state is states.RunState.QUEUED and run.job_id in due]
        epoch, seated = await self._seated(connection, ready)
        given = {run.run_id: gift for run, _, _, gift in seated}
        made = await firing.insert_runs(connection, runs, now=now, given=given, epoch=epoch)
        for run, job, seat, gift in seated:
            if (found := made.get(run.run_id)) is not None:
                self._handing.give(seat, _assigned(job, run, gift, found), now=now)
        if len(seated) < len(ready):
            self.queued.update(_pair(job) for run, job in ready if run.run_id not in given)
        return made

    async def _seated(
        self, connection: database.Connection, ready: Sequence[_Ready]
    ) -> tuple[int | None, Sequence[_Seated]]:
        """The epoch, and who is given which run; the most urgent are seated first."""
        owners = {(_pair(job), job.owner) for _, job in ready}
        wanted = {(pair, owner) for pair, owner in owners if self._desk.hands_over(*pair, owner)}
        if not wanted:
            return None, ()
        pairs = sorted({pair for pair, _ in wanted})
        spans = {pair: self._desk.settings_of(pair[0]).spans for pair in pairs}
        epoch, free = await firing.hand_over(connection, spans)
        if epoch is None:
            return None, ()
        allowed = {(pair, owner) for pair, owner in wanted if pair in free}
        seated: list[_Seated] = []
        for run, job in sorted(ready, key=lambda one: -one[0].priority):
            pair = _pair(job)
            if (pair, job.owner) in allowed and (seat := self._handing.take(*pair)) is not None:
                lease = self._desk.settings_of(seat.pool).lease_seconds
                seated.append((run, job, seat, firing.Given(secrets.randbits(63), seat.worker, lease)))
        return epoch, seated


def _pair(job: firing.DueJob) -> pools.Pair:
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
