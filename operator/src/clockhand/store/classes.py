"""The rows of JobClass objects, and the jobs whose pods they make."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Class:
    """A class: its spec as text of JSON, and the hash of that."""

    name: str
    spec: str
    hash: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs that were stored under another state of their class, and after which spec there may be more; None: none."""

    job_ids: Sequence[UUID]
    last: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a class, as it is stored. `spec` and `payload` are text of JSON."""

    job_id: UUID
    owner: str
    name: str
    generation: int
    resource_version: int
    created_at: datetime
    labels: dict[str, str] | None
    parked: str | None
    spec_id: int
    spec: str
    payload: str | None
    template_hash: bytes | None


async def hashes(connection: database.Connection) -> Mapping[str, bytes]:
    """Of every class, by its name."""
    rows = await database.fetch(connection, "classes.all")
    return {row.name: row.hash for row in rows}


async def change(connection: database.Connection) -> None:
    """Waits for whoever stores jobs by the classes, and holds others off until the transaction ends: before any change."""
    await database.execute(connection, "classes.change")


async def store(connection: database.Connection, found: Sequence[Class]) -> None:
    """Makes classes, or has them as they are now."""
    parameters = {
        "names": [one.name for one in found],
        "specs": [one.spec for one in found],
        "hashes": [one.hash for one in found],
    }
    await database.execute(connection, "classes.store", parameters)


async def remove(connection: database.Connection, names: Collection[str]) -> None:
    """These are no classes any more."""
    await database.execute(connection, "classes.remove", {"names": sorted(names)})


async def share(connection: database.Connection, names: Collection[str]) -> Mapping[str, Class]:
    """Those of `names` that there are; before the transaction ends none changes, and none comes."""
    await database.execute(connection, "classes.keep")
    rows = await database.fetch(connection, "classes.some", {"names": sorted(names)})
    return {row.name: Class(row.name, row.spec, row.hash) for row in rows}


async def stale_page(connection: database.Connection, *, after: int, size: int) -> Page:
    """The stale jobs among the next `size` specs with a class."""
    row = await database.fetch_one(connection, "classes.stale_page", {"after": after, "size": size})
    return Page((), None) if row is None else Page(row.job_ids or (), row.last)


async def lock(connection: database.Connection, job_ids: Collection[UUID]) -> Sequence[Job]:
    """Jobs of a class, locked until the transaction ends."""
    rows = await database.fetch(connection, "classes.lock", {"job_ids": list(job_ids)})
    rows = await database.fetch(connection, "classes.read", {"job_ids": [row.job_id for row in rows]})
    return [Job(*fields) for *fields, of_class in rows if of_class]


async def still_good(connection: database.Connection, hashes: Mapping[int, bytes | None]) -> None:
    """Notes of specs under which state of their class they were looked at; None: there is none."""
    parameters = {"spec_ids": list(hashes), "class_hashes": list(hashes.values())}
    await database.execute(connection, "classes.still_good", parameters)
