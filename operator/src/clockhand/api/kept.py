"""Answers of others, kept for a short time, so that a caller who comes a thousand times a second is looked up once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from clockhand import errors

KEEP_SECONDS = 10.0
ENTRIES = 4_096
V = TypeVar("V")


class Kept(Generic[V]):
    """Answers for ten seconds; callers that ask the same thing at the same time wait for one question.

    A failure is not kept. The time is that of asking: what was true when the question was sent may be old by its answer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Hashable, tuple[float, asyncio.Future[V]]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        now = self._clock()
        kept = self._answers.get(key)
        if kept is None or now - kept[0] > KEEP_SECONDS:
            self._make_room(now)
            kept = (now, asyncio.ensure_future(ask()))
            self._answers[key] = kept
        asked = kept[1]
        if asked.done() and asked.exception() is None:
            return asked.result()
        try:
            return await asyncio.shield(asked)
        except errors.ClockhandError:
            if self._answers.get(key) is kept:
                del self._answers[key]
            raise

    def _make_room(self, now: float) -> None:
        if len(self._answers) >= ENTRIES:
            fresh = {key: kept for key, kept in self._answers.items() if now - kept[0] <= KEEP_SECONDS}
            if len(fresh) >= ENTRIES:  # strangers who try tokens do not push out those who are known
                fresh = {key: kept for key, kept in fresh.items() if _says_something(kept[1])}
            self._answers = fresh if len(fresh) < ENTRIES else {}


def _says_something(asked: asyncio.Future[V]) -> bool:
    return asked.done() and not asked.cancelled() and asked.exception() is None and asked.result() is not None
