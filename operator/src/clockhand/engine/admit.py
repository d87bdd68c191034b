"""Blocked and Retrying runs become Queued when their turn has come.

Level-triggered: each pass looks at the rows as they are, under the job's lock, so that a hint that was lost costs time and
nothing else. An end of a run promotes the next at once: of its job, and of the concurrency groups that have a free place.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from clockhand import errors
from clockhand.domain import admission, limits
from clockhand.engine import groups, specs
from clockhand.engine import limits as limit_files
from clockhand.store import database, firing, runs
from clockhand.store import groups as queues

BATCH = 500
_ROUNDS = 20
"""Batches of runs from the queues of groups in one go."""


class Admit:
    """Promotes runs of the held shards, and of groups those of all shards."""

    def __init__(self, db: database.Database, file: limit_files.LimitsFile | None = None) -> None:
        self._db = db
        self._file = file or limit_files.LimitsFile(None)

    async def run_once(self, shards: Collection[int]) -> int:
        """Goes through every job with a waiting run once; returns how many runs became Queued."""
        promoted = 0
        after = runs.NO_RUN
        while shards:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                jobs = await runs.jobs_waiting(connection, shards=shards, after=after, now=now, limit=BATCH)
                promoted += await promote_for(connection, jobs, caps=self._file.current, now=now)
            if len(jobs) < BATCH:
                break
            after = jobs[-1]
        return promoted + await self._promote_groups()

    async def follow(self, job_ids: Collection[uuid.UUID]) -> int:
        """Promotes what ends of runs of `job_ids` have made room for; returns how many runs became Queued."""
        promoted, waiting = 0, False
        for jobs in _parts(list(job_ids)):
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                promoted += await promote_for(connection, jobs, caps=self._file.current, now=now)
                waiting = bool(await queues.waiting(connection))
        return promoted + (await self._promote_groups() if waiting else 0)

    async def _promote_groups(self) -> int:
        promoted = 0
        for _ in range(_ROUNDS):
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                waiting = await queues.waiting(connection)
                jobs = await groups.next_jobs(connection, self._file.current, waiting)
                if not jobs:
                    await groups.tell(connection, self._file.current, waiting)
                    break
                # one that its job does not let go leaves the queue, so that the next round begins with others
                promoted += await promote_for(connection, jobs, caps=self._file.current, now=now)
        return promoted


async def promote_for(
    connection: database.Connection, job_ids: Collection[uuid.UUID], *, caps: limits.Limits | None = None, now: datetime
) -> int:
    """Promotes what may go on of the named jobs, whose rows it locks; returns how many runs became Queued.

    Without `caps` runs of concurrency groups stay as they are, for somebody who has the limits.
    """
    if not job_ids:
        return 0
    stored = await runs.lock_specs_of_jobs(connection, job_ids)
    live = await firing.live_of_jobs(connection, list(stored))
    admitted = [_admitted(stored[job_id], waiting, now=now) for job_id, waiting in live.items()]
    promoted = 0
    if caps is not None:
        promoted = await groups.let_go(connection, caps, admitted, job_ids=stored, now=now)
    at_once = [run for one in admitted for run in one.at_once]
    return promoted + await runs.promote(connection, at_once, now=now)


def _parts(job_ids: Sequence[uuid.UUID]) -> Iterator[Sequence[uuid.UUID]]:
    return (job_ids[first : first + BATCH] for first in range(0, len(job_ids), BATCH))


def _admitted(stored: str, live: Sequence[admission.LiveRun], *, now: datetime) -> admission.Admitted:
    try:
        return admission.admit(specs.of(stored), live, now=now)
    except (errors.InvalidInput, msgspec.MsgspecError):  # parked, with its sentence, where it was read first
        return admission.Admitted(back=tuple(run.run_id for run in live if run.waits_for_group))
