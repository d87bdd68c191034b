"""New zone data, as rows: whose turn it is, which jobs follow zone data, and where their next slots move."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from clockhand.domain import times
from clockhand.store import database


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a pass over the jobs has got to: zone, then job."""

    zone: str
    job_id: uuid.UUID


BEGINNING = Place("", uuid.UUID(int=0))


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """Under which data the next slots were computed, and what speaks against doing it anew."""

    version: str | None
    older: bool
    """A live replica has older data: what it fires, it advances by those."""
    doubted: bool
    """The clock has jumped, and nobody has confirmed that."""


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """A locked job whose next slot is still to come, with its spec as stored."""

    job_id: uuid.UUID
    owner: str
    name: str
    created_at: datetime
    last_slot_at: datetime
    next_slot_at: datetime
    spec: str

    @property
    def origin(self) -> times.Origin:
        return times.Origin(self.job_id, self.created_at)


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A job's next slot under other data. `passed` is the newest slot that will not run, if there is one."""

    job_id: uuid.UUID
    next_slot_at: datetime | None
    delay: timedelta
    passed: datetime | None


async def turn(connection: database.Connection) -> bool:
    """Whether nobody else is at it; holds until the transaction ends."""
    row = await database.fetch_one(connection, "rezoning.turn")
    return row is not None and bool(row.held)


async def standing(connection: database.Connection, *, version: str, lease: float) -> Standing:
    """As seen by a replica with data of `version`."""
    row = await database.fetch_one(connection, "rezoning.standing", {"version": version, "lease": lease})
    assert row is not None
    return Standing(row.zone_version, row.older, row.doubted)


async def page(connection: database.Connection, *, after: Place, limit: int) -> Sequence[Place]:
    """The next jobs that follow zone data."""
    parameters = {"zone": after.zone, "after": after.job_id, "limit": limit}
    return [Place(*row) for row in await database.fetch(connection, "rezoning.page", parameters)]


async def lock(connection: database.Connection, job_ids: Collection[uuid.UUID], *, now: datetime) -> Sequence[Waiting]:
    """Locks those of the jobs whose next slot lies behind `now`."""
    rows = await database.fetch(connection, "rezoning.lock", {"job_ids": list(job_ids), "now": now})
    return [Waiting(*row) for row in rows]


async def move(connection: database.Connection, moves: Sequence[Move], *, now: datetime) -> None:
    """Stores other next slots."""
    if moves:
        parameters = {
            "job_ids": [one.job_id for one in moves],
            "next_slots": [one.next_slot_at for one in moves],
            "delays": [one.delay for one in moves],
            "passed": [one.passed for one in moves],
            "now": now,
        }
        await database.execute(connection, "rezoning.move", parameters)


async def store(connection: database.Connection, *, version: str) -> None:
    """Every next slot was computed under data of `version`, or newer."""
    await database.execute(connection, "rezoning.store", {"version": version})
