"""The API as a worker calls it. Each event loop has a client of its own: sessions do not go from thread to thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec
import structlog

from clockhand import calling, errors
from clockhand.domain import protocol
from clockhand.worker import config

_PATIENCE_SECONDS = 15.0
_DETAIL_CHARACTERS = 300
log = structlog.get_logger(__name__)

A = TypeVar("A", bound=protocol.Message)


class Api:
    """The calls of a pool's worker. Of its errors Unavailable and Refused pass, InvalidInput stays."""

    def __init__(self, settings: config.Settings) -> None:
        self._base = f"{settings.api_url}/v1/pools/{settings.pool}"
        self._credential = calling.Credential(token=settings.token, token_file=settings.token_file)
        self.reached = False
        """Whether the last call was answered."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=8, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json"},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def claim(self, request: protocol.ClaimRequest) -> protocol.ClaimAnswer:
        """Waits as long as the request says, and some seconds more for its answer."""
        patience = request.wait_seconds + _PATIENCE_SECONDS
        return await self._call("claim", request, protocol.ClaimAnswer, patience)

    async def heartbeat(self, request: protocol.HeartbeatRequest, *, patience: float) -> protocol.HeartbeatAnswer:
        """Answers within `patience` seconds, or raises Unavailable."""
        return await self._call("heartbeat", request, protocol.HeartbeatAnswer, patience)

    async def report(self, request: protocol.ReportRequest) -> protocol.ReportAnswer:
        """Ends attempts."""
        return await self._call("report", request, protocol.ReportAnswer, _PATIENCE_SECONDS)

    async def start(self, request: protocol.StartRequest) -> protocol.StartAnswer:
        """Presents tokens that came by a message."""
        return await self._call("start", request, protocol.StartAnswer, _PATIENCE_SECONDS)

    async def _call(self, verb: str, request: protocol.Request, answer: type[A], patience: float) -> A:
        try:
            answered = await self._ask(verb, request, answer, patience)
        except (errors.Unavailable, errors.Refused):
            self.reached = False
            raise
        self.reached = True
        return answered

    async def _ask(self, verb: str, request: protocol.Request, answer: type[A], patience: float) -> A:
        try:
            async with self._session.post(
                f"{self._base}/{verb}",
                data=msgspec.json.encode(request),
                headers=self._credential.header(),
                timeout=aiohttp.ClientTimeout(total=patience),
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.Unavailable(f"{verb}: {str(error) or type(error).__name__}") from error
        if response.status != 200:
            problem = calling.problem_of(body)
            said = (problem.detail or problem.title)[:_DETAIL_CHARACTERS]
            raise _error(f"{verb}: {response.status} {said}", response.status, response.headers)
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise errors.Unavailable(f"{verb}: what answers is not the API of Clockhand ({error})") from error


def _error(sentence: str, status: int, headers: Mapping[str, str]) -> errors.ClockhandError:
    if status in (408, 429) or status >= 500:
        return errors.Unavailable(sentence, retry_after=calling.retry_after(headers))
    if status in (400, 413, 422):
        return errors.InvalidInput("", sentence)
    return errors.Refused(sentence)


async def persist(what: str, call: Callable[[], Awaitable[A]]) -> A:
    """Repeats `call` until it is answered, with pauses that grow and differ; InvalidInput is no passing matter."""
    failed = 0
    while True:
        try:
            return await call()
        except (errors.Unavailable, errors.Refused) as error:
            failed += 1
            wait = calling.pause(failed, error)
            log.warning("api_not_reached", call=what, error=str(error), failed=failed, again_in=round(wait, 2))
            await asyncio.sleep(wait)
