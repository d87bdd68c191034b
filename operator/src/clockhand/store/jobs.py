"""Jobs as REST shows them, and what it needs of them to make and change some."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from clockhand.store import database, mirroring

NO_JOB = mirroring.NO_JOB
COUNT_LIMIT = 10_000
"""More live runs of one job than this are not counted."""
_RECENT = 100
_AFTER_ALL_NAMES = "\x7f"


@dataclass(frozen=True, slots=True)
class Locked:
    """What decides whether a job may be changed, locked until the transaction ends."""

    declared: bool
    resource_version: int
    suspended: bool
    paused: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its status. Payload and template are JSON text, and in lists None.

    With `of_class` the template is that of its JobClass.
    """

    job_id: UUID
    owner: str
    name: str
    declared: bool
    generation: int
    resource_version: int
    labels: Mapping[str, str] | None
    created_at: datetime
    next_run_at: datetime | None
    suspended: bool
    paused: bool
    parked: str | None
    pool: str | None
    handler: str | None
    spec: str
    payload: str | None = None
    template: str | None = None
    template_hash: bytes | None = None
    of_class: bool = False
    last_scheduled_at: datetime | None = None
    last_success_at: datetime | None = None
    consecutive_failures: int = 0
    conditions: Sequence[Mapping[str, object]] = ()

    @property
    def own_template_hash(self) -> bytes | None:
        return None if self.of_class else self.template_hash


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What new jobs have in common where one actor makes several of one spec; each of them refers to the same one."""

    owner: str
    actor: str
    pool: str | None
    handler: str | None
    concurrency_group: str | None
    spec: str
    template: str | None
    template_hash: bytes | None
    class_name: str | None
    class_hash: bytes | None
    followed: bool
    suspended: bool
    zone: str | None
    ttl_seconds: int | None
    counts_from: datetime
    next_slot_at: datetime | None
    next_run_at: datetime | None


class New(msgspec.Struct, frozen=True):
    """A job that is to be made; `payload` is JSON text."""

    job_id: UUID
    name: str
    labels: Mapping[str, str] | None
    payload: str
    shard: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of jobs ends."""

    name: str = ""
    job_id: UUID = NO_JOB


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs of an owner; None: whichever. `pool` is a whole name."""

    prefix: str = ""
    handler: str | None = None
    pool: str | None = None
    standing: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs by name, and the place after which there may be more; None: there are none."""

    jobs: Sequence[Job]
    next: Place | None


async def lock(connection: database.Connection, *, owner: str, job_id: UUID) -> Locked | None:
    """Locks a job that is not deleted; None where the owner has none of this id."""
    row = await database.fetch_one(connection, "jobs.lock", {"owner": owner, "job_id": job_id})
    return None if row is None else Locked(*row)


async def one(connection: database.Connection, *, owner: str, job_id: UUID) -> Job | None:
    """A job that is not deleted; None where the owner has none of this id."""
    row = await database.fetch_one(connection, "jobs.one", {"owner": owner, "job_id": job_id})
    return None if row is None else Job(**row._asdict())


async def page(
    connection: database.Connection, owner: str, wanted: Wanted, *, after: Place, size: int, scan: int
) -> Page:
    """The next `size` of those wanted, or as many as there are among the next `scan` jobs."""
    parameters = {
        "owner": owner,
        "name": max(after.name, wanted.prefix),
        "beyond": wanted.prefix + _AFTER_ALL_NAMES,
        "job_id": after.job_id,
        "handler": wanted.handler,
        "pool": wanted.pool,
        "standing": wanted.standing,
        "labels": json.dumps(wanted.labels) if wanted.labels else None,
        "size": size,
        "scan": scan,
    }
    rows = await database.fetch(connection, "jobs.page", parameters)
    jobs = [_listed(row) for row in rows if row.job_id is not None]
    if len(jobs) == size:
        return Page(jobs, Place(jobs[-1].name, jobs[-1].job_id))
    ends = rows[0]
    return Page(jobs, Place(ends.last_name, ends.last_id) if ends.scanned == scan else None)


async def newest_slots(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, datetime]:
    """The newest slot of each job that became a run; jobs of which none did are not in the mapping."""
    if not job_ids:
        return {}
    rows = await database.fetch(connection, "jobs.newest_slots", {"job_ids": list(job_ids)})
    return {row.job_id: row.at for row in rows}


async def activity(connection: database.Connection, job_id: UUID) -> tuple[int, datetime | None]:
    """How many runs are not over, up to COUNT_LIMIT, and when one of the newest ended well."""
    parameters = {"job_id": job_id, "limit": COUNT_LIMIT, "recent": _RECENT}
    row = await database.fetch_one(connection, "jobs.activity", parameters)
    assert row is not None
    return row.active, row.success_at


async def taken(connection: database.Connection, named: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
    """Which of these owners' names jobs have; the caller has locked the owners."""
    if not named:
        return ()
    parameters = {"owners": [owner for owner, _ in named], "names": [name for _, name in named]}
    return {(row.owner, row.name) for row in await database.fetch(connection, "jobs.taken", parameters)}


async def count(connection: database.Connection, owner: str, *, limit: int) -> int:
    """How many jobs an owner has that are not deleted, counted up to `limit`."""
    row = await database.fetch_one(connection, "jobs.count", {"owner": owner, "limit": limit})
    assert row is not None
    found: int = row.count
    return found


async def make(connection: database.Connection, new: Sequence[New], *, now: datetime) -> None:
    """Stores new jobs with their specs, their status and who made them. The caller has locked their owners."""
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(one.kind for one in new), start=1)}
    kinds = list(numbers)
    parameters = {
        "job_ids": [one.job_id for one in new],
        "names": [one.name for one in new],
        "labels": [json.dumps(one.labels) if one.labels else None for one in new],
        "payloads": [one.payload for one in new],
        "shards": [one.shard for one in new],
        "kinds": [numbers[one.kind] for one in new],
        "owners": [kind.owner for kind in kinds],
        "actors": [kind.actor for kind in kinds],
        "specs": [kind.spec for kind in kinds],
        "templates": [kind.template for kind in kinds],
        "template_hashes": [kind.template_hash for kind in kinds],
        "classes": [kind.class_name for kind in kinds],
        "class_hashes": [kind.class_hash for kind in kinds],
        "followed": [kind.followed for kind in kinds],
        "pools": [kind.pool for kind in kinds],
        "handlers": [kind.handler for kind in kinds],
        "groups": [kind.concurrency_group for kind in kinds],
        "marks": [kind.counts_from for kind in kinds],
        "next_slots": [kind.next_slot_at for kind in kinds],
        "next_runs": [kind.next_run_at for kind in kinds],
        "zones": [kind.zone for kind in kinds],
        "ttls": [kind.ttl_seconds for kind in kinds],
        "suspended": [kind.suspended for kind in kinds],
        "now": now,
    }
    await database.execute(connection, "jobs.make", parameters)


async def forget_conditions(connection: database.Connection, job_id: UUID) -> None:
    """What was said of a spec that has been replaced."""
    await database.execute(connection, "jobs.forget_conditions", {"job_id": job_id})


def _listed(row: Any) -> Job:
    return Job(
        job_id=row.job_id,
        owner=row.owner,
        name=row.name,
        declared=row.declared,
        generation=row.generation,
        resource_version=row.resource_version,
        labels=row.labels,
        created_at=row.created_at,
        next_run_at=row.next_run_at,
        suspended=row.suspended,
        paused=row.paused,
        parked=row.parked,
        pool=row.pool,
        handler=row.handler,
        spec=row.spec,
        last_scheduled_at=row.last_scheduled_at,
        last_success_at=row.last_success_at,
        consecutive_failures=row.consecutive_failures,
        conditions=row.conditions,
    )
