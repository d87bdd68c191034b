"""The process of the small API server: what it is made of, how it starts and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from clockhand.api.runs import feed, frontproxy
from clockhand.api.runs import server as runs
from clockhand.standalone.kube import accounts, calls, housekeeping, objects, seeds, server
from clockhand.standalone.kube import settings as settled
from clockhand.standalone.kube import store as stores
from clockhand.store import database

_SHUTDOWN_SECONDS = 2.0
_DATABASE_PATIENCE = 3.0
MakeKubelet = Callable[[stores.Store, accounts.Accounts], settled.Kubelet]


async def serve(
    settings: settled.Settings, stop: asyncio.Event, *, make_kubelet: MakeKubelet, ready: Callable[[], None]
) -> None:
    """Serves objects and runs until `stop` is set, and lets a kubelet run the pods; `ready` is called once it does."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = stores.Store(settings.data_dir / "objects.sqlite", durable=settings.durable)
    known = accounts.Accounts(store, settings.tokens, accounts.signing_key(settings.data_dir / "accounts.key"))
    verbs = objects.Objects(store)
    kubelet = make_kubelet(store, known)
    try:
        await seeds.sow(verbs)
        async with _runs(settings, known) as (group, shared):
            front = server.Server(calls.Calls(verbs, known, kubelet), known, f"{settings.host}:{settings.port}")
            async with _listening(settings, front, group), asyncio.TaskGroup() as tasks:
                working = [kubelet.run(), housekeeping.Housekeeping(verbs).run(), shared.run()]
                under_way = [tasks.create_task(one) for one in working]
                ready()
                await stop.wait()
                shared.close()
                for task in under_way:
                    task.cancel()
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _runs(
    settings: settled.Settings, known: accounts.Accounts
) -> AsyncIterator[tuple[web.Application, feed.Feed]]:
    """The runs API, as it is in a cluster but for who says whose a token is."""
    db = database.Database(settings.database_url, size=4, name="kube", patience=_DATABASE_PATIENCE)
    await db.open()
    try:
        shared = feed.Feed(db)
        gatekeeper = frontproxy.Gatekeeper(accounts.Decider(known))
        yield runs.RunsServer(db, shared, gatekeeper, kept_days=settings.retention_days).of_group(), shared
    finally:
        await db.close()


@contextlib.asynccontextmanager
async def _listening(settings: settled.Settings, front: server.Server, group: web.Application) -> AsyncIterator[None]:
    app = front.application()
    app.add_subapp(runs.GROUP_PATH, group)
    app.router.add_route("*", "/{path:.*}", front.handle)
    # a watch whose client is gone must not wait for its next event to find out
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(settings.certificate, settings.key)
        await web.TCPSite(runner, settings.host, settings.port, ssl_context=context).start()
        yield
    finally:
        await runner.cleanup()
