"""Firing waits while the database's clock is not to be believed.

A step of the clock is noticed and stored by whichever process reads the clock first (`store/database.py`), and from then
on all of them live in the time before it. Firing is paused as well: a fail-over or an administrator may be about to undo
the step. The pause is a row, so that a replica which starts meanwhile waits like the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from clockhand import metrics
from clockhand.domain import clock as clocks
from clockhand.domain import clockstate
from clockhand.store import database, installation

log = structlog.get_logger(__name__)

_HEARD_AFTER = 5.0
"""Seconds in which every live replica reads the clock, more than twice."""


class Pause:
    """Whether firing waits, as one replica sees it. `doubtful` tells whether other replicas may know more of the clock."""

    def __init__(
        self,
        db: database.Database,
        *,
        doubtful: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._doubtful = doubtful
        self._monotonic = monotonic
        self._first_look: float | None = None
        self._waits_for: timedelta | None = None

    async def look(self, clock: datetime, stored: clocks.Stored) -> bool:
        """Whether firing waits now; ends a pause that is old enough."""
        self._show(stored)
        if self._first_look is None:
            self._first_look = self._monotonic()
        if stored.step is None:
            # a clock that jumped a moment before this process began looks right to it: those who saw that will say so
            return self._doubtful() and self._monotonic() - self._first_look < _HEARD_AFTER
        ends_at = stored.ends_at()
        if ends_at is not None and clock >= ends_at:
            await self._believe(stored)
        return True

    def _show(self, stored: clocks.Stored) -> None:
        metrics.CLOCK_PAUSED.set(stored.step is not None)
        metrics.CLOCK_STEP.set(stored.step.total_seconds() if stored.step is not None else 0)
        if stored.step == self._waits_for:
            return
        if stored.step is None:
            log.warning("firing_resumed", step=clocks.signed(self._waits_for))
        else:
            log.error("firing_paused", reason="the database's clock jumped", step=clocks.signed(stored.step))
        self._waits_for = stored.step

    async def _believe(self, stored: clocks.Stored) -> None:
        async with self._db.transaction() as connection:
            if await installation.believe_step(connection, stored):
                log.warning("clock_step_believed", step=clocks.signed(stored.step), reason="it is ten minutes old")


async def state(db: database.Database) -> clockstate.State:
    """Whether the clock is trusted, or by how much it jumped, and until when firing waits."""
    async with db.transaction() as connection:
        found = await installation.clock(connection)
    if found.stored.step is None:
        return clockstate.State(found.shows)
    return clockstate.State(found.shows, found.stored.step, found.stored.noticed_at, found.stored.ends_at())


async def confirm(db: database.Database) -> timedelta | None:
    """The clock is right: firing goes on by it. Returns the step that was confirmed, None where there was none."""
    async with db.transaction() as connection:
        found = await installation.clock(connection)
        if not await installation.believe_step(connection, found.stored):
            return None
    log.warning("clock_step_believed", step=clocks.signed(found.stored.step), reason="it was confirmed")
    return found.stored.step
