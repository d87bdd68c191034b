"""Queued runs to open attempts of this replica: who waits, and then so many of each."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from clockhand.store import database, runs


class Queue(NamedTuple):
    """The Queued runs of an owner in a shard."""

    shard: int
    owner: str


BEGINNING = Queue(0, "")


async def waiting(connection: database.Connection, *, holder: runs.Holder, after: Queue, limit: int) -> Sequence[Queue]:
    """Up to `limit` queues of the holder's shards that are not empty: those after `after`, then those before it."""
    shards = sorted(holder.generations)
    ahead = [(shard, after.owner if shard == after.shard else "") for shard in shards if shard >= after.shard]
    behind = [(shard, "") for shard in shards if shard <= after.shard]
    parameters = {
        "shards": [shard for shard, _ in (*ahead, *behind)],
        "afters": [owner for _, owner in (*ahead, *behind)],
        "limit": limit,
    }
    rows = await database.fetch(connection, "claiming.waiting", parameters)
    return list(dict.fromkeys(Queue(row.shard, row.owner) for row in rows))


async def claim(
    connection: database.Connection, shares: Mapping[Queue, int], *, holder: runs.Holder, now: datetime
) -> Sequence[runs.Claim]:
    """Claims the best runs of each queue, as many as its share; each gets a token of its own."""
    parameters = {
        "replica": holder.replica,
        "shards": [queue.shard for queue in shares],
        "generations": [holder.generations[queue.shard] for queue in shares],
        "owners": [queue.owner for queue in shares],
        "shares": list(shares.values()),
        "tokens": [secrets.randbits(63) for _ in range(sum(shares.values()))],
        "now": now,
    }
    return [runs.claim_of(row) for row in await database.fetch(connection, "claiming.claim", parameters)]
