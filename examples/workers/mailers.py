"""Handlers for the pool `mailers`, as docs/workers.md explains them.

export CLOCKHAND_API_URL=http://localhost:8080 CLOCKHAND_POOL=team-a/mailers CLOCKHAND_TOKEN_FILE=token
PYTHONPATH=. CLOCKHAND_HANDLERS=mailers:worker clockhand worker
"""

import asyncio
import hashlib
import logging

from clockhand.worker import Fail, RetryAfter, Run, Worker

worker = Worker(pool="mailers")
log = logging.getLogger(__name__)


@worker.handler("email.send")
async def send(run: Run) -> dict[str, str]:
    """A coroutine function: many of them run at the same time on one event loop."""
    to = run.payload.get("to")
    if not to:
        raise Fail("the payload has no `to`")  # another attempt would not help: the run is Dead at once
    if to.endswith(".invalid"):
        raise RetryAfter(60, f"{to} is not reachable now")  # the next attempt comes in a minute
    log.info("sending to %s", to)  # the log of an attempt that fails is kept with it
    await asyncio.sleep(0.01)
    await run.heartbeat()  # raises Stale if this attempt does not count any more: ask before what cannot be undone
    return {"sent": to, "key": run.id}  # the same id for each attempt: the key for doing it once


@worker.handler("report.build")
def build(run: Run) -> int:
    """A plain function runs in a thread; it may block, and looks now and then whether it is to stop."""
    lines = 0
    for _ in range(int(run.payload.get("lines", 1000))):
        if run.stopping:
            break
        lines += 1
    return lines


@worker.handler("image.hash", processes=True)
def digest(run: Run) -> str:
    """What keeps a processor busy runs in a process of its own, which can be killed."""
    text = str(run.payload.get("text", ""))
    return hashlib.pbkdf2_hmac("sha256", text.encode(), run.id.encode(), 10_000).hex()


if __name__ == "__main__":
    worker.run()
