"""The HTTP face of the API: what every request passes through, once each and no more.

It stands on aiohttp's bare server: its router and middlewares would cost as much as all that is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import Counter

from clockhand import errors, metrics, tracing
from clockhand.api import auth, bodies, pools, problems
from clockhand.api.rest import front
from clockhand.domain import protocol

_IDLE_SECONDS = 75.0
"""A connection without a whole request is closed then, whether nothing comes or its header never ends."""
_SHUTDOWN_SECONDS = 4.0
"""For requests to finish, and once more for those that were told to."""
_JSON = "application/json"
# of requests that are no HTTP it would write the header at fault, which may hold a token
_silent = logging.getLogger("clockhand.api.http")
_silent.disabled = True
log = structlog.get_logger(__name__)


class Server:
    """Names the caller, reads the body, and turns what happens into an answer."""

    def __init__(
        self,
        gate: auth.Gate,
        calls: pools.PoolCalls,
        rest: front.Front,
        *,
        body_seconds: float = bodies.READ_SECONDS,
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._rest = rest
        self._body_seconds = body_seconds

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Any request. Every failure is a problem document, and every answer is counted."""
        target = pools.target_of(request.path)
        answer: Awaitable[web.StreamResponse]
        if target is not None:
            name, answer = target.call, self._of_pool(request, target)
        else:
            name, answering = self._rest.find(request.method, request.path)
            answer = answering(request)
        if tracing.on() and target is None:
            response = await _traced(name, request, answer)
        else:
            response = await _answered(request, answer)
        _counter(name, response.status).inc()
        return response

    async def _of_pool(self, request: web.BaseRequest, target: pools.Target) -> web.StreamResponse:
        if request.method != "POST":
            raise problems.Problem(
                405, f"{request.method} is not supported here: send POST", headers=[("Allow", "POST")]
            )
        caller = await self._gate.caller(request.headers.get("Authorization"))
        pool = await self._calls.admit(caller, target)
        body = await bodies.read(request, seconds=self._body_seconds)
        return web.Response(body=await self._calls.answer(pool, target, body), content_type=_JSON)


async def _answered(request: web.BaseRequest, answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    try:
        return await answer
    except problems.Problem as problem:
        return problem.response()
    except errors.ClockhandError as error:
        return problems.of_error(error).response()
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("request_failed", method=request.method, path=request.path)
        return problems.Problem(500, "an internal error occurred; the server's log has more").response()


async def _traced(name: str, request: web.BaseRequest, answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    told = {"http.request.method": request.method, "http.route": name}
    with tracing.inside(f"REST {name}", request.headers.get("traceparent"), told) as span:
        response = await _answered(request, answer)
        span.set_attribute("http.response.status_code", response.status)
        return response


@functools.cache
def _counter(route: str, status: int) -> Counter:
    return metrics.API_REQUESTS.labels(route, str(status))


def _request(message: Any, payload: Any, connection: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, connection, writer, task, loop, client_max_size=protocol.MAX_BODY_BYTES)


@contextlib.asynccontextmanager
async def served(server: Server, *, port: int, host: str | None = None) -> AsyncIterator[int]:
    """Serves for the length of the block, at the port that comes out; at its end requests may finish, for some seconds.

    A client that goes away ends what was done for it: its claim must not be given runs.
    """
    bare = web.Server(
        server.handle,
        request_factory=_request,
        handler_cancellation=True,
        access_log=None,
        logger=_silent,
        keepalive_timeout=_IDLE_SECONDS,
    )
    runner = web.ServerRunner(bare, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host=host, port=port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
