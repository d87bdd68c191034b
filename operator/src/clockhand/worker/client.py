"""The API as a worker calls it. Each event loop has a client of its own: sessions do not go from thread to thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec
import structlog

from clockhand import errors
from clockhand.domain import protocol
from clockhand.worker import config

_PATIENCE_SECONDS = 15.0
_TOKEN_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_DETAIL_CHARACTERS = 300
log = structlog.get_logger(__name__)

A = TypeVar("A", bound=protocol.Message)


class _Problem(msgspec.Struct, frozen=True):
    title: str = ""
    detail: str = ""


class Credential:
    """The token, read again every few seconds where it is in a file: projected ones are replaced in their place."""

    def __init__(self, settings: config.Settings) -> None:
        self._file = None if settings.token_file is None else Path(settings.token_file)
        self._token = settings.token or ""
        self._read_at = float("-inf")

    def header(self) -> Mapping[str, str]:
        """The header that carries it; raises Refused where the file cannot be read."""
        now = time.monotonic()
        if self._file is not None and now - self._read_at > _TOKEN_SECONDS:
            try:
                self._token = self._file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise errors.Refused(f"the token file cannot be read: {error}") from error
            self._read_at = now
        return {"Authorization": f"Bearer {self._token}"}


class Api:
    """The calls of a pool's worker. Of its errors Unavailable and Refused pass, InvalidInput stays."""

    def __init__(self, settings: config.Settings) -> None:
        self._base = f"{settings.api_url}/v1/pools/{settings.pool}"
        self._credential = Credential(settings)
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
            raise _error(f"{verb}: {response.status} {_detail(body)}", response.status, response.headers)
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise errors.Unavailable(f"{verb}: what answers is not the API of Clockhand ({error})") from error


def _error(sentence: str, status: int, headers: Mapping[str, str]) -> errors.ClockhandError:
    if status in (408, 429) or status >= 500:
        return errors.Unavailable(sentence, retry_after=_seconds(headers.get("Retry-After")))
    if status in (400, 413, 422):
        return errors.InvalidInput("", sentence)
    return errors.Refused(sentence)


def _detail(body: bytes) -> str:
    with contextlib.suppress(msgspec.DecodeError):
        problem = msgspec.json.decode(body, type=_Problem)
        return (problem.detail or problem.title)[:_DETAIL_CHARACTERS]
    return ""


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


async def persist(what: str, call: Callable[[], Awaitable[A]]) -> A:
    """Repeats `call` until it is answered, with pauses that grow and differ; InvalidInput is no passing matter."""
    failed = 0
    while True:
        try:
            return await call()
        except (errors.Unavailable, errors.Refused) as error:
            failed += 1
            wait = pause(failed, error)
            log.warning("api_not_reached", call=what, error=str(error), failed=failed, again_in=round(wait, 2))
            await asyncio.sleep(wait)


def pause(failed: int, error: errors.ClockhandError | None = None, *, longest: float = _LONGEST_PAUSE) -> float:
    """Seconds before the next try: half to whole of a pause that doubles, and not before `retry_after`."""
    grown = min(_FIRST_PAUSE * 2.0 ** min(failed, 10), longest) * random.uniform(0.5, 1.0)
    asked = error.retry_after if isinstance(error, errors.Unavailable) else None
    return grown if asked is None else max(asked * random.uniform(1.0, 1.2), grown)
