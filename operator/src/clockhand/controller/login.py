"""How kopf reaches the API server: over our own connection, so that there is one way to log in and not two.

The credentials go into each request as it is sent. kopf would otherwise keep a token for as long as the session lives,
and a service account's token is replaced every hour.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import kopf

from clockhand.kube import connection as connections

_UNAUTHORIZED = 401


async def log_in(kubeconfig: str | None, noticed: Callable[[], None]) -> kopf.AiohttpSession:
    """A session for the running event loop; `noticed` is called for every answer of the server."""
    connection = await connections.find(kubeconfig)
    session = connections.open_session(connection, middlewares=[_Credentials(connection, noticed)])
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


class _Credentials:
    """Puts the current credentials into each request, and asks once more where they had just been replaced."""

    def __init__(self, connection: connections.Connection, noticed: Callable[[], None]) -> None:
        self._connection = connection
        self._noticed = noticed

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await self._send(request, send)
        if response.status == _UNAUTHORIZED and self._connection.bearer is not None:
            response.release()
            self._connection.bearer.discard()
            response = await self._send(request, send)
        self._noticed()
        return response

    async def _send(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if self._connection.server_name:
            request.server_hostname = self._connection.server_name
        if self._connection.bearer is not None:
            request.headers["Authorization"] = await self._connection.bearer.header()
        return await send(request)
