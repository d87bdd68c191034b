"""Retention: one setting of the installation. One replica at a time does it, under the `prune` duty.

It also makes the partitions of the coming weeks, which is why it must not be switched off, and keeps the change log short.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from clockhand.engine import answers
from clockhand.store import changes, database, duties, installation, partitions, pruning, shards

log = structlog.get_logger(__name__)

_LEASE = timedelta(minutes=10)
_KEYS_KEPT = timedelta(days=1)
_WEEK = timedelta(weeks=1)  # the window that is kept made begins a week before what is asked for
_EVERY, _LOOK_EVERY = 60.0, 2.0
_PARTITIONS_EVERY = timedelta(hours=1)


class Prune:
    """Drops what is older than `retention_days`, in whole weeks rounded up."""

    def __init__(
        self,
        db: database.Database,
        *,
        replica: str,
        retention_days: int,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        self._db = db
        self._replica = replica
        self._is_free = is_free
        self._days = retention_days
        self._held: duties.Held | None = None
        self._partitions_at: datetime | None = None

    @property
    def holds(self) -> bool:
        """Whether this replica has the duty, as far as it knows."""
        return self._held is not None

    async def step(self) -> float:
        """One pass where this replica has the duty; returns seconds until the next.

        Nothing is dropped by a clock that has jumped.
        """
        if self._held is None and not self._is_free():
            return _LOOK_EVERY
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            if (await installation.clock(connection)).stored.step is not None:
                return _EVERY
            if self._held is None:
                self._held = await duties.take(connection, duties.PRUNE, replica=self._replica, lease=_LEASE)
        if self._held is not None:
            await self._renew(self._held)
            await self.run_once(now)
        return _EVERY

    async def run_once(self, now: datetime) -> None:
        """Drops what is too old at database time `now`."""
        before = now - timedelta(days=self._days)
        async with self._db.transaction() as connection:
            await changes.trim(connection, now)
            await shards.forget(connection)
        if self._partitions_at is not None and now - self._partitions_at < _PARTITIONS_EVERY:
            return
        async with self._db.transaction() as connection:
            made = await partitions.ensure_window(connection, now=now, retention_days=self._days)
        if made:
            log.info("partitions_made", names=list(made))
        await self._drop_partitions(before)
        await self._sweep("old_keys", now - _KEYS_KEPT)
        await self._sweep("old_answers", now - answers.KEPT_FOR)
        for statement in ("old_audit", "old_backfills", "deleted_jobs", "old_specs"):
            await self._sweep(statement, before)
        self._partitions_at = now

    async def _renew(self, held: duties.Held) -> None:
        self._held = None  # whatever happens next, the duty is not believed in before it is renewed
        async with self._db.transaction() as connection:
            await duties.renew(connection, held, lease=_LEASE)
        self._held = held

    async def _drop_partitions(self, before: datetime) -> None:
        async with self._db.transaction() as connection:
            expired = await partitions.expired(connection, before - _WEEK)
            in_use = await pruning.weeks_in_use(connection, before)
            left_over = await pruning.detached(connection)
        for name in left_over:
            await pruning.drop_detached(self._db, name=name)
        for parent, name in expired:
            if partitions.week_of(name) in in_use:
                continue
            if await pruning.drop(self._db, parent=parent, name=name):
                log.info("partition_dropped", name=name)

    async def _sweep(self, statement: str, before: datetime) -> None:
        size = pruning.LIMIT
        while size == pruning.LIMIT:
            async with self._db.transaction() as connection:
                size = await pruning.sweep(connection, statement, before=before)
