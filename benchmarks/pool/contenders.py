"""The four peers: how each is set, what it does for a run, and what it leaves out.

The settings are those that a project's own documentation or benchmark recommends for throughput; where it gives none, the
best of those that were tried on two cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Sequence

from benchmarks.pool import drain, installs
from tests.e2e.cluster import steps


@dataclasses.dataclass(frozen=True)
class Peer:
    """One program with the steps prepare, fill and work."""

    name: str
    version: str
    command: Callable[[], Sequence[str]]
    kept: str
    """Counts completed rows."""
    left: str | None
    """Counts rows that a raw queue has not deleted yet; None: it keeps them anyway."""
    settings: str
    same: str
    recurring: str
    raw: str
    share: float = 1.0
    """Of the runs of a round: a slow one need not hold up the others."""

    async def prepare(self, url: str, mode: drain.Mode) -> None:
        await self._run("prepare", url, mode)

    async def fill(self, url: str, mode: drain.Mode, *, runs: int, due: float) -> None:
        await self._run("fill", url, mode, str(runs), str(due))

    def working(self, url: str, mode: drain.Mode) -> contextlib.AbstractAsyncContextManager[drain.Working]:
        return drain.at_work([*self.command(), "work", url, mode])

    def complete(self, mode: drain.Mode, *, runs: int) -> str:
        return f"SELECT {runs} - ({self.left})" if mode is drain.Mode.RAW and self.left else self.kept

    async def _run(self, *words: str) -> None:
        await asyncio.to_thread(steps.run, [*self.command(), *words])


PEERS = (
    Peer(
        name="graphile-worker",
        version="0.18.0",
        command=lambda: installs.npm("graphile_worker"),
        kept="SELECT count(*) FROM kept_jobs",
        left="SELECT count(*) FROM graphile_worker._private_jobs",
        settings="its performance page: concurrentJobs 24, maxPoolSize 25, localQueue 500, batch delays 0",
        same="runAt; completed rows are copied by a trigger, once a statement, as it deletes them itself",
        recurring="the handler adds its next job with addJob",
        raw="due at once, rows deleted",
    ),
    Peer(
        name="river",
        version="0.51.2",
        command=installs.river,
        kept="SELECT count(*) FROM river_job WHERE state = 'completed'",
        left=None,
        settings="its own bench: MaxWorkers 2000, FetchCooldown 2 ms, FetchPollInterval 20 ms; 20 connections",
        same="ScheduledAt, which its scheduler looks at every 5 s; rows kept",
        recurring="the worker inserts its next job with Insert",
        raw="available at once, rows kept: it can't do without",
    ),
    Peer(
        name="pg-boss",
        version="12.38.0",
        command=lambda: installs.npm("pg_boss"),
        kept="SELECT count(*) FROM pgboss.job WHERE state = 'completed'",
        left=None,
        settings="batchSize 500, localConcurrency 4, burstWhenBatchFull, pollingIntervalSeconds 0.5, 10 connections",
        same="startAfter, each job settled by itself (perJobResults); rows kept",
        recurring="the handler inserts a batch of next jobs with insert",
        raw="due at once, a batch completed as a whole; rows kept",
    ),
    Peer(
        name="procrastinate",
        version="3.10.0",
        command=installs.procrastinate,
        kept="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        left="SELECT count(*) FROM procrastinate_jobs",
        settings="one process (two and four were slower), concurrency 20, polling 0.5 s, 20 connections",
        same="schedule_at; rows and their events kept",
        recurring="the task defers its next job with defer_async",
        raw="due at once, rows deleted (delete_jobs=always)",
        share=0.1,
    ),
)
