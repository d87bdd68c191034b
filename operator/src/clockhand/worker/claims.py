"""The way in: one claim at a time, for as many runs as there are free places."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Sequence

import msgspec

from clockhand import errors
from clockhand.domain import protocol
from clockhand.worker import client, runner
from clockhand.worker.attempts import Attempts, Rhythm

_LAST_SECONDS = 5.0
_BESIDE_SECONDS = 5.0
"""Between claims that find nothing, where runs come by messages."""


class Claims:
    """Asks for runs until it is cancelled; `give_back` then settles what was asked for last.

    `beside`: runs come by messages as well, and a claim waits for others only while claims bring some, which they do when
    messages do not.
    """

    def __init__(
        self,
        api: client.Api,
        runner: runner.Runner,
        *,
        attempts: Attempts,
        rhythm: Rhythm,
        worker: str,
        beside: bool = False,
    ) -> None:
        self._api = api
        self._runner = runner
        self._attempts = attempts
        self._rhythm = rhythm
        self._worker = worker
        self._beside = beside
        self._handlers: Sequence[str] = tuple(sorted(runner.calls))
        self._open: protocol.ClaimRequest | None = None

    async def run(self) -> None:
        """Claims, and takes what it gets."""
        brought = False
        while True:
            free = await self._runner.places()
            # at first without: is there an API, and what is its rhythm?
            wait = self._rhythm.wait if self._api.reached and (brought or not self._beside) else 0.0
            request = protocol.ClaimRequest(
                request_id=uuid.uuid4(),
                worker=self._worker,
                handlers=tuple(self._handlers),
                max=free,
                wait_seconds=wait,
                held=tuple(self._attempts.listed()[: protocol.MAX_RUNS]),
            )
            began = self._attempts.clock()
            brought = await self._claim(request)
            if not brought and self._beside:
                await asyncio.sleep(random.uniform(0.8, 1.2) * _BESIDE_SECONDS)
            elif not brought and self._attempts.clock() - began < wait / 2:
                # an API that answers at once and with nothing is about to stop
                await asyncio.sleep(random.uniform(0.5, 1.5))

    async def give_back(self) -> None:
        """Asks again, without waiting, what a claim that was cut off would have brought: nobody here will run it."""
        if self._open is None:
            return
        request = msgspec.structs.replace(self._open, wait_seconds=0.0, repeated=True)
        with contextlib.suppress(errors.ClockhandError, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                answer = await self._api.claim(request)
                self._runner.take(answer.runs, self._attempts.clock())

    async def _claim(self, request: protocol.ClaimRequest) -> bool:
        """One claim, repeated until it is answered; whether it brought something."""
        clock = self._attempts.clock
        tries = []

        async def ask() -> protocol.ClaimAnswer:
            tries.append(clock())
            return await self._api.claim(msgspec.structs.replace(request, repeated=len(tries) > 1))

        self._open = request
        answer = await client.persist("claim", ask)
        self._open = None
        self._rhythm.follow(answer)
        if len(tries) > 1:
            self._attempts.doubt(request.wait_seconds)
        self._runner.take(answer.runs, tries[-1], unsure=len(tries) > 1)
        return bool(answer.runs)
