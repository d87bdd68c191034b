"""Counting against limits: lock the keys, then count the rows. No counter is kept, so that none can drift.

Lock and count are two statements. In one, the count would see the rows as they were before the lock was waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from clockhand.store import database

Count = Callable[[database.Connection, Mapping[str, int]], Awaitable[Mapping[str, int]]]


async def lock(connection: database.Connection, keys: Sequence[str]) -> None:
    """Locks the rows of `keys`, which are `owner:`, `pool:` or `group:` and a name, until the end of the transaction."""
    parameters = {"keys": list(keys)}
    if len(await database.fetch(connection, "limits.lock_keys", parameters)) < len(set(keys)):
        await database.execute(connection, "limits.add_keys", {"keys": sorted(keys)})
        await database.execute(connection, "limits.lock_keys", parameters)


async def open_of_owners(connection: database.Connection, caps: Mapping[str, int]) -> Mapping[str, int]:
    """How many attempts of each owner are open, counted up to its cap."""
    return await _counted(connection, "limits.open_of_owners", caps)


async def open_of_pools(connection: database.Connection, caps: Mapping[str, int]) -> Mapping[str, int]:
    """How many attempts the workers of each pool have, counted up to its cap."""
    return await _counted(connection, "limits.open_of_pools", caps)


async def places_of_groups(connection: database.Connection, caps: Mapping[str, int]) -> Mapping[str, int]:
    """How many runs of each group have a place, counted up to its cap."""
    return await _counted(connection, "limits.places_of_groups", caps)


async def _counted(connection: database.Connection, query: str, caps: Mapping[str, int]) -> Mapping[str, int]:
    parameters = {"keys": list(caps), "caps": list(caps.values())}
    return {row.key: row.held for row in await database.fetch(connection, query, parameters)}
