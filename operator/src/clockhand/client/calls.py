"""HTTP as a client of the API needs it: each call may be sent again, so that nobody has to ask whether it was done.

Calls that read can be repeated, and so can those that put a job into a state; those that make something carry a key by
which the API knows them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Protocol, Self, TypeVar

import aiohttp
import msgspec

from clockhand import calling, errors
from clockhand.client import config

JSON = "application/json"
_PROBLEM = "application/problem+json"
_SECONDS, _CONNECT_SECONDS = 60.0, 5.0
_SILENCE_SECONDS = 45.0
"""A stream says that it is there more often than that."""
_LINE_BYTES = 1_048_576

Query = Mapping[str, str | int | Sequence[str] | None]
"""Parameters; None is left out, those of a sequence come one by one."""
_NOT_NOW = (408, 429, 502, 503, 504)
_KINDS: Mapping[int, Callable[[str], errors.ClockhandError]] = {
    401: errors.Refused,
    403: errors.Refused,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Changed,
    500: errors.Uncertain,
}
T = TypeVar("T")
S = TypeVar("S", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked for."""

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered: a success."""

    body: bytes
    headers: Mapping[str, str]

    def read(self, form: type[T]) -> T:
        """The body as `form`."""
        return read(self.body, form)


class Page(Protocol[S]):
    """Some of many, and the cursor of those after them."""

    @property
    def items(self) -> Sequence[S]: ...
    @property
    def next(self) -> str | None: ...


@dataclass(slots=True)
class _Sent:
    """How often a call went out, with what the session repeats by itself."""

    times: int = 0


class HasId(Protocol):
    """A job or a run that was read."""

    @property
    def id(self) -> uuid.UUID: ...


class Calls:
    """The calls to one API. A call is repeated for `patience` seconds while the API is not there or has no time."""

    def __init__(self, settings: config.Settings, *, namespace: str | None, patience: float) -> None:
        self._base = settings.api_url
        self._credential = calling.Credential(token=settings.token, token_file=settings.token_file)
        self._namespace = namespace
        self._patience = patience
        self.reached = False
        """Whether any call was answered."""

    async def __aenter__(self) -> Self:
        traced = aiohttp.TraceConfig()
        traced.on_request_headers_sent.append(_count)
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_LINE_BYTES, trace_configs=[traced]
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def within(self, namespace: str) -> Calls:
        """The same, acting in another namespace."""
        other = copy.copy(self)
        other._namespace = namespace
        return other

    async def get(self, path: str, query: Query | None = None) -> Answer:
        """Reads."""
        return await self.ask(Call(method="GET", path=path, query=query or {}))

    async def post(self, path: str, body: object = None, *, key: str | None = None) -> Answer:
        """Asks for something to be done, once: under `key`, or one of its own."""
        headers = {"Content-Type": JSON, "Idempotency-Key": key or uuid.uuid4().hex}
        return await self.ask(Call(method="POST", path=path, body=encoded(body), headers=headers))

    async def walk(self, path: str, form: type[Page[T]], query: Query) -> AsyncIterator[T]:
        """Every item, page by page."""
        cursor: str | None = None
        while True:
            page = (await self.get(path, {**query, "cursor": cursor})).read(form)
            for item in page.items:
                yield item
            if page.next is None:
                return
            cursor = page.next

    async def ask(self, call: Call) -> Answer:
        """Sends until it is answered; raises what the answer says where that is no success."""
        sent = _Sent()
        return await self._persist(lambda: self._send(call, sent))

    @contextlib.asynccontextmanager
    async def listen(self, call: Call, *, patience: float | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on, until it breaks off; `patience` in seconds, by default that of all calls."""
        response = await self._persist(lambda: self._open(call), patience=patience)
        try:
            yield _lines(response)
        finally:
            response.close()

    async def _persist(self, send: Callable[[], Awaitable[T]], *, patience: float | None = None) -> T:
        ends, failed = time.monotonic() + (self._patience if patience is None else patience), 0
        while True:
            try:
                return await send()
            except errors.Unavailable as error:
                failed += 1
                wait = calling.pause(failed, error)
                if time.monotonic() + wait > ends:
                    raise
            await asyncio.sleep(wait)

    async def _send(self, call: Call, sent: _Sent) -> Answer:
        within = aiohttp.ClientTimeout(total=_SECONDS, connect=_CONNECT_SECONDS)
        try:
            async with await self._request(call, within, sent) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._lost(error) from error
        if 200 <= response.status < 300:
            return Answer(body, response.headers)
        # what was sent before may have been done, and its answer lost
        if sent.times > 1 and call.method == "DELETE" and response.status == http.HTTPStatus.NOT_FOUND:
            return Answer(b"", response.headers)
        if sent.times > 1 and response.status == http.HTTPStatus.PRECONDITION_FAILED:
            raise errors.Uncertain("the change may have been made, or somebody else's: read the job again")
        raise error_of(response.status, body, response.headers)

    async def _open(self, call: Call) -> aiohttp.ClientResponse:
        within = aiohttp.ClientTimeout(connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS)
        try:
            response = await self._request(call, within, _Sent())
            if response.status != http.HTTPStatus.OK:
                raise error_of(response.status, await response.read(), response.headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._lost(error) from error
        return response

    async def _request(self, call: Call, within: aiohttp.ClientTimeout, sent: _Sent) -> aiohttp.ClientResponse:
        response = await self._session.request(
            call.method,
            self._base + call.path,
            params=list(_pairs({"namespace": self._namespace, **call.query})),
            data=call.body or None,
            headers={**self._credential.header(), **call.headers},
            timeout=within,
            allow_redirects=False,
            trace_request_ctx=sent,
        )
        self.reached = True
        return response

    def _lost(self, error: Exception) -> errors.Unavailable:
        return errors.Unavailable(f"cannot reach {self._base}: {str(error) or type(error).__name__}")


async def _count(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.times += 1


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):  # ValueError: an endless line
        async for line in response.content:
            yield line


def _pairs(query: Query) -> Iterator[tuple[str, str]]:
    for name, value in query.items():
        if value is None:
            continue
        for one in [value] if isinstance(value, str | int) else value:
            yield name, str(one)


def read(text: bytes, form: type[T]) -> T:
    """What the API wrote; raises Unavailable where it did not."""
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.DecodeError as error:
        raise errors.Unavailable(f"what answers is not the API of Clockhand ({error})") from error


def id_of(thing: HasId | uuid.UUID | str) -> uuid.UUID:
    """The id of what was read, or the one that was written; raises InvalidInput for what is none."""
    if isinstance(thing, uuid.UUID):
        return thing
    if not isinstance(thing, str):
        return thing.id
    try:
        return uuid.UUID(thing)
    except ValueError:
        raise errors.InvalidInput("", f"{thing!r} is no id: find() takes a name") from None


def encoded(body: object) -> bytes:
    """JSON; raises InvalidInput for what has no such form."""
    if body is None:
        return b""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidInput("", f"cannot be written as JSON: {error}") from None


def error_of(status: int, body: bytes, headers: Mapping[str, str]) -> errors.ClockhandError:
    """The error that a failure stands for."""
    if headers.get("Content-Type", "").partition(";")[0] != _PROBLEM:
        return errors.Unavailable(f"what answers is not the API of Clockhand: it says {status} without a reason")
    problem = calling.problem_of(body)
    said = problem.detail or problem.title
    asked = calling.retry_after(headers)
    if status in _NOT_NOW or (status == http.HTTPStatus.CONFLICT and asked is not None):
        return errors.Unavailable(said, retry_after=asked)
    if status in _KINDS:
        return _KINDS[status](said)
    if len(problem.errors) == 1:
        mistake = problem.errors[0]
        return errors.InvalidInput(mistake.parameter or mistake.pointer, mistake.detail)
    return errors.InvalidInput("", said)
