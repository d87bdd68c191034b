"""Handlers that tests can look at: what they do is written to a folder, and what they wait for is a file there."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from clockhand.worker import Fail, RetryAfter, Run, Worker

FOLDER = Path(os.environ.get("EFFECTS", "."))
worker = Worker(pool="mailers")
log = logging.getLogger("mail")


def tell(run: Run, what: str) -> None:
    """A line a thing that was done."""
    with (FOLDER / "effects").open("a", encoding="utf-8") as file:
        file.write(f"{run.job} {run.attempt} {what}\n")


async def told(name: str) -> None:
    """Waits for a file of that name."""
    while True:
        if (FOLDER / name).exists():
            return
        await asyncio.sleep(0.02)


@worker.handler("email.send")
async def send(run: Run) -> dict[str, object]:
    tell(run, "sent")
    return {"to": run.payload.get("to"), "attempt": run.attempt}


@worker.handler("thread")
def in_thread(run: Run) -> str:
    run.heartbeat_sync()
    tell(run, "sent")
    return "from a thread"


@worker.handler("careful")
def careful(run: Run) -> str:
    """Asks before its effect, once it is told to go on."""
    tell(run, "begun")
    asyncio.run(told("go"))
    run.heartbeat_sync()
    tell(run, "done")
    return "asked"


def in_process(run: Run) -> int:
    """How many of its run's attempts there were."""
    return run.attempt


worker.handler("process", processes=True)(in_process)


@worker.handler("fail")
async def fail(run: Run) -> None:
    log.info("looking for %s", run.payload["as"])
    print("not found")
    match run.payload["as"]:
        case "fatal":
            raise Fail("no such user")
        case "later":
            raise RetryAfter(3600)
    raise LookupError(run.payload["as"])


@worker.handler("large")
async def large(run: Run) -> str:
    return "x" * 20_000


@worker.handler("null")
async def null(run: Run) -> str:
    return "\0"


@worker.handler("loud")
async def loud(run: Run) -> None:
    """Fails after more than a log keeps, in characters that JSON makes long."""
    print("\x01" * 70_000)
    raise LookupError


@worker.handler("wait")
async def wait(run: Run) -> str:
    """Until it is told to go on, or is ended."""
    tell(run, "begun")
    try:
        await told("go")
    except asyncio.CancelledError:
        tell(run, "cancelled")
        raise
    tell(run, "done")
    return "went on"


@worker.handler("block")
async def block(run: Run) -> None:
    """The loop stands still, as under a library that was not written for one."""
    tell(run, "begun")
    stand_still(run.payload["seconds"])
    tell(run, "done")


def stand_still(seconds: float) -> None:
    """Blocks whoever calls."""
    time.sleep(seconds)
