"""How pools are set up, as this process has read it lately."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from clockhand import errors
from clockhand.engine import limits
from clockhand.store import database, pools

FRESH_SECONDS = 2.0
_UNUSED_SECONDS = 120.0


class Directory:
    """Settings by pool. A tenant's pool comes to be when it is asked for, and the administrator's file sets it up."""

    def __init__(
        self,
        db: database.Database,
        file: limits.LimitsFile,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._file = file
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, pools.Settings]] = {}
        self._asked: dict[str, float] = {}
        self._reading = asyncio.Lock()

    async def of(self, pool: str) -> pools.Settings:
        """Not older than 2 s. Raises NotFound where a namespace never had such a WorkerPool."""
        self._asked[pool] = self._monotonic()
        if (fresh := self._fresh(pool)) is not None:
            return fresh
        async with self._reading:
            if (fresh := self._fresh(pool)) is not None:
                return fresh
            return await self._read(pool)

    def used(self) -> Collection[str]:
        """The pools that somebody has asked for lately."""
        oldest = self._monotonic() - _UNUSED_SECONDS
        self._asked = {pool: at for pool, at in self._asked.items() if at >= oldest}
        return self._asked

    def refresh(self, rows: Iterable[Mapping[str, Any]], *, read_at: float) -> None:
        """Takes in what a look at the rows of used pools has shown; `read_at` is when it began."""
        for row in rows:
            settings = pools.settings_of(row)
            if self._is_set_up(settings):
                self._keep(settings, read_at)
            else:
                self._known.pop(settings.pool, None)

    def _fresh(self, pool: str) -> pools.Settings | None:
        at, settings = self._known.get(pool, (float("-inf"), None))
        return settings if self._monotonic() - at <= FRESH_SECONDS else None

    async def _read(self, pool: str) -> pools.Settings:
        self._known.pop(pool, None)
        began = self._monotonic()
        kind, owner, name = pool.split("/", 2)
        async with self._db.transaction() as connection:
            found = (await pools.settings(connection, [pool])).get(pool)
            if found is None and kind == "rest":
                await pools.add(connection, pool=pool, owner=f"{kind}/{owner}", name=name)
                found = pools.Settings(pool, f"{kind}/{owner}")
            if found is not None and not self._is_set_up(found):
                # whoever rescues runs goes by the row
                await pools.set_up(connection, self._administered(found))
        if found is None:
            raise no_such(pool)
        return self._keep(found, began)

    def _keep(self, settings: pools.Settings, read_at: float) -> pools.Settings:
        settings = self._administered(settings)
        self._known[settings.pool] = read_at, settings
        return settings

    def _is_set_up(self, settings: pools.Settings) -> bool:
        """Whether the leases of the row are those that hold."""
        wanted = self._administered(settings)
        rhythm = (settings.lease_seconds, settings.heartbeat_seconds)
        return rhythm == (wanted.lease_seconds, wanted.heartbeat_seconds)

    def _administered(self, settings: pools.Settings) -> pools.Settings:
        """As they are by the administrator's file, where that says how a pool is set up: that of a tenant."""
        if not settings.owner.startswith("rest/"):
            return settings
        wanted = self._file.current.pool_settings(settings.pool)
        return dataclasses.replace(
            settings,
            allowed_owners=wanted.allowed_owners,
            lease_seconds=wanted.lease_seconds,
            heartbeat_seconds=wanted.heartbeat_seconds,
        )


def no_such(pool: str) -> errors.NotFound:
    """What is said of a pool that gives out no runs since it is not there."""
    _, owner, name = pool.split("/", 2)
    return errors.NotFound(f"there is no WorkerPool {name} in namespace {owner}")
