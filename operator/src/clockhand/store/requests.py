"""What people ask for beside the schedule: manual runs, cancellations, redrives. Each with its audit row."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from clockhand.domain import ids
from clockhand.store import database


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Who asked for what, for the audit trail."""

    owner: str
    actor: str
    action: str
    job_id: uuid.UUID | None = None
    run_id: uuid.UUID | None = None
    detail: object = None


async def job_named(connection: database.Connection, *, owner: str, name: str) -> uuid.UUID | None:
    """The job that has this name now."""
    row = await database.fetch_one(connection, "requests.job_named", {"owner": owner, "name": name})
    return row.job_id if row else None


async def lock_job(connection: database.Connection, *, owner: str, job_id: uuid.UUID) -> Any | None:
    """Row (job_id, name, parked, spec_id, created_at, next_slot_at) of the job, locked; None where there is none."""
    return await database.fetch_one(connection, "requests.lock_job", {"owner": owner, "job_id": job_id})


async def spec_of(connection: database.Connection, spec_id: int) -> str:
    """The spec of a job that the caller has locked, as stored."""
    row = await database.fetch_one(connection, "requests.spec", {"spec_id": spec_id})
    assert row is not None
    text: str = row.spec
    return text


async def claim_key(
    connection: database.Connection, *, scope: str, key: str, run_id: uuid.UUID, now: datetime
) -> uuid.UUID:
    """The run that `key` stands for: `run_id` where the key is new, else that of the first request."""
    parameters = {"scope": scope, "key": key, "run_id": run_id, "now": now}
    row = await database.fetch_one(connection, "requests.claim_key", parameters)
    assert row is not None
    found: uuid.UUID = row.run_id
    return found


async def name_taken(connection: database.Connection, *, owner: str, name: str) -> bool:
    """Whether a backfill, or a run that is no slot's, has this name."""
    row = await database.fetch_one(connection, "requests.name_taken", {"owner": owner, "name": name})
    return bool(row and row.taken)


async def lock_job_of_run(connection: database.Connection, *, owner: str, run_id: uuid.UUID) -> bool:
    """Locks the job that the run belongs to, for a caller that will lock the run and then admit the job's runs.

    False where there is no such run, or its job is gone for good.
    """
    return bool(await database.fetch(connection, "requests.lock_job_of_run", _named(owner, run_id)))


async def lock_live(connection: database.Connection, *, owner: str, run_id: uuid.UUID) -> Any | None:
    """Row (run_id, job_id, state) of a live run, locked; None where it is not live."""
    return await database.fetch_one(connection, "requests.lock_live", {"owner": owner, "run_id": run_id})


async def ended(connection: database.Connection, *, owner: str, run_id: uuid.UUID) -> Any | None:
    """Row (run_id, job_id, state) of an ended run."""
    return await database.fetch_one(connection, "requests.ended", _named(owner, run_id))


async def retry_now(connection: database.Connection, *, run_id: uuid.UUID, now: datetime) -> None:
    """Ends the back-off of a Retrying run."""
    await database.execute(connection, "requests.retry_now", {"run_id": run_id, "now": now})


async def audit(connection: database.Connection, asked: Asked, *, now: datetime) -> None:
    """Records who asked for what."""
    values = dataclasses.asdict(asked)
    values["detail"] = None if asked.detail is None else Jsonb(asked.detail)
    await database.execute(connection, "requests.audit", {**values, "now": now})


def _named(owner: str, run_id: uuid.UUID) -> dict[str, Any]:
    return {"owner": owner, "run_id": run_id, "scheduled_at": ids.scheduled_at_of(run_id)}
