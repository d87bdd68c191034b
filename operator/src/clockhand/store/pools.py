"""Pools of workers, as rows: how each one is set up, what waits in its queue, and the claim of what waits."""

from __future__ import annotations

import dataclasses
import secrets
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from clockhand.store import assigned, database

EVERYBODY = "*"
Pair = tuple[str, str]
"""A pool and a handler."""
Span = tuple[str, str]
"""Owners from the first text on and before the second."""
Spans = Mapping[Pair, Sequence[Span]]
_EVERY_OWNER = ("", "s")  # after rest/


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How a pool is set up. `pool` is its whole name, `k8s/<namespace>/<name>` or `rest/<tenant>/<name>`."""

    pool: str
    owner: str
    service_account: str | None = None
    """Whose tokens may act for the pool; None: static tokens alone."""
    allowed_owners: tuple[str, ...] = ()
    """Whose runs its workers take beside those of its own owner; `*`: everybody's."""
    dispatch: str = "Poll"
    lease_seconds: int = 90
    heartbeat_seconds: int = 30
    kafka_error: str | None = None
    is_deleted: bool = False
    """It gives out nothing more; what its workers have is still theirs."""

    def allows(self, owner: str) -> bool:
        """Whether the workers of the pool take runs of `owner`."""
        return owner == self.owner or owner in self.allowed_owners or EVERYBODY in self.allowed_owners

    @property
    def spans(self) -> Sequence[Span]:
        """Whose runs its workers take, to be looked for: what others queue for the pool is passed over."""
        if EVERYBODY in self.allowed_owners:
            return (_EVERY_OWNER,)
        return [(owner, f"{owner}\x01") for owner in sorted({self.owner, *self.allowed_owners})]


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """How many Queued runs one owner is given for one handler."""

    handler: str
    owner: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """A locked Queued run and the worker that gets it; None: whoever presents the token."""

    run_id: uuid.UUID
    worker: str | None


async def settings(connection: database.Connection, pools: Collection[str]) -> Mapping[str, Settings]:
    """How those of `pools` that exist are set up, or were until they were deleted."""
    rows = await database.fetch(connection, "pools.settings", {"pools": list(pools)})
    return {row.pool: settings_of(row._asdict()) for row in rows}


def settings_of(row: Mapping[str, Any]) -> Settings:
    """From the columns of a row of `pools`, of which it may have more; without `is_deleted` it is there."""
    found = {field.name: row[field.name] for field in dataclasses.fields(Settings) if field.name in row}
    return Settings(**{**found, "allowed_owners": tuple(found["allowed_owners"])})


async def set_up(connection: database.Connection, wanted: Settings) -> None:
    """How long leases of the pool last, and how often its workers are heard, from now on."""
    parameters = {
        "pool": wanted.pool,
        "lease_seconds": wanted.lease_seconds,
        "heartbeat_seconds": wanted.heartbeat_seconds,
    }
    await database.execute(connection, "pools.set_up", parameters)


async def add(connection: database.Connection, *, pool: str, owner: str, name: str) -> None:
    """Makes the pool of a tenant, unless it is there."""
    await database.execute(connection, "pools.add", {"pool": pool, "owner": owner, "name": name})


def asked(spans: Spans) -> tuple[Mapping[str, Sequence[str]], Sequence[Pair]]:
    """Parameters of a query that looks for what is queued in `spans`, and the pair of each of its rows."""
    every = [(pool, handler, *span) for (pool, handler), found in spans.items() for span in found]
    pools, handlers, lows, highs = map(list, zip(*every, strict=True)) if every else ([], [], [], [])
    parameters = {"pools": pools, "handlers": handlers, "lows": lows, "highs": highs}
    return parameters, list(zip(pools, handlers, strict=True))


async def waiting(
    connection: database.Connection, *, pool: str, starts: Mapping[str, str], spans: Sequence[Span], limit: int
) -> Mapping[str, list[str]]:
    """By handler, the owners within `spans` that have Queued runs for it, at most `limit` in all.

    `starts` has the handlers that are asked for and the owner from whom on each is gone through, and round again.
    """
    parts = [(handler, *part) for handler, start in starts.items() for part in _laps(spans, start)]
    parameters = {
        "pool": pool,
        "handlers": [handler for handler, *_ in parts],
        "lows": [low for _, low, _, _ in parts],
        "highs": [high for _, _, high, _ in parts],
        "laps": [lap for *_, lap in parts],
        "limit": limit,
    }
    found: dict[str, list[str]] = {}
    for row in await database.fetch(connection, "pools.waiting", parameters):
        found.setdefault(row.handler, []).append(row.owner)
    return found


def _laps(spans: Sequence[Span], start: str) -> Iterator[tuple[str, str, int]]:
    """The parts of `spans` from `start` on, and then those before it."""
    for low, high in spans:
        if low < start < high:
            yield start, high, 1
            yield low, start, 2
        else:
            yield low, high, 1 if low >= start else 2


async def lock_queued(connection: database.Connection, *, pool: str, shares: Sequence[Share]) -> Sequence[Any]:
    """Locks the best Queued runs of each share: rows (run_id, handler)."""
    parameters = {
        "pool": pool,
        "handlers": [share.handler for share in shares],
        "owners": [share.owner for share in shares],
        "counts": [share.count for share in shares],
    }
    return await database.fetch(connection, "pools.lock_queued", parameters)


async def assign(
    connection: database.Connection, assignments: Sequence[Assignment], *, lease: int, now: datetime
) -> Sequence[assigned.Assigned]:
    """Claims locked runs for `lease` seconds. None is claimed on a promoted database whose epoch has not been raised."""
    if not assignments:
        return ()
    parameters = {
        "run_ids": [one.run_id for one in assignments],
        "tokens": [secrets.randbits(63) for _ in assignments],
        "workers": [one.worker for one in assignments],
        "lease": lease,
        "now": now,
    }
    return [assigned.assigned(row) for row in await database.fetch(connection, "pools.assign", parameters)]
