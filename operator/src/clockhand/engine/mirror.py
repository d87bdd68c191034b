"""Kubernetes objects become rows: the only way in which a ScheduledJob reaches the engine.

Level-triggered and idempotent: a sighting says how an object is, never what happened to it, so that seeing it twice, late
or out of order changes nothing. A batch is one transaction; where the database refuses one, it is halved until the
culprit stands alone and is parked, and everybody else goes on. One that takes too long is halved as well.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import conditions, ids, sightings, spec, states, times
from clockhand.engine import fire, inbox, pauses, poolready, skips, specs, templates
from clockhand.store import database, duties, firing, mirroring, runs

log = structlog.get_logger(__name__)

BATCH = 500
JOBS_A_SHARD = 64
RESOURCE_GONE = "the ScheduledJob resource is not served by the cluster any more"
_PARSED_AT_ONCE = 32
_NO_SPEC = "{}"

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
        after = mirroring.NO_JOB
        while True:
            async with self.turn, self._db.transaction() as connection:
                await duties.hold(connection, held)
                now = await database.now(connection)
                page = await mirroring.firing_page(connection, after=after, size=BATCH)
                if not page:
                    return stopped
                await mirroring.lock(connection, page)
                await fire.settle_due(connection, page, now=now)
                await mirroring.park_jobs(connection, page, sentence=RESOURCE_GONE)
            stopped += len(page)
            after = page[-1]

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
        fault = sightings.Fault("NotStored", f"the object cannot be stored ({type(error).__name__})")
        bare = msgspec.structs.replace(seen, labels=None)
        try:
            await self._store(held, [bare], fault=fault)
        except errors.ClockhandError:
            raise
        except Exception as second:
            log.error("object_left_out", namespace=seen.namespace, job=seen.name, error=repr(second))

    async def _store(self, held: duties.Held, seen: Seen, *, fault: sightings.Fault | None = None) -> None:
        readings: list[sightings.Reading] = []
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
        fault: sightings.Fault | None,
        now: datetime,
    ) -> Sequence[sightings.Reading]:
        """Edits and deletions: first every slot that is due fires under the spec that it was due under."""
        if not (changes.edited or changes.gone):
            return ()
        wanted = [seen.uid for seen in (*changes.edited, *changes.gone)]
        locked = await mirroring.lock(connection, wanted)
        if await fire.settle_due(connection, wanted, now=now):
            locked = await mirroring.lock(connection, wanted)
        unfired = _unfired(locked.values(), now=now)
        await skips.record(connection, unfired, now=now)
        readings = await self._read_edited(changes.edited, locked, fault=fault, now=now)
        await _delete(connection, changes.gone, locked, now=now)
        await self._edit(connection, readings, locked, now=now)
        return readings

    async def _read_edited(
        self,
        edited: Seen,
        locked: Mapping[UUID, mirroring.Locked],
        *,
        fault: sightings.Fault | None,
        now: datetime,
    ) -> Sequence[sightings.Reading]:
        # the mark lies ahead where the database's clock was set back: what was decided is not decided again
        after = {seen.uid: max(now, locked[seen.uid].last_slot_at) for seen in edited}
        return await _read(edited, lambda seen: sightings.read(seen, after=after[seen.uid]), fault=fault, now=now)

    async def _edit(
        self,
        connection: database.Connection,
        readings: Sequence[sightings.Reading],
        locked: Mapping[UUID, mirroring.Locked],
        *,
        now: datetime,
    ) -> None:
        if not readings:
            return
        verdicts = [self._templates.verdict(reading) for reading in readings]
        rows = [
            _row(reading, verdict, shard=locked[reading.sighting.uid].shard)
            for reading, verdict in zip(readings, verdicts, strict=True)
        ]
        spec_ids = await mirroring.add_specs(connection, [_spec(reading) for reading in readings], now=now)
        await mirroring.edit_jobs(connection, rows, spec_ids, now=now)
        stored = await mirroring.lock_conditions(connection, spec_ids)
        await pauses.start_anew(connection, readings, locked)
        pooled = await poolready.of_readings(connection, readings)
        shown = [
            _shown(reading, _Said(verdict, pooled.get(uid)), stored.get(uid, []), locked[uid], now=now)
            for reading, verdict in zip(readings, verdicts, strict=True)
            for uid in (reading.sighting.uid,)
        ]
        await mirroring.set_conditions(connection, shown, now=now)

    async def _add(
        self, connection: database.Connection, new: Seen, *, fault: sightings.Fault | None, now: datetime
    ) -> Sequence[sightings.Reading]:
        if not new:
            return ()
        readings = await _read(new, lambda seen: sightings.read_new(seen, now=now), fault=fault, now=now)
        verdicts = [self._templates.verdict(reading) for reading in readings]
        shards = await _shards(connection, new)
        rows = [
            _row(reading, verdict, shard=shards[reading.sighting.uid])
            for reading, verdict in zip(readings, verdicts, strict=True)
        ]
        spec_ids = await mirroring.add_specs(connection, [_spec(reading) for reading in readings], now=now)
        await mirroring.add_jobs(connection, rows, spec_ids)
        pooled = await poolready.of_readings(connection, readings)
        shown = [
            _shown(reading, _Said(verdict, pooled.get(reading.sighting.uid)), [], None, now=now)
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


async def _delete(
    connection: database.Connection,
    gone: Seen,
    locked: Mapping[UUID, mirroring.Locked],
    *,
    now: datetime,
) -> None:
    """Waiting runs end here; an open attempt finishes, unless the job said Cancel."""
    if not gone:
        return
    job_ids = [seen.uid for seen in gone]
    reason = states.Reason.JOB_DELETED
    await runs.cancel_waiting(connection, job_ids=job_ids, reason=reason, now=now)
    stopped = [job_id for job_id in job_ids if _stops_on_delete(locked[job_id])]
    if stopped:
        await runs.stop_open(connection, job_ids=stopped, reason=reason)
    await mirroring.delete_jobs(connection, {seen.uid: seen.resource_version for seen in gone}, now=now)
    await mirroring.clean_status(connection, job_ids)


async def _read(
    seen: Seen,
    read: Callable[[sightings.Sighting], sightings.Reading],
    *,
    fault: sightings.Fault | None,
    now: datetime,
) -> Sequence[sightings.Reading]:
    """Reads in small steps: the loop has runs to start in between."""
    if fault is not None:
        return [sightings.faulty(one, fault, after=now) for one in seen]
    readings: list[sightings.Reading] = []
    for one in seen:
        readings.append(read(one))
        if len(readings) % _PARSED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return readings


async def _shards(connection: database.Connection, new: Seen) -> Mapping[UUID, int]:
    """Widens an owner by a shard for every 64 jobs that it ever made."""
    made: dict[str, int] = {}
    for seen in new:
        made[seen.owner] = made.get(seen.owner, 0) + 1
    after = await mirroring.count_owners(connection, made)
    numbers = {owner: itertools.count(after[owner] - count) for owner, count in made.items()}
    return {
        seen.uid: ids.shard_of(
            seen.owner,
            job_id=seen.uid,
            width=min(ids.SHARDS, 1 + next(numbers[seen.owner]) // JOBS_A_SHARD),
        )
        for seen in new
    }


def _row(reading: sightings.Reading, verdict: templates.Verdict | None, *, shard: int) -> mirroring.Row:
    seen = reading.sighting
    fault = templates.fault(reading, verdict)
    fires = fault is None and not reading.suspended
    job = reading.job
    return mirroring.Row(
        job_id=seen.uid,
        owner=seen.owner,
        name=seen.name,
        shard=ids.twin(shard, pooled=job is not None and job.handler is not None),
        pool=None if job is None else job.pool_of(seen.owner),
        handler=None if job is None else job.handler,
        concurrency_group=None if job is None else job.concurrency_group,
        created_at=seen.created_at,
        counts_from=reading.counts_from,
        generation=seen.generation,
        resource_version=seen.resource_version,
        labels=seen.labels,
        next_slot_at=reading.first_slot_at if fires else None,
        delay=reading.delay,
        zone=reading.zone,
        ttl_seconds=reading.ttl_seconds,
        suspended=reading.suspended,
        parked=None if fault is None else fault.sentence,
    )


def _spec(reading: sightings.Reading) -> mirroring.Spec:
    return mirroring.Spec(
        job_id=reading.sighting.uid,
        generation=reading.sighting.generation,
        spec=reading.spec_json,
        payload=reading.payload_json,
        template=reading.template_json,
        template_hash=reading.template_hash,
    )


def _shown(
    reading: sightings.Reading,
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
        generation=reading.sighting.generation,
        dropped=gone - {one.type for one in new},
    )
    before = conditions.status_of(stored, conditions.READY)
    # the first "all is well" of a new job can wait, or a mass of new jobs would push news aside
    urgent = fault is not None if row is None else bool(row.parked) or row.paused or before != new[0].status
    return mirroring.Shown(reading.sighting.uid, merged, urgent)


def _unfired(rows: Iterable[mirroring.Locked], *, now: datetime) -> Sequence[firing.NewSkip]:
    """The slots of jobs that were suspended, paused or parked: one summary each, as the spec changes or goes."""
    spans = (_span(row, now) for row in rows)
    return [span for span in spans if span is not None]


def _span(row: mirroring.Locked, now: datetime) -> firing.NewSkip | None:
    if row.next_slot_at is not None or row.deleted or row.spec == _NO_SPEC or row.last_slot_at >= now:
        return None
    try:
        due = specs.of(row.spec).due(row.origin)
        span = times.span(due, after=row.last_slot_at, until=now)
        if span is None:
            return None
        return skips.over(row.job_id, span, _why_unfired(row))
    except (errors.InvalidInput, msgspec.MsgspecError):
        # parked since its schedule cannot be evaluated: no slot of it can be named
        return None


def _why_unfired(row: mirroring.Locked) -> states.SkipReason:
    if row.suspended:
        return states.SkipReason.SUSPENDED
    return states.SkipReason.PAUSED if row.paused else states.SkipReason.EDITED


def _stops_on_delete(row: mirroring.Locked) -> bool:
    try:
        return specs.of(row.spec).on_delete is spec.OnDelete.CANCEL
    except (errors.InvalidInput, msgspec.MsgspecError):
        return False
