"""The heartbeat of a replica: one look at the database, then whatever is due.

A single wake query answers for every loop: is something due, queued, retrying, past a deadline. An idle replica therefore
costs one query every two seconds, and no loop sleeps past the instant at which it will be needed. A notification could
make it quicker and is never needed: what is true is in the rows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Collection

import structlog

from clockhand import metrics
from clockhand.engine import admit, backfill, claim, clock, deadlines, fire, launch, observe, shards
from clockhand.engine.pools import desk as desks
from clockhand.engine.pools import directory as directories
from clockhand.store import database, runs

log = structlog.get_logger(__name__)

LONGEST_SLEEP = 2.0
_SHORTEST_SLEEP = 0.02
_WHILE_QUEUED = 0.25
"""What waits at an owner's cap, or for room to launch, goes on when something ends: no instant tells when."""
_WHILE_AWAITED = 1.5
"""Workers wait for what others queue: together with the leases of the shards that is one query a second."""
_ADMIT_EVERY = 5.0
_FLOW_SLEEP = 0.03
_FIRE_SECONDS = 1.0
"""In one pulse, so that a flood of due slots does not hold up retries and deadlines."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pods:
    """What claims runs for pods, launches them, and sees what becomes of them."""

    claims: claim.Claims
    launch: launch.Launch
    observer: observe.Observe


@dataclasses.dataclass(frozen=True, slots=True)
class Workers:
    """Who waits for runs in this process, and how their pools are set up."""

    desk: desks.Desk
    directory: directories.Directory


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """What a pulse can do."""

    fire: fire.Fire
    admit: admit.Admit
    backfill: backfill.Backfill
    deadlines: deadlines.Deadlines
    pods: Pods | None = None
    """None in an API process, whose runs go to workers."""
    workers: Workers | None = None
    """None in an operator."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pulsed:
    """What a pulse found. `sleep` is in seconds, until something will be due."""

    sleep: float
    stopping: bool = False
    unnumbered: bool = False
    open: bool = False
    news: bool = False
    leased: bool = False


class Pulse:
    """One replica's pulse over the shards it holds, and over the queues for which somebody waits at its desk."""

    def __init__(
        self,
        db: database.Database,
        *,
        held: shards.Shards,
        steps: Steps,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._held = held
        self._steps = steps
        self._desk = steps.workers.desk if steps.workers else desks.Desk()
        self._monotonic = monotonic
        self._pause = clock.Pause(db, doubtful=lambda: held.doubtful, monotonic=monotonic)
        self._admitted_at = float("-inf")
        self._due_at = float("inf")
        metrics.OLDEST_DUE.set_function(self._overdue)

    async def run_once(self) -> Pulsed:
        """Does everything that is due now; returns when to come again."""
        held = self._held.holder().generations
        if not held:
            if self._desk.spans():  # who waits here is not to pay for that
                await self._look(held)
            return Pulsed(sleep=LONGEST_SLEEP / 4)
        wake = await self._look(held)
        waits = await self._pause.look(wake.clock, wake.clock_is)
        fired = 0 if waits else await self._fire(wake)
        admitted = await self._admit(wake)
        went_on = await self._backfill(wake)
        if admitted or went_on:
            self._desk.mark_all()
        if not waits:
            await self._deadlines(wake)
        claimed = await self.claim() if wake.queued or fired or admitted or went_on else 0
        return Pulsed(
            sleep=_SHORTEST_SLEEP if claimed or fired or went_on else _until_next(wake, self._longest(wake)),
            stopping=wake.stopping,
            unnumbered=wake.unnumbered,
            open=wake.open,
            news=wake.news,
            leased=wake.leased,
        )

    def _overdue(self) -> float:
        """Of the slot that was the oldest at the last look, also where none could be taken since."""
        return max(0.0, self._monotonic() - self._due_at) if self._held.trusted() else 0.0

    async def _look(self, held: Collection[int]) -> runs.Wake:
        spans, workers = self._desk.spans(), self._steps.workers
        began = self._monotonic()
        async with self._db.transaction() as connection:
            known = workers.directory.used() if workers else ()
            wake = await runs.wake(connection, shards=held, role=self._held.role, spans=spans, known=known)
        self._due_at = began + (wake.next_due - wake.now).total_seconds() if wake.next_due else float("inf")
        self._desk.looked(spans, wake.queued_for)
        if workers:
            workers.directory.refresh(wake.pools, read_at=began)
        return wake

    async def claim(self) -> int:
        """Claims what can be launched now; returns how many."""
        total, pods = 0, self._steps.pods
        while pods is not None and (room := pods.launch.room()):
            holder = self._held.holder()
            if not holder.generations:
                break
            limit = min(room, fire.BATCH)
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                claims = await pods.claims.take(connection, holder=holder, limit=limit, now=now)
            metrics.RUNS_CLAIMED.inc(len(claims))
            total += len(claims)
            await pods.launch.start(claims)
            if len(claims) < limit:
                break
        return total

    async def _fire(self, wake: runs.Wake) -> int:
        fired = 0
        if wake.next_due is not None and wake.next_due <= wake.now:
            until = self._monotonic() + _FIRE_SECONDS
            while self._monotonic() < until:
                most = await self._desk.appetite(self._steps.fire.size)
                batch = await self._steps.fire.run_once(self._held.holder().generations, most=most)
                fired += batch
                if batch == most:
                    await self.claim()
                elif batch and self._steps.workers:
                    await asyncio.sleep(
                        _FLOW_SLEEP
                    )  # more of a steady flow is due by then: no need to look at all else
                else:
                    break
        if wake.oldest_anywhere is not None and wake.now - wake.oldest_anywhere > fire.ANYBODYS_AFTER:
            # not those of the other role: while none of it is there to carry the runs out, their slots are missed
            fired += await self._steps.fire.run_once(self._held.role.shards, anybodys=True)
        return fired

    async def _admit(self, wake: runs.Wake) -> int:
        due = wake.next_retry is not None and wake.next_retry <= wake.now
        if due or (wake.blocked and self._monotonic() - self._admitted_at >= _ADMIT_EVERY):
            self._admitted_at = self._monotonic()
            return await self._steps.admit.run_once(self._held.holder().generations)
        return 0

    async def _backfill(self, wake: runs.Wake) -> int:
        if wake.next_backfill is None or not backfill.is_due(wake.next_backfill, wake.now):
            return 0
        return await self._steps.backfill.run_once(self._held.holder().generations)

    async def _deadlines(self, wake: runs.Wake) -> None:
        nearest = min((at for at in (wake.next_deadline, wake.next_run_deadline) if at), default=None)
        if nearest is not None and nearest <= wake.now:
            gated = list(self._steps.pods.observer.gated.values()) if self._steps.pods else ()
            await self._steps.deadlines.run_once(self._held.holder().generations, gated=gated)

    def _longest(self, wake: runs.Wake) -> float:
        if wake.queued:
            return _WHILE_QUEUED
        return _WHILE_AWAITED if self._desk.spans() else LONGEST_SLEEP


def _until_next(wake: runs.Wake, longest: float) -> float:
    instants = (wake.next_due, wake.next_retry, wake.next_deadline, wake.next_run_deadline, wake.next_backfill)
    waits = [(instant - wake.now).total_seconds() for instant in instants if instant is not None]
    # what was due a moment ago has been dealt with, or cannot be now: both are looked at again, not at once
    return min([longest, *(wait for wait in waits if wait > 0)])
