"""Where the watch's thread leaves what it saw, for the mirror on the main loop to take in batches.

An object that changed several times waits here once, in its newest state. The watch is told when too much waits, so
that a first listing of a hundred thousand objects is never in memory as a whole.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from uuid import UUID

from clockhand.domain import sightings

CAPACITY = 2_000


class Inbox:
    """Sightings by uid. `put` from any thread, the rest on the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[UUID, sightings.Sighting] = {}
        self._lock = threading.Lock()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the giver should pause."""
        return len(self._waiting) >= CAPACITY

    def put(self, seen: sightings.Sighting) -> None:
        """Leaves a sighting, unless a newer one of the object is here."""
        with self._lock:
            was_empty = not self._waiting
            waiting = self._waiting.get(seen.uid)
            if waiting is None or _newer(seen, waiting):
                self._waiting[seen.uid] = seen
        if was_empty:
            self._loop.call_soon_threadsafe(self._filled.set)

    def take(self, limit: int) -> Sequence[sightings.Sighting]:
        """Up to `limit` sightings, first come, first taken."""
        with self._lock:
            taken = [self._waiting.pop(uid) for uid in list(self._waiting)[:limit]]
            if not self._waiting:
                self._filled.clear()
        return taken

    async def wait(self) -> None:
        """Returns when something waits."""
        await self._filled.wait()


def _newer(seen: sightings.Sighting, than: sightings.Sighting) -> bool:
    return (seen.resource_version, seen.deleted) > (than.resource_version, than.deleted)
