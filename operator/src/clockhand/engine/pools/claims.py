"""A worker's claims: what each is answered, and what a repeated one is answered again.

The memory here only saves looking. A worker that this process does not know, or whose last answer nobody can be sure of,
is given from the rows what it was given before and does not list.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Sequence

from clockhand.domain import protocol
from clockhand.engine.pools import desk, messages
from clockhand.store import assigned, database, leases, pools

_REMEMBERED_SECONDS = 60.0
"""A worker that has not claimed here for so long may have done so elsewhere."""
_LOOK_SECONDS = 5.0


@dataclasses.dataclass(slots=True)
class _Last:
    """A worker's last claim here."""

    request_id: uuid.UUID
    at: float
    unsure: bool
    """The rows may have something for the worker that it was not told of."""
    seat: desk.Seat | None = None
    waiters: int = 0
    runs: Sequence[assigned.Assigned] = ()


class Claims:
    """Answers claims from the rows, or from the seats of a desk."""

    def __init__(
        self, db: database.Database, seats: desk.Desk, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._db = db
        self._desk = seats
        self._monotonic = monotonic
        self._last: dict[tuple[str, str], _Last] = {}

    async def claim(self, settings: pools.Settings, request: protocol.ClaimRequest) -> Sequence[assigned.Assigned]:
        """Runs for a worker, now or within its wait. A claim repeated under its id is given the same ones."""
        key = (settings.pool, request.worker)
        last = self._last.get(key)
        if last is None or last.request_id != request.request_id:
            unsure = last is None or last.unsure or request.repeated
            last = self._last[key] = _Last(request.request_id, self._monotonic(), unsure)
        if last.unsure:
            last.runs = await self._given_before(last, settings, request)
        if not last.runs:
            last.runs = await self._waited(last, settings, request)
        last.at = self._monotonic()
        return last.runs

    def forget_silent(self) -> None:
        """Drops those who have not claimed for a while: they may be gone, or have claimed elsewhere."""
        before = self._monotonic() - _REMEMBERED_SECONDS
        for key in [key for key, last in self._last.items() if last.at < before and not last.waiters]:
            del self._last[key]

    async def _waited(
        self, last: _Last, settings: pools.Settings, request: protocol.ClaimRequest
    ) -> Sequence[assigned.Assigned]:
        seat = last.seat
        if seat is None or (seat.done.done() and not seat.runs):
            seat = last.seat = self._desk.sit(
                settings, worker=request.worker, handlers=request.handlers, room=request.max
            )
        last.waiters += 1
        try:
            await _served(seat, request.wait_seconds)
        finally:
            last.waiters -= 1
            if not last.waiters:
                self._desk.rise(seat)
        # a transaction that has taken a place is over soon, and its runs are this worker's
        runs = await asyncio.shield(seat.done)
        last.unsure |= seat.doubtful
        return runs or (await self._given_before(last, settings, request) if last.unsure else ())

    async def _given_before(
        self, last: _Last, settings: pools.Settings, request: protocol.ClaimRequest
    ) -> Sequence[assigned.Assigned]:
        """What the rows say; whoever could not be told that is unsure still, and is told when it comes back."""
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            beat = messages.beat_of(settings, request.worker, request.held)
            runs = await leases.unlisted(connection, [beat], now=now, claimed_before=now)
        last.unsure = False
        return runs[: request.max]


async def _served(seat: desk.Seat, seconds: float) -> None:
    """Returns once the seat is served or its time is over; the queue is looked into once in any case."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.shield(seat.done)
            return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_SECONDS):
            await seat.looked.wait()
