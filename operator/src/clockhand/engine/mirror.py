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
from clockhand.domain import conditions, declared, sightings
from clockhand.engine import edits, fire, inbox, pauses, poolready, templates
from clockhand.store import database, duties, mirroring

log = structlog.get_logger(__name__)

BATCH = 500
RESOURCE_GONE = "the ScheduledJob resource is not served by the cluster any more"
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


@dataclass(frozen=True, slots=True)
class _Said:
    """What is known of whoever is to make the attempts of a job: its template, or its pool."""

    verdict: templates.Verdict | None
    pool: conditions.Condition | None

    @property
    def conditions(self) -> Sequence[conditions.Condition]:
        template = None if self.verdict is None else templates.condition(self.verdict)
        return [one for one in (template, self.pool) if one is not None]


class Mirror:
    """Stores sightings. Whoever holds the duty calls it; the generation of the duty goes into every transaction."""

    def __init__(self, db: database.Database, checked: templates.Templates) -> None:
        self._db = db
        self._templates = checked
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
                await mirroring.park_jobs(connection, firing, sentence=RESOURCE_GONE)
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
        self._templates.want(reading for reading in readings if reading.template_hash is not None)

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
        await self._edit(connection, readings, locked, now=now)
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

    async def _edit(
        self,
        connection: database.Connection,
        readings: Sequence[declared.Reading],
        locked: Mapping[UUID, mirroring.Locked],
        *,
        now: datetime,
    ) -> None:
        if not readings:
            return
        verdicts = [self._templates.verdict(reading) for reading in readings]
        rows = [
            edits.row(reading, templates.fault(reading, verdict), shard=locked[reading.declared.uid].shard)
            for reading, verdict in zip(readings, verdicts, strict=True)
        ]
        spec_ids = await mirroring.add_specs(connection, [edits.stored_spec(reading) for reading in readings], now=now)
        await mirroring.edit_jobs(connection, rows, spec_ids, now=now)
        stored = await mirroring.lock_conditions(connection, spec_ids)
        await pauses.start_anew(connection, readings, locked)
        pooled = await poolready.of_readings(connection, readings)
        shown = [
            _shown(reading, _Said(verdict, pooled.get(uid)), stored.get(uid, []), locked[uid], now=now)
            for reading, verdict in zip(readings, verdicts, strict=True)
            for uid in (reading.declared.uid,)
        ]
        await mirroring.set_conditions(connection, shown, now=now)

    async def _add(
        self, connection: database.Connection, new: Seen, *, fault: declared.Fault | None, now: datetime
    ) -> Sequence[declared.Reading]:
        if not new:
            return ()
        readings = await _read(new, lambda seen: sightings.read_new(seen, now=now), fault=fault, now=now)
        verdicts = [self._templates.verdict(reading) for reading in readings]
        shards = await edits.place(connection, {one.uid: one.owner for one in new})
        rows = [
            edits.row(reading, templates.fault(reading, verdict), shard=shards[reading.declared.uid])
            for reading, verdict in zip(readings, verdicts, strict=True)
        ]
        spec_ids = await mirroring.add_specs(connection, [edits.stored_spec(reading) for reading in readings], now=now)
        await mirroring.add_jobs(connection, rows, spec_ids)
        pooled = await poolready.of_readings(connection, readings)
        shown = [
            _shown(reading, _Said(verdict, pooled.get(reading.declared.uid)), [], None, now=now)
            for reading, verdict in zip(readings, verdicts, strict=True)
        ]
        await mirroring.add_status(connection, shown, shards, now=now)
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
    if known.parked == RESOURCE_GONE and not known.deleted:
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


def _shown(
    reading: declared.Reading,
    said: _Said,
    stored: conditions.Stored,
    row: mirroring.Locked | None,
    *,
    now: datetime,
) -> mirroring.Shown:
    """The conditions after a change. A verdict on the template lasts as long as the template does."""
    fault = templates.fault(reading, said.verdict)
    new = [sightings.not_ready(fault) if fault else sightings.ready(reading), *said.conditions]
    same_template = row is not None and row.template_hash == reading.template_hash
    keeps = same_template and conditions.status_of(stored, conditions.TEMPLATE_VALID) == conditions.TRUE
    gone = {conditions.PAUSED, conditions.POOL_READY, *(() if keeps else (conditions.TEMPLATE_VALID,))}
    merged = conditions.merge(
        stored,
        new,
        now=now,
        generation=reading.declared.generation,
        dropped=gone - {one.type for one in new},
    )
    before = conditions.status_of(stored, conditions.READY)
    # the first "all is well" of a new job can wait, or a mass of new jobs would push news aside
    urgent = fault is not None if row is None else bool(row.parked) or row.paused or before != new[0].status
    return mirroring.Shown(reading.declared.uid, merged, urgent)
