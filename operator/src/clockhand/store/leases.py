"""Attempts that workers have: each by a lease, which the worker renews.

Every write names run, token, pool and worker. A lease that has lapsed gives nobody anything by itself: until the attempt is
rescued its worker may still renew it or report its end.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from clockhand.domain import ids, leases
from clockhand.store import assigned, database

MOST_GIVEN_AGAIN = 1_000
"""In one transaction."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt as a worker names it; `worker` is None for a message that nobody has started."""

    run_id: uuid.UUID
    token: int
    pool: str
    worker: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Beat:
    """A worker's sign of life: what it says it has, by run and token. `lease` is in seconds."""

    pool: str
    worker: str
    lease: int
    held: Sequence[tuple[uuid.UUID, int]]


async def renew(connection: database.Connection, beats: Sequence[Beat], *, now: datetime) -> Sequence[Any]:
    """Renews every attempt that the workers still have: rows (pool, worker, run_id, token, stop_reason)."""
    named = [(beat, run_id, token) for beat in beats for run_id, token in beat.held]
    if not named:
        return ()
    parameters = {**_named(named), "now": now}
    return await database.fetch(connection, "leases.renew", parameters)


async def unlisted(
    connection: database.Connection, beats: Sequence[Beat], *, now: datetime, claimed_before: datetime
) -> Sequence[assigned.Assigned]:
    """Gives again what these workers were given up to `claimed_before` and do not say they have: its lease begins anew.

    One lease after the claim it is left alone: a worker that drops what it is given would keep it from everybody.
    """
    held = [attempt for beat in beats for attempt in beat.held]
    parameters = {
        "pools": [beat.pool for beat in beats],
        "workers": [beat.worker for beat in beats],
        "leases": [beat.lease for beat in beats],
        "run_ids": [run_id for run_id, _ in held],
        "tokens": [token for _, token in held],
        "claimed_before": claimed_before,
        "limit": MOST_GIVEN_AGAIN,
        "now": now,
    }
    return [assigned.assigned(row) for row in await database.fetch(connection, "leases.unlisted", parameters)]


async def start(
    connection: database.Connection, beats: Sequence[Beat], *, now: datetime
) -> Sequence[assigned.Assigned]:
    """Gives what the workers present to whoever presented it first, now or before."""
    named = [(beat, run_id, token) for beat in beats for run_id, token in beat.held]
    parameters = {**_named(named), "now": now}
    return [assigned.assigned(row) for row in await database.fetch(connection, "leases.start", parameters)]


async def release(connection: database.Connection, attempts: Sequence[Attempt]) -> Sequence[Any]:
    """Claimed and never begun back to Queued, uncharged: rows (run_id, token, pool, handler) of those that moved."""
    if not attempts:
        return ()
    return await database.fetch(connection, "leases.release", _attempts(attempts))


async def lock_open(connection: database.Connection, attempts: Sequence[Attempt]) -> Sequence[Any]:
    """Locks the runs whose attempts ended; what is another worker's by now, or over, is not among the rows."""
    if not attempts:
        return ()
    return await database.fetch(connection, "leases.lock_open", _attempts(attempts))


async def recall(connection: database.Connection, attempts: Sequence[Attempt]) -> Sequence[Any]:
    """Rows (run_id, token, state, succeeded, outcome) of attempts that are not open: what is kept of them.

    `state` is the run's, None where it is not known; `succeeded` and `outcome` are what this attempt's worker had reported.
    """
    parameters = {
        **_attempts(attempts),
        "scheduled": [ids.scheduled_at_of(attempt.run_id) for attempt in attempts],
    }
    return await database.fetch(connection, "leases.recall", parameters)


async def standing(connection: database.Connection, *, now: datetime) -> Sequence[leases.Standing]:
    """Everybody with open attempts."""
    rows = await database.fetch(connection, "leases.standing", {"now": now})
    return [leases.Standing(**row._asdict()) for row in rows]


async def lock_lapsed(
    connection: database.Connection, *, pool: str, workers: Collection[str], now: datetime, limit: int
) -> Sequence[Any]:
    """Locks attempts of `workers` whose leases have lapsed, and those of the pool that nobody has started in time."""
    parameters = {"pool": pool, "workers": list(workers), "now": now, "limit": limit}
    return await database.fetch(connection, "leases.lock_lapsed", parameters)


async def overdue(
    connection: database.Connection, *, pool: str, workers: Collection[str], now: datetime, limit: int
) -> Sequence[uuid.UUID]:
    """Runs of `workers` whose attempts are past their time-out, locked."""
    parameters = {"pool": pool, "workers": list(workers), "now": now, "limit": limit}
    return [row.run_id for row in await database.fetch(connection, "leases.overdue", parameters)]


async def wait_longer(connection: database.Connection, *, pool: str, now: datetime) -> bool:
    """Leaves the lapsed leases of `pool` alone for one lease more; False where that cannot be stored."""
    return bool(await database.execute(connection, "leases.wait_longer", {"pool": pool, "now": now}))


def _attempts(attempts: Sequence[Attempt]) -> dict[str, Any]:
    return {
        "run_ids": [attempt.run_id for attempt in attempts],
        "tokens": [attempt.token for attempt in attempts],
        "pools": [attempt.pool for attempt in attempts],
        "workers": [attempt.worker for attempt in attempts],
    }


def _named(named: Sequence[tuple[Beat, uuid.UUID, int]]) -> dict[str, Any]:
    return {
        "run_ids": [run_id for _, run_id, _ in named],
        "tokens": [token for _, _, token in named],
        "pools": [beat.pool for beat, _, _ in named],
        "workers": [beat.worker for beat, _, _ in named],
        "leases": [beat.lease for beat, _, _ in named],
    }
