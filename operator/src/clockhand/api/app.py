"""The API process: what it is made of, how it starts, and how it ends without cutting anybody off."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator

import structlog

from clockhand import collector, config, health, metrics
from clockhand.api import auth, pools, reviews, server
from clockhand.api.rest import app as rest
from clockhand.domain import protocol
from clockhand.engine import limits, loops, schema
from clockhand.engine.pools import kafka, service
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database

# a worker that is told at once comes again at once; one that is kept waiting holds its reports back
_DATABASE_PATIENCE = 3.0
_OTHER_FILES = 1_024
log = structlog.get_logger(__name__)


class Api:
    """The API for workers over `db`, and REST over `rest_db`. Without `asked` static tokens alone count."""

    def __init__(
        self,
        settings: config.Settings,
        db: database.Database,
        rest_db: database.Database,
        asked: reviews.Reviews | None,
        file: limits.LimitsFile,
    ) -> None:
        self._settings = settings
        self._db = db
        self._pools = service.Pools(
            db,
            replica=settings.replica,
            lease=settings.shard_lease,
            limits=file,
            kafka=kafka.Publisher(settings, partitions=settings.kafka_partitions),
        )
        self._gate = auth.Gate(db, asked)
        # a gate of its own, so that who tries tokens on REST keeps no worker waiting
        self._rest = rest.Rest(
            settings,
            rest_db,
            gate=auth.Gate(rest_db, asked),
            asked=asked,
            limits=file,
            changed=self._pools.changed,
        )
        self._serving = False

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set.

        Then claims that wait are answered, what is under way is finished, and only after that the engine below ends: it
        is what stores reports.
        """
        probes = health.Probes(alive=self._pools.alive, ready=lambda: self._serving and self._pools.ready())
        async with health.served(probes, port=self._settings.health_port, host=self._settings.listen):
            await schema.until_it_fits(self._db, stop)
            if not stop.is_set():
                await self._serve(stop)

    async def _serve(self, stop: asyncio.Event) -> None:
        served = asyncio.Event()
        async with asyncio.TaskGroup() as tasks, self._rest.running() as front:
            tasks.create_task(self._pools.run(served))
            heeding = tasks.create_task(self._rest.room.heed())
            face = server.Server(self._gate, pools.PoolCalls(self._pools), front)
            try:
                async with server.served(face, port=self._settings.api_port, host=self._settings.listen) as port:
                    log.info("api_served", port=port)
                    self._serving = True
                    await stop.wait()
                    self._serving = False
                    self._rest.end_streams()
                    self._pools.desk.close()
            finally:
                heeding.cancel()
                served.set()


async def serve(settings: config.Settings) -> None:
    """`clockhand api`: runs until SIGTERM or SIGINT."""
    metrics.begin("api")
    collector.rarely()
    stop = loops.stop_on_signals()
    _allow_connections(pools.MOST_WAITING)
    file = limits.LimitsFile(settings.limits)
    db = database.Database(
        settings.database_url,
        size=settings.database_pool,
        name="api",
        options=settings.database_session_options,
        patience=_DATABASE_PATIENCE,
    )
    rest_db = rest.database_of(settings)
    await db.open()
    await rest_db.open()
    try:
        async with _reviews(settings.kubeconfig) as asked:
            await Api(settings, db, rest_db, asked, file).run(stop)
    finally:
        await rest_db.close()
        await db.close()


def _allow_connections(count: int) -> None:
    """Raises the soft limit of open files, which is often 1,024, as far as the hard one lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextlib.asynccontextmanager
async def _reviews(kubeconfig: str | None) -> AsyncIterator[reviews.Reviews | None]:
    connection = await connections.find_if_any(kubeconfig)
    if connection is None:
        log.info("no_cluster", tokens="static tokens alone")
        yield None
        return
    async with clients.connect(connection) as client:
        yield reviews.ApiServerReviews(client, (protocol.AUDIENCE,))
