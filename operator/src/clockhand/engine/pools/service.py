"""What the API does for workers, behind HTTP: claims, heartbeats, reports and starts, and the loops that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from clockhand.domain import protocol
from clockhand.engine import limits as limit_files
from clockhand.engine import loops
from clockhand.engine.pools import backlog, claims, desk, directory, dispatch, messages
from clockhand.engine.pools import kafka as kafkas
from clockhand.store import database, pools


class Pools:
    """The pools of one API process. `lease` is that of its shards, in seconds."""

    def __init__(
        self,
        db: database.Database,
        *,
        replica: str,
        lease: float,
        limits: limit_files.LimitsFile | None = None,
        kafka: kafkas.Publisher | None = None,
    ) -> None:
        administered = limits or limit_files.LimitsFile(None)
        self.desk = desk.Desk(administered)
        self._directory = directory.Directory(db, administered)
        self._backlog = backlog.Backlog(db, self.desk, administered)
        self._claims = claims.Claims(db, self.desk)
        self._dispatch = dispatch.Dispatch(db, self.desk, kafka or kafkas.Publisher(), replica=replica)

    async def settings(self, pool: str) -> pools.Settings:
        """How `pool` is set up, not older than 2 s. Raises NotFound where a namespace has no such WorkerPool."""
        return await self._directory.of(pool)

    async def claim(self, pool: str, request: protocol.ClaimRequest) -> protocol.ClaimAnswer:
        """Runs for a worker, now or as soon as there are some; none when its wait is over."""
        settings = await self.settings(pool)
        runs = await self._claims.claim(settings, request)
        return protocol.ClaimAnswer(
            runs=tuple(map(messages.run_of, runs)),
            lease_seconds=settings.lease_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
        )

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {"queue": self._queue_step, **self._dispatch.steps()}

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set; then answers every claim that waits and gives everything back."""
        tasks = [asyncio.create_task(loops.forever(name, step), name=name) for name, step in self.steps().items()]
        try:
            await stop.wait()
        finally:
            self.desk.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._dispatch.close()

    async def _queue_step(self) -> float:
        await self.desk.marked.wait()
        for pool in self.desk.take_marks():
            await self._backlog.run_once(pool)
        return 0.0
