"""Processes of several installations on this machine, each known to one Prometheus by the namespace it would be in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import generated, guard, installation, ports, postgres, prometheus

from clockhand.store import database, migrations, partitions

START_SECONDS = 120.0
PATIENCE = 150.0


@dataclass(frozen=True)
class Part:
    """One process, and where it serves."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    health: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_until_ready(self) -> None:
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-3000:]
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5),
            ):
                return
            time.sleep(0.1)
        raise TimeoutError(self.log.read_text(encoding="utf-8")[-3000:])


class Fleet:
    """Starts processes, and ends all that still run."""

    def __init__(self, folder: Path, seen_by: prometheus.Prometheus) -> None:
        self._folder = folder
        self._seen_by = seen_by
        self._guard = guard.Guard(folder)
        self._parts: list[Part] = []

    def start(self, namespace: str, command: str, **settings: str) -> Part:
        """`clockhand COMMAND` with these settings; it may not be ready yet."""
        port, health = ports.free(2)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(generated.ROOT),
            "EFFECTS": str(self._folder),
            "CLOCKHAND_API_PORT": f"{port}",
            "CLOCKHAND_HEALTH_PORT": f"{health}",
            **{f"CLOCKHAND_{name.upper()}": value for name, value in settings.items()},
        }
        log = self._folder / f"{namespace}-{command}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "clockhand", command],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True,
            )  # fmt: skip
        self._guard.started(process.pid)
        part = Part(process, log, port, health)
        self._parts.append(part)
        self._seen_by.watch(namespace, health)
        return part

    def close(self) -> None:
        for part in self._parts:
            part.kill()
            self._guard.gone(part.process.pid)
        self._guard.close()


@contextlib.contextmanager
def running(folder: Path, seen_by: prometheus.Prometheus) -> Iterator[Fleet]:
    """A fleet for the length of the block."""
    one = Fleet(folder, seen_by)
    try:
        yield one
    finally:
        one.close()


@dataclass(frozen=True)
class Ground:
    """What everything stands on."""

    processes: installation.Processes
    server: postgres.PostgresServer
    template: str
    watching: prometheus.Prometheus
    crew: Fleet
    folder: Path

    def new_url(self) -> str:
        return self.server.url(self.server.new_database(template=self.template))

    @contextlib.asynccontextmanager
    async def api(self, namespace: str, url: str, **settings: str) -> AsyncIterator[tuple[Part, database.Database]]:
        """An API process that is ready, and its database."""
        part = self.crew.start(namespace, "api", database_url=url, **settings)
        db = database.Database(url, size=2, name="test")
        await db.open()
        try:
            await asyncio.to_thread(part.wait_until_ready)
            # what is counted before it was looked at for the first time has not grown
            await self.until_there(f'clockhand_shards_held{{namespace="{namespace}", role="api"}}')
            yield part, db
        finally:
            await db.close()

    async def until_there(self, expression: str) -> None:
        """Waits until Prometheus knows of something."""
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(self.watching.query, expression):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def until(self, namespace: str, *alerts: str) -> None:
        """Waits until those have fired, or as long as a test may."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not set(alerts) <= await asyncio.to_thread(self.watching.fired, namespace):  # noqa: ASYNC110
                    await asyncio.sleep(1)


async def migrate(url: str) -> None:
    """A database of this release, with its partitions."""
    db = database.Database(url, size=1, name="template")
    await db.open()
    await migrations.apply(db)
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
    await db.close()
