"""One call to the API server: sent once, in limited time, the answer turned into a value or an error of ours.

The official client costs three to ten times the CPU per pod; a launcher that has to start thousands in a
minute cannot afford it. So this speaks HTTP itself, and leaves the meaning of paths to the modules beside
it.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import urllib.parse

import aiohttp
import msgspec
import yarl

from clockhand import errors, metrics
from clockhand.kube import connection as connections
from clockhand.kube import failures, flow, streams

METADATA_ONLY: collections.abc.Mapping[str, str] = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
MERGE_PATCH: collections.abc.Mapping[str, str] = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH: collections.abc.Mapping[str, str] = {"Content-Type": "application/json-patch+json"}
_JSON = "application/json"
_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=connections.CONNECT_TIMEOUT_SECONDS)

Query = collections.abc.Mapping[str, str]
_NO_HEADERS: collections.abc.Mapping[str, str] = {}


def always() -> bool:
    return True


class Client:
    """A session, an identity and the flow of writes. Made by `connect`; one per event loop."""

    def __init__(
        self, session: aiohttp.ClientSession, connection: connections.Connection, gate: flow.WriteGate
    ) -> None:
        self.gate = gate
        self._session = session
        self._connection = connection

    def capacity(self) -> int:
        """How many writes could start now; the dispatcher claims no more than that."""
        return self.gate.capacity()

    async def get(self, path: str, *, query: Query | None = None, accept: str = _JSON) -> bytes:
        return await self._exchange("GET", path, query=query, headers={"Accept": accept})

    async def write(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        query: Query | None = None,
        headers: collections.abc.Mapping[str, str] = _NO_HEADERS,
        still: collections.abc.Callable[[], bool] = always,
    ) -> bytes:
        """POST, PATCH, PUT or DELETE through the flow.

        `still` is asked last of all, after any wait for the flow; where it says no, `Stale` is raised and nothing sent.
        """
        async with self.gate.permit() as permit:
            if not still():
                raise errors.Stale("the right to make this call ended while it waited")
            try:
                answer = await self._exchange(
                    method, path, body=body, query=query, headers={"Accept": _JSON, "Content-Type": _JSON, **headers}
                )
            except errors.Unavailable as error:
                permit.overloaded(error.retry_after)
                raise
            except failures.Unsettled as error:
                permit.overloaded(error.retry_after)
                raise
            except errors.ClockhandError:
                permit.succeeded()
                raise
            permit.succeeded()
            return answer

    async def ask(self, path: str, body: bytes, *, query: Query | None = None) -> bytes:
        """A POST that stores nothing (a review, a dry run): not in the flow, and safe to repeat."""
        headers = {"Content-Type": _JSON}
        return await self._exchange("POST", path, body=body, query=query, headers=headers, stores=False)

    async def aside(
        self, method: str, path: str, body: bytes, *, headers: collections.abc.Mapping[str, str] = _NO_HEADERS
    ) -> None:
        """A write that may be lost and may be repeated: it does not wait for the flow, and nothing is told of its load."""
        accepted = {"Content-Type": _JSON, **METADATA_ONLY, **headers}
        await self._exchange(method, path, body=body, headers=accepted, stores=False)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None
    ) -> collections.abc.AsyncIterator[aiohttp.ClientResponse]:
        """A GET whose answer is read piece by piece; only its beginning has a time limit."""
        headers = await self._headers({})
        with _reading(), _counting("WATCH" if query and "watch" in query else "GET") as code:
            async with asyncio.timeout(connections.CALL_TIMEOUT_SECONDS):
                response = await self._session.get(
                    self._url(path, query),
                    headers=headers,
                    timeout=_STREAM_TIMEOUT,
                    server_hostname=self._connection.server_name,
                )
            code.append(str(response.status))
        try:
            if response.status >= 400:
                raise await self._failure(response, write=False)
            with _reading():
                yield response
        finally:
            _drop(response)

    async def watch(self, path: str, query: Query, patience: streams.Patience) -> collections.abc.AsyncGenerator[bytes]:
        """The lines of a watch. Ends when the server ends it; raises `Stalled` on silence."""
        async with (
            self.stream(path, query=query) as response,
            contextlib.aclosing(streams.lines(response.content, patience)) as lines,
        ):
            async for line in lines:
                yield line

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: bytes | None = None,
        query: Query | None = None,
        stores: bool = True,
    ) -> bytes:
        write = stores and method != "GET"
        headers = await self._headers(headers)
        with _sending() if write else _reading(), _counting(method) as code:
            async with self._session.request(
                method,
                self._url(path, query),
                data=body,
                headers=headers,
                server_hostname=self._connection.server_name,
            ) as response:
                code.append(str(response.status))
                if response.status < 400:
                    return await response.read()
                failure = await self._failure(response, write=write)
        raise failure

    async def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        if self._connection.bearer is not None:
            headers["Authorization"] = await self._connection.bearer.header()
        return headers

    def _url(self, path: str, query: Query | None) -> yarl.URL:
        target = f"{self._connection.server}{path}"
        return yarl.URL(f"{target}?{urllib.parse.urlencode(query)}" if query else target, encoded=True)

    async def _failure(self, response: aiohttp.ClientResponse, *, write: bool) -> errors.ClockhandError:
        if response.status == 401 and self._connection.bearer is not None:
            self._connection.bearer.discard()
        status = failures.read_status(response.status, await response.read())
        return failures.translate(status, write=write, retry_after=_retry_after(response, status))


@contextlib.asynccontextmanager
async def connect(
    connection: connections.Connection,
    settings: flow.FlowSettings | None = None,
    *,
    call_seconds: float = connections.CALL_TIMEOUT_SECONDS,
) -> collections.abc.AsyncIterator[Client]:
    """A client for the running event loop."""
    async with connections.open_session(connection, call_seconds) as session:
        yield Client(session, connection, flow.WriteGate(settings or flow.FlowSettings()))


def _drop(response: aiohttp.ClientResponse) -> None:
    """Break the connection of an answer that was not read to its end: a dead server would never agree to close it."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def path_part(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    return urllib.parse.quote(name, safe="")


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


@contextlib.contextmanager
def _counting(verb: str) -> collections.abc.Iterator[list[str]]:
    """Counts a call by the code that its sender leaves in the list; without one there was no answer."""
    code: list[str] = []
    try:
        yield code
    finally:
        metrics.KUBE_REQUESTS.labels(verb=verb, code=code[0] if code else "none").inc()


@contextlib.contextmanager
def _reading() -> collections.abc.Iterator[None]:
    """A read that failed can be repeated, whatever happened to it."""
    try:
        yield
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise errors.Unavailable(f"the API server did not answer: {_said(error)}") from error


@contextlib.contextmanager
def _sending() -> collections.abc.Iterator[None]:
    """Only a failure to connect proves that a write was not carried out."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise errors.Unavailable(f"the API server cannot be reached: {_said(error)}") from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise failures.Unsettled(f"the API server's answer was lost: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_after(response: aiohttp.ClientResponse, status: failures.Status) -> float | None:
    header = response.headers.get("Retry-After", "")
    if header.isascii() and header.isdigit():
        return float(header)
    seconds = status.details.retry_after_seconds if status.details else 0
    return float(seconds) if seconds > 0 else None
