"""Calls that come one by one and are stored together, since a transaction costs more than what is in it."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from clockhand import errors

log = structlog.get_logger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Store = Callable[[Sequence[T]], Awaitable[Sequence[R]]]
_Call = tuple[Sequence[T], "asyncio.Future[Sequence[R]]"]


class Intake(Generic[T, R]):
    """Hands what callers bring to `store`, up to `most` items at a time; it returns one answer an item, in their order.

    While a batch is stored the next one gathers. A caller that goes away meanwhile has its items stored all the same.
    """

    def __init__(self, store: Store[T, R], *, most: int) -> None:
        self._store = store
        self._most = most
        self._calls: collections.deque[_Call[T, R]] = collections.deque()
        self._wanted = asyncio.Event()
        self._open = True

    async def submit(self, items: Sequence[T]) -> Sequence[R]:
        """Waits until the items are stored; returns the answers. Raises what storing them raises, Uncertain among it."""
        if not self._open:
            raise _stopping()
        answer: asyncio.Future[Sequence[R]] = asyncio.get_running_loop().create_future()
        self._calls.append((items, answer))
        self._wanted.set()
        return await answer

    async def step(self) -> float:
        """Stores one batch, as soon as there is something to store."""
        await self._wanted.wait()
        batch = self._take()
        try:
            await self._serve(batch)
        except BaseException:
            _fail(batch, errors.Unavailable("what was sent may not have been stored: send it again"))
            raise
        return 0.0

    def close(self) -> None:
        """Refuses what is not being stored yet, and whatever comes."""
        self._open = False
        _fail(self._calls, _stopping())
        self._calls.clear()

    async def _serve(self, batch: Sequence[_Call[T, R]]) -> None:
        try:
            answers = await self._store([item for items, _ in batch for item in items])
        except errors.ClockhandError as error:
            _fail(batch, error)
            raise
        except Exception as error:
            # a mistake in the code, met by one of the calls: the others do not pay for it
            if len(batch) > 1:
                for call in batch:
                    await self._serve([call])
                return
            log.exception("call_not_stored")
            _fail(batch, error)
            return
        position = 0
        for items, answer in batch:
            if not answer.done():
                answer.set_result(answers[position : position + len(items)])
            position += len(items)

    def _take(self) -> Sequence[_Call[T, R]]:
        batch: list[_Call[T, R]] = []
        room = self._most
        while self._calls and (not batch or len(self._calls[0][0]) <= room):
            call = self._calls.popleft()
            batch.append(call)
            room -= len(call[0])
        if not self._calls:
            self._wanted.clear()
        return batch


def _fail(calls: Sequence[_Call[T, R]] | collections.deque[_Call[T, R]], error: BaseException) -> None:
    for _, answer in calls:
        if not answer.done():
            answer.set_exception(error)


def _stopping() -> errors.Unavailable:
    return errors.Unavailable("this process is stopping", 1.0)
