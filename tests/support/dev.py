"""`clockhand dev` as a process: started, spoken to over REST, and killed with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.support import ports

START_SECONDS = 120.0


@dataclass(frozen=True)
class Answer:
    """Of REST."""

    status: int
    json: Any
    headers: Mapping[str, str]


class Dev:
    """One start of it."""

    def __init__(
        self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession, port: int, log: Path
    ) -> None:
        self.process = process
        self.port = port
        self._session = session
        self._log = log
        self.token_file: Path | None = None
        self.person = Path()
        """The file of the token that is in the kubeconfig."""

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    async def probe(self, path: str) -> int:
        """The status of a probe; 0 where nobody answers."""
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"http://127.0.0.1:{self.port + 2}{path}") as answer:
                return answer.status
        return 0

    async def is_unready(self) -> bool:
        return await self.probe("/readyz") != 200

    async def is_stopping(self) -> bool:
        """Whether its worker lets what runs end."""
        return "worker_stops" in self.log()

    async def text(self, path: str) -> str:
        """What a probe says."""
        async with self._session.get(f"http://127.0.0.1:{self.port + 2}{path}") as answer:
            return await answer.text()

    async def until_ready(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while await self.probe("/readyz") != 200:
                assert self.process.returncode is None, self.log()
                await asyncio.sleep(0.05)

    async def call(self, method: str, path: str, body: object = None, *, token_file: Path | None = None) -> Answer:
        """One call of REST, with the editor's token."""
        token = (token_file or self.token_file or Path()).read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self._session.request(method, url, json=body, headers=headers) as answer:
            text = await answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return Answer(answer.status, await answer.json(content_type=None) if is_json else text, answer.headers)

    def kill_all(self) -> None:
        """kill -9 of the whole tree: whoever could start something again comes first."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def ended(self) -> int:
        return await self.process.wait()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits until that holds."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


def descendants(pid: int) -> Sequence[int]:
    """All that a process started, and what those did."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int(
                    (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
                )
                children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


@contextlib.asynccontextmanager
async def started(folder: Path, *arguments: str, port: int | None = None, cwd: Path = Path("/")) -> AsyncIterator[Dev]:
    """`clockhand dev` for the length of the block, its home and its log in `folder`; killed at the end if it still runs."""
    port = port or ports.free_row(3)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CLOCKHAND_", "KUBE"))}
    environment |= {"HOME": str(folder), "TMPDIR": str(folder)}
    environment.pop("XDG_DATA_HOME", None)
    log = folder / "log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "clockhand", "dev", "--port", f"{port}", *arguments),
            env=environment, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    async with aiohttp.ClientSession() as session:
        dev = Dev(process, session, port, log)
        data = folder / ".local/share/clockhand"
        dev.token_file, dev.person = data / "token", data / "kube-person-token"
        try:
            yield dev
        finally:
            if process.returncode is None:
                dev.kill_all()
            await process.wait()
