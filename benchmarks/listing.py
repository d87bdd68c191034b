"""`kubectl get runs` over a long history: the first page, through the API server and the aggregated API behind it.

Measured twice: the single call that fetches the page, as kubectl makes it, and stock kubectl as a person waits for it, with
its own start and discovery.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import time
from collections.abc import Sequence

from benchmarks import report, stage
from tests.support import history, kubectl

from clockhand.store import database

_RUNS = "/apis/runs.clockhand.dev/v1alpha1"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_OPERATOR_NEEDLESS = 0
_WHERE = {
    "all namespaces": (f"{_RUNS}/runs", ""),
    "one namespace": (f"{_RUNS}/namespaces/team-7/runs", ""),
    "one namespace, one job": (f"{_RUNS}/namespaces/team-7/runs", "spec.job=job-7"),
    "all namespaces, state Dead": (f"{_RUNS}/runs", "status.state=Dead"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    rows: int = 1_000_000
    calls: int = 50
    limit: int = 500


async def run(settings: Settings) -> report.Report:
    """History in bulk, then the same page again and again."""
    made = report.Report("list", dataclasses.asdict(settings))
    async with stage.standing(operators=_OPERATOR_NEEDLESS) as ready:
        await _fill(ready.server.url("clockhand"), settings.rows)
        meter = ready.meter(())
        meter.start()
        rows = [(where, *(await _calls(ready, path, fields, settings))) for where, (path, fields) in _WHERE.items()]
        columns = ("first page", "rows", "KiB", "p50 ms", "p99 ms", "max ms")
        made.add(f"{settings.calls} calls of one page of {settings.limit}, as a table", columns, rows)
        kubectls = [await asyncio.to_thread(_kubectl, ready, settings.limit) for _ in range(7)]
        seen = [("kubectl get runs -A, until its first line", *report.spread(kubectls)), _overhead(ready)]
        made.add("stock kubectl, seconds", ("command", "p50 s", "p99 s", "max s"), seen)
        peaks = await ready.memory(("runs",))
        made.add("memory of the runs API, MiB", ("replica", "held", "at most"), peaks)
    return made


async def _fill(url: str, rows: int) -> None:
    db = database.Database(url, size=2, name="benchmark")
    await db.open()
    try:
        async with db.transaction() as connection:
            await history.fill(connection, rows, now=await database.now(connection))
    finally:
        await db.close()
    await asyncio.to_thread(history.analyze, url)


async def _calls(ready: stage.Stage, path: str, fields: str, settings: Settings) -> tuple[report.Value, ...]:
    query = {"limit": str(settings.limit), **({"fieldSelector": fields} if fields else {})}
    body = await ready.client.get(path, query=query, accept=_TABLE)
    milliseconds = []
    for _ in range(settings.calls):
        began = time.perf_counter()
        body = await ready.client.get(path, query=query, accept=_TABLE)
        milliseconds.append(1000 * (time.perf_counter() - began))
    return body.count(b'"cells"'), len(body) // 1024, *report.spread(milliseconds)


def _kubectl(ready: stage.Stage, limit: int) -> float:
    """Seconds until stock kubectl has printed the first page; it prints each page as it comes."""
    words = kubectl.Kubectl(ready.cluster.kubeconfig).command("get", "runs", "-A", f"--chunk-size={limit}")
    return _until_first_line(words)


def _overhead(ready: stage.Stage) -> Sequence[report.Value]:
    words = kubectl.Kubectl(ready.cluster.kubeconfig).command("get", "namespaces")
    return ("kubectl get namespaces, for comparison", *report.spread([_until_first_line(words) for _ in range(7)]))


def _until_first_line(words: Sequence[str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        seconds = time.perf_counter() - began
        process.stdout.read()
    if process.returncode != 0 or not first.startswith(b"NAME"):
        raise AssertionError(f"kubectl ended with {process.returncode} and printed {first!r}")
    return seconds
