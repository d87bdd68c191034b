"""What is shown of jobs, wherever they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from clockhand import errors
from clockhand.domain import conditions, drafts, resources
from clockhand.domain import limits as limits_domain
from clockhand.engine import poolready, steps
from clockhand.engine.jobs.asking import Document, Filter, Page, Place, Shown
from clockhand.store import database, workerpools
from clockhand.store import jobs as rows

_SCAN = 5_000
"""Jobs that are looked at for a page of those that a filter wants."""


async def one(connection: database.Connection, limits: limits_domain.Limits, *, owner: str, job_id: UUID) -> Shown:
    """A job with all that is known of it. Raises NotFound."""
    job = await rows.one(connection, owner=owner, job_id=job_id)
    if job is None:
        raise not_found()
    newest = await rows.newest_slots(connection, _without_object([job]))
    active, success = await rows.activity(connection, job_id)
    messages = await _pool_messages(connection, limits, [job])
    status = _status(job, newest=newest.get(job_id), message=messages.get(job_id))
    status = msgspec.structs.replace(status, active=active, last_success_at=_latest(job.last_success_at, success))
    return Shown(_document(job, status), job.resource_version)


async def page(
    connection: database.Connection,
    limits: limits_domain.Limits,
    owner: str,
    wanted: Filter,
    *,
    after: Place | None,
    size: int,
) -> Page:
    """Jobs by name, without payloads and templates."""
    filtered = wanted != Filter(prefix=wanted.prefix)
    found = await rows.page(
        connection,
        owner,
        rows.Wanted(
            prefix=wanted.prefix or "",
            handler=wanted.handler,
            pool=None if wanted.pool is None else _whole_pool(owner, wanted.pool),
            standing=wanted.standing,
            labels=wanted.labels,
        ),
        after=after or Place(),
        size=size,
        scan=max(size, _SCAN) if filtered else size,
    )
    newest = await rows.newest_slots(connection, _without_object(found.jobs))
    messages = await _pool_messages(connection, limits, found.jobs)
    items = await steps.gathered(
        _document(job, _status(job, newest=newest.get(job.job_id), message=messages.get(job.job_id)))
        for job in found.jobs
    )
    return Page(items, found.next)


async def just_made(
    connection: database.Connection, limits: limits_domain.Limits, jobs: Sequence[rows.Job]
) -> Sequence[Document]:
    """Jobs of which nothing has run yet."""
    messages = await _pool_messages(connection, limits, jobs)
    shown = ((job, _status(job, newest=None, message=messages.get(job.job_id))) for job in jobs)
    return [_document(job, msgspec.structs.replace(status, active=0)) for job, status in shown]


def editable(job: rows.Job) -> dict[str, object]:
    """What an edit may change, as it is shown."""
    return {
        "name": job.name,
        "labels": dict(job.labels or {}),
        **drafts.shown(job.spec),
        **{name: msgspec.json.decode(text) for name, text in _apart(job)},
    }


def not_found() -> errors.NotFound:
    """What is said of a job that is not there, or is somebody else's."""
    return errors.NotFound("no such job")


async def _pool_messages(
    connection: database.Connection, limits: limits_domain.Limits, jobs: Sequence[rows.Job]
) -> Mapping[UUID, str]:
    """What keeps the runs of jobs from finding workers; those that will find some are not in the mapping."""
    named = {job.pool for job in jobs if job.pool is not None}
    offers = await workerpools.found(connection, named) if named else {}
    said = {job.job_id: _pool_message(job, offers.get(job.pool), limits) for job in jobs if job.pool is not None}
    return {job_id: message for job_id, message in said.items() if message is not None}


def _pool_message(job: rows.Job, offer: workerpools.Offer | None, limits: limits_domain.Limits) -> str | None:
    assert job.pool is not None
    kind, tenant, name = job.pool.split("/", 2)
    if kind == "k8s":
        told = poolready.condition(offer, owner=job.owner, pool=job.pool, handler=job.handler or "")
        return None if told.status == conditions.TRUE else told.message
    allowed = limits.pool_settings(job.pool).allowed_owners
    if job.owner != f"{kind}/{tenant}" and job.owner not in allowed and limits_domain.EVERYBODY not in allowed:
        return f"the pool {name} of {tenant} does not take runs of others: runs wait until an administrator lets it"
    return f"no worker of the pool {name} has come yet: runs wait until one does" if offer is None else None


def _whole_pool(owner: str, written: str) -> str:
    return f"{owner.partition('/')[0]}/{written}" if "/" in written else f"{owner}/{written}"


def _document(job: rows.Job, status: resources.JobStatus) -> Document:
    return {
        "id": job.job_id,
        "name": job.name,
        "owner": job.owner,
        "origin": resources.Origin.KUBERNETES if job.declared else resources.Origin.REST,
        "generation": job.generation,
        "createdAt": job.created_at,
        **({"labels": job.labels} if job.labels else {}),
        **drafts.shown(job.spec),
        **{name: msgspec.Raw(text.encode()) for name, text in _apart(job)},
        "status": status,
    }


def _apart(job: rows.Job) -> Iterable[tuple[str, str]]:
    """What is stored apart from the spec, as JSON text. The template of a class is not the job's."""
    template = None if job.of_class else job.template
    return ((name, text) for name, text in (("payload", job.payload), ("template", template)) if text is not None)


def _status(job: rows.Job, *, newest: datetime | None, message: str | None) -> resources.JobStatus:
    standing, why = _standing(job)
    return resources.JobStatus(
        standing=standing,
        message=message if standing is resources.Standing.ACTIVE else why,
        next_run_at=job.next_run_at,
        last_scheduled_at=_latest(job.last_scheduled_at, newest),
        last_success_at=job.last_success_at,
        consecutive_failures=job.consecutive_failures,
    )


def _standing(job: rows.Job) -> tuple[resources.Standing, str | None]:
    """Whether a job fires, and why not where its spec does not say so."""
    if job.parked is not None:
        return resources.Standing.INVALID, drafts.plain(job.parked)
    if job.suspended:
        return resources.Standing.SUSPENDED, None
    if job.paused:
        return resources.Standing.PAUSED, _why_paused(job.conditions)
    return (resources.Standing.FINISHED if job.next_run_at is None else resources.Standing.ACTIVE), None


def _why_paused(stored: Iterable[Mapping[str, Any]]) -> str | None:
    return next((drafts.plain(one["message"]) for one in stored if one["type"] == conditions.PAUSED), None)


def _without_object(jobs: Iterable[rows.Job]) -> Sequence[UUID]:
    return [job.job_id for job in jobs if not job.declared]


def _latest(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)
