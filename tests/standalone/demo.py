"""`make demo`: from a clone to jobs that run, on this machine alone, with their runs shown as they come for a while.

It uses what the README gives: `clockhand dev`, kubectl and REST. Nothing of it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from tests.support import generated, ports

START_SECONDS = 120.0
WATCH_SECONDS = 30.0
ENOUGH = 5
"""Runs that have succeeded, of both kinds together."""
WIDTH = 110
BIN = Path(sys.executable).parent
JOB = {"name": "greeting", "every": "10s", "handler": "echo", "payload": {"hello": "world"}}
COLOURS = {"Succeeded": "green", "Running": "cyan", "Dead": "red", "Retrying": "yellow"}
NEXT = """
Clockhand ran on this machine, and is gone again. Three things to try next, the last two in another terminal:

  .venv/bin/clockhand dev                                     # all of it, to stay; it says where its kubeconfig is
  .venv/bin/clockhand jobs create hello --every 10s --handler echo && .venv/bin/clockhand runs watch
  .venv/bin/kubectl --kubeconfig ~/.local/share/clockhand/kubeconfig apply -f examples/
"""


class Demo:
    """One start of `clockhand dev`, spoken to as the README says."""

    def __init__(self, folder: Path, port: int, session: aiohttp.ClientSession, screen: Console) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}"
        self._health = f"http://127.0.0.1:{port + 2}"
        self._session = session
        self._screen = screen

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    async def until_ready(self, process: asyncio.subprocess.Process) -> None:
        """Raises where it ends instead."""
        async with asyncio.timeout(START_SECONDS):
            while not await self._is_ready():
                if process.returncode is not None:
                    raise ChildProcessError(f"`clockhand dev` ended with code {process.returncode}")
                await asyncio.sleep(0.1)

    async def _is_ready(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self._health}/readyz") as answer:
                return answer.status == 200
        return False

    async def make_jobs(self) -> None:
        """One with a pod by kubectl, one with a handler by REST; and a run of each now, so that nobody waits."""
        await self._show("kubectl", "apply", "-f", "examples/hello.yaml")
        self._screen.print(f"$ curl {self._url}/v1/jobs -d '{json.dumps(JOB)}'")
        made = await self._call("POST", "/v1/jobs", self._token(), JOB)
        await self._call("POST", f"/v1/jobs/{made['id']}:run", self._token())
        await self._call("POST", f"/v1/jobs/{await self._hello()}:run?namespace=default", self._person())

    async def _hello(self) -> str:
        """The id of what kubectl applied, once it is known here as well."""
        while True:
            for job in (await self._call("GET", "/v1/jobs?namespace=default", self._person()))["items"]:
                return str(job["id"])
            await asyncio.sleep(0.1)

    async def runs(self) -> Sequence[Mapping[str, Any]]:
        """The newest of both, newest first."""
        by_rest = await self._call("GET", "/v1/runs?limit=10", self._token())
        by_kubectl = await self._call("GET", "/v1/runs?limit=10&namespace=default", self._person())
        return sorted([*by_rest["items"], *by_kubectl["items"]], key=lambda run: run["scheduledAt"], reverse=True)

    async def _show(self, program: str, *arguments: str) -> None:
        self._screen.print(f"$ {program} {' '.join(arguments)}")
        process = await asyncio.create_subprocess_exec(
            str(BIN / program), *arguments, cwd=generated.ROOT, env={**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        )
        if await process.wait() != 0:
            raise ChildProcessError(f"{program} failed")

    async def _call(self, method: str, path: str, token: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.request(method, self._url + path, json=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()

    def _token(self) -> str:
        return (self._folder / "token").read_text(encoding="utf-8").strip()

    def _person(self) -> str:
        [user] = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))["users"]
        return str(user["user"]["token"])


@contextlib.asynccontextmanager
async def started(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`clockhand dev`, its log in `folder`, for the length of the block."""
    arguments = (
        "--ephemeral",
        "--port",
        f"{port}",
        "--token-file",
        folder / "token",
        "--kubeconfig",
        folder / "kubeconfig",
    )
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            BIN / "clockhand", "dev", *arguments, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        for _ in range(2):  # the second one does not wait for what runs
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.1)
        await process.wait()


async def watch(demo: Demo, screen: Console) -> bool:
    """Shows runs as they come, until there are enough; returns whether each job had one that succeeded."""
    told: dict[str, str] = {}
    end = time.monotonic() + WATCH_SECONDS
    with Live(console=screen, refresh_per_second=4) if screen.is_terminal else contextlib.nullcontext() as live:
        while True:
            runs = await demo.runs()
            if live is not None:
                live.update(drawn(runs))
            else:
                tell_changes(runs, told, screen)
            done = [run for run in runs if run["state"] == "Succeeded"]
            if is_enough(done, screen) or time.monotonic() > end:
                break
            await asyncio.sleep(0.25)
    if live is None:
        screen.print(drawn(runs))
    return len({run["job"] for run in done}) > 1


def is_enough(done: Sequence[Mapping[str, Any]], screen: Console) -> bool:
    """For a person it goes on for a while."""
    return len({run["job"] for run in done}) > 1 and (len(done) >= ENOUGH or not screen.is_terminal)


def tell_changes(runs: Sequence[Mapping[str, Any]], told: dict[str, str], screen: Console) -> None:
    """A line for each run that is new or in another state."""
    for run in reversed(runs):
        if told.get(run["id"]) != run["state"]:
            told[run["id"]] = run["state"]
            screen.print(f"{run['name']}  {run['state']}")


def drawn(runs: Sequence[Mapping[str, Any]]) -> Table:
    """The runs as a table."""
    table = Table("RUN", "JOB", "BY", "STATE", "ATTEMPT", "SCHEDULED", "LATENESS", box=box.SIMPLE)
    for run in runs[:10]:
        colour = COLOURS.get(run["state"], "default")
        late = f"{run['latenessSeconds']:.1f} s" if run.get("latenessSeconds") is not None else "-"
        by = "a pod" if run["owner"].startswith("k8s/") else "a worker"
        state = f"[{colour}]{run['state']}[/{colour}]"
        table.add_row(run["name"], run["job"], by, state, f"{run.get('attempt', 0)}", run["scheduledAt"][11:19], late)
    return table


async def main() -> int:
    """Returns 0 once a run of each job was seen to succeed."""
    screen = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
    port = ports.free_row(3)
    with tempfile.TemporaryDirectory(prefix="clockhand-demo-") as name:
        folder = Path(name)
        screen.print(f"$ clockhand dev --ephemeral --port {port}")
        async with started(folder, port) as process, aiohttp.ClientSession() as session:
            demo = Demo(folder, port, session, screen)
            try:
                await demo.until_ready(process)
                await demo.make_jobs()
                good = await watch(demo, screen)
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                screen.print(f"{error}\n{(folder / 'log').read_text(encoding='utf-8')}", markup=False)
                return 1
        if not good:
            screen.print((folder / "log").read_text(encoding="utf-8"), markup=False)
            return 1
    screen.print(NEXT, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
