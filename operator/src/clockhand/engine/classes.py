"""From a job that names a JobClass to the template of its pods, when the job is stored and again when the class changes.

A change of a class counts as an edit of the jobs whose pods it changes: slots that are due fire first as before, and runs
that there are keep what they were made under. A class that is gone, or does not permit what a job says, parks the job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import classrun, declared, drafts, jobclass, sightings
from clockhand.engine import edits, parking, specs, storing, templates
from clockhand.store import classes, database, mirroring

log = structlog.get_logger(__name__)


class Found:
    """The classes that jobs name, each read once."""

    def __init__(self, rows: Mapping[str, classes.Class]) -> None:
        self._rows = rows
        self._read: dict[str, jobclass.ClassSpec | declared.Fault] = {}

    def render(self, reading: declared.Reading, run: classrun.Run) -> declared.Reading:
        """The reading with the template that its class makes, or with why there is none."""
        row = self._rows.get(run.class_name)
        if row is None:
            sentence = f"spec.run.class: there is no JobClass {run.class_name}: nothing fires until there is"
            return dataclasses.replace(reading, barred=declared.Fault(sightings.CLASS_NOT_FOUND, sentence))
        reading = dataclasses.replace(reading, class_hash=row.hash)
        named = self._spec(row)
        if isinstance(named, declared.Fault):
            return dataclasses.replace(reading, barred=named)
        try:
            template = jobclass.template(named, run, namespace=reading.declared.owner.removeprefix("k8s/"))
        except errors.InvalidInput as error:
            return dataclasses.replace(reading, barred=declared.Fault(sightings.CLASS_FORBIDS, str(error)))
        text, digest = declared.stored_template(template)
        return dataclasses.replace(reading, template_json=text, template_hash=digest)

    def _spec(self, row: classes.Class) -> jobclass.ClassSpec | declared.Fault:
        if row.name not in self._read:
            try:
                self._read[row.name] = jobclass.parse(msgspec.json.decode(row.spec))
            except errors.InvalidInput as error:
                sentence = f"spec.run.class: JobClass {row.name} cannot be used: {error}"
                self._read[row.name] = declared.Fault(sightings.CLASS_INVALID, sentence)
        return self._read[row.name]


async def rendered(connection: database.Connection, readings: Sequence[declared.Reading]) -> Sequence[declared.Reading]:
    """Readings as they are to be stored: with the templates that their classes make."""
    names = {reading.run.class_name for reading in readings if reading.run is not None}
    if not names:
        return readings
    found = Found(await classes.share(connection, names))
    alike = {id(reading): reading for reading in readings}  # jobs that are made alike share one
    made = {key: one if one.run is None else found.render(one, one.run) for key, one in alike.items()}
    return [made[id(reading)] for reading in readings]


def refusal(barred: declared.Fault) -> errors.InvalidInput:
    """What is said to who writes such a job over REST."""
    field, _, sentence = barred.sentence.partition(": ")
    return drafts.flat(errors.InvalidInput(field, sentence))


async def store_anew(
    connection: database.Connection,
    checked: templates.Templates,
    jobs: Sequence[classes.Job],
    *,
    now: datetime,
) -> Sequence[declared.Reading]:
    """Stores locked jobs as their classes are now; returns those whose pods have changed, or whether there are any."""
    readings = await rendered(connection, [one for job in jobs if (one := _known(job, now=now)) is not None])
    stored = {job.job_id: job for job in jobs}
    same = [one for one in readings if _is_same(one, stored[one.declared.uid])]
    await classes.still_good(connection, {stored[one.declared.uid].spec_id: one.class_hash for one in same})
    kept = {one.declared.uid for one in same}
    changed = [one for one in readings if one.declared.uid not in kept]
    if not changed:
        return ()
    locked = await edits.settle(connection, [one.declared.uid for one in changed], now=now)
    changed = [_begun(one, locked[one.declared.uid], now=now) for one in changed]
    await storing.edit(connection, checked, changed, locked, now=now)
    return changed


def _known(job: classes.Job, *, now: datetime) -> declared.Reading | None:
    """What is stored of a job, without what its class makes of it; None where this release cannot read it."""
    try:
        plan = specs.of(job.spec)
    except (errors.InvalidInput, msgspec.MsgspecError) as error:
        log.error("spec_unreadable", owner=job.owner, job=job.name, error=str(error))
        return None
    who = declared.Declared(
        uid=job.job_id,
        owner=job.owner,
        name=job.name,
        generation=job.generation,
        resource_version=job.resource_version,
        created_at=job.created_at,
        labels=job.labels,
    )
    return declared.Reading(who, plan, None, now, spec_json=job.spec, payload_json=job.payload)


def _is_same(reading: declared.Reading, job: classes.Job) -> bool:
    """Whether the pods are the same; without any, whether it is for the same cause."""
    if reading.template_hash != job.template_hash:
        return False
    return reading.barred is None or reading.barred.sentence == job.parked


def _begun(reading: declared.Reading, row: mirroring.Locked, *, now: datetime) -> declared.Reading:
    assert reading.job is not None
    after = max(now, row.last_slot_at)
    try:
        begins = declared.begin(reading.job, reading.declared.origin, after=after, new=False)
    except Exception as error:  # whatever a spec raises, it stops its own job alone
        log.warning("job_parked", owner=reading.declared.owner, job=reading.declared.name, error=repr(error))
        barred = reading.barred or declared.Fault("InvalidSchedule", parking.sentence(error))
        return dataclasses.replace(reading, barred=barred, counts_from=after, first_slot_at=None)
    return dataclasses.replace(reading, counts_from=begins.counts_from, first_slot_at=begins.first_slot_at)
