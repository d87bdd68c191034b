"""Blocked and Retrying runs become Queued when their turn has come.

Level-triggered: each pass looks at the rows as they are, under the job's lock, so that a hint that was lost costs time and
nothing else. An end of a run promotes its job's next at once, in its own transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from clockhand import errors
from clockhand.domain import admission
from clockhand.engine import specs
from clockhand.store import database, firing, runs

BATCH = 500


class Admit:
    """Promotes runs of the held shards."""

    def __init__(self, db: database.Database) -> None:
        self._db = db

    async def run_once(self, shards: Collection[int]) -> int:
        """Goes through every job with a waiting run once; returns how many runs became Queued."""
        promoted = 0
        after = runs.NO_RUN
        while shards:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                jobs = await runs.jobs_waiting(connection, shards=shards, after=after, now=now, limit=BATCH)
                promoted += await promote_for(connection, jobs, now=now)
            if len(jobs) < BATCH:
                break
            after = jobs[-1]
        return promoted


async def promote_for(connection: database.Connection, job_ids: Collection[uuid.UUID], *, now: datetime) -> int:
    """Promotes what may go on of the named jobs, whose rows it locks; returns how many runs became Queued."""
    if not job_ids:
        return 0
    stored = await runs.lock_specs_of_jobs(connection, job_ids)
    live = await firing.live_of_jobs(connection, list(stored))
    chosen: list[uuid.UUID] = []
    for job_id, waiting in live.items():
        try:
            plan = specs.of(stored[job_id])
        except errors.InvalidInput:
            continue  # parked, with its sentence, where it was read first
        chosen.extend(admission.promote(plan, waiting, now=now))
    return await runs.promote(connection, chosen, now=now)
