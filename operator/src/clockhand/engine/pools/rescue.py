"""Attempts whose worker has fallen silent are ended for it, and those past their time-out are asked to stop.

What is true is in the rows: how long each lease still has, and since when workers have had somebody to renew with. One API
process at a time looks, that which holds the first of the shards; two at once would do no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog

from clockhand import metrics
from clockhand.domain import ids, leases, states, verdict
from clockhand.engine import aftermath, shards, verdicts
from clockhand.engine.pools.reports import Queued
from clockhand.store import database, runs
from clockhand.store import leases as rows

log = structlog.get_logger(__name__)

BATCH = 500
EVERY = 5.0
"""Seconds between two looks, while any attempt is open."""


class Rescue:
    """Looks after the open attempts of all pools."""

    def __init__(
        self, db: database.Database, *, held: shards.Shards, after: aftermath.Aftermath, queued: Queued
    ) -> None:
        self._db = db
        self._held = held
        self._queued = queued
        self._aftermath = after

    async def run_once(self) -> int:
        """One look; returns how many attempts were ended or asked to stop."""
        if not self._held.holds(ids.POOL_SHARDS.start):
            return 0
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            standings = await rows.standing(connection, now=now)
        decided = leases.decide(standings, now=now)
        done = 0
        for pool, workers in decided.overdue.items():
            done += await self._stop(pool, workers)
        for pool in decided.doubtful:
            await self._wait_longer(pool)
        for lapsed in decided.lapsed:
            done += await self._rescue(lapsed)
        return done

    async def _stop(self, pool: str, workers: Collection[str]) -> int:
        total, found = 0, BATCH
        while found == BATCH:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                late = await rows.overdue(connection, pool=pool, workers=workers, now=now, limit=BATCH)
                await runs.stop_open(connection, run_ids=late, reason=states.Reason.ATTEMPT_TIMEOUT)
            found = len(late)
            total += found
        return total

    async def _wait_longer(self, pool: str) -> None:
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            if await rows.wait_longer(connection, pool=pool, now=now):
                metrics.RESCUES_PUT_OFF.inc()
                log.error("most_workers_silent", pool=pool, hint="can they reach the API?")

    async def _rescue(self, lapsed: leases.Lapsed) -> int:
        total, found = 0, BATCH
        while found == BATCH:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                locked = await rows.lock_lapsed(
                    connection, pool=lapsed.pool, workers=lapsed.workers, now=now, limit=BATCH
                )
                released = await rows.release(connection, [_attempt(row) for row in locked if _unbegun(row)])
                begun = [row for row in locked if not _unbegun(row)]
                stored = await verdicts.conclude(connection, begun, _findings(begun, lapsed), now=now)
            found = len(locked)
            total += found
            metrics.LEASES_LAPSED.inc(found)
            if released:
                self._queued({(row.pool, row.handler) for row in released})
            await self._aftermath.follow(stored)
        if total:
            log.warning("attempts_rescued", pool=lapsed.pool, count=total)
        return total


def _findings(locked: Sequence[Any], lapsed: leases.Lapsed) -> Mapping[verdicts.Attempt, verdicts.Finding]:
    return {(row.run_id, row.token): verdicts.Finding(_end(row, lapsed)) for row in locked}


def _end(row: Any, lapsed: leases.Lapsed) -> verdict.AttemptEnd:
    if row.worker is None:
        return verdict.AttemptEnd(verdict.Ending.NEVER_STARTED, reason=states.Reason.LEASE_LOST)
    return verdict.AttemptEnd(
        verdict.Ending.GONE,
        reason=states.Reason.LEASE_LOST,
        message=f"worker {row.worker} was silent for longer than its lease",
        alone=row.worker in lapsed.alone,
    )


def _attempt(row: Any) -> rows.Attempt:
    return rows.Attempt(row.run_id, row.token, row.pool, row.worker)


def _unbegun(row: Any) -> bool:
    """A message that nobody has started: no more has happened than that it was sent."""
    return row.worker is None and row.state == states.RunState.CLAIMED
