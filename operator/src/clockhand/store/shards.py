"""Shard leases: which replica does what, in rows, so that any connection and any pooler will do.

A shard only spreads load. Firing twice is prevented by the job's row lock, its high-water mark and the runs' unique key,
whoever holds what; writes about a pod run name the generation of its shard's lease, which rises at every take-over.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping, Sequence

from clockhand.domain import sharding
from clockhand.store import database


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What a replica holds, and what it needs to decide which shards to take and to give back."""

    held: Mapping[int, int]
    """Shard to generation."""
    replicas: Sequence[str]
    free: Sequence[int]
    free_duties: frozenset[str]
    promoted: bool
    """The database is a standby that was promoted: its epoch has to be raised."""
    unwitnessed: bool
    """Some replica fell silent, or the clock leapt, and nobody who lives now lived through it."""
    newer_zones: bool
    """The next slots were computed under older zone data than this replica has, and no live one has older data."""
    paused: bool
    """Some job, of whatever shard, is paused."""
    expiring: bool
    """Some one-shot of the held shards may have expired."""


def rotated(shards: Collection[int]) -> list[int]:
    """`shards` from a random one on: with a long backlog nobody's shard is always the last to be looked at."""
    ordered = sorted(shards)
    start = random.randrange(len(ordered)) if ordered else 0
    return ordered[start:] + ordered[:start]


async def beat(
    connection: database.Connection,
    *,
    replica: str,
    role: sharding.Role,
    lease: float,
    zone_version: str,
    release: str = "",
) -> View:
    """Records that `replica` lives and renews what it holds for `lease` seconds; returns what it sees then.

    It sees the live replicas and the free shards of its own role. `zone_version` is of its zone data, `release` its own.
    """
    parameters = {
        "replica": replica,
        "role": role.value,
        "first": role.shards.start,
        "last": role.shards.stop - 1,
        "lease": lease,
        "zone_version": zone_version,
        "release": release,
    }
    row = await database.fetch_one(connection, "shards.beat", parameters)
    assert row is not None
    database.time_in(connection, row)
    return View(
        held=dict(zip(row.shards, row.generations, strict=True)),
        replicas=sorted([replica, *row.others]),
        free=row.free,
        free_duties=frozenset(row.free_duties),
        promoted=row.promoted,
        unwitnessed=row.unwitnessed,
        newer_zones=(row.zone_version or "") < zone_version and not row.older_zones,
        paused=row.paused,
        expiring=row.expiring,
    )


async def take(
    connection: database.Connection, *, replica: str, lease: float, shards: Collection[int]
) -> Mapping[int, int]:
    """Takes those of `shards` that are free; returns shard to its new generation."""
    parameters = {"replica": replica, "lease": lease, "shards": sorted(shards)}
    rows = await database.fetch(connection, "shards.take", parameters)
    return {row.shard: row.generation for row in rows}


async def release(connection: database.Connection, *, replica: str, shards: Collection[int]) -> None:
    """Gives `shards` back, so that another replica may take them at once."""
    await database.execute(connection, "shards.release", {"replica": replica, "shards": sorted(shards)})


async def leave(connection: database.Connection, *, replica: str) -> None:
    """Gives everything back and takes `replica` off the list."""
    await database.execute(connection, "shards.leave", {"replica": replica})


async def forget(connection: database.Connection) -> None:
    """Drops the rows of replicas that have been silent for an hour."""
    await database.execute(connection, "shards.forget")


async def abandon(connection: database.Connection) -> None:
    """Frees every lease and forgets every replica: for whoever knows that no process of the installation lives."""
    await database.execute(connection, "shards.abandon")
