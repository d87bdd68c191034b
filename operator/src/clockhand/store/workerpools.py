"""The rows of WorkerPool objects: how each pool is set up, what waits for its workers, and which jobs name it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from clockhand.store import database, mirroring

COUNT_LIMIT = 5_000


@dataclass(frozen=True, slots=True)
class Setup:
    """How a pool is set up by its object."""

    object_uid: UUID
    service_account: str | None
    allowed_owners: tuple[str, ...]
    handlers: tuple[str, ...]
    dispatch: str
    lease_seconds: int
    heartbeat_seconds: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A pool, and what there is to do for its workers; counts end at COUNT_LIMIT."""

    setup: Setup
    kafka_error: str | None
    backlog: int
    oldest_seconds: float
    running: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Whose jobs a pool takes, and for which handlers; none listed: nobody knows."""

    owner: str
    allowed_owners: tuple[str, ...]
    handlers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose runs workers take, and the conditions that it shows."""

    job_id: UUID
    owner: str
    pool: str
    handler: str
    generation: int
    conditions: Sequence[Mapping[str, object]]


async def all_pools(
    connection: database.Connection, *, owners: Sequence[str] | None, now: datetime
) -> Mapping[str, Loaded]:
    """Every pool of an object of these owners (None: all) by its whole name."""
    parameters = {"owners": None if owners is None else list(owners), "now": now, "limit": COUNT_LIMIT}
    rows = await database.fetch(connection, "workerpools.all", parameters)
    return {row.pool: _loaded(row) for row in rows}


def _loaded(row: Any) -> Loaded:
    setup = Setup(
        object_uid=row.object_uid,
        service_account=row.service_account,
        allowed_owners=tuple(row.allowed_owners),
        handlers=tuple(row.handlers),
        dispatch=row.dispatch,
        lease_seconds=row.lease_seconds,
        heartbeat_seconds=row.heartbeat_seconds,
    )
    return Loaded(setup, row.kafka_error, row.backlog, row.oldest_seconds, row.running)


async def found(connection: database.Connection, pools: Collection[str]) -> Mapping[str, Offer]:
    """Those of `pools` that exist."""
    rows = await database.fetch(connection, "workerpools.found", {"pools": sorted(pools)})
    return {row.pool: Offer(row.owner, tuple(row.allowed_owners), tuple(row.handlers)) for row in rows}


async def store(connection: database.Connection, pool: str, setup: Setup, *, resource_version: int) -> None:
    """Makes the pool, or sets it up anew."""
    owner, _, name = pool.rpartition("/")
    parameters = {
        "pool": pool,
        "owner": owner,
        "name": name,
        "resource_version": resource_version,
        "object_uid": setup.object_uid,
        "service_account": setup.service_account,
        "allowed_owners": list(setup.allowed_owners),
        "handlers": list(setup.handlers),
        "dispatch": setup.dispatch,
        "lease_seconds": setup.lease_seconds,
        "heartbeat_seconds": setup.heartbeat_seconds,
    }
    await database.execute(connection, "workerpools.store", parameters)


async def remove(connection: database.Connection, pools: Collection[str], *, now: datetime) -> None:
    """Nobody claims from these pools any more."""
    await database.execute(connection, "workerpools.remove", {"pools": sorted(pools), "now": now})


async def jobs_page(
    connection: database.Connection, *, after: mirroring.Place, pools: Collection[str] | None, size: int
) -> tuple[mirroring.Place | None, Sequence[Job]]:
    """The jobs of `pools` (None: of any) among the next `size` jobs, and where those end; None: there are no more."""
    parameters = {**asdict(after), "pools": None if pools is None else sorted(pools), "size": size}
    rows = await database.fetch(connection, "workerpools.jobs_page", parameters)
    if not rows:
        return None, ()
    last = mirroring.Place(rows[0].last_owner, rows[0].last_name, rows[0].last_id)
    return last, [_job(row) for row in rows if row.job_id is not None]


def _job(row: Any) -> Job:
    return Job(row.job_id, row.owner, row.pool, row.handler, row.generation, row.conditions)
