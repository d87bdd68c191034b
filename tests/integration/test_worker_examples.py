"""The workers of examples/workers, as a reader would start them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.e2e.cluster import engine
from tests.integration.test_worker import api, ended, queued, secret, write
from tests.support import generated, worker_process, workers_api

from clockhand.store import database

__all__ = ["api", "secret"]

FOLDER = generated.ROOT / "examples/workers"
CLOCKHAND = (sys.executable, "-m", "clockhand", "worker")


@pytest.fixture(scope="session")
def node() -> str:
    """A JavaScript engine: of the system, which is asked for one where it has none."""
    engine.ensure_programs({"node": "nodejs"})
    return "node"


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], settings: Mapping[str, str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDER), "CLOCKHAND_HEALTH_PORT": "0", **settings}
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=file, stderr=file, cwd=FOLDER)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def settings_of(api: workers_api.Served, secret: str, folder: Path) -> Mapping[str, str]:
    write(folder / "token", f"{secret}\n")
    return {
        "CLOCKHAND_API_URL": api.url,
        "CLOCKHAND_POOL": worker_process.POOL,
        "CLOCKHAND_TOKEN_FILE": str(folder / "token"),
    }


@pytest.mark.parametrize(
    "started_as",
    [(CLOCKHAND, {"CLOCKHAND_HANDLERS": "mailers:worker"}), ((sys.executable, "mailers.py"), {})],
    ids=["by the command", "as a script"],
)
async def test_the_handlers_in_python_do_what_they_say(
    db: database.Database,
    api: workers_api.Served,
    secret: str,
    tmp_path: Path,
    started_as: tuple[Sequence[str], Mapping[str, str]],
) -> None:
    command, settings = started_as
    names = [
        await queued(db, "email.send", {"to": "ann@example.com"}),
        await queued(db, "report.build", {"lines": 3}),
        await queued(db, "image.hash", {"text": "x"}),
    ]
    environment = {**settings_of(api, secret, tmp_path), **settings}
    async with started(command, environment, tmp_path / "log") as process:
        rows = await ended(db, *names)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert {row[0] for row in rows.values()} == {"Succeeded"}
    assert rows[names[0]][-1]["sent"] == "ann@example.com"
    assert rows[names[1]][-1] == 3
    assert len(rows[names[2]][-1]) == 64


async def test_the_worker_in_javascript_speaks_the_protocol(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path, node: str
) -> None:
    sent = await queued(db, "email.send", {"to": "bob"})
    refused = await queued(db, "email.refuse")
    async with started((node, "worker.mjs"), settings_of(api, secret, tmp_path), tmp_path / "log") as process:
        rows = await ended(db, sent, refused)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert rows[sent][:3] == ("Succeeded", None, 1)
    assert rows[sent][-1] == {"to": "bob", "by": "node"}
    assert rows[refused][:2] == ("Dead", "HandlerFailed")


def test_the_worker_in_javascript_is_short() -> None:
    assert len((FOLDER / "worker.mjs").read_text(encoding="utf-8").splitlines()) <= 60
