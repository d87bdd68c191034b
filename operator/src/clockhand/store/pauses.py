"""Pauses after failures, as rows. Jobs are locked first, their status rows last; no run is locked in between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from clockhand.domain import times
from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Firing:
    """A locked job for which a slot comes."""

    job_id: UUID
    name: str
    generation: int
    spec: str


@dataclass(frozen=True, slots=True)
class Paused:
    """A locked job that is paused."""

    job_id: UUID
    owner: str
    name: str
    generation: int
    created_at: datetime
    last_slot_at: datetime
    spec: str

    @property
    def origin(self) -> times.Origin:
        return times.Origin(self.job_id, self.created_at)


@dataclass(frozen=True, slots=True)
class Status:
    """What the status row of a job says, locked."""

    job_id: UUID
    failures: int
    succeeded_by_hand: bool
    """Since its last pause began."""
    conditions: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Next:
    """What comes after a pause; None where no slot comes any more."""

    job_id: UUID
    slot_at: datetime | None
    run_at: datetime | None


async def failures(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, int]:
    """How many runs in a row ended Dead, of jobs that the caller has locked."""
    rows = await database.fetch(connection, "pauses.failures", {"job_ids": list(job_ids)})
    return {row.job_id: row.consecutive_failures for row in rows}


async def lock_firing(connection: database.Connection, job_ids: Collection[UUID]) -> Sequence[Firing]:
    """Locks those of the jobs for which a slot comes."""
    rows = await database.fetch(connection, "pauses.lock_firing", {"job_ids": list(job_ids)})
    return [Firing(*row) for row in rows]


async def lock_paused(connection: database.Connection, job_ids: Collection[UUID]) -> Sequence[Paused]:
    """Locks those of the jobs that are paused."""
    rows = await database.fetch(connection, "pauses.lock_paused", {"job_ids": list(job_ids)})
    return [Paused(*row) for row in rows]


async def lock_status(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, Status]:
    """Locks the status rows of jobs that the caller has locked."""
    rows = await database.fetch(connection, "pauses.lock_status", {"job_ids": list(job_ids)})
    return {row.job_id: Status(*row) for row in rows}


async def last_dead(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, Any]:
    """Row (name, reason) of the newest Dead run of each job that has one."""
    rows = await database.fetch(connection, "pauses.last_dead", {"job_ids": list(job_ids)})
    return {row.job_id: row for row in rows}


async def pause(connection: database.Connection, job_ids: Collection[UUID], *, now: datetime) -> None:
    """No slot of these jobs falls due until their pause ends."""
    await database.execute(connection, "pauses.pause", {"job_ids": list(job_ids), "now": now})


async def resume(connection: database.Connection, following: Sequence[Next], *, now: datetime) -> None:
    """Ends pauses at `now`."""
    parameters = {
        "job_ids": [one.job_id for one in following],
        "next_slots": [one.slot_at for one in following],
        "next_runs": [one.run_at for one in following],
        "now": now,
    }
    await database.execute(connection, "pauses.resume", parameters)


async def forget_failures(connection: database.Connection, job_ids: Collection[UUID]) -> None:
    """Starts a fresh count of Dead runs in a row; the caller has locked the status rows."""
    if job_ids:
        await database.execute(connection, "pauses.forget_failures", {"job_ids": list(job_ids)})


async def forget_success(connection: database.Connection, job_ids: Collection[UUID]) -> None:
    """What succeeded by hand until now ends no pause that begins now; the caller has locked the status rows."""
    await database.execute(connection, "pauses.forget_success", {"job_ids": list(job_ids)})


async def resumable(connection: database.Connection, *, shards: Collection[int], limit: int) -> Sequence[UUID]:
    """Paused jobs of `shards` of which a manual run has succeeded since."""
    parameters = {"shards": sorted(shards), "limit": limit}
    return [row.job_id for row in await database.fetch(connection, "pauses.resumable", parameters)]
