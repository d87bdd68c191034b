"""Clients of the REST API: k6 with the functions of load.js, and what it has counted."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from pathlib import Path

import msgspec

_SCRIPT = Path(__file__).with_name("load.js")
_K6 = Path(sys.executable).with_name("k6")
_SHOWN_OF_LOG = 3_000


class Counted(msgspec.Struct, frozen=True):
    """What came of some load; times are in milliseconds, `cpu` is k6's own in seconds."""

    good: int
    made: int
    shed: int
    failed: int
    p50: float
    p99: float
    longest: float
    seconds: float
    cpu: float = 0.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What clients do. Without `rate`, each asks again as soon as it is answered."""

    what: str
    clients: int
    seconds: float
    rate: int | None = None
    path: str = ""
    batch: int = 1_000
    expressions: int = 100


async def put(load: Load, *, url: str, token: str) -> Counted:
    """Puts the load on the API; raises AssertionError where k6 itself failed."""
    with tempfile.TemporaryDirectory() as folder:
        summary, log = Path(folder) / "summary.json", Path(folder) / "log"
        told = {
            "URL": url,
            "TOKEN": token,
            "WHAT": load.what,
            "CLIENTS": str(load.clients),
            "DURATION": f"{load.seconds:g}s",
            "PATH_LISTED": load.path,
            "BATCH": str(load.batch),
            "EXPRESSIONS": str(load.expressions),
            "SUMMARY": str(summary),
            **({} if load.rate is None else {"RATE": str(load.rate)}),
        }
        before = _cpu_of_children()
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                _K6,
                "run",
                "--quiet",
                "--no-usage-report",
                _SCRIPT,
                env={**os.environ, **told},
                stdout=file,
                stderr=file,
            )
            code = await process.wait()
        assert code == 0, f"k6 ended with {code}: {log.read_text(errors='replace')[-_SHOWN_OF_LOG:]}"
        counted = msgspec.json.decode(summary.read_bytes(), type=Counted, strict=False)
        if counted.failed:
            print(log.read_text(errors="replace")[-_SHOWN_OF_LOG:], file=sys.stderr)
        return msgspec.structs.replace(counted, cpu=_cpu_of_children() - before)


def _cpu_of_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
