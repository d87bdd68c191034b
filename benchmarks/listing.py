"""`kubectl get runs` over a long history: the first page, through the API server and the aggregated API behind it.

Measured twice: the single call that fetches the page, as kubectl makes it, and stock kubectl as a person waits for it, with
its own start and discovery.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence

from benchmarks import report, stage
from tests.support import history, kubectl

from clockhand.store import database

_RUNS = "/apis/runs.clockhand.dev/v1alpha1"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_TIMES = 7
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
    async with stage.standing(operators=0) as ready:
        await _fill(ready.server.url("clockhand"), settings.rows)
        rows = [(where, *(await _calls(ready, path, fields, settings))) for where, (path, fields) in _WHERE.items()]
        columns = ("first page", "rows", "KiB", "p50 ms", "p99 ms", "max ms")
        made.add(f"{settings.calls} calls of one page of {settings.limit}, as a table", columns, rows)
        seen = await asyncio.to_thread(_kubectls, ready, settings.limit)
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


def _kubectls(ready: stage.Stage, limit: int) -> list[Sequence[report.Value]]:
    """kubectl follows `continue` to the end before it prints: the first page alone is had with --raw."""
    runs = {
        "kubectl get --raw, the first page": ("get", "--raw", f"{_RUNS}/runs?limit={limit}"),
        "kubectl get runs -A, all pages": ("get", "runs", "-A", f"--chunk-size={limit}"),
        "kubectl get namespaces, for comparison": ("get", "namespaces"),
    }
    who = kubectl.Kubectl(ready.cluster.kubeconfig)
    return [(what, *report.spread([who.run(*words).seconds for _ in range(_TIMES)])) for what, words in runs.items()]
