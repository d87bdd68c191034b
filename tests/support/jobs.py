"""Jobs and runs as rows, built here so that each test shows only what it is about."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clockhand.domain import ids, spec, states
from clockhand.domain.states import RunState
from clockhand.engine import claim as claims
from clockhand.engine import limits
from clockhand.store import database, partitions, runs, shards

EVERY_MINUTE = "* * * * *"
NEVER = "0 0 1 1 *"
OWNER = "k8s/team-a"
TOKEN = 4711
WORKER = "worker-1"
POOL = "k8s/team-a/mailers"
HANDLER = "email.send"
LONG = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A job whose rows exist."""

    job_id: uuid.UUID
    owner: str
    name: str
    shard: int
    spec_id: int
    pool: str | None = None


_MAKE = """
WITH owned AS (
    INSERT INTO owners (owner) VALUES (%(owner)s) ON CONFLICT DO NOTHING),
spec AS (
    INSERT INTO job_specs (job_id, generation, spec, payload, template, followed, stored_at)
    SELECT id, 1, %(spec)s, '{"made": "for a test"}', '{"spec": {"containers": [{"name": "main", "image": "any"}]}}',
           %(followed)s, %(now)s
    FROM unnest(%(ids)s::uuid[]) AS id
    RETURNING spec_id, job_id),
made AS (
    INSERT INTO jobs (job_id, owner, name, shard, pool, handler, concurrency_group, declared, generation,
                      resource_version, spec_id, created_at, last_slot_at, next_slot_at, next_run_at)
    SELECT n.id, %(owner)s, n.name, n.shard, %(pool)s, %(handler)s, %(group)s, %(declared)s, 1, 1, spec.spec_id,
           %(last)s, %(last)s, %(next)s, %(next)s
    FROM unnest(%(ids)s::uuid[], %(names)s::text[], %(shards)s::smallint[]) AS n (id, name, shard)
    JOIN spec ON spec.job_id = n.id
    RETURNING job_id, owner, name, shard, spec_id, pool),
shown AS (
    INSERT INTO job_status (job_id, shard) SELECT job_id, shard %% 256 FROM made)
SELECT job_id, owner, name, shard, spec_id, pool FROM made ORDER BY name
"""


def plan(schedule: str = EVERY_MINUTE, **fields: Any) -> spec.JobSpec:
    """A spec with defaults but for the fields given."""
    return spec.JobSpec(schedule=schedule, **fields)


def pooled(schedule: str = EVERY_MINUTE, **fields: Any) -> spec.JobSpec:
    """The same for a job whose runs the workers of `POOL` take, through `HANDLER`."""
    return plan(schedule, **{"handler": HANDLER, "pool": "mailers", **fields})


async def make_jobs(
    connection: database.Connection,
    count: int,
    *,
    job: spec.JobSpec | None = None,
    next_slot_at: datetime | None = None,
    owner: str = OWNER,
    name: str = "job",
) -> Sequence[Job]:
    """`count` jobs spread over the shards, all due at `next_slot_at` (None: never)."""
    numbers = range(count)
    job = job or plan()
    last = next_slot_at - timedelta(minutes=1) if next_slot_at else datetime(2026, 1, 1, tzinfo=UTC)
    parameters = {
        "owner": owner,
        "spec": spec.encode(job).decode(),
        "followed": job.followed,
        "ids": [uuid.uuid4() for _ in numbers],
        "names": [f"{name}-{number:05}" for number in numbers],
        "shards": [ids.twin(number, pooled=job.handler is not None) for number in numbers],
        "pool": job.pool_of(owner),
        "handler": job.handler,
        "group": job.concurrency_group,
        "declared": owner.startswith("k8s/"),
        "last": last,
        "next": next_slot_at,
        "now": last,
    }
    cursor = await connection.execute(_MAKE.encode(), parameters)
    return [Job(*row) for row in await cursor.fetchall()]


async def make_job(
    connection: database.Connection,
    job: spec.JobSpec | None = None,
    *,
    next_slot_at: datetime | None = None,
    owner: str = OWNER,
    name: str = "job",
) -> Job:
    """One job; its name is `<name>-00000`."""
    [made] = await make_jobs(connection, 1, job=job, next_slot_at=next_slot_at, owner=owner, name=name)
    return made


async def make_run(
    connection: database.Connection, job: Job, state: RunState, *, at: datetime | None = None, **columns: Any
) -> uuid.UUID:
    """A run of `job` scheduled at `at` (now), in `state`; `columns` are set beside those that the state demands."""
    now = await database.now(connection)
    at = ids.whole_ms(at or now)
    run_id = ids.run_id(job_id=job.job_id, scheduled_at=at, kind=states.RunKind.SLOT, key="")
    name = ids.run_name(job_name=job.name, scheduled_at=at, kind=states.RunKind.SLOT, key="")
    row: dict[str, Any] = {
        "run_id": run_id, "job_id": job.job_id, "owner": job.owner, "job_name": job.name, "name": name,
        "kind": "Slot", "scheduled_at": at, "created_at": now, "shard": job.shard, "spec_id": job.spec_id,
        "state": state.value,
    }  # fmt: skip
    if state.is_over:
        row |= {"key": "", "attempt": 1, "failures": 0, "disruptions": 0, "finished_at": now}
    else:
        row |= {"queue_at": now, "ready_at": now, "pending_timeout": 900, "priority": 0}
    if state in states.ATTEMPT_OPEN:
        row |= {"token": TOKEN, "attempt": 1, "claimed_at": now}
    if job.pool is not None:
        row |= await _pooled(connection, job, opened=state in states.ATTEMPT_OPEN, over=state.is_over)
    if state is RunState.STOPPING:
        row |= {"stop_reason": "Cancelled"}
    row |= columns
    table = "run_history" if state.is_over else "live_runs"
    names, places = ", ".join(row), ", ".join(f"%({column})s" for column in row)
    await connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})".encode(), row)
    return run_id


async def _pooled(connection: database.Connection, job: Job, *, opened: bool, over: bool) -> dict[str, Any]:
    if over:
        return {"worker": WORKER}
    handler = await one(connection, "SELECT handler FROM jobs WHERE job_id = %s", job.job_id)
    leased = {"worker": WORKER, "lease_until": await database.now(connection) + timedelta(seconds=90)} if opened else {}
    return {"pool": job.pool, "handler": handler, **leased}


async def make_partitions(connection: database.Connection) -> None:
    """The weeks around now."""
    now = await database.now(connection)
    await partitions.ensure(connection, oldest=now - timedelta(days=1), newest=now + timedelta(days=1))


async def hold_all(connection: database.Connection, replica: str = "one") -> runs.Holder:
    """Every shard, in the hands of `replica`, whoever had them."""
    await connection.execute("UPDATE shard_leases SET expires_at = '-infinity'")
    taken = await shards.take(connection, replica=replica, lease=LONG, shards=range(ids.SHARDS))
    return runs.Holder(replica, taken)


async def claim(
    connection: database.Connection, *, holder: runs.Holder, limit: int, now: datetime
) -> Sequence[runs.Claim]:
    """Claims up to `limit` Queued pod runs of the holder, with no limits set."""
    return await claims.Claims(limits.LimitsFile(None)).take(connection, holder=holder, limit=limit, now=now)


async def query(connection: database.Connection, text: str, *parameters: object) -> list[Any]:
    """All rows of a statement."""
    cursor = await connection.execute(text.encode(), parameters)
    return await cursor.fetchall()


async def one(connection: database.Connection, text: str, *parameters: object) -> Any:
    """The one value that a statement gives."""
    [[value]] = await query(connection, text, *parameters)
    return value


async def state_of(connection: database.Connection, run_id: uuid.UUID) -> tuple[RunState, ...]:
    """The states of the rows of a run; one row, where all is well."""
    rows = await query(connection, "SELECT state::text FROM runs WHERE run_id = %s", run_id)
    return tuple(RunState(state) for (state,) in rows)


async def changes(connection: database.Connection) -> list[tuple[uuid.UUID, RunState]]:
    """Everything in the change log, in the order it was written."""
    rows = await query(
        connection,
        "SELECT run, state::text FROM run_changes, unnest(runs, states) AS u (run, state) ORDER BY change_id",
    )
    return [(run, RunState(state)) for run, state in rows]
