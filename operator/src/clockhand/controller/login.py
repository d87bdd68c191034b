"""How kopf reaches the API server: over our own connection, so that there is one way to log in and not two.

Two things happen on the way. Objects nested too deep to be decoded are cut: kopf would end on the first of them, and
again at every new start. And the credentials go into each request as it is sent: kopf would keep a token for as long as
the session lives, and a service account's token is replaced every hour.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import aiohttp
import kopf
import yarl

from clockhand.domain import flat
from clockhand.kube import connection as connections

_UNAUTHORIZED = 401


async def log_in(kubeconfig: str | None, noticed: Callable[[yarl.URL], None]) -> kopf.AiohttpSession:
    """A session for the running event loop; `noticed` is called with the address of every answer but refusals."""
    connection = await connections.find(kubeconfig)
    session = connections.open_session(connection, middlewares=[_Credentials(connection, noticed)])
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


class _Credentials:
    """Puts the current credentials into each request, and asks once more where they had just been replaced."""

    def __init__(self, connection: connections.Connection, noticed: Callable[[yarl.URL], None]) -> None:
        self._connection = connection
        self._noticed = noticed

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await self._send(request, send)
        if response.status == _UNAUTHORIZED and self._connection.bearer is not None:
            response.release()
            self._connection.bearer.discard()
            response = await self._send(request, send)
        if response.ok:
            self._noticed(request.url)
        response.content = cast(aiohttp.StreamReader, _Shallow(response.content))
        return response

    async def _send(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if self._connection.server_name:
            request.server_hostname = self._connection.server_name
        if self._connection.bearer is not None:
            request.headers["Authorization"] = await self._connection.bearer.header()
        return await send(request)


class _Shallow:
    """The content of an answer with deep JSON cut, for the two ways in which kopf reads it."""

    def __init__(self, inner: aiohttp.StreamReader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self) -> bytes:
        """A whole answer: a page of a listing."""
        return flat.flatten(await self._inner.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Whole lines, each one event of a watch."""
        rest: list[bytes] = []
        async for chunk in self._inner.iter_chunked(size):
            *complete, tail = chunk.split(b"\n")
            for line in complete:
                yield flat.flatten(b"".join((*rest, line))) + b"\n"
                rest.clear()
            if tail:
                rest.append(tail)
        if rest:
            yield b"".join(rest)
