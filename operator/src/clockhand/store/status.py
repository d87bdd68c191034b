"""Which objects' status is out of date, and what it should say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Dirty:
    """One object to write; `version` names the state of the row that was read."""

    job_id: UUID
    version: str
    urgent: bool
    written_digest: bytes | None
    last_scheduled_at: datetime | None
    last_success_at: datetime | None
    consecutive_failures: int
    conditions: Sequence[Mapping[str, object]]
    owner: str
    name: str
    generation: int
    next_run_at: datetime | None
    finished: bool
    parked: str | None
    deleted_at: datetime | None
    declared: bool
    live: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the object shows now; `patched` says whether that took a write."""

    job_id: UUID
    version: str
    digest: bytes | None
    patched: bool


async def dirty(
    connection: database.Connection,
    shards: Collection[int],
    *,
    written_before: datetime,
    settled: datetime,
    batch: int,
    usual: int,
) -> Sequence[Dirty]:
    """Objects of `shards` to write: up to `batch` urgent ones, then up to `usual` others.

    Those were last written before one instant, and have been waiting since `settled` or longer.
    """
    parameters = {
        "shards": sorted(shards),
        "written_before": written_before,
        "settled": settled,
        "batch": batch,
        "usual": usual,
    }
    return [Dirty(*row) for row in await database.fetch(connection, "status.dirty", parameters)]


async def written(connection: database.Connection, done: Sequence[Written], *, now: datetime) -> None:
    """Takes objects off the list, except those that changed in the meantime."""
    parameters = {
        "job_ids": [one.job_id for one in done],
        "versions": [one.version for one in done],
        "digests": [one.digest for one in done],
        "patched": [one.patched for one in done],
        "now": now,
    }
    await database.execute(connection, "status.written", parameters)


async def postponed(connection: database.Connection, job_ids: Sequence[UUID], *, now: datetime) -> None:
    """Leaves objects on the list, to be tried after the usual pause."""
    await database.execute(connection, "status.postponed", {"job_ids": list(job_ids), "now": now})
