"""Which shards this replica holds, and until when it may believe so.

A lease is trusted by this process's own monotonic clock, from before the renewal was sent: a process that slept finds on
waking that its time is over, before it does anything else. What it writes in spite of that is refused by the generation.
"""

from __future__ import annotations

import functools
import importlib.metadata
import time
from collections.abc import Callable, Collection, Mapping

import structlog

from clockhand import metrics
from clockhand.domain import sharding, zones
from clockhand.store import database, installation, runs
from clockhand.store import shards as rows

log = structlog.get_logger(__name__)

_MARGIN = 0.1
"""Share of the lease given up for clock rates that differ and for statements already on their way."""


class Shards:
    """This replica's shard leases. `lease` is in seconds; renew at a third of it by calling `run_once`.

    Shards are shared with the replicas of the same role alone.
    With each renewal it says of which release it is, and which zone data it has.
    """

    def __init__(
        self,
        db: database.Database,
        *,
        replica: str,
        lease: float,
        role: sharding.Role = sharding.Role.OPERATOR,
        clock: Callable[[], float] = time.monotonic,
        zone_version: str | None = None,
    ) -> None:
        self._db = db
        self._replica = replica
        self._role = role
        self._lease = lease
        self._clock = clock
        self._zone_version = zone_version or zones.version()
        self._generations: Mapping[int, int] = {}
        self._trusted_until = float("-inf")
        self.free_duties: frozenset[str] = frozenset()
        """Duties that nobody held at the last renewal."""
        self.newer_zones = False
        """Whether next slots are to be computed anew, as far as the last renewal showed."""
        self._unwitnessed_at_first: bool | None = None
        self.paused = False
        """Whether some job was paused at the last renewal."""
        self.expiring = False
        """Whether some one-shot of the held shards might have expired at the last renewal."""
        metrics.SHARDS_HELD.labels(role=role.value).set_function(lambda: len(self.holder().generations))

    @property
    def replica(self) -> str:
        return self._replica

    @property
    def role(self) -> sharding.Role:
        return self._role

    @property
    def zone_version(self) -> str:
        return self._zone_version

    @property
    def doubtful(self) -> bool:
        """Whether, when this replica began, others had fallen silent or the clock had leapt, and nobody could tell which."""
        return self._unwitnessed_at_first is not False

    def holder(self) -> runs.Holder:
        """What this replica may act on now; empty once its lease cannot be trusted any more."""
        return runs.Holder(self._replica, self._generations if self.trusted() else {})

    def trusted(self) -> bool:
        """Whether the last renewal still covers this instant."""
        return self._clock() < self._trusted_until

    def holds(self, shard: int) -> bool:
        """Whether this replica may act on `shard` at this instant."""
        return shard in self._generations and self.trusted()

    async def run_once(self) -> frozenset[int]:
        """Renews, gives back and takes shards; returns those gained, whose open runs the caller goes through first."""
        began = self._clock()
        async with self._db.transaction() as connection:
            view = await self._beat(connection)
            held = view.held
            self.paused, self.expiring = view.paused, view.expiring
            if view.promoted:
                log.warning("database_promoted", epoch=await installation.settle_epoch(connection))
            wanted = sharding.preferred(self._role.shards, view.replicas, me=self._replica)
            surplus = set(held) - wanted
            if surplus:
                await rows.release(connection, replica=self._replica, shards=surplus)
            missing = (wanted & set(view.free)) - set(held)
            taken = await self._take(connection, missing)
        kept = {shard: generation for shard, generation in held.items() if shard not in surplus}
        # sightings were dropped while the lease could not be trusted, even where nobody else took the shards meanwhile
        seen = self._generations if self.trusted() else {}
        gained = frozenset(taken) | {s for s, g in kept.items() if seen.get(s) != g}
        self._adopt({**kept, **taken}, began)
        return gained

    async def _beat(self, connection: database.Connection) -> rows.View:
        view = await rows.beat(
            connection,
            replica=self._replica,
            role=self._role,
            lease=self._lease,
            zone_version=self._zone_version,
            release=_release(),
        )
        self.free_duties, self.newer_zones = view.free_duties, view.newer_zones
        if self._unwitnessed_at_first is None:
            self._unwitnessed_at_first = view.unwitnessed
        return view

    async def leave(self) -> None:
        """Gives everything back, for a stop on purpose."""
        self._adopt({}, float("-inf"))
        async with self._db.transaction() as connection:
            await rows.leave(connection, replica=self._replica)

    async def _take(self, connection: database.Connection, shards: Collection[int]) -> Mapping[int, int]:
        if not shards:
            return {}
        return await rows.take(connection, replica=self._replica, lease=self._lease, shards=shards)

    def _adopt(self, generations: Mapping[int, int], began: float) -> None:
        if len(generations) != len(self._generations):
            log.info("shards_held", count=len(generations))
        self._generations = generations
        self._trusted_until = began + self._lease * (1 - _MARGIN)


@functools.cache
def _release() -> str:
    return importlib.metadata.version("clockhand")
