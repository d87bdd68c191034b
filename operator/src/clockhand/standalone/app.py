"""`clockhand dev`: all of Clockhand as one tree of processes on this machine, for those who have no cluster."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import structlog

from clockhand.client import config as clients
from clockhand.standalone import banner, console, credentials, files, kubeconfig, orphans, parts, postgres, probes, tree
from clockhand.standalone import home as homes
from clockhand.store import database, migrations, partitions, shards

PORT = 8480
_RETENTION_DAYS = 30
_STARTING = "the start"
log = structlog.get_logger(__name__)
_ENDS = ("worker", "operator", "cluster", "api", "postgres")
"""Nothing new is launched while pods end, and those of them that are workers report to the API what they have finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says. `data_dir` is None for one that goes at the end."""

    data_dir: Path | None
    port: int
    token_file: Path | None
    kubeconfig: Path | None
    is_default: bool
    """Whether clients find what they need without being told where."""


async def serve(asked: Asked, *, environment: Mapping[str, str], write: Callable[[str], None]) -> None:
    """Runs until SIGTERM or SIGINT, which lets what runs end; a second one does not. `write` gets what people are told."""
    stop, hurry = _signals()
    with homes.kept(asked.data_dir) if asked.data_dir else homes.ephemeral() as home:
        record = orphans.Record(home.path("tree.json"))
        await record.end_all()
        ports = parts.Ports.choose(asked.port)
        async with aiohttp.ClientSession() as session:
            started = tree.Tree(console.Console(), record)
            dev = _Dev(asked, home, started, parts.Parts(home, ports, session, environment))
            told = probes.Probes(session, ports.probes, unready=dev.unready)
            try:
                async with probes.served(told, port=ports.health):
                    await _unless(stop, dev.begin(ports, write))
                    await _unless(stop, started.failure())
                    write("What runs may end; Ctrl-C once more does not wait for it.\n")
            finally:
                await started.end(hurry, order=_ENDS)


class _Dev:
    """The start of everything, in order."""

    def __init__(self, asked: Asked, home: homes.Home, started: tree.Tree, made: parts.Parts) -> None:
        self._asked = asked
        self._home = home
        self._tree = started
        self._parts = made
        self._begun = False

    def unready(self) -> list[str]:
        """What is not ready, by name."""
        return [*self._tree.unready(), *(() if self._begun else (_STARTING,))]

    async def begin(self, ports: parts.Ports, write: Callable[[str], None]) -> None:
        """Starts everything, and says so once it is ready."""
        home, asked = self._home, self._asked
        files.make(home)
        editor = credentials.editor(asked.token_file or home.path("token"))
        worker = credentials.worker(home)
        served = kubeconfig.certificate(home, datetime.now(UTC))
        for_kubectl = asked.kubeconfig or home.path("kubeconfig")
        kubeconfig.write(for_kubectl, port=ports.cluster, files=served, token=credentials.person(home))
        ours, token = home.path(parts.KUBECONFIG), credentials.operator(home)
        kubeconfig.write(ours, port=ports.cluster, files=served, token=token, whole=False)
        server = postgres.Server(home, port=ports.database)
        await server.prepare()
        await self._until(self._tree.start(self._parts.database(server)))
        others = [self._tree.start(self._parts.cluster(server, served))]
        await _settle(server.url, editor, worker)
        others.append(self._tree.start(self._parts.operator(server)))
        await self._until(self._tree.start(self._parts.api(server)))
        others.append(self._tree.start(self._parts.worker(worker)))
        for one in others:
            await self._until(one)
        self._tell_clients(editor)
        self._begun = True
        shown = banner.Shown(
            url=self._parts.url,
            health=f"http://{parts.LOOPBACK}:{ports.health}",
            data=home.root,
            token_file=editor.file.absolute(),
            kubeconfig=for_kubectl.absolute(),
            stays=home.durable,
            is_default=asked.is_default,
        )
        write(banner.text(shown))

    def _tell_clients(self, editor: credentials.Secret) -> None:
        told = clients.Told(url=self._parts.url, token_file=str(editor.file.absolute()))
        homes.write(self._home.path("client.json"), msgspec.json.encode(told).decode() + "\n")

    async def _until(self, up: asyncio.Event) -> None:
        """Raises what keeps a part from coming up."""
        await _unless(up, self._tree.failure())


async def _settle(url: str, *secrets: credentials.Secret) -> None:
    """Brings the database to this release, and frees what the last tree held: nothing of it lives."""
    db = database.Database(url, size=1, name="dev")
    await db.open()
    try:
        for name in await migrations.apply(db, after=True):
            log.info("migration_applied", name=name)
        async with db.transaction() as connection:
            now = await database.now(connection)
            await partitions.ensure_window(connection, now=now, retention_days=_RETENTION_DAYS)
            await shards.abandon(connection)
            for secret in secrets:
                await secret.admit(connection)
    finally:
        await db.close()


async def _unless(event: asyncio.Event, doing: Coroutine[Any, Any, None]) -> None:
    """Waits for `doing` to end, unless `event` comes first; then it is broken off."""
    task, waiting = asyncio.create_task(doing), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        waiting.cancel()
        task.cancel()
        await asyncio.wait({task})


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """What the first SIGTERM or SIGINT sets, and what the second one does."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    return stop, hurry
