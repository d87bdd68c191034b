"""The attempts that a worker has, each from its claim until its report is answered, and for how long they are its own.

Two threads look at them: the event loop on which handlers run, and the heart, which must not wait for the first. Each
operation on the table is one of a dict, which Python makes atomic.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from clockhand import logs, metrics
from clockhand.domain import protocol
from clockhand.worker import tail

log = structlog.get_logger(__name__)

Key = tuple[int, str]
Clock = Callable[[], float]

_REMEMBERED_SECONDS = 60.0
"""No answer is on its way for so long: what was given before its report was stored has come by then."""
_SETTLED_SECONDS = 15.0
"""After the wait of a claim that was cut off: by then a heartbeat tells what it was given."""


def boot_time() -> float:
    """Seconds that go on while the process is stopped and, where the system can say so, while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Ending(enum.Enum):
    """Why an attempt is ended before its handler is done."""

    STOP = "Stopped"  # somebody asked for it
    TIMEOUT = "AttemptTimeout"
    DRAIN = "WorkerStopped"
    LOST = "LeaseLost"  # it is not ours any more: nothing is reported


class Rhythm:
    """How long a lease lasts and how often it is renewed, as the API said last."""

    def __init__(self, lease: float = 90.0, heartbeat: float = 30.0) -> None:
        self.lease, self.heartbeat = lease, heartbeat

    def follow(self, answer: protocol.ClaimAnswer | protocol.HeartbeatAnswer | protocol.StartAnswer) -> None:
        """Takes over what an answer says."""
        self.lease, self.heartbeat = float(answer.lease_seconds), float(answer.heartbeat_seconds)

    def trusted_until(self, sent: float) -> float:
        """The end of a lease that was asked for at `sent`, less what it takes to end an attempt before that."""
        return sent + self.lease - min(max(self.lease / 10, 0.5), 5.0)

    @property
    def wait(self) -> float:
        """How long a claim may wait: what it brings has most of its lease before it, as that counts from the sending."""
        return min(20.0, self.lease / 3)


class Attempt:
    """An attempt that this worker has."""

    __slots__ = (
        "begun",
        "deadline",
        "done",
        "ending",
        "held",
        "interrupt",
        "key",
        "kill",
        "reason",
        "run",
        "tail",
        "trusted_until",
    )

    def __init__(self, run: protocol.Run, *, now: float, trusted_until: float) -> None:
        self.run = run
        self.held = protocol.Held(run_id=run.run_id, token=run.token)
        self.key: Key = key_of(self.held)
        self.trusted_until = trusted_until
        self.begun = now
        self.deadline = float("inf") if run.timeout_seconds is None else now + run.timeout_seconds
        self.ending: Ending | None = None
        self.reason: str | None = None
        self.done = False
        """Its handler is: what remains is the report."""
        self.tail = tail.Tail()
        self.interrupt: Callable[[], object] = nothing
        """Asks the handler to end, from any thread."""
        self.kill: Callable[[], object] = nothing
        """Ends the process in which it runs, if it does, from any thread and at once."""

    def end(self, ending: Ending, reason: str | None = None) -> None:
        """Ends it before its handler is done. The first reason stays, unless the attempt is not ours any more."""
        if self.done or (self.ending is not None and ending is not Ending.LOST) or self.ending is Ending.LOST:
            return
        self.ending, self.reason = ending, reason
        if ending is Ending.LOST:
            self.kill()
        self.interrupt()


def named(run: protocol.Run) -> Mapping[str, Any]:
    """The fields of every line about an attempt."""
    return logs.of_run(run.run_id, name=run.name, job=run.job, owner=run.owner, attempt=run.attempt)


def nothing() -> None:
    """For what has no other way to be ended."""


def key_of(held: protocol.Held | protocol.Run | protocol.Renewed | protocol.Reported) -> Key:
    """What an attempt is known by: a run that comes a second time has another token."""
    return held.run_id.int, held.token


class Attempts:
    """All that this worker has, and a memory of what it had, so that nothing that is given twice runs twice."""

    def __init__(self, clock: Clock = boot_time) -> None:
        self.clock = clock
        self.doubtful_until = float("-inf")
        """There may be something that this worker was given and has not heard of."""
        self._held: dict[Key, Attempt] = {}
        self._past: set[Key] = set()
        self._long_past: set[Key] = set()
        self._past_until = float("-inf")

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(tuple(self._held.values()))

    def get(self, key: Key) -> Attempt | None:
        return self._held.get(key)

    def take(self, run: protocol.Run, *, trusted_until: float) -> Attempt | None:
        """The attempt that `run` is, None where it is or was here already."""
        key = key_of(run)
        if key in self._held or key in self._past or key in self._long_past:
            return None
        attempt = Attempt(run, now=self.clock(), trusted_until=trusted_until)
        self._held[key] = attempt
        return attempt

    def listed(self) -> Sequence[protocol.Held]:
        """What is told to the API with each claim and heartbeat."""
        return tuple(attempt.held for attempt in self)

    def doubt(self, wait: float) -> None:
        """A claim that may wait for `wait` seconds was cut off: what it is given may not be known by who is asked next."""
        self.doubtful_until = self.clock() + wait + _SETTLED_SECONDS

    def forget(self, attempt: Attempt) -> bool:
        """It is over: its report was answered, or it is somebody else's. False where it was forgotten before."""
        if self._held.pop(attempt.key, None) is None:
            return False
        now = self.clock()
        if now > self._past_until:
            self._past, self._long_past = set(), self._past
            self._past_until = now + _REMEMBERED_SECONDS
        self._past.add(attempt.key)
        return True

    def lose(self, attempt: Attempt, reason: str) -> None:
        """It is not ours any more: its handler is ended, and nothing is reported."""
        attempt.end(Ending.LOST, reason)
        if self.forget(attempt):
            metrics.WORKER_LOST.inc()
            log.warning("lease_lost", **named(attempt.run), reason=reason, done=attempt.done)

    def goes_on(self, attempt: Attempt) -> bool:
        """Whether it is here, and nothing ends it yet."""
        return attempt.ending is None and self._held.get(attempt.key) is attempt

    def is_trusted(self, attempt: Attempt) -> bool:
        """Whether its lease surely goes on."""
        return attempt.ending is not Ending.LOST and self.clock() < attempt.trusted_until
