"""How many requests are under way at a time: beyond that they are told to come again, before they wait for long.

To say so costs as much as a small answer. It is said after a moment, so that who comes again at once, as long as there is no
room, does not keep the process busy with it.

The loop that serves them also fires runs and gives them to workers. While it comes round late, there are fewer places.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import NoReturn

from clockhand import metrics
from clockhand.api import problems

LATE_SECONDS = 0.04
"""By which the loop may come round later than it was asked to."""
LEAST_PLACES = 8
"""However late it does."""
_LOOK_EVERY = 0.02
_LOOK_IDLE = 0.2
"""While nobody asks: often enough for who comes to a late loop, and next to nothing for one that rests."""
_LESS = 0.8
BIG_BODIES = 8
"""Bodies beyond the usual size that are held in memory at a time."""
CONNECTION_SHARE = 32
"""Requests for each connection to the database: with some milliseconds each none of them waits for a second."""
HOLD_SECONDS = 1.0
"""Until a request without a place hears of it. It has nothing meanwhile but its connection."""
MOST_HELD = 1_024
"""Beyond that they hear of it at once."""


class Room:
    """Places for requests, and for large bodies. One owner takes half of them at most: there is one for somebody else."""

    def __init__(self, connections: int, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._places = _Places(connections * CONNECTION_SHARE)
        self._bodies = _Places(BIG_BODIES)
        self._hold_seconds = hold_seconds
        self._held = 0

    async def heed(self) -> NoReturn:
        """Looks for good how late the loop comes round."""
        loop = asyncio.get_running_loop()
        while True:
            pause = _LOOK_EVERY if self._places.any_taken else _LOOK_IDLE
            due = loop.time() + pause
            await asyncio.sleep(pause)
            self.adapt(loop.time() - due)

    def adapt(self, late: float) -> None:
        """Fewer places, or one more, as the loop came round `late` seconds late."""
        self._places.adapt(grows=late <= LATE_SECONDS)

    async def look(self, owner: str) -> None:
        """503 where there is no place now."""
        if self._places.are_taken(owner):
            metrics.REST_SHED.inc()
            await self._hold()
            raise problems.unavailable("too many requests are under way: come again")

    @contextlib.asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """A place for the length of the block; 503 where there is none."""
        await self.look(owner)
        with self._places.taken(owner):
            yield

    @contextlib.contextmanager
    def big_body(self, owner: str) -> Iterator[None]:
        """Room in memory for a body beyond the usual size, and for what is made of it; 503 where there is none."""
        if self._bodies.are_taken(owner):
            metrics.REST_SHED.inc()
            raise problems.unavailable("too many large bodies are under way: come again, or send less at a time")
        with self._bodies.taken(owner):
            yield

    async def _hold(self) -> None:
        if self._held >= MOST_HELD:
            return
        self._held += 1
        try:
            await asyncio.sleep(self._hold_seconds)
        finally:
            self._held -= 1


class _Places:
    """So many, and half of them for one owner."""

    def __init__(self, most: int) -> None:
        self._full = self._most = most
        self._taken: collections.Counter[str] = collections.Counter()

    @property
    def any_taken(self) -> bool:
        return bool(self._taken)

    def adapt(self, *, grows: bool) -> None:
        if grows:
            self._most = min(self._full, self._most + 1)
        else:
            self._most = min(self._most, max(LEAST_PLACES, int(_LESS * self._most)))

    def are_taken(self, owner: str) -> bool:
        return self._taken.total() >= self._most or self._taken[owner] >= self._most // 2

    @contextlib.contextmanager
    def taken(self, owner: str) -> Iterator[None]:
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
