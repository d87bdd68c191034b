"""`/healthz`, `/readyz` and `/metrics`, on a port of their own: no tenant's data, no credentials, bounded labels."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

import prometheus_client
from aiohttp import web


@dataclasses.dataclass(frozen=True, slots=True)
class Probes:
    """`alive`: restart this process where it says no. `ready`: it does its work now."""

    alive: Callable[[], bool]
    ready: Callable[[], bool]


@contextlib.asynccontextmanager
async def served(probes: Probes, *, port: int, host: str | None = None) -> AsyncIterator[None]:
    """Serves the probes at `host`, by default on all addresses, for the length of the block."""
    app = web.Application()
    app.router.add_get("/healthz", _probe(probes.alive))
    app.router.add_get("/readyz", _probe(probes.ready))
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host=host, port=port).start()
        yield
    finally:
        await runner.cleanup()


def _probe(answer: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.Response:
        good = answer()
        return web.Response(text="ok\n" if good else "not yet\n", status=200 if good else 503)

    return handle


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(
        body=prometheus_client.generate_latest(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
    )
