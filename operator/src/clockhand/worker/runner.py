"""Runs what the API gave: an attempt a task, and no more of them than there are places."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from clockhand import metrics, tracing
from clockhand.domain import protocol
from clockhand.worker import outcomes, reports, sdk, tail
from clockhand.worker.attempts import Attempt, Attempts, Ending, Rhythm, named

_COLLECT_SECONDS = 0.01
_LEAVE_SECONDS = 3.0
_AGAIN_SECONDS = 1.0
_AT_ONCE = 32
"""Attempts that begin in one go: the next claim and reports are on their way before the last of many has begun."""
log = structlog.get_logger(__name__)

T = TypeVar("T")
Call = Callable[[Attempt, sdk.Run], Coroutine[Any, Any, object]]
"""Makes an attempt: what it returns is the run's result, what it raises its failure."""


class Runner:
    """The attempts that run here."""

    def __init__(
        self,
        calls: Mapping[str, Call],
        *,
        attempts: Attempts,
        reports: reports.Reports,
        rhythm: Rhythm,
        beat: Callable[[Attempt], concurrent.futures.Future[None]],
        concurrency: int,
    ) -> None:
        self.calls = calls
        self.draining = False
        self._attempts = attempts
        self._reports = reports
        self._rhythm = rhythm
        self._beat = beat
        self._concurrency = concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming: collections.deque[tuple[Attempt, bool]] = collections.deque()
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        metrics.WORKER_RUNNING.set_function(lambda: len(self._tasks))

    @property
    def free(self) -> int:
        """Places for runs: of handlers, and of what one request may list."""
        return min(self._places, protocol.MAX_RUNS - len(self._attempts))

    @property
    def _places(self) -> int:
        return self._concurrency - len(self._tasks) - len(self._coming)

    async def places(self) -> int:
        """Waits for a free place, and some milliseconds for others where most are taken."""
        while self.free <= 0:
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):  # a report that was answered frees one too
                    await self._freed.wait()
        if self.free < self._concurrency // 2:
            await asyncio.sleep(_COLLECT_SECONDS)
        return max(self.free, 1)

    def take(self, runs: Sequence[protocol.Run], sent: float, *, unsure: bool = False) -> None:
        """Starts `runs`, whose leases count from `sent`. One that is here is passed over, one without a place given back.

        `unsure`: the lease may have begun before, so it is renewed before anything is started.
        """
        until = self._rhythm.trusted_until(sent)
        unsure = unsure or until - self._attempts.clock() < self._rhythm.heartbeat
        begins = bool(self._coming)
        for run in runs:
            attempt = self._attempts.take(run, trusted_until=float("inf") if unsure else until)
            if attempt is None:
                continue
            if self.draining or self._places <= 0:
                self._give_back(attempt)
            else:
                self._coming.append((attempt, unsure))
        if not begins:
            self._begin_some()

    async def drain(self, *, grace: float, hurry: asyncio.Event) -> None:
        """Lets what runs end within `grace` seconds, or until `hurry`; then ends it, and reports what ends no more."""
        self.draining = True
        while self._coming:  # nothing begins any more: each of them is given back
            self._begin_some()
        await self._ended(grace, hurry)
        for attempt in self._attempts:
            attempt.end(Ending.DRAIN, "the worker stops")
            if hurry.is_set():
                attempt.kill()
        await self._ended(_LEAVE_SECONDS, hurry)
        for attempt in self._attempts:
            if not attempt.done:
                attempt.done = True
                self._reports.add(attempt, outcomes.interrupted(attempt))

    async def _ended(self, seconds: float, hurry: asyncio.Event) -> None:
        """Waits for the tasks, for `seconds` at most, and not after `hurry`."""
        if not self._tasks:
            return
        hurried = asyncio.create_task(hurry.wait())
        ended = asyncio.create_task(asyncio.wait(self._tasks))
        await asyncio.wait({hurried, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        ended.cancel()

    def _begin_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._coming))):
            attempt, unsure = self._coming.popleft()
            if self._attempts.get(attempt.key) is not attempt:
                continue
            if self.draining or attempt.ending is not None:
                self._give_back(attempt)
            else:
                self._start(attempt, unsure)
        self._freed.set()  # by what was not begun after all
        if self._coming:
            self._loop.call_soon(self._begin_some)

    def _start(self, attempt: Attempt, unsure: bool) -> None:
        task = self._loop.create_task(self._make(attempt, unsure))
        attempt.interrupt = functools.partial(self._loop.call_soon_threadsafe, task.cancel)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._free, attempt))

    def _free(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if self._attempts.get(attempt.key) is attempt:
            self._give_back(attempt)  # nothing, unless it was cancelled before its first step

    async def _make(self, attempt: Attempt, unsure: bool) -> None:
        if unsure and not await self._confirm(attempt):
            return
        if not self._attempts.is_trusted(attempt):
            self._attempts.lose(attempt, "its lease was over before it began")
            return
        clock = self._attempts.clock
        tail.current.set(attempt.tail)
        about = named(attempt.run)
        structlog.contextvars.bind_contextvars(**about)
        began = clock()
        try:
            with tracing.handling(attempt.run.handler, attempt.run.traceparent, about):
                value = await _leased(self._call(attempt), functools.partial(self._attempts.is_trusted, attempt))
            report = outcomes.returned(attempt, value, clock() - began)
        except BaseException as error:
            report = outcomes.raised(attempt, error, clock() - began)
            _tell(attempt, report)
        self._report(attempt, report)

    def _call(self, attempt: Attempt) -> Coroutine[Any, Any, object]:
        call = self.calls.get(attempt.run.handler)
        if call is None:
            raise LookupError(f"this worker has no handler {attempt.run.handler}")
        is_ours = functools.partial(self._is_ours, attempt)
        return call(attempt, sdk.Run(attempt.run, is_ours=is_ours, beat=functools.partial(self._beat, attempt)))

    def _is_ours(self, attempt: Attempt) -> bool:
        return attempt.ending is None and self._attempts.is_trusted(attempt)

    async def _confirm(self, attempt: Attempt) -> bool:
        """Whether it is this worker's, as the API says now."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wrap_future(self._beat(attempt))
        return self._attempts.goes_on(attempt)

    def _report(self, attempt: Attempt, report: protocol.Report) -> None:
        """Says how it ended, unless that was said already, or the lease is over and it is not for us to say."""
        if attempt.done:
            return
        if not self._attempts.is_trusted(attempt):
            self._attempts.lose(attempt, "its lease was over before it ended")
            return
        attempt.done = True
        self._reports.add(attempt, report)

    def _give_back(self, attempt: Attempt) -> None:
        if attempt.done:
            return
        attempt.done = True
        stopped = attempt.ending is Ending.STOP
        self._reports.add(attempt, outcomes.interrupted(attempt) if stopped else outcomes.released(attempt))


def _tell(attempt: Attempt, report: protocol.Report) -> None:
    """What a failure says may hold anything, and is for the run's record alone."""
    failure = report.failure or protocol.Failure()
    told = {"handler": attempt.run.handler, "outcome": report.outcome, "error": failure.error}
    log.warning("attempt_not_well", **told, exit_code=failure.exit_code)


@types.coroutine
def _leased(step: Coroutine[Any, Any, T], is_trusted: Callable[[], bool]) -> Generator[Any, Any, T]:
    """Awaits `step`, and cancels it wherever it would go on after its lease: also straight after the process was frozen."""
    resume: Callable[[Any], Any] = step.send
    value: Any = None
    while True:
        try:
            awaited = resume(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            resume, value = step.send, (yield awaited)
        except BaseException as error:
            resume, value = step.throw, error
        if not is_trusted():
            resume, value = step.throw, asyncio.CancelledError()
