"""The mirror's rows: jobs keyed by the uid of their object, one statement a batch.

`resource_version` decides which of two sightings of an object is newer; the generation tells whether its spec changed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from clockhand.domain import times
from clockhand.store import database

NO_JOB = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of an object, as far as telling a change from none needs it."""

    generation: int
    resource_version: int
    labels: Mapping[str, str] | None
    parked: str | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class Locked:
    """A job's row, locked until the transaction ends."""

    job_id: UUID
    owner: str
    name: str
    shard: int
    created_at: datetime
    generation: int
    resource_version: int
    last_slot_at: datetime
    next_slot_at: datetime | None
    suspended: bool
    paused: bool
    parked: str | None
    deleted: bool
    spec: str
    template_hash: bytes | None

    @property
    def origin(self) -> times.Origin:
        return times.Origin(self.job_id, self.created_at)


@dataclass(frozen=True, slots=True)
class Spec:
    """A generation's spec, as text of JSON."""

    job_id: UUID
    generation: int
    spec: str
    payload: str | None
    template: str | None
    template_hash: bytes | None
    class_name: str | None
    class_hash: bytes | None
    followed: bool
    """Another run may wait for one under this spec to end."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a new or edited job's row is to hold. Owner, name and instants matter for new jobs only."""

    job_id: UUID
    owner: str
    name: str
    shard: int
    created_at: datetime
    counts_from: datetime
    generation: int
    resource_version: int
    labels: Mapping[str, str] | None
    next_slot_at: datetime | None
    delay: timedelta
    zone: str | None
    ttl_seconds: int | None
    suspended: bool
    parked: str | None
    pool: str | None
    handler: str | None
    concurrency_group: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A job's conditions; `urgent` where Ready changed and the object should say so soon."""

    job_id: UUID
    conditions: Sequence[Mapping[str, object]]
    urgent: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of jobs of the cluster ends, by name."""

    owner: str = "k8s/"
    name: str = ""
    job_id: UUID = NO_JOB


@dataclass(frozen=True, slots=True)
class Listed:
    """A stored job, to be compared with a listing."""

    job_id: UUID
    owner: str
    name: str
    resource_version: int

    @property
    def place(self) -> Place:
        return Place(self.owner, self.name, self.job_id)


async def known(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, Known]:
    """What is stored of these objects."""
    rows = await database.fetch(connection, "mirroring.known", {"job_ids": list(job_ids)})
    return {
        row.job_id: Known(row.generation, row.resource_version, row.labels, row.parked, row.deleted_at is not None)
        for row in rows
    }


async def lock(connection: database.Connection, job_ids: Collection[UUID]) -> Mapping[UUID, Locked]:
    """Locks the rows of these jobs; those without a row are not in the mapping."""
    if not job_ids:
        return {}
    rows = await database.fetch(connection, "mirroring.lock", {"job_ids": list(job_ids)})
    return {row.job_id: _locked(row) for row in rows}


def _locked(row: Any) -> Locked:
    return Locked(
        job_id=row.job_id,
        owner=row.owner,
        name=row.name,
        shard=row.shard,
        created_at=row.created_at,
        generation=row.generation,
        resource_version=row.resource_version,
        last_slot_at=row.last_slot_at,
        next_slot_at=row.next_slot_at,
        suspended=row.suspended,
        paused=row.paused_at is not None,
        parked=row.parked,
        deleted=row.deleted_at is not None,
        spec=row.spec,
        template_hash=row.template_hash,
    )


async def count_owners(connection: database.Connection, made: Mapping[str, int]) -> Mapping[str, int]:
    """Adds new jobs to their owners' counts; returns the counts after it."""
    parameters = {"owners": list(made), "made": list(made.values())}
    rows = await database.fetch(connection, "mirroring.count_owners", parameters)
    return {row.owner: row.jobs_made for row in rows}


async def add_specs(connection: database.Connection, specs: Sequence[Spec], *, now: datetime) -> Mapping[UUID, int]:
    """Stores specs; returns the id of each by its job."""
    parameters = {
        "job_ids": [spec.job_id for spec in specs],
        "generations": [spec.generation for spec in specs],
        "specs": [spec.spec for spec in specs],
        "payloads": [spec.payload for spec in specs],
        "templates": [spec.template for spec in specs],
        "template_hashes": [spec.template_hash for spec in specs],
        "classes": [spec.class_name for spec in specs],
        "class_hashes": [spec.class_hash for spec in specs],
        "followed": [spec.followed for spec in specs],
        "now": now,
    }
    rows = await database.fetch(connection, "mirroring.add_specs", parameters)
    return {row.job_id: row.spec_id for row in rows}


async def add_jobs(connection: database.Connection, rows: Sequence[Row], spec_ids: Mapping[UUID, int]) -> None:
    """Inserts new jobs of the cluster; their watermark is the instant from which they count."""
    parameters = _columns(rows, spec_ids) | {
        "owners": [row.owner for row in rows],
        "names": [row.name for row in rows],
        "created": [row.created_at for row in rows],
        "marks": [row.counts_from for row in rows],
    }
    await database.execute(connection, "mirroring.add_jobs", parameters)


async def edit_jobs(
    connection: database.Connection, rows: Sequence[Row], spec_ids: Mapping[UUID, int], *, now: datetime
) -> None:
    """Gives jobs another spec from `now` on."""
    await database.execute(connection, "mirroring.edit_jobs", {**_columns(rows, spec_ids), "now": now})


def _columns(rows: Sequence[Row], spec_ids: Mapping[UUID, int]) -> dict[str, Any]:
    return {
        "job_ids": [row.job_id for row in rows],
        "generations": [row.generation for row in rows],
        "resource_versions": [row.resource_version for row in rows],
        "spec_ids": [spec_ids[row.job_id] for row in rows],
        "labels": [_json(row.labels) for row in rows],
        "next_slots": [row.next_slot_at for row in rows],
        "delays": [row.delay for row in rows],
        "zones": [row.zone for row in rows],
        "ttls": [row.ttl_seconds for row in rows],
        "suspended": [row.suspended for row in rows],
        "parked": [row.parked for row in rows],
        "shards": [row.shard for row in rows],
        "pools": [row.pool for row in rows],
        "handlers": [row.handler for row in rows],
        "groups": [row.concurrency_group for row in rows],
    }


async def touch_jobs(
    connection: database.Connection, seen: Mapping[UUID, tuple[int, Mapping[str, str] | None]]
) -> None:
    """Notes newer resource versions and labels of jobs whose spec is the same."""
    parameters = {
        "job_ids": list(seen),
        "resource_versions": [version for version, _ in seen.values()],
        "labels": [_json(labels) for _, labels in seen.values()],
    }
    await database.execute(connection, "mirroring.touch_jobs", parameters)


async def delete_jobs(connection: database.Connection, versions: Mapping[UUID, int], *, now: datetime) -> None:
    """Marks jobs as deleted, as of the given resource versions."""
    parameters = {"job_ids": list(versions), "resource_versions": list(versions.values()), "now": now}
    await database.execute(connection, "mirroring.delete_jobs", parameters)


async def clean_status(connection: database.Connection, job_ids: Collection[UUID]) -> None:
    """Takes jobs off the list of objects to write."""
    await database.execute(connection, "mirroring.clean_status", {"job_ids": list(job_ids)})


async def add_status(
    connection: database.Connection, shown: Sequence[Shown], shards: Mapping[UUID, int], *, now: datetime
) -> None:
    """The first conditions of new jobs."""
    parameters = _conditions(shown, now) | {"shards": [shards[one.job_id] for one in shown]}
    await database.execute(connection, "mirroring.add_status", parameters)


async def lock_conditions(
    connection: database.Connection, job_ids: Collection[UUID]
) -> Mapping[UUID, list[dict[str, object]]]:
    """The conditions of jobs, locked until the transaction ends. Lock the jobs and their runs before."""
    rows = await database.fetch(connection, "mirroring.lock_conditions", {"job_ids": list(job_ids)})
    return {row.job_id: row.conditions for row in rows}


async def set_conditions(connection: database.Connection, shown: Sequence[Shown], *, now: datetime) -> None:
    """Stores conditions and marks the objects to be written."""
    await database.execute(connection, "mirroring.set_conditions", _conditions(shown, now))


def _conditions(shown: Sequence[Shown], now: datetime) -> dict[str, Any]:
    return {
        "job_ids": [one.job_id for one in shown],
        "conditions": [json.dumps(list(one.conditions)) for one in shown],
        "urgent": [one.urgent for one in shown],
        "now": now,
    }


async def park_jobs(connection: database.Connection, job_ids: Collection[UUID], *, sentence: str) -> None:
    """Stops jobs from firing; `sentence` says why."""
    await database.execute(connection, "mirroring.park_jobs", {"job_ids": list(job_ids), "sentence": sentence})


async def page(
    connection: database.Connection, *, after: Place, owners: Sequence[str] | None, size: int
) -> Sequence[Listed]:
    """Jobs of the cluster after `after`, of all namespaces or of some owners."""
    parameters = {**asdict(after), "owners": None if owners is None else list(owners), "size": size}
    rows = await database.fetch(connection, "mirroring.page", parameters)
    return [Listed(*row) for row in rows]


async def firing_page(connection: database.Connection, *, after: Place, size: int) -> Sequence[Listed]:
    """Jobs of the cluster after `after` that are not parked."""
    rows = await database.fetch(connection, "mirroring.firing_page", {**asdict(after), "size": size})
    return [Listed(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A template that nobody has shown to the API server, and the jobs that have it."""

    owner: str
    template_hash: bytes
    job_ids: Sequence[UUID]


async def unchecked(connection: database.Connection) -> Sequence[Unchecked]:
    """Every template without a verdict."""
    rows = await database.fetch(connection, "mirroring.unchecked")
    return [Unchecked(row.owner, row.template_hash, row.job_ids) for row in rows]


async def last_spec_before(connection: database.Connection, before: datetime) -> int:
    """The newest spec that was stored before then: later ones have higher numbers, but for a transaction's length."""
    row = await database.fetch_one(connection, "mirroring.last_spec_before", {"before": before})
    return row.spec_id if row else 0


async def unchecked_page(
    connection: database.Connection, *, after: int, size: int
) -> tuple[int | None, Sequence[Unchecked]]:
    """The last of the next specs with a template, None where there is none after `after`; and those without a verdict
    that jobs have which were made over REST.
    """
    rows = await database.fetch(connection, "mirroring.unchecked_page", {"after": after, "size": size})
    found = [Unchecked(row.owner, row.template_hash, [row.job_id]) for row in rows if row.job_id is not None]
    return (rows[-1].spec_id if rows else None), found


async def template_of(
    connection: database.Connection, job_ids: Iterable[UUID], *, template_hash: bytes
) -> tuple[str, str] | None:
    """The name of one of the jobs that have this template, and its JSON; None where none has it any more."""
    parameters = {"job_ids": list(job_ids), "template_hash": template_hash}
    row = await database.fetch_one(connection, "mirroring.template_of", parameters)
    return (row.name, row.template) if row else None


async def lock_template(
    connection: database.Connection, job_ids: Iterable[UUID], *, template_hash: bytes
) -> Mapping[UUID, int]:
    """Locks those of the jobs that still have this template and are not parked; their generations by id."""
    parameters = {"job_ids": list(job_ids), "template_hash": template_hash}
    rows = await database.fetch(connection, "mirroring.lock_template", parameters)
    return {row.job_id: row.generation for row in rows if row.parked is None}


def _json(value: Mapping[str, str] | None) -> str | None:
    return json.dumps(value) if value else None
