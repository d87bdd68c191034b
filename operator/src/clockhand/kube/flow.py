"""How many writes may be under way at the API server, so that a burst of due runs never becomes an outage.

Additive increase, multiplicative decrease on the number in flight (the server shows its limit only by 429,
5xx and time-outs) under a token bucket (the administrator's limit). `capacity` lets the dispatcher claim
only what can be launched now: a run that is not claimed can be taken by another replica.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import math
import random
import time
from dataclasses import dataclass, field

from clockhand import metrics


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Bounds of the write flow of one replica."""

    initial_in_flight: int = 32
    max_in_flight: int = 128
    writes_per_second: float = 500.0
    burst: float = 500.0
    pause_jitter: float = 0.2


@dataclass(slots=True)
class Flow:
    """The decisions, without waiting; every time is monotonic seconds given by the caller."""

    settings: FlowSettings
    now: float
    limit: float = field(init=False)
    in_flight: int = field(init=False, default=0)
    throttled: int = field(init=False, default=0)
    _tokens: float = field(init=False)
    _tokens_at: float = field(init=False)
    _paused_until: float = field(init=False, default=-math.inf)
    _lowered_at: float = field(init=False, default=-math.inf)
    _successes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.limit = float(self.settings.initial_in_flight)
        self._tokens = self.settings.burst
        self._tokens_at = self.now

    def capacity(self, now: float) -> int:
        """How many writes could start at `now` without waiting."""
        if now < self._paused_until:
            return 0
        return max(0, min(int(self.limit) - self.in_flight, int(self._refilled(now))))

    def delay(self, now: float) -> float:
        """Seconds until a write may start; 0 is at once, infinite is when one in flight ends."""
        if now < self._paused_until:
            return self._paused_until - now
        if self.in_flight >= int(self.limit):
            return math.inf
        missing = 1.0 - self._refilled(now)
        return missing / self.settings.writes_per_second if missing > 1e-9 else 0.0

    def start(self, now: float) -> None:
        self._tokens = self._refilled(now) - 1.0
        self._tokens_at = now
        self.in_flight += 1

    def end(self) -> None:
        self.in_flight -= 1

    def succeeded(self) -> None:
        """Grow by one after a whole window of successes, and only while the window is what limits us."""
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            if self.in_flight + 1 >= int(self.limit):
                self.limit = min(self.limit + 1, float(self.settings.max_in_flight))

    def overloaded(self, now: float, *, started: float, pause: float | None = None) -> None:
        """Halve, once per round trip: calls sent before the last halving tell nothing about the new limit."""
        self.throttled += 1
        self._successes = 0
        if pause is not None:
            self._paused_until = max(self._paused_until, now + pause)
        if started >= self._lowered_at:
            self._lowered_at = now
            self.limit = max(1.0, self.limit / 2)

    def _refilled(self, now: float) -> float:
        gained = max(0.0, now - self._tokens_at) * self.settings.writes_per_second
        return min(self.settings.burst, self._tokens + gained)


class Permit:
    """One write's place in the flow; the caller reports what the server said."""

    __slots__ = ("_gate", "_started")

    def __init__(self, gate: WriteGate, started: float) -> None:
        self._gate = gate
        self._started = started

    def succeeded(self) -> None:
        self._gate.flow.succeeded()

    def overloaded(self, retry_after: float | None) -> None:
        self._gate.back_off(self._started, retry_after)


class WriteGate:
    """Lets writes through in order of arrival, as fast as the flow allows."""

    def __init__(
        self,
        settings: FlowSettings,
        *,
        clock: collections.abc.Callable[[], float] = time.monotonic,
        draw: collections.abc.Callable[[], float] = random.random,
    ) -> None:
        self.flow = Flow(settings, clock())
        self._settings = settings
        self._clock = clock
        self._draw = draw
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        metrics.KUBE_WRITES.set_function(lambda: self.flow.in_flight)
        metrics.KUBE_WRITE_LIMIT.set_function(lambda: int(self.flow.limit))

    def capacity(self) -> int:
        return self.flow.capacity(self._clock())

    @contextlib.asynccontextmanager
    async def permit(self) -> collections.abc.AsyncIterator[Permit]:
        asked = self._clock()
        started = await self._admit()
        metrics.KUBE_WRITE_WAIT.observe(started - asked)
        try:
            yield Permit(self, started)
        finally:
            self.flow.end()
            self._changed.set()

    def back_off(self, started: float, retry_after: float | None) -> None:
        """Jitter spreads the replicas that were refused in the same instant."""
        pause = None if retry_after is None else retry_after * (1 + self._settings.pause_jitter * self._draw())
        self.flow.overloaded(self._clock(), started=started, pause=pause)

    async def _admit(self) -> float:
        async with self._turn:
            now = self._clock()
            while (delay := self.flow.delay(now)) > 0:
                await self._wait(delay)
                now = self._clock()
            self.flow.start(now)
            return now

    async def _wait(self, delay: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(delay) else delay):
                await self._changed.wait()
