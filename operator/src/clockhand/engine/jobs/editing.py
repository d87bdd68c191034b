"""Changes of jobs that are declared over REST, by the rules that hold for objects: never retroactive, and nothing is lost.

A job that is an object of the cluster is changed there alone: what was changed here would be undone with the next apply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand import errors
from clockhand.domain import declared, drafts
from clockhand.engine import classes, edits, pauses, specs
from clockhand.engine.jobs import creating, showing
from clockhand.engine.jobs.asking import Asker, LiveRuns
from clockhand.store import audits, database, mirroring, requests
from clockhand.store import jobs as rows


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes which job, and which versions of it he means; None: whichever."""

    asker: Asker
    job_id: UUID
    match: Collection[int] | None = None


Draw = Callable[[rows.Job], drafts.Draft]


async def replace(connection: database.Connection, change: Change, wanted: object, *, now: datetime) -> None:
    """Makes the job as `wanted` has it."""
    await _lock(connection, change)
    await _edit(connection, change, lambda _: drafts.read(wanted, new=False), action="edit", now=now)


async def patch(connection: database.Connection, change: Change, wanted: object, *, now: datetime) -> None:
    """Applies a merge patch."""
    await _lock(connection, change)
    await _edit(connection, change, lambda job: _patched(job, wanted), action="edit", now=now)


async def pause(connection: database.Connection, change: Change, *, now: datetime) -> None:
    """Suspends the job."""
    locked = await _lock(connection, change)
    if not locked.suspended:
        await _edit(connection, change, lambda job: _patched(job, {"suspend": True}), action="pause", now=now)


async def resume(connection: database.Connection, change: Change, *, now: datetime) -> None:
    """Lets the job fire again, whether it was suspended or paused after failures."""
    locked = await _lock(connection, change)
    if locked.suspended:
        await _edit(connection, change, lambda job: _patched(job, {"suspend": False}), action="resume", now=now)
    elif locked.paused:
        await pauses.end(connection, [change.job_id], now=now)
        await _record(connection, change, "resume", now=now)


async def delete(connection: database.Connection, change: Change, runs: LiveRuns | None, *, now: datetime) -> None:
    """Deletes the job. What becomes of its open attempts is said by `runs`, or else by the job."""
    locked = await _lock(connection, change)
    settled = await edits.settle(connection, [change.job_id], now=now)
    row = settled[change.job_id]
    cancels = edits.stops_on_delete(row) if runs is None else runs is LiveRuns.CANCEL
    versions = {change.job_id: locked.resource_version + 1}
    await edits.delete(connection, versions, stopped=[change.job_id] if cancels else [], now=now)
    await _record(connection, change, "delete", now=now, detail={"name": row.name})


async def _lock(connection: database.Connection, change: Change) -> rows.Locked:
    locked = await rows.lock(connection, owner=change.asker.owner, job_id=change.job_id)
    if locked is None:
        raise showing.not_found()
    if locked.declared:
        raise errors.Conflict("the job is a ScheduledJob of the cluster: change it with kubectl, not over REST")
    if change.match is not None and locked.resource_version not in change.match:
        raise errors.Changed("the job has changed since it was read: read it again")
    return locked


async def _edit(connection: database.Connection, change: Change, draw: Draw, *, action: str, now: datetime) -> None:
    job = await rows.one(connection, owner=change.asker.owner, job_id=change.job_id)
    assert job is not None
    draft = draw(job)
    if draft.name not in (None, job.name):
        raise errors.InvalidInput("name", f"cannot be changed: the job is {job.name}")
    spec = draft.spec
    if spec.template_hash != job.own_template_hash:
        creating.check_template(change.asker, spec)
    if spec.job.run != specs.of(job.spec).run:
        creating.check_class(change.asker, spec)
    if (spec.spec_json, spec.payload_json, spec.template_hash) != (job.spec, job.payload, job.own_template_hash):
        await _store(connection, job, draft, now=now)
    elif draft.labels != (job.labels or None):
        await mirroring.touch_jobs(connection, {job.job_id: (job.resource_version + 1, draft.labels)})
    else:
        return
    await _record(connection, change, action, now=now)


async def _store(connection: database.Connection, job: rows.Job, draft: drafts.Draft, *, now: datetime) -> None:
    settled = await edits.settle(connection, [job.job_id], now=now)
    row = settled[job.job_id]
    who = declared.Declared(
        uid=job.job_id,
        owner=job.owner,
        name=job.name,
        generation=job.generation + 1,
        resource_version=job.resource_version + 1,
        created_at=job.created_at,
        labels=draft.labels,
    )
    try:
        begins = declared.begin(draft.spec.job, who.origin, after=max(now, row.last_slot_at), new=False)
    except errors.InvalidInput as error:
        raise drafts.flat(error) from None
    [reading] = await classes.rendered(connection, [declared.read(who, draft.spec, begins)])
    if reading.barred is not None and reading.run != specs.of(job.spec).run:
        raise classes.refusal(reading.barred)
    spec_ids = await mirroring.add_specs(connection, [edits.stored_spec(reading)], now=now)
    await mirroring.edit_jobs(connection, [edits.row(reading, reading.barred, shard=row.shard)], spec_ids, now=now)
    await mirroring.lock_conditions(connection, [job.job_id])
    await pauses.start_anew(connection, [reading], settled)
    await rows.forget_conditions(connection, job.job_id)


def _patched(job: rows.Job, wanted: object) -> drafts.Draft:
    return drafts.read(drafts.merged(showing.editable(job), wanted), new=False)


async def _record(
    connection: database.Connection, change: Change, action: str, *, now: datetime, detail: object = None
) -> None:
    asked = requests.Asked(change.asker.owner, change.asker.actor, action, job_id=change.job_id, detail=detail)
    await audits.add(connection, [asked], now=now)
