"""How many requests are under way at a time: beyond that they are told to come again, before they wait for long.

To say so costs as much as a small answer. It is said after a moment, so that who comes again at once, as long as there is no
room, does not keep the process busy with it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Iterator

from clockhand import metrics
from clockhand.api import problems

BIG_BODIES = 8
"""Bodies beyond the usual size that are held in memory at a time."""
CONNECTION_SHARE = 32
"""Requests for each connection to the database: with some milliseconds each none of them waits for a second."""
HOLD_SECONDS = 1.0
"""Until a request without a place hears of it. It has nothing meanwhile but its connection."""
MOST_HELD = 1_024
"""Beyond that they hear of it at once."""


class Room:
    """Places for requests. One owner takes half of them at most, so that there is always one for somebody else."""

    def __init__(self, connections: int, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._most = connections * CONNECTION_SHARE
        self._hold_seconds = hold_seconds
        self._held = 0
        self._taken: collections.Counter[str] = collections.Counter()
        self._total = 0
        self._big = 0

    async def look(self, owner: str) -> None:
        """503 where there is no place now."""
        if self._total >= self._most or self._taken[owner] >= self._most // 2:
            metrics.REST_SHED.inc()
            await self._hold()
            raise problems.unavailable("too many requests are under way: come again")

    @contextlib.asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """A place for the length of the block; 503 where there is none."""
        await self.look(owner)
        self._total += 1
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._total -= 1
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]

    @contextlib.contextmanager
    def big_body(self) -> Iterator[None]:
        """Room in memory for a body beyond the usual size; 503 where there is none."""
        if self._big >= BIG_BODIES:
            metrics.REST_SHED.inc()
            raise problems.unavailable(f"{self._big} large bodies are being read: come again")
        self._big += 1
        try:
            yield
        finally:
            self._big -= 1

    async def _hold(self) -> None:
        if self._held >= MOST_HELD:
            return
        self._held += 1
        try:
            await asyncio.sleep(self._hold_seconds)
        finally:
            self._held -= 1
