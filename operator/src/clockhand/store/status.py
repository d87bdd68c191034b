"""Which objects' status is out of date, and what it should say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from clockhand.domain import ids
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
    failed_run: UUID | None
    failed_attempt: int | None
    stuck_run: UUID | None
    ill_runs: int
    ill_run: UUID | None
    missed_slots: int
    missed_at: datetime | None
    told: Mapping[str, Any]
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
    """What the object shows now; `patched` says whether that took a write.

    `told` is how far its events go; None: as far as before.
    """

    job_id: UUID
    version: str
    digest: bytes | None
    patched: bool
    told: bytes | None = None


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
        "told": [None if one.told is None else one.told.decode() for one in done],
        "now": now,
    }
    await database.execute(connection, "status.written", parameters)


async def postponed(connection: database.Connection, job_ids: Sequence[UUID], *, now: datetime) -> None:
    """Leaves objects on the list, to be tried after the usual pause."""
    await database.execute(connection, "status.postponed", {"job_ids": list(job_ids), "now": now})


async def note_failed(
    connection: database.Connection, failed: Collection[tuple[UUID, UUID, int]], *, now: datetime
) -> None:
    """Takes note of failed attempts (job, run, attempt) for the jobs' events. The last statement of its transaction."""
    if failed:
        first = {job_id: (run_id, attempt) for job_id, run_id, attempt in reversed([*failed])}
        parameters = {
            "job_ids": list(first),
            "run_ids": [run_id for run_id, _ in first.values()],
            "attempts": [attempt for _, attempt in first.values()],
            "now": now,
        }
        await database.execute(connection, "status.note_failed", parameters)


async def note_stuck(connection: database.Connection, run_ids: Collection[UUID], *, now: datetime) -> None:
    """Takes note of runs whose pods are refused for now. The last statement of its transaction."""
    if run_ids:
        await database.execute(connection, "status.note_stuck", {"run_ids": list(run_ids), "now": now})


async def facts_of_runs(
    connection: database.Connection, wanted: Collection[tuple[UUID, int | None]]
) -> Mapping[tuple[UUID, int | None], Any]:
    """Rows by run and attempt (None: the last one that did not end well) of runs that there are still."""
    if not wanted:
        return {}
    asked = list(wanted)
    parameters = {
        "run_ids": [run_id for run_id, _ in asked],
        "instants": [ids.scheduled_at_of(run_id) for run_id, _ in asked],
        "attempts": [attempt for _, attempt in asked],
    }
    rows = await database.fetch(connection, "status.facts_of_runs", parameters)
    return {(row.run_id, row.asked): row for row in rows}
