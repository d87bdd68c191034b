"""The heart of a worker: a thread with an event loop of its own that renews leases and ends what cannot be renewed.

A handler that blocks the loop it runs on keeps its lease, and one whose lease is about to end is ended before it does.
The probes are answered here too: a worker that is busy is not a dead one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence

import structlog

from clockhand import calling, errors, health
from clockhand.domain import protocol
from clockhand.worker import client, config
from clockhand.worker.attempts import Attempt, Attempts, Ending, Rhythm, key_of

_LONGEST_LOOK, _SHORTEST_LOOK = 0.25, 0.02
_LONGEST_PATIENCE = 10.0
_SHOWN_AFTER = 3.0
"""Seconds until an attempt that goes on is told of for the first time: it is seen to run then, not a heartbeat later."""
log = structlog.get_logger(__name__)

Given = Callable[[Sequence[protocol.Run], float], object]
"""Takes runs that the API gave again, and the instant from which their leases count."""


class Heart:
    """Beats from `start` to `stop`, and at once when asked to."""

    def __init__(self, settings: config.Settings, attempts: Attempts, rhythm: Rhythm, given: Given) -> None:
        self._settings = settings
        self._attempts = attempts
        self._rhythm = rhythm
        self._given = given
        self._thread = threading.Thread(target=self._run, name="clockhand-heart", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.over: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when the thread has ended; with its error where it was not asked to."""
        self._waiting: dict[asyncio.Future[None], Attempt] = {}
        self._last_beat = self._listed_at = 0.0
        self._again_in: float | None = None

    def start(self, probes: health.Probes) -> None:
        """Starts the thread; raises Unavailable where the port of the probes is taken."""
        self._probes = probes
        self._thread.start()
        try:
            self._begun.result()
        except OSError as error:
            raise errors.Unavailable(f"the probes cannot be served: {error}") from error

    def stop(self) -> None:
        """Ends the thread. What is held is not renewed any more."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()

    def beat_now(self, attempt: Attempt) -> concurrent.futures.Future[None]:
        """Renews all leases now; done when that was answered, or when `attempt` is to end. From any thread."""
        if self._loop is None:
            raise errors.Unavailable("the worker is not running")
        return asyncio.run_coroutine_threadsafe(self._beat_now(attempt), self._loop)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            (self.over if self._begun.done() else self._begun).set_exception(error)
        else:
            self.over.set_result(None)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped, self._asked = asyncio.Event(), asyncio.Event()
        probes = health.served(self._probes, port=self._settings.health_port, host=self._settings.listen)
        async with probes, client.Api(self._settings) as self._api, asyncio.TaskGroup() as group:
            tasks = [group.create_task(step) for step in (self._beat_forever(), self._look_forever())]
            self._begun.set_result(None)
            await self._stopped.wait()
            for task in tasks:
                task.cancel()

    async def _beat_now(self, attempt: Attempt) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = attempt
        self._asked.set()
        await waiter

    async def _beat_forever(self) -> None:
        failed = 0
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._beat()
                failed, self._again_in = 0, None
            except errors.ClockhandError as error:
                failed += 1
                self._again_in = calling.pause(failed, error, longest=min(self._rhythm.heartbeat / 4, 5.0))
                log.warning("heartbeat_failed", error=str(error), failed=failed)
            except Exception:
                failed, self._again_in = failed + 1, 1.0
                log.exception("heartbeat_failed", failed=failed)
            self._last_beat = self._attempts.clock()

    async def _beat(self) -> None:
        """One request for all; whoever asked before the list was made has the answer, and waits on while there is none."""
        asked = tuple(self._waiting)
        await self._renew()
        self._wake(asked)

    def _wake(self, waiters: Iterable[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if self._waiting.pop(waiter, None) is not None and not waiter.done():
                waiter.set_result(None)

    async def _renew(self) -> None:
        held = self._attempts.listed()
        patience = min(_LONGEST_PATIENCE, self._rhythm.heartbeat)
        # one request, also with nothing to list; several where some of it is about to be given back
        for first in range(0, max(len(held), 1), protocol.MAX_RUNS):
            part = tuple(held[first : first + protocol.MAX_RUNS])
            sent = self._listed_at = self._attempts.clock()
            request = protocol.HeartbeatRequest(worker=self._settings.worker_name, held=part)
            self._follow(await self._api.heartbeat(request, patience=patience), sent)

    def _follow(self, answer: protocol.HeartbeatAnswer, sent: float) -> None:
        self._rhythm.follow(answer)
        until = self._rhythm.trusted_until(sent)
        for renewed in answer.held:
            attempt = self._attempts.get(key_of(renewed))
            if attempt is None:
                continue
            if renewed.standing is protocol.Standing.LOST:
                self._attempts.lose(attempt, renewed.reason or "the API says so")
                continue
            attempt.trusted_until = until
            if renewed.standing is protocol.Standing.STOP:
                attempt.end(Ending.STOP, renewed.reason)
        if answer.runs:
            self._given(answer.runs, sent)

    async def _look_forever(self) -> None:
        while True:
            now = self._attempts.clock()
            if self._has_nothing_to_ask():
                self._last_beat = now
            elif now >= self._last_beat + (self._again_in or self._pause(now)):
                self._asked.set()
            self._look(now)
            await asyncio.sleep(min(max(self._rhythm.lease / 50, _SHORTEST_LOOK), _LONGEST_LOOK))

    def _has_nothing_to_ask(self) -> bool:
        if self._attempts:
            return False
        return self._again_in is None and self._last_beat >= self._attempts.doubtful_until

    def _pause(self, now: float) -> float:
        """Between two heartbeats, in seconds."""
        begun_by = now - _SHOWN_AFTER
        news = any(self._listed_at < attempt.begun <= begun_by and not attempt.done for attempt in self._attempts)
        return min(_SHOWN_AFTER, self._rhythm.heartbeat) if news else self._rhythm.heartbeat

    def _look(self, now: float) -> None:
        for attempt in self._attempts:
            if attempt.done:
                continue
            if now >= attempt.trusted_until:
                self._attempts.lose(attempt, "it could not be renewed in time")
            elif now >= attempt.deadline:
                attempt.end(Ending.TIMEOUT)
        self._wake([waiter for waiter, attempt in self._waiting.items() if not self._attempts.goes_on(attempt)])
