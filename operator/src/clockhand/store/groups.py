"""The queues of concurrency groups: runs that their jobs let go, and that wait for a place of their group."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from clockhand.store import database


async def waiting(connection: database.Connection) -> Sequence[str]:
    """The groups for which runs wait."""
    return [row.name for row in await database.fetch(connection, "groups.waiting")]


async def heads(connection: database.Connection, rooms: Mapping[str, int]) -> Sequence[uuid.UUID]:
    """The jobs of the first runs in each group's queue, as many runs as the group has room for."""
    if not rooms:
        return ()
    parameters = {"groups": list(rooms), "rooms": list(rooms.values())}
    return [row.job_id for row in await database.fetch(connection, "groups.heads", parameters)]


async def wait(connection: database.Connection, messages: Mapping[uuid.UUID, str | None], *, now: datetime) -> None:
    """Blocked and Retrying runs into the queue of their group, each with a message for people."""
    if messages:
        parameters = {"run_ids": list(messages), "messages": list(messages.values()), "now": now}
        await database.execute(connection, "groups.wait", parameters)


async def tell(connection: database.Connection, messages: Mapping[str, str | None]) -> None:
    """The message of each group to the first runs of its queue."""
    parameters = {"groups": list(messages), "messages": list(messages.values())}
    await database.execute(connection, "groups.tell", parameters)


async def leave(connection: database.Connection, run_ids: Collection[uuid.UUID]) -> None:
    """Out of the queue of their group: they wait for their jobs again."""
    if run_ids:
        await database.execute(connection, "groups.leave", {"run_ids": list(run_ids)})


async def promote(
    connection: database.Connection, rooms: Mapping[str, int], *, job_ids: Collection[uuid.UUID], now: datetime
) -> int:
    """The first in each group's queue to Queued, if they are of these jobs, which the caller has locked with the groups."""
    if not rooms:
        return 0
    parameters = {"groups": list(rooms), "rooms": list(rooms.values()), "job_ids": list(job_ids), "now": now}
    return len(await database.fetch(connection, "groups.promote", parameters))
