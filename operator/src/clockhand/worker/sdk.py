"""What a handler sees: the run it is for, and the ways to say how it went."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import protocol

Beat = Callable[[], concurrent.futures.Future[None]]


class Fail(Exception):
    """Raised by a handler: another attempt would not help. The run is Dead at once."""

    def __init__(self, message: str = "", *, error: str = "Fail") -> None:
        super().__init__(message)
        self.error = error
        """The name by which `retry.rules` know it."""


class RetryAfter(Exception):
    """Raised by a handler: this attempt failed, and the next one comes in `seconds`, whatever the back-off says."""

    def __init__(self, seconds: float, message: str = "", *, error: str = "RetryAfter") -> None:
        super().__init__(message)
        self.seconds = seconds
        self.error = error


class Run:
    """The run that a handler is called for."""

    __slots__ = ("_beat", "_is_ours", "_run")

    def __init__(self, run: protocol.Run, *, is_ours: Callable[[], bool], beat: Beat) -> None:
        self._run = run
        self._is_ours = is_ours
        self._beat = beat

    @property
    def id(self) -> str:
        """The run's id: the same for each of its attempts, and so the key for doing its effects once."""
        return str(self._run.run_id)

    @property
    def name(self) -> str:
        return self._run.name

    @property
    def job(self) -> str:
        return self._run.job

    @property
    def owner(self) -> str:
        """`k8s/<namespace>` or `rest/<tenant>`."""
        return self._run.owner

    @property
    def handler(self) -> str:
        return self._run.handler

    @property
    def scheduled_at(self) -> datetime:
        return self._run.scheduled_at

    @property
    def attempt(self) -> int:
        """Counted from 1 over all attempts of the run."""
        return self._run.attempt

    @property
    def fencing_token(self) -> int:
        """A number that grows with each claim: a store that keeps the largest one it saw can refuse a late writer."""
        return self._run.fencing_token

    @property
    def payload(self) -> Any:
        return msgspec.json.decode(self._run.payload)

    @property
    def stopping(self) -> bool:
        """Whether the attempt is to end: what a thread can look at, since nobody can end it from outside."""
        return not self._is_ours()

    async def heartbeat(self) -> None:
        """Asks the API whether this attempt still counts, and renews its lease; raises Stale where it is to end.

        While the API does not answer it waits, at the longest until the lease is lost.

        Leases are renewed without it. It is for the moment before an effect that must not happen twice.
        """
        await asyncio.wrap_future(self._beat())
        self._check()

    def heartbeat_sync(self) -> None:
        """The same, for handlers that are no coroutines."""
        self._beat().result()
        self._check()

    def _check(self) -> None:
        if self.stopping:
            raise errors.Stale("this attempt is to end: it was stopped, or its lease was lost")
