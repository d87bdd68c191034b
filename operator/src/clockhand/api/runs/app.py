"""The process of the runs API: what it is made of, how it starts, and how it ends without cutting anybody off."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import structlog

from clockhand import config, errors, health, metrics
from clockhand.api import reviews
from clockhand.api.runs import certificates, feed, frontproxy, group, listener, server
from clockhand.engine import loops
from clockhand.kube import aggregation
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database

_LOOK_SECONDS = 30.0
_RETRY_SECONDS = 2.0
# short, for kubectl is waiting: a database that is away is said to be away
_DATABASE_PATIENCE = 3.0
log = structlog.get_logger(__name__)


class RunsApi:
    """The aggregated API for runs over one database and one API server."""

    def __init__(self, settings: config.Settings, db: database.Database, client: clients.Client) -> None:
        self._settings = settings
        self._client = client
        self._gatekeeper = frontproxy.Gatekeeper(reviews.ApiServerReviews(client))
        self._feed = feed.Feed(db)
        app = server.RunsServer(db, self._feed, self._gatekeeper, kept_days=settings.retention_days)
        self.listener = listener.Listener(app.application(), port=settings.runs_port, host=settings.listen)

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set."""
        probes = health.Probes(alive=lambda: True, ready=lambda: self.listener.ready)
        served = health.served(probes, port=self._settings.health_port, host=self._settings.listen)
        async with served, asyncio.TaskGroup() as group_of_tasks:
            tasks = [group_of_tasks.create_task(step) for step in (self._feed.run(), self._trust(), self._certify())]
            await stop.wait()
            self._feed.close()
            for task in tasks:
                task.cancel()
            await self.listener.close()

    async def _trust(self) -> None:
        async for trust in aggregation.front_proxies(self._client):
            self._gatekeeper.trust = trust
            try:
                await self.listener.believe(trust)
            except (OSError, ValueError) as error:
                log.error("front_proxy_ca_unusable", error=str(error))

    async def _certify(self) -> None:
        while True:
            try:
                await self.listener.present(await self._serving())
            except (errors.ClockhandError, OSError, ValueError) as error:
                log.warning("certificate_not_ready", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _serving(self) -> certificates.Serving:
        settings = self._settings
        if settings.runs_tls_cert is not None and settings.runs_tls_key is not None:
            return await asyncio.to_thread(_from_files, settings.runs_tls_cert, settings.runs_tls_key)
        kept = certificates.SecretCertificate(
            self._client, namespace=settings.own_namespace, service=settings.runs_service
        )
        # certificates go by the clock of whoever verifies them, not by the database's
        serving = await kept.current(datetime.now(UTC))
        await aggregation.set_ca_bundle(self._client, group.API_SERVICE, serving.ca)
        return serving


async def serve(settings: config.Settings) -> None:
    """`clockhand api --runs`: runs until SIGTERM or SIGINT."""
    metrics.begin("runs")
    stop = loops.stop_on_signals()
    db = database.Database(
        settings.database_url,
        size=settings.database_pool,
        name="runs",
        options=settings.database_session_options,
        patience=_DATABASE_PATIENCE,
    )
    await db.open()
    try:
        async with clients.connect(await connections.find(settings.kubeconfig)) as client:
            await RunsApi(settings, db, client).run(stop)
    finally:
        await db.close()


def _from_files(certificate: str, key: str) -> certificates.Serving:
    return certificates.Serving(Path(certificate).read_bytes(), Path(key).read_bytes(), b"")
