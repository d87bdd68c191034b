"""Backfills as rows: how far each is, and which instants of a job have a run already."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from clockhand.domain import backfill, ids, states, times
from clockhand.store import database


@dataclasses.dataclass(frozen=True, slots=True)
class Backfill:
    """A row. `open_at` are the slots of those of its runs that were not over at the last look."""

    backfill_id: uuid.UUID
    job_id: uuid.UUID
    job_name: str
    span: backfill.Span
    concurrency: int
    reached_at: datetime | None
    open_at: tuple[datetime, ...]
    spec_id: int
    slots: int
    made: int
    passed: int
    succeeded: int
    failed: int
    complete: bool
    stop_reason: str | None
    ended_at: datetime | None

    @property
    def key(self) -> str:
        """What its runs carry."""
        return str(self.backfill_id)

    def run_id(self, slot: datetime) -> uuid.UUID:
        """The id of its run at `slot`."""
        return ids.run_id(job_id=self.job_id, scheduled_at=slot, kind=states.RunKind.BACKFILL, key=self.key)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A backfill and what its job is now; `spec` is None where the job is gone for good."""

    row: Backfill
    origin: times.Origin
    spec_id: int
    spec: str | None
    parked: str | None
    job_is_gone: bool


async def add(
    connection: database.Connection,
    *,
    backfill_id: uuid.UUID,
    job_id: uuid.UUID,
    name: str,
    wanted: backfill.Wanted,
    slots: int,
    now: datetime,
) -> bool:
    """Stores a new backfill; False where the owner has one of this name."""
    parameters = {
        "backfill_id": backfill_id,
        "job_id": job_id,
        "name": name,
        "from_at": wanted.span.first,
        "to_at": wanted.span.last,
        "newest_first": wanted.span.order is backfill.Order.NEWEST_FIRST,
        "concurrency": wanted.concurrency,
        "slots": slots,
        "now": now,
    }
    return await database.fetch_one(connection, "backfills.add", parameters) is not None


async def due(
    connection: database.Connection, *, shards: Collection[int], now: datetime, ahead: timedelta, limit: int
) -> Sequence[uuid.UUID]:
    """Open backfills of `shards` that are to be looked at; later than `ahead` from now means at once."""
    parameters = {"shards": sorted(shards), "now": now, "ahead": ahead, "limit": limit}
    return [row.backfill_id for row in await database.fetch(connection, "backfills.due", parameters)]


async def lock(connection: database.Connection, backfill_id: uuid.UUID) -> Found | None:
    """The backfill, its job's row locked; None where there is none, or somebody else holds the job."""
    locked = await database.fetch(connection, "backfills.lock_job", {"backfill_id": backfill_id})
    found = await one(connection, backfill_id)
    return found if locked or (found is not None and found.spec is None) else None


async def wait_for(connection: database.Connection, *, owner: str, backfill_id: uuid.UUID) -> Found | None:
    """As `lock`, for a request of `owner`: waits for whoever holds the job."""
    parameters = {"owner": owner, "backfill_id": backfill_id}
    if not await database.fetch(connection, "backfills.wait_for_job", parameters):
        return None
    return await one(connection, backfill_id)


async def one(connection: database.Connection, backfill_id: uuid.UUID) -> Found | None:
    """The backfill as it is."""
    row = await database.fetch_one(connection, "backfills.one", {"backfill_id": backfill_id})
    if row is None:
        return None
    return Found(
        row=_backfill(row),
        origin=times.Origin(row.job_id, row.job_created_at or row.created_at),
        spec_id=row.job_spec_id or row.spec_id,
        spec=row.spec,
        parked=row.parked,
        job_is_gone=row.job_is_gone,
    )


async def taken(
    connection: database.Connection, *, job_id: uuid.UUID, instants: Sequence[datetime]
) -> frozenset[datetime]:
    """Those of `instants` for which the job has a run of a slot or of a backfill, live or ended."""
    if not instants:
        return frozenset()
    parameters = {"job_id": job_id, "instants": list(instants)}
    return frozenset(row.at for row in await database.fetch(connection, "backfills.taken", parameters))


async def ended(
    connection: database.Connection, runs: Mapping[uuid.UUID, datetime]
) -> Mapping[uuid.UUID, states.RunState]:
    """Those of `runs` (ids and slots) that are over, with their states."""
    if not runs:
        return {}
    parameters = {"run_ids": list(runs), "instants": list(runs.values())}
    rows = await database.fetch(connection, "backfills.ended", parameters)
    return {row.run_id: states.RunState(row.state) for row in rows}


async def save(connection: database.Connection, row: Backfill, *, look_at: datetime) -> None:
    """Stores how far it is."""
    parameters = {
        "backfill_id": row.backfill_id,
        "reached_at": row.reached_at,
        "open_at": list(row.open_at),
        "spec_id": row.spec_id,
        "slots": row.slots,
        "made": row.made,
        "passed": row.passed,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "complete": row.complete,
        "stop_reason": row.stop_reason,
        "ended_at": row.ended_at,
        "look_at": look_at,
    }
    await database.execute(connection, "backfills.save", parameters)


async def put_off(connection: database.Connection, backfill_id: uuid.UUID, *, look_at: datetime) -> None:
    """Looks at it later; nothing else of it changes."""
    await database.execute(connection, "backfills.put_off", {"backfill_id": backfill_id, "look_at": look_at})


async def reopen(connection: database.Connection, *, run_id: uuid.UUID, now: datetime) -> None:
    """Counts a run that was retried as open again, where it is a backfill's that was not stopped."""
    await database.execute(connection, "backfills.reopen", {"run_id": run_id, "now": now})


async def shown(connection: database.Connection, *, owner: str, backfill_id: uuid.UUID) -> Any | None:
    """Row of the owner's backfill, as people are shown it."""
    parameters = {"owner": owner, "backfill_id": backfill_id}
    return await database.fetch_one(connection, "backfills.shown", parameters)


async def named(connection: database.Connection, *, owner: str, name: str) -> Any | None:
    """The same of the one that has this name."""
    return await database.fetch_one(connection, "backfills.named", {"owner": owner, "name": name})


def _backfill(row: Any) -> Backfill:
    return Backfill(
        backfill_id=row.backfill_id,
        job_id=row.job_id,
        job_name=row.job_name,
        span=span_of(row),
        concurrency=row.concurrency,
        reached_at=row.reached_at,
        open_at=tuple(row.open_at),
        spec_id=row.spec_id,
        slots=row.slots,
        made=row.made,
        passed=row.passed,
        succeeded=row.succeeded,
        failed=row.failed,
        complete=row.complete,
        stop_reason=row.stop_reason,
        ended_at=row.ended_at,
    )


def span_of(row: Any) -> backfill.Span:
    """The range of a row."""
    order = backfill.Order.NEWEST_FIRST if row.newest_first else backfill.Order.OLDEST_FIRST
    return backfill.Span(row.from_at, row.to_at, order)
