"""What a tenant without a cluster has: the API of a real process over a real database, a token, and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import generated, jobs, ports, workers_api

from clockhand.domain import tokens
from clockhand.store import database, workerpools

OWNER, POOL = "rest/acme", "mailers"
_SECONDS = 60.0


@dataclass(frozen=True)
class Tenant:
    """Where the API is, and the files of the tenant's tokens."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token_file(self) -> Path:
        """The editor's."""
        return self.folder / "editor"

    def environment(self, token: str = "editor") -> Mapping[str, str]:
        """For programs that ask the API, and find nothing of the machine's owner."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "CLOCKHAND_API_URL": self.url,
            "CLOCKHAND_TOKEN_FILE": str(self.folder / token),
        }


@contextlib.contextmanager
def served(database_url: str, folder: Path) -> Iterator[Tenant]:
    """A tenant for the length of the block. Its worker has the handlers of `mail_worker`."""
    asyncio.run(_furnish(database_url, folder))
    port, health = ports.free(2)
    url = f"http://127.0.0.1:{port}"
    api = {
        "CLOCKHAND_DATABASE_URL": database_url,
        "CLOCKHAND_API_PORT": f"{port}",
        "CLOCKHAND_HEALTH_PORT": f"{health}",
    }
    worker = {
        "PYTHONPATH": str(generated.ROOT),
        "EFFECTS": str(folder),
        "CLOCKHAND_API_URL": url,
        "CLOCKHAND_POOL": f"acme/{POOL}",
        "CLOCKHAND_TOKEN_FILE": str(folder / "worker"),
        "CLOCKHAND_HANDLERS": "tests.support.mail_worker:worker",
        "CLOCKHAND_HEALTH_PORT": "0",
    }
    with _process("api", api, folder), _process("worker", worker, folder):
        _until_ready(f"http://127.0.0.1:{health}/readyz")
        asyncio.run(_until_the_worker_came(database_url))
        yield Tenant(port, folder)


async def _furnish(database_url: str, folder: Path) -> None:
    db = database.Database(database_url, size=1, name="tenant")
    await db.open()
    try:
        async with db.transaction() as connection:
            await jobs.make_partitions(connection)
        for role in tokens.Role:
            secret = await workers_api.make_token(db, owner=OWNER, role=role, pool=POOL)
            (folder / role).write_text(secret, encoding="utf-8")
    finally:
        await db.close()


async def _until_the_worker_came(database_url: str) -> None:
    """What is shown of a job says so as long as its pool is not known."""
    db = database.Database(database_url, size=1, name="tenant")
    await db.open()
    try:
        async with asyncio.timeout(_SECONDS):
            while True:
                async with db.transaction() as connection:
                    if await workerpools.found(connection, [f"{OWNER}/{POOL}"]):
                        return
                await asyncio.sleep(0.05)
    finally:
        await db.close()


@contextlib.contextmanager
def _process(what: str, settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    environment = {"PATH": os.environ["PATH"], **settings}
    with (folder / f"{what}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "clockhand", what], env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _until_ready(probe: str) -> None:
    ends = time.monotonic() + _SECONDS
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(probe, timeout=5).close()
            return
        assert time.monotonic() < ends, "the API does not start"
        time.sleep(0.05)
