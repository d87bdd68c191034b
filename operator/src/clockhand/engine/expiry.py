"""A one-shot goes some time after its run, where its spec says so; the history of its runs stays.

The rows decide, under the job's lock: a manual run or a redrive that comes in between postpones the end. An object is
deleted through the API server, and only as the mirror last saw it, so that somebody's edit a moment ago keeps it. What
becomes of the job then is the mirror's business, as with any other deletion. A job made over REST is its row alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from clockhand import errors, metrics
from clockhand.store import database, mirroring
from clockhand.store import expiry as rows

log = structlog.get_logger(__name__)

BATCH = 100
EVERY = 5.0
"""Seconds between two batches: at most 20 objects a second go, as many as the status writer touches."""
AGAIN = timedelta(seconds=30)
"""An object that is still there, or whose deletion the mirror has not seen yet, comes back after this."""
_DELETES_AT_ONCE = 8


class Deletes(Protocol):
    """What is asked of the API server."""

    async def delete(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None) -> None:
        """Deletes this very object as of this version, or raises."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of a batch: how many one-shots it was about, and those whose object is to go now."""

    looked_at: int
    objects: Sequence[rows.Expired]


class Expiry:
    """Deletes what has expired in given shards. Who has no `calls` leaves objects to others."""

    def __init__(self, db: database.Database, calls: Deletes | None) -> None:
        self._db = db
        self._calls = calls

    async def run_once(self, shards: Collection[int]) -> int:
        """One batch; returns how many objects were deleted."""
        settled = await self.settle(shards)
        gate = asyncio.Semaphore(_DELETES_AT_ONCE)
        return sum(await asyncio.gather(*(self._delete(one, gate) for one in settled.objects)))

    async def clear(self, shards: Collection[int]) -> None:
        """Batches until there is nothing left to look at, for who leaves objects to others."""
        while (await self.settle(shards)).looked_at == BATCH:
            pass

    async def settle(self, shards: Collection[int]) -> Settled:
        """Stores when the one-shots that are over expire, and deletes those that have and are no objects."""
        if not shards:
            return Settled(0, ())
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            objects = self._calls is not None
            over = await rows.lock_over(connection, shards=shards, objects=objects, now=now, limit=BATCH)
            expired = await rows.settle(connection, over, now=now, again=now + AGAIN) if over else ()
            gone = {one.job_id: one.resource_version + 1 for one in expired if not one.declared}
            if gone:
                await mirroring.delete_jobs(connection, gone, now=now)
                await mirroring.clean_status(connection, gone)
        return Settled(len(over), [one for one in expired if one.declared])

    async def _delete(self, one: rows.Expired, gate: asyncio.Semaphore) -> bool:
        assert self._calls is not None, "objects are settled for who can delete them"
        version = str(one.resource_version)
        try:
            async with gate:
                await self._calls.delete(one.namespace, one.name, uid=str(one.job_id), resource_version=version)
        except (errors.NotFound, errors.Conflict) as error:
            # gone already, another one of its name, or newer than its row: the mirror is about to hear of it
            log.debug("object_not_deleted", owner=one.owner, job=one.name, error=str(error))
            return False
        except errors.ClockhandError as error:
            log.warning("object_not_deleted", owner=one.owner, job=one.name, error=str(error))
            return False
        metrics.OBJECTS_EXPIRED.inc()
        log.info("object_expired", owner=one.owner, job=one.name)
        return True
