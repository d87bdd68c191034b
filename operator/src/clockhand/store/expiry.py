"""One-shots whose time after their end is over, as rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Expired:
    """A job that is to go; where it is an object, as the mirror last saw that."""

    job_id: UUID
    owner: str
    name: str
    declared: bool
    resource_version: int

    @property
    def namespace(self) -> str:
        return self.owner.removeprefix("k8s/")


async def lock_over(
    connection: database.Connection, *, shards: Collection[int], objects: bool, now: datetime, limit: int
) -> Sequence[UUID]:
    """Locks one-shots of `shards` that are over and have no instant to expire at, or one that has come.

    Without `objects` only those that are none.
    """
    parameters = {"shards": sorted(shards), "objects": objects, "now": now, "limit": limit}
    return [row.job_id for row in await database.fetch(connection, "expiry.lock_over", parameters)]


async def settle(
    connection: database.Connection, job_ids: Collection[UUID], *, now: datetime, again: datetime
) -> Sequence[Expired]:
    """Stores when each of the locked jobs expires; returns those that have, which come back at `again`."""
    parameters = {"job_ids": list(job_ids), "now": now, "again": again}
    rows = await database.fetch(connection, "expiry.settle", parameters)
    return [Expired(row.job_id, row.owner, row.name, row.declared, row.resource_version) for row in rows if row.expired]
