"""Pools with `dispatch: Kafka`, as rows: which they are, what is on its way to their workers, and what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from clockhand.store import database, pools


@dataclasses.dataclass(frozen=True, slots=True)
class Dispatched:
    """A pool whose runs go out as messages, on a topic for each of its handlers."""

    settings: pools.Settings
    handlers: tuple[str, ...]


async def dispatched(connection: database.Connection) -> Sequence[Dispatched]:
    """Every pool whose runs go out as messages."""
    found = []
    for row in await database.fetch(connection, "kafka.pools"):
        fields = {**row._asdict(), "allowed_owners": tuple(row.allowed_owners)}
        handlers = tuple(fields.pop("handlers"))
        found.append(Dispatched(pools.Settings(**fields), handlers))
    return found


async def unstarted(
    connection: database.Connection, pools: Collection[str], *, now: datetime
) -> Mapping[tuple[str, str], tuple[int, float]]:
    """By pool and handler: how many attempts wait in messages to be started, and for how many seconds the oldest does."""
    rows = await database.fetch(connection, "kafka.unstarted", {"pools": list(pools), "now": now})
    return {(row.pool, row.handler): (row.count, row.oldest) for row in rows}


async def show(
    connection: database.Connection, wrong: Mapping[str, str | None], *, replica: str, now: datetime
) -> None:
    """Stores what this process finds wrong with Kafka, by pool; None: nothing."""
    texts = [None if text is None else f"{replica}: {text}" for text in wrong.values()]
    parameters = {"pools": list(wrong), "errors": texts, "replica": replica, "now": now}
    await database.execute(connection, "kafka.show", parameters)
