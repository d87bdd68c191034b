"""How answers reach their clients: none is kept in memory for one that does not take it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from clockhand import metrics
from clockhand.api.rest import routes

_LARGE_BYTES = 65_536
"""What is smaller fits in the buffers of a connection, and is off our hands at once."""
_MEBIBYTE = 1_048_576
_encode = msgspec.json.Encoder().encode


async def whole(request: web.BaseRequest, answer: routes.Answer, *, seconds: float) -> web.StreamResponse:
    """An answer; one that is large has `seconds` to be taken, and as many more for each MiB of it."""
    if answer.body is None:
        return web.Response(status=answer.status, headers=answer.headers)
    body = _encode(answer.body)
    response = web.Response(status=answer.status, body=body, headers={"Content-Type": routes.JSON, **answer.headers})
    if len(body) > _LARGE_BYTES:
        async with _taken(request, seconds * (1 + len(body) / _MEBIBYTE)):
            await response.prepare(request)
            await response.write_eof()
    return response


async def stream(request: web.BaseRequest, answer: routes.Stream, *, seconds: float) -> web.StreamResponse:
    """An answer piece by piece, each taken within `seconds`."""
    # proxies that gather what they pass on would keep news from their reader
    headers = {"Content-Type": answer.media_type, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    async with contextlib.aclosing(answer.chunks) as chunks:
        if request.method != "HEAD":
            async for chunk in chunks:
                async with _taken(request, seconds):
                    await response.write(chunk)
    return response


@contextlib.asynccontextmanager
async def _taken(request: web.BaseRequest, seconds: float) -> AsyncIterator[None]:
    """Ends the connection where the block is not done in time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        metrics.REST_ABANDONED.inc()
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not take its answer") from None
