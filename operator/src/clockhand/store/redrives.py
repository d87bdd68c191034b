"""Ended runs that go back to be tried again, one or many in a statement. Whoever calls has locked their jobs."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from clockhand.domain import ids, spec, states
from clockhand.store import database


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Ended runs of an owner: in a state, of a job or of all, scheduled in a span, ended before an instant."""

    owner: str
    state: states.RunState
    ended_before: datetime
    job_name: str | None = None
    job_id: uuid.UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


async def find(connection: database.Connection, selection: Selection, *, after: uuid.UUID, limit: int) -> Sequence[Any]:
    """Rows (run_id, job_id), oldest first, from after `after`; nothing is locked."""
    parameters = {**dataclasses.asdict(selection), "state": selection.state.value, "after": after, "limit": limit}
    of_job = selection.job_name is not None or selection.job_id is not None
    query = "redrives.of_job" if of_job else "redrives.of_owner"
    return await database.fetch(connection, query, parameters)


async def lock_jobs(connection: database.Connection, job_ids: Collection[uuid.UUID]) -> Collection[uuid.UUID]:
    """Locks the jobs that there are; returns them."""
    rows = await database.fetch(connection, "redrives.lock_jobs", {"job_ids": list(job_ids)})
    return {row.job_id for row in rows}


async def specs(
    connection: database.Connection,
    run_ids: Collection[uuid.UUID],
    *,
    owner: str,
    job_ids: Collection[uuid.UUID],
) -> Mapping[uuid.UUID, str]:
    """The spec under which each of these ended runs was made, as stored, if it is a run of one of `job_ids`.

    Without those whose template is of a JobClass that has changed since or is gone: their pods may be forbidden by now.
    """
    parameters = {**_runs(run_ids), "owner": owner, "job_ids": list(job_ids)}
    return {row.run_id: row.spec for row in await database.fetch(connection, "redrives.specs", parameters)}


async def redrive(
    connection: database.Connection, plans: Mapping[uuid.UUID, spec.JobSpec], *, owner: str, now: datetime
) -> Sequence[Any]:
    """Moves ended runs back, Blocked until they are admitted: rows (run_id, job_id, kind) of those that may go."""
    if not plans:
        return ()
    parameters = {
        **_runs(plans),
        "owner": owner,
        "now": now,
        "pools": [plan.pool_of(owner) for plan in plans.values()],
        "handlers": [plan.handler for plan in plans.values()],
        "groups": [plan.concurrency_group for plan in plans.values()],
        "priorities": [plan.priority for plan in plans.values()],
        "pending_timeouts": [plan.pending_timeout_seconds for plan in plans.values()],
        "attempt_timeouts": [plan.attempt_timeout for plan in plans.values()],
        "run_timeouts": [plan.run_timeout_seconds for plan in plans.values()],
    }
    return await database.fetch(connection, "redrives.redrive", parameters)


async def audit(connection: database.Connection, back: Sequence[Any], *, owner: str, actor: str, now: datetime) -> None:
    """Records who had these runs tried again; rows as `redrive` gives them."""
    if back:
        parameters = {
            "owner": owner,
            "actor": actor,
            "now": now,
            "job_ids": [run.job_id for run in back],
            "run_ids": [run.run_id for run in back],
        }
        await database.execute(connection, "redrives.audit", parameters)


def _runs(run_ids: Collection[uuid.UUID]) -> dict[str, Any]:
    """With each run's instant, which names the partition."""
    return {"run_ids": list(run_ids), "scheduled": [ids.scheduled_at_of(run) for run in run_ids]}
