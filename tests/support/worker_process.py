"""`clockhand worker` as a process, with the handlers of `mail_worker`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support import generated

POOL = "team-a/mailers"


class Running:
    """A worker under way, and the folder that its handlers write to."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, log: Path) -> None:
        self.process = process
        self._folder = folder
        self._log = log

    def effects(self) -> Sequence[str]:
        """What its handlers did, as `job attempt what`."""
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / "effects").read_text(encoding="utf-8").splitlines()
        return []

    def acted_at(self) -> datetime:
        """When its handlers did something last."""
        return datetime.fromtimestamp((self._folder / "effects").stat().st_mtime, UTC)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def tell(self, name: str) -> None:
        """What waits for that file goes on."""
        (self._folder / name).touch()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def until(self, holds: Callable[[Sequence[str]], bool]) -> None:
        """Waits until that holds of the effects."""

        def settled() -> bool:
            assert self.process.returncode is None, self.log()
            return holds(self.effects())

        await until(settled)

    async def ended(self) -> int:
        return await self.process.wait()


async def until(holds: Callable[[], bool]) -> None:
    """Waits until that holds."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def working(
    api_url: str, secret: str, folder: Path, *, name: str = "one", **settings: str
) -> AsyncIterator[Running]:
    """A worker of the pool `team-a/mailers` for the length of the block."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(generated.ROOT),
        "EFFECTS": str(folder),
        "CLOCKHAND_API_URL": api_url,
        "CLOCKHAND_POOL": POOL,
        "CLOCKHAND_TOKEN": secret,
        "CLOCKHAND_HANDLERS": "tests.support.mail_worker:worker",
        "CLOCKHAND_WORKER_NAME": name,
        "CLOCKHAND_HEALTH_PORT": "0",
        **{f"CLOCKHAND_{key.upper()}": value for key, value in settings.items()},
    }
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "clockhand", "worker", env=environment, stdout=file, stderr=file
        )
    try:
        yield Running(process, folder, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
