"""Handlers for processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clockhand.worker import Fail, RetryAfter, Run


def double(run: Run) -> dict[str, Any]:
    """Twice the number of the payload, and who did it."""
    print("to standard output")
    print("to standard error", file=sys.stderr)
    subprocess.run(["echo", "from a program"], check=True)
    run.heartbeat_sync()
    return {"twice": 2 * run.payload["number"], "pid": os.getpid(), "id": run.id, "attempt": run.attempt}


def fail(run: Run) -> None:
    """What the payload says."""
    match run.payload:
        case "fatal":
            raise Fail("no such user")
        case "later":
            raise RetryAfter(30)
        case "large":
            sys.exit(3)
        case "kill":
            os.kill(os.getpid(), 9)
    raise ValueError("broken")


def large(run: Run) -> str:
    """More than a result may be."""
    return "x" * 20_000


def hang(run: Run) -> None:
    """Until it is killed, and what it started with it. Its file says that it has begun."""
    program = subprocess.Popen(["sleep", "3600"])
    Path(run.payload["file"]).write_text(f"{os.getpid()} {program.pid}", encoding="utf-8")
    time.sleep(3600)
