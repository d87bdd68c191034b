"""What the API does for workers, behind HTTP: claims, heartbeats, reports and starts, and the loops that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from clockhand import tracing
from clockhand.domain import protocol
from clockhand.engine import aftermath, loops, pulse
from clockhand.engine import limits as limit_files
from clockhand.engine.pools import claims, desk, directory, dispatch, heartbeats, messages, reports, starts
from clockhand.engine.pools import kafka as kafkas
from clockhand.engine.pools import replica as engine
from clockhand.store import assigned, database, pools


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
        file = limits or limit_files.LimitsFile(None)
        self.desk = desk.Desk(file)
        self._directory = directory.Directory(db, file)
        self._claims = claims.Claims(db, self.desk)
        self._heartbeats = heartbeats.Heartbeats(db)
        after = aftermath.Aftermath(db, file)
        self._reports = reports.Reports(db, after=after, queued=self.desk.queued)
        self._starts = starts.Starts(db)
        self._dispatch = dispatch.Dispatch(db, self.desk, kafka or kafkas.Publisher(), replica=replica)
        workers = pulse.Workers(self.desk, self._directory)
        self._replica = engine.Replica(db, workers, self._claims, name=replica, lease=lease, file=file, after=after)

    def alive(self) -> bool:
        """Whether the loops have gone round lately; for the liveness probe."""
        return self._replica.alive()

    def ready(self) -> bool:
        """Whether this process can serve workers."""
        return self._replica.ready()

    async def settings(self, pool: str) -> pools.Settings:
        """How `pool` is or, if deleted, was set up; not older than 2 s. Raises NotFound where it never was there."""
        return await self._directory.of(pool)

    async def claim(self, pool: str, request: protocol.ClaimRequest) -> protocol.ClaimAnswer:
        """Runs for a worker, now or as soon as there are some; none when its wait is over."""
        began = tracing.now()
        settings = await self._giving(pool)
        runs = await self._claims.claim(settings, request)
        if tracing.on():
            _trace(runs, request.worker, began)
        return protocol.ClaimAnswer(
            runs=tuple(map(messages.run_of, runs)),
            lease_seconds=settings.lease_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
        )

    async def heartbeat(self, pool: str, request: protocol.HeartbeatRequest) -> protocol.HeartbeatAnswer:
        """Renews the leases of what a worker has, and tells what has become of each."""
        return await self._heartbeats.renew(await self.settings(pool), request)

    async def report(self, pool: str, request: protocol.ReportRequest) -> protocol.ReportAnswer:
        """Ends attempts; returns once that is stored."""
        answer = await self._reports.submit(pool, request)
        self._replica.ended()
        return answer

    async def start(self, pool: str, request: protocol.StartRequest) -> protocol.StartAnswer:
        """Gives a worker the attempts whose tokens it presents, where nobody was quicker."""
        return await self._starts.start(await self._giving(pool), request)

    def changed(self) -> None:
        """Says that others changed runs: there may be some for those who wait, and there are changes to be numbered."""
        self.desk.mark_all()
        self._replica.ended()

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {
            **self._replica.steps(),
            "heartbeats": self._heartbeats.step,
            "reports": self._reports.step,
            "follow": self._follow_step,
            "starts": self._starts.step,
            **self._dispatch.steps(),
        }

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
            for intake in (self._heartbeats, self._reports, self._starts):
                intake.close()
            await self._dispatch.close()
            await self._replica.leave()

    async def _giving(self, pool: str) -> pools.Settings:
        """Of a pool that gives out runs. The workers of one that was deleted end and report on what they have."""
        settings = await self.settings(pool)
        if settings.is_deleted:
            raise directory.no_such(pool)
        return settings

    async def _follow_step(self) -> float:
        wait = await self._reports.follow_step()
        self.desk.mark_all()
        return wait


def _trace(runs: Iterable[assigned.Assigned], worker: str, began: int) -> None:
    """The run waited for the claim, or the claim for the run: what is told is from when the later of them was there."""
    for run in runs:
        told = {"clockhand.worker": worker, "clockhand.run": run.name, "clockhand.job": run.job_name}
        since = max(began, tracing.at(run.scheduled_at))
        tracing.part_over("claim", run.run_id, run.attempt, began=since, attributes=told)
