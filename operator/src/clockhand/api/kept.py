"""Answers of others, kept for a short time, so that a caller who comes a thousand times a second is looked up once."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

KEEP_SECONDS = 10.0
ENTRIES = 4_096
V = TypeVar("V")
_Answer = tuple[float, "asyncio.Future[V]"]


class Kept(Generic[V]):
    """Answers for ten seconds; callers that ask the same thing at the same time wait for one question.

    A failure is not kept. The time is that of asking: what was true when the question was sent may be old by its answer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Hashable, _Answer[V]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def knows(self, key: Hashable) -> bool:
        """Whether the last answer said something, be it old by now."""
        kept = self._answers.get(key)
        return kept is not None and _says_something(kept[1])

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        now = self._clock()
        kept = self._answers.get(key)
        if kept is None or now - kept[0] > KEEP_SECONDS:
            before, kept = kept, (now, asyncio.ensure_future(ask()))
            self._make_room(now)
            self._answers[key] = kept
            kept[1].add_done_callback(functools.partial(self._note, key, before))
        asked = kept[1]
        return asked.result() if asked.done() else await asyncio.shield(asked)

    def _note(self, key: Hashable, before: _Answer[V] | None, asked: asyncio.Future[V]) -> None:
        """Takes a failure away again; who was known before it still is."""
        kept = self._answers.get(key)
        if kept is None or kept[1] is not asked or not (asked.cancelled() or asked.exception()):
            return
        del self._answers[key]
        if before is not None:
            self._answers[key] = before

    def _make_room(self, now: float) -> None:
        if len(self._answers) >= ENTRIES:
            # strangers who try tokens do not push out those who are known, also where these come less often
            good = {key: kept for key, kept in self._answers.items() if _says_something(kept[1])}
            if len(good) >= ENTRIES:
                good = {key: kept for key, kept in good.items() if now - kept[0] <= KEEP_SECONDS}
            self._answers = good if len(good) < ENTRIES else {}


def _says_something(asked: asyncio.Future[V]) -> bool:
    return asked.done() and not asked.cancelled() and asked.exception() is None and asked.result() is not None
