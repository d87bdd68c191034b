"""Threads for handlers that are no coroutines.

They are daemons: nobody can end a thread from outside, and one that does not end must not keep the process from it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import queue
import threading
from collections.abc import Callable

_Call = tuple[concurrent.futures.Future[object], Callable[[], object]]


class Threads:
    """As many threads as there were calls at the same time."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._busy = self._started = 0
        self._abandoned = False

    async def call(self, function: Callable[[], object]) -> object:
        """What `function` returns or raises. Being cancelled does not end the wait, as it does not end the thread."""
        context = contextvars.copy_context()
        future: concurrent.futures.Future[object] = concurrent.futures.Future()
        self._busy += 1
        self._calls.put((future, lambda: context.run(function)))
        if self._busy > self._started:
            self._started += 1
            threading.Thread(target=self._serve, name=f"handler-{self._started}", daemon=True).start()
        try:
            return await self._outcome(asyncio.wrap_future(future))
        finally:
            self._busy -= 1

    def abandon(self) -> None:
        """The process ends: a wait that is cancelled from now on is over."""
        self._abandoned = True

    async def _outcome(self, future: asyncio.Future[object]) -> object:
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                if self._abandoned:
                    raise
            except BaseException:
                break
        return future.result()

    def _serve(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                future.set_result(function())
            except StopIteration as error:
                future.set_exception(RuntimeError(f"the handler raised {error!r}"))  # no future takes it as it is
            except BaseException as error:
                future.set_exception(error)
            del future, function
