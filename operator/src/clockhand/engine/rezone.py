"""New zone data: next slots that were computed under the old ones are computed anew.

A slot that is due stays as it was stored, so that nothing which has happened changes; what comes behind it follows the new
data. It is done once no live replica has older data, by one replica at a time and in batches, each a transaction: a
process that dies leaves some jobs done and the rest as they were, and the next one begins from the start, which changes
nothing of what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from clockhand.domain import spec, states, times
from clockhand.engine import parking, skips, specs
from clockhand.store import database, firing, rezoning

log = structlog.get_logger(__name__)

BATCH = 200
_AT_ONCE = 32
_TICK = timedelta(milliseconds=1)
_FARTHEST = timedelta(hours=3)
"""By which a country moves its clock; farther ones, across the date line, are left to the records."""


class Rezone:
    """Brings next slots up to the zone data of this replica, which are of `version`."""

    def __init__(self, db: database.Database, *, version: str, lease: float, batch: int = BATCH) -> None:
        self._db = db
        self._version = version
        self._lease = lease
        self._batch = batch

    async def run_once(self) -> int:
        """Goes through every job that follows zone data, if it is time for that; returns how many slots moved."""
        moved = 0
        place: rezoning.Place | None = rezoning.BEGINNING
        while place is not None:
            async with self._db.transaction() as connection:
                if not await self._may(connection):
                    return moved
                place, count = await self._batch_from(connection, place)
                moved += count
                if place is None:
                    await rezoning.store(connection, version=self._version)
        log.info("zone_data_changed", version=self._version, moved=moved)
        return moved

    async def _may(self, connection: database.Connection) -> bool:
        if not await rezoning.turn(connection):
            return False
        standing = await rezoning.standing(connection, version=self._version, lease=self._lease)
        return (standing.version or "") < self._version and not standing.older and not standing.doubted

    async def _batch_from(
        self, connection: database.Connection, place: rezoning.Place
    ) -> tuple[rezoning.Place | None, int]:
        """Where the next batch begins, None after the last one, and how many slots moved."""
        now = await database.now(connection)
        page = await rezoning.page(connection, after=place, limit=self._batch)
        waiting = await rezoning.lock(connection, [one.job_id for one in page], now=now)
        moves, skipped = await _decided(connection, waiting, now=now)
        await skips.record(connection, skipped, now=now)
        await rezoning.move(connection, moves, now=now)
        return (page[-1] if len(page) == self._batch else None), len(moves)


async def _decided(
    connection: database.Connection, waiting: Sequence[rezoning.Waiting], *, now: datetime
) -> tuple[Sequence[rezoning.Move], Sequence[firing.NewSkip]]:
    """In small steps: the loop has slots to fire in between."""
    moves: list[rezoning.Move] = []
    skipped: list[firing.NewSkip] = []
    for number, job in enumerate(waiting, start=1):
        try:
            move, passed = _decide(job, specs.of(job.spec), now=now)
        except Exception as error:  # whatever a spec raises, it stops its own job alone
            await parking.park(connection, job, error, now=now)
            continue
        if passed is not None:
            skipped.append(skips.over(job.job_id, passed, states.SkipReason.EDITED))
        if move.next_slot_at != job.next_slot_at or passed is not None:
            moves.append(move)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return moves, skipped


def _decide(job: rezoning.Waiting, plan: spec.JobSpec, *, now: datetime) -> tuple[rezoning.Move, times.Span | None]:
    """Where the next slot moves, and the slots that will not run."""
    due = plan.due(job.origin)
    mark = max(now, job.last_slot_at)
    # slots that were still to come under the old data, and lie in the past under the new, do not run: never retroactive
    passed = times.span(due, after=job.last_slot_at, until=now) if job.last_slot_at < now else None
    following = due.next_after(mark)
    if following is not None and _ran(job, due, following):
        passed = times.span(due, after=job.last_slot_at, until=following)
        following = due.next_after(following)
    return rezoning.Move(job.job_id, following, plan.delay(job.job_id), passed.last if passed else None), passed


def _ran(job: rezoning.Waiting, due: times.Times, following: datetime) -> bool:
    """Whether `following` is the slot that ran last: the new data have moved it, and the next one by as much."""
    by = following - job.last_slot_at
    return (
        following < job.next_slot_at
        and by <= _FARTHEST
        and not _is_slot(due, job.last_slot_at)
        and _is_slot(due, job.next_slot_at + by)
    )


def _is_slot(due: times.Times, instant: datetime) -> bool:
    return due.count_between(instant - _TICK, instant) == 1
