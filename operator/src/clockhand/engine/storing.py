"""What is stored of jobs that were just read: their rows and specs, and what their conditions say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand.domain import conditions, declared, sightings
from clockhand.engine import edits, pauses, poolready, templates
from clockhand.store import database, mirroring


@dataclass(frozen=True, slots=True)
class _Said:
    """What is known of whoever is to make the attempts of a job: its template, or its pool."""

    verdict: templates.Verdict | None
    pool: conditions.Condition | None

    @property
    def conditions(self) -> Sequence[conditions.Condition]:
        template = None if self.verdict is None else templates.condition(self.verdict)
        return [one for one in (template, self.pool) if one is not None]


async def add(
    connection: database.Connection,
    checked: templates.Templates,
    readings: Sequence[declared.Reading],
    shards: Mapping[UUID, int],
    *,
    now: datetime,
) -> None:
    """Stores new jobs."""
    verdicts = [checked.verdict(reading) for reading in readings]
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


async def edit(
    connection: database.Connection,
    checked: templates.Templates,
    readings: Sequence[declared.Reading],
    locked: Mapping[UUID, mirroring.Locked],
    *,
    now: datetime,
) -> None:
    """Stores jobs that have changed, after they were settled."""
    if not readings:
        return
    verdicts = [checked.verdict(reading) for reading in readings]
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
