"""One operator replica: its loops, and how it starts and stops.

Nothing here decides anything; it only lets the steps run next to each other. On a stop it claims nothing more, lets the
launches under way finish, stores what it saw, and gives its shards back, so that another replica goes on at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

import structlog

from clockhand import errors, metrics
from clockhand.domain import ids
from clockhand.domain import pods as pod_domain
from clockhand.engine import (
    admit,
    backfill,
    claim,
    deadlines,
    expiry,
    fire,
    launch,
    limits,
    loops,
    observe,
    pauses,
    pulse,
    rezone,
    shards,
    sweep,
)
from clockhand.kube import client as clients
from clockhand.kube import objects, watch
from clockhand.kube import pods as kube_pods
from clockhand.store import changes, database

log = structlog.get_logger(__name__)

_FLUSH_AFTER, _FLUSH_IN_A_BURST = 0.1, 0.5
_NUMBER_AFTER = 0.1
_SWEEP_EVERY = 5.0
_DRAIN_SECONDS = 5.0
_PAUSES_EVERY = 60.0


class Replica:
    """The engine of one operator process. `lease` is that of its shards, in seconds; `file` is that of limits."""

    def __init__(
        self,
        db: database.Database,
        client: clients.Client,
        *,
        name: str,
        lease: float,
        namespaces: tuple[str, ...] = (),
        file: limits.LimitsFile | None = None,
    ) -> None:
        api = kube_pods.Pods(client)
        self._db = db
        self._lease = lease
        self.held = shards.Shards(db, replica=name, lease=lease)
        self._file = file or limits.LimitsFile(None)
        self.observer = observe.Observe(db, api, held=self.held, file=self._file)
        reports = launch.Reports(
            launched=self.observer.note_launched,
            ended=self.observer.note_claim_end,
            waits=self.observer.note_waits,
            hand_back=self.observer.note_hand_back,
            seen=self.observer.note_pod,
        )
        self._launcher = launch.Launch(db, api, held=self.held, reports=reports)
        steps = pulse.Steps(
            fire.Fire(db, file=self._file),
            admit.Admit(db, self._file),
            backfill.Backfill(db, self._file),
            deadlines.Deadlines(db),
            pulse.Pods(claim.Claims(self._file), self._launcher, self.observer),
        )
        self._pulse = pulse.Pulse(db, held=self.held, steps=steps)
        self._rezone = rezone.Rezone(db, version=self.held.zone_version, lease=lease)
        self._sweep = sweep.Sweep(
            db,
            api,
            held=self.held,
            launcher=self._launcher,
            observer=self.observer,
            namespaces=sweep.Namespaces(lambda name: objects.namespace_phase(client, name)),
        )
        self._expiry = expiry.Expiry(db, objects.Objects(client))
        self._pauses_at = float("-inf")
        self._tidy_from = time.monotonic() + 2 * expiry.EVERY
        self._watches = [
            watch.PodWatch(api, selector=pod_domain.SELECTOR, wants=self.observer.wants, namespace=namespace)
            for namespace in namespaces or (None,)
        ]
        metrics.WATCH_AGE.labels(watch="pods").set_function(self._watch_age)
        self._synced: dict[int, bool] = {}
        self._changed = asyncio.Event()
        self._sweep_wanted = asyncio.Event()
        self._open = False
        self.news = asyncio.Event()
        """Set while some object's status is out of date."""
        self._rounds = loops.Rounds(lease)

    def alive(self) -> bool:
        """Whether the loops have gone round lately; for the liveness probe."""
        return self._rounds.alive()

    def ready(self) -> bool:
        """Whether this replica holds its leases and sees its pods."""
        return self.held.trusted()

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {
            "shards": self._shards_step,
            "pulse": self._pulse_step,
            "observe": self._observe_step,
            "changes": self._changes_step,
            "sweep": self._sweep_step,
            "tidy": self._tidy_step,
            "zones": self._zones_step,
            "limits": self._file.step,
        }

    async def run(self, stop: asyncio.Event, *, also: Mapping[str, loops.Step] | None = None) -> None:
        """Runs until `stop` is set, then gives everything back. `also` are loops of the same process."""
        everything = {**self.steps(), **(also or {})}
        tasks = [asyncio.create_task(loops.forever(name, step), name=name) for name, step in everything.items()]
        tasks += [asyncio.create_task(self._follow(number, pods)) for number, pods in enumerate(self._watches)]
        try:
            await stop.wait()
        finally:
            await self._shut_down(tasks)

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        log.info("stopping")
        with contextlib.suppress(errors.ClockhandError):
            await self._launcher.drain(_DRAIN_SECONDS)
            await self.observer.run_once()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(errors.ClockhandError):
            await self.held.leave()
            await changes.number_pending(self._db)

    async def _shards_step(self) -> float:
        self._rounds.begin()
        gained = await self.held.run_once()
        if gained:
            log.info("shards_gained", count=len(gained))
            self._synced.clear()
            for pods in self._watches:
                pods.resync()
        return self._lease / 3

    async def _pulse_step(self) -> float:
        pulsed = await self._pulse.run_once()
        if pulsed.unnumbered:
            self._changed.set()
        if pulsed.stopping:
            self._sweep_wanted.set()
        if pulsed.open and not self._open:
            self._sweep_wanted.set()
        self._open = pulsed.open
        if pulsed.news:
            self.news.set()
        else:
            self.news.clear()
        return pulsed.sleep

    async def _observe_step(self) -> float:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pulse.LONGEST_SLEEP):
                await self.observer.wanted.wait()
        if await self.observer.run_once():
            self._changed.set()
        # what was launched is stored in larger batches while more is to be launched: that comes first
        return _FLUSH_AFTER if self._launcher.room() > launch.BACKLOG // 2 else _FLUSH_IN_A_BURST

    async def _changes_step(self) -> float:
        await self._changed.wait()
        self._changed.clear()
        await changes.number_pending(self._db)
        return _NUMBER_AFTER

    async def _sweep_step(self) -> float:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SWEEP_EVERY):
                await self._sweep_wanted.wait()
        self._sweep_wanted.clear()
        if self.held.trusted():
            # the pulse finds what a dead replica left open, and asks for a sweep then
            if self._open or self.observer.vanished:
                await self._sweep.run_once(synced=self._all_synced())
            await self._sweep.clear_away()
        return 0.2

    async def _tidy_step(self) -> float:
        """What may wait: ends of pauses that a dead process left, and one-shots whose time is over."""
        held = self.held.holder().generations
        now = time.monotonic()
        if held and self.held.paused and now - self._pauses_at > _PAUSES_EVERY:
            self._pauses_at = now
            await pauses.sweep(self._db, held)
        # by then those who saw the database's clock jump before this process began have said so
        if held and self.held.expiring and now > self._tidy_from:
            await self._expiry.run_once([*held, *(ids.twin(shard, pooled=True) for shard in held)])
        return expiry.EVERY

    async def _zones_step(self) -> float:
        if self.held.newer_zones:
            await self._rezone.run_once()
        return self._lease / 3

    def _watch_age(self) -> float:
        return max(time.monotonic() - pods.last_activity for pods in self._watches)

    def _all_synced(self) -> bool:
        return all(self._synced.get(number) for number in range(len(self._watches)))

    async def _follow(self, number: int, pods: watch.PodWatch) -> None:
        async for seen in pods.stream():
            if seen.kind is watch.Kind.SYNCED:
                self._synced[number] = True
                self._sweep_wanted.set()
            self.observer.note(seen)
