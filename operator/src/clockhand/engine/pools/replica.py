"""The engine of an API process: it holds shards of jobs whose runs workers take, fires them, and serves those who wait.

Nothing here decides anything; it only lets the steps run next to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

import structlog

from clockhand import errors
from clockhand.domain import sharding
from clockhand.engine import (
    admit,
    aftermath,
    backfill,
    deadlines,
    expiry,
    fire,
    limits,
    loops,
    pauses,
    pulse,
    shards,
)
from clockhand.engine.pools import backlog, claims, rescue
from clockhand.store import changes, database

log = structlog.get_logger(__name__)

_NUMBER_AFTER = 0.1
_TIDY_EVERY = 60.0


class Replica:
    """The loops of one API process around its desk. `lease` is that of its shards, in seconds."""

    def __init__(
        self,
        db: database.Database,
        workers: pulse.Workers,
        answers: claims.Claims,
        *,
        name: str,
        lease: float,
        file: limits.LimitsFile,
        after: aftermath.Aftermath,
    ) -> None:
        self._db = db
        self._desk = seats = workers.desk
        self._claims = answers
        self._lease = lease
        self._file = file
        self._held = shards.Shards(db, replica=name, lease=lease, role=sharding.Role.API)
        self._backlog = backlog.Backlog(db, seats, file)
        steps = pulse.Steps(
            fire.Fire(db, seats, file),
            admit.Admit(db, file),
            backfill.Backfill(db, file),
            deadlines.Deadlines(db),
            workers=workers,
        )
        self._pulse = pulse.Pulse(db, held=self._held, steps=steps)
        self._rescue = rescue.Rescue(db, held=self._held, after=after, queued=seats.queued)
        self._expiry = expiry.Expiry(db, None)
        self._expires_from = time.monotonic() + 2 * expiry.EVERY
        self._leased = asyncio.Event()
        self._changed = asyncio.Event()
        self._rounds = loops.Rounds(lease)

    def alive(self) -> bool:
        """Whether the loops have gone round lately; for the liveness probe."""
        return self._rounds.alive()

    def ready(self) -> bool:
        """Whether this replica holds its leases."""
        return self._held.trusted()

    def ended(self) -> None:
        """Says that attempts have ended: there may be room under caps, and there are changes to be numbered."""
        self._backlog.ended()
        self._changed.set()

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {
            "shards": self._shards_step,
            "pulse": self._pulse_step,
            "queue": self._queue_step,
            "rescue": self._rescue_step,
            "changes": self._changes_step,
            "tidy": self._tidy_step,
            "expire": self._expire_step,
            "limits": self._file.step,
        }

    async def leave(self) -> None:
        """Gives everything back, for a stop on purpose."""
        with contextlib.suppress(errors.ClockhandError):
            await self._held.leave()
            await changes.number_pending(self._db)

    async def _shards_step(self) -> float:
        self._rounds.begin()
        await self._held.run_once()
        return self._lease / 3

    async def _pulse_step(self) -> float:
        pulsed = await self._pulse.run_once()
        if pulsed.unnumbered:
            self._changed.set()
        if pulsed.leased:
            self._leased.set()
        else:
            self._leased.clear()
        return pulsed.sleep

    async def _queue_step(self) -> float:
        """A look into each queue that may have something for those who wait."""
        await self._desk.marked.wait()
        for pool in self._desk.take_marks():
            if await self._backlog.run_once(pool):
                self._changed.set()
        return 0.0

    async def _rescue_step(self) -> float:
        await self._leased.wait()
        if await self._rescue.run_once():
            self.ended()
        return rescue.EVERY

    async def _changes_step(self) -> float:
        await self._changed.wait()
        self._changed.clear()
        await changes.number_pending(self._db)
        return _NUMBER_AFTER

    async def _tidy_step(self) -> float:
        """What may wait: ends of pauses that a dead process left, and the memory of workers that are gone."""
        self._claims.forget_silent()
        held = self._held.holder().generations
        if held and self._held.paused:
            await pauses.sweep(self._db, held)
        return _TIDY_EVERY

    async def _expire_step(self) -> float:
        """One-shots that were made over REST, and whose time is over."""
        held = self._held.holder().generations
        # by then those who saw the database's clock jump before this process began have said so
        if held and self._held.expiring and time.monotonic() > self._expires_from:
            await self._expiry.clear(held)
        return expiry.EVERY
