"""Kubernetes objects become rows: the only way in which a ScheduledJob reaches the engine.

Level-triggered and idempotent: a sighting says how an object is, never what happened to it, so that seeing it twice, late
or out of order changes nothing. A batch is one transaction; where the database refuses one, it is halved until the
culprit stands alone and is parked, and everybody else goes on. One that takes too long is halved as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import declared, sightings
from clockhand.engine import classes, edits, fire, inbox, jobclasses, parking, storing, templates
from clockhand.store import database, duties, mirroring

log = structlog.get_logger(__name__)

BATCH = 500
_PARSED_AT_ONCE = 32

Seen = Sequence[sightings.Sighting]


@dataclass(slots=True)
class _Changes:
    """A batch, by what it means for the rows."""

    new: list[sightings.Sighting] = field(default_factory=list)
    edited: list[sightings.Sighting] = field(default_factory=list)
    touched: list[sightings.Sighting] = field(default_factory=list)
    gone: list[sightings.Sighting] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.edited or self.touched or self.gone)


class Mirror:
    """Stores sightings. Whoever holds the duty calls it; the generation of the duty goes into every transaction."""

    def __init__(
        self, db: database.Database, checked: templates.Templates, catalogue: jobclasses.Catalogue | None = None
    ) -> None:
        """Without a catalogue there are no JobClasses but those that are stored."""
        self._db = db
        self._templates = checked
        self._catalogue = catalogue
        self.turn = asyncio.Lock()
        """Held by whoever stores what jobs are told, in one transaction."""

    async def flush_once(self, held: duties.Held, box: inbox.Inbox) -> int:
        """Stores one batch of what waits in `box`; returns its size. What could not be stored waits again."""
        batch = box.take(BATCH)
        try:
            await self.store(held, batch)
        except BaseException:
            for seen in batch:
                box.put(seen)
            raise
        return len(batch)

    async def store(self, held: duties.Held, seen: Seen) -> None:
        """Stores sightings of different objects. Raises Stale where the duty is lost, Unavailable to try again."""
        if not seen:
            return
        if self._catalogue is not None:
            await self._catalogue.learn(held, {name for one in seen if (name := one.class_name) is not None})
        async with self.turn:
            await self._halving(held, seen)

    async def stop_all(self, held: duties.Held) -> int:
        """No object is served any more: nothing fires until they are seen again. Returns how many jobs stopped."""
        stopped = 0
        after = mirroring.Place()
        while True:
            async with self.turn, self._db.transaction() as connection:
                await duties.hold(connection, held)
                now = await database.now(connection)
                page = await mirroring.firing_page(connection, after=after, size=BATCH)
                if not page:
                    return stopped
                firing = [job.job_id for job in page]
                await mirroring.lock(connection, firing)
                await fire.settle_due(connection, firing, now=now)
                await mirroring.park_jobs(connection, firing, sentence=parking.RESOURCE_GONE)
            stopped += len(page)
            after = page[-1].place

    async def _halving(self, held: duties.Held, seen: Seen) -> None:
        try:
            await self._store(held, seen)
        except database.TooMuch:
            if len(seen) == 1:
                raise
            await self._halve(held, seen)
        except errors.ClockhandError:
            raise
        except Exception as error:
            if len(seen) == 1:
                await self._isolate(held, seen[0], error)
                return
            await self._halve(held, seen)

    async def _halve(self, held: duties.Held, seen: Seen) -> None:
        middle = len(seen) // 2
        await self._halving(held, seen[:middle])
        await self._halving(held, seen[middle:])

    async def _isolate(self, held: duties.Held, seen: sightings.Sighting, error: Exception) -> None:
        """The database refuses this very object: store that it is there, and why it does not fire."""
        log.error("object_not_stored", namespace=seen.namespace, job=seen.name, error=type(error).__name__)
        fault = declared.Fault("NotStored", f"the object cannot be stored ({type(error).__name__})")
        bare = msgspec.structs.replace(seen, labels=None)
        try:
            await self._store(held, [bare], fault=fault)
        except errors.ClockhandError:
            raise
        except Exception as second:
            log.error("object_left_out", namespace=seen.namespace, job=seen.name, error=repr(second))

    async def _store(self, held: duties.Held, seen: Seen, *, fault: declared.Fault | None = None) -> None:
        readings: list[declared.Reading] = []
        async with self._db.transaction() as connection:
            changes = _sort(seen, await mirroring.known(connection, [one.uid for one in seen]))
            if not changes:
                return
            await duties.hold(connection, held)
            now = await database.now(connection)
            await _touch(connection, changes.touched)
            readings += await self._replace(connection, changes, fault=fault, now=now)
            readings += await self._add(connection, changes.new, fault=fault, now=now)
        self._templates.want(readings)

    async def _replace(
        self,
        connection: database.Connection,
        changes: _Changes,
        *,
        fault: declared.Fault | None,
        now: datetime,
    ) -> Sequence[declared.Reading]:
        """Edits and deletions: first every slot that is due fires under the spec that it was due under."""
        if not (changes.edited or changes.gone):
            return ()
        locked = await edits.settle(connection, [seen.uid for seen in (*changes.edited, *changes.gone)], now=now)
        readings = await self._read_edited(changes.edited, locked, fault=fault, now=now)
        if changes.gone:
            stopped = [seen.uid for seen in changes.gone if edits.stops_on_delete(locked[seen.uid])]
            versions = {seen.uid: seen.resource_version for seen in changes.gone}
            await edits.delete(connection, versions, stopped=stopped, now=now)
        readings = await classes.rendered(connection, readings)
        await storing.edit(connection, self._templates, readings, locked, now=now)
        return readings

    async def _read_edited(
        self,
        edited: Seen,
        locked: Mapping[UUID, mirroring.Locked],
        *,
        fault: declared.Fault | None,
        now: datetime,
    ) -> Sequence[declared.Reading]:
        # the mark lies ahead where the database's clock was set back: what was decided is not decided again
        after = {seen.uid: max(now, locked[seen.uid].last_slot_at) for seen in edited}
        return await _read(edited, lambda seen: sightings.read(seen, after=after[seen.uid]), fault=fault, now=now)

    async def _add(
        self, connection: database.Connection, new: Seen, *, fault: declared.Fault | None, now: datetime
    ) -> Sequence[declared.Reading]:
        if not new:
            return ()
        readings = await _read(new, lambda seen: sightings.read_new(seen, now=now), fault=fault, now=now)
        readings = await classes.rendered(connection, readings)
        shards = await edits.place(connection, {one.uid: one.owner for one in new})
        await storing.add(connection, self._templates, readings, shards, now=now)
        return readings


def _sort(seen: Seen, known: Mapping[UUID, mirroring.Known]) -> _Changes:
    changes = _Changes()
    for one in seen:
        target = _meaning(one, known.get(one.uid), changes)
        if target is not None:
            target.append(one)
    return changes


def _meaning(
    seen: sightings.Sighting, known: mirroring.Known | None, changes: _Changes
) -> list[sightings.Sighting] | None:
    """The list of `changes` that `seen` belongs to; None where it tells nothing new."""
    if known is None:
        return None if seen.deleted else changes.new
    if seen.resource_version < known.resource_version:
        return None
    if seen.deleted:
        return None if known.deleted else changes.gone
    if known.parked == parking.RESOURCE_GONE and not known.deleted:
        return changes.edited
    if seen.resource_version == known.resource_version:
        return None
    # a deleted row that shows a newer version was deleted in error, or the cluster was restored
    return changes.edited if known.deleted or seen.generation != known.generation else changes.touched


async def _touch(connection: database.Connection, touched: Seen) -> None:
    if touched:
        versions = {seen.uid: (seen.resource_version, seen.labels) for seen in touched}
        await mirroring.touch_jobs(connection, versions)


async def _read(
    seen: Seen,
    read: Callable[[sightings.Sighting], declared.Reading],
    *,
    fault: declared.Fault | None,
    now: datetime,
) -> Sequence[declared.Reading]:
    """Reads in small steps: the loop has runs to start in between."""
    if fault is not None:
        return [declared.faulty(one, fault, after=now) for one in seen]
    readings: list[declared.Reading] = []
    for one in seen:
        readings.append(read(one))
        if len(readings) % _PARSED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return readings
