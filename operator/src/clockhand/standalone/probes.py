"""`/healthz`, `/readyz` and `/metrics` of the whole tree: the metrics of its processes, each labelled with its name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

import aiohttp
import prometheus_client
from aiohttp import web
from prometheus_client import parser, registry
from prometheus_client.core import Metric

_LOOPBACK = "127.0.0.1"
_ASK_SECONDS = 5.0


class Probes:
    """What is answered of processes that serve probes of their own, at `ports`; `unready` names what is not ready yet."""

    def __init__(
        self, session: aiohttp.ClientSession, ports: Mapping[str, int], *, unready: Callable[[], Sequence[str]]
    ) -> None:
        self._session = session
        self._ports = ports
        self._unready = unready

    async def healthz(self, _: web.Request) -> web.Response:
        """This process lives; it looks after the others."""
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """Whether everything is ready."""
        missing = self._unready()
        return web.Response(
            text=f"not yet: {', '.join(missing)}\n" if missing else "ok\n", status=503 if missing else 200
        )

    async def metrics(self, _: web.Request) -> web.Response:
        """Of all processes that answer."""
        texts = await asyncio.gather(*(self._told(port) for port in self._ports.values()))
        told = registry.CollectorRegistry(auto_describe=False)
        told.register(_Told(dict(zip(self._ports, texts, strict=True))))
        return web.Response(
            body=prometheus_client.generate_latest(told),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )

    async def _told(self, port: int) -> str:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
            async with self._session.get(f"http://{_LOOPBACK}:{port}/metrics", timeout=timeout) as answer:
                return await answer.text()
        return ""


class _Told(registry.Collector):
    """Metrics that several processes told, as one text has them: each once, with the samples of all."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        merged: dict[str, Metric] = {}
        for part, text in self._texts.items():
            for family in parser.text_string_to_metric_families(text):
                kept = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                kept.samples += [one._replace(labels={**one.labels, "part": part}) for one in family.samples]
        yield from merged.values()


@contextlib.asynccontextmanager
async def served(probes: Probes, *, port: int) -> AsyncIterator[None]:
    """Serves the probes on loopback for the length of the block."""
    app = web.Application()
    for name in ("healthz", "readyz", "metrics"):
        app.router.add_get(f"/{name}", getattr(probes, name))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host=_LOOPBACK, port=port).start()
        yield
    finally:
        await runner.cleanup()
