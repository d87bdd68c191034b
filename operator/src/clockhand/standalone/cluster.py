"""The process that stands in for a cluster: the small API server, and the node that runs its pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from clockhand import health
from clockhand.engine import loops
from clockhand.standalone import told as tellings
from clockhand.standalone.kube import app, settings
from clockhand.standalone.nodes import kubelet


async def serve(told: tellings.Told, *, environment: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT. Pods find what is in `environment`, but for what is Clockhand's own."""
    stop = loops.stop_on_signals()
    ready = asyncio.Event()
    settled = settings.Settings(
        data_dir=Path(told.data_dir),
        port=told.port,
        certificate=Path(told.certificate),
        key=Path(told.key),
        tokens=told.tokens,
        database_url=told.database_url,
        durable=told.durable,
    )
    made = kubelet.maker(settled.data_dir / "node", environment=environment)
    probes = health.Probes(alive=lambda: True, ready=ready.is_set)
    async with health.served(probes, port=told.health_port, host=settled.host):
        await app.serve(settled, stop, make_kubelet=made, ready=ready.set)
