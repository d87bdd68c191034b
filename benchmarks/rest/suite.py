"""The suite: jobs made one by one and many at a time, lists over a long history, and firing while clients ask too much."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

from benchmarks import report, usage
from benchmarks.pool import drain, ours
from benchmarks.rest import clients
from tests.e2e.cluster import steps
from tests.support import history, ports, postgres

from clockhand.domain import ids
from clockhand.store import database

_OWNER, _TENANT = "rest/team-7", "team-7"
_COLUMNS = ("good", "a second", "shed", "failed", "p50 ms", "p99 ms", "largest ms", "us CPU each")
_PARTS = ("postgres", "API", "k6")
_LISTED = {
    "all runs": "/v1/runs?limit=100",
    "one job": "/v1/runs?limit=100&job=job-7",
    "state Dead": "/v1/runs?limit=100&state=Dead",
    "a day, four weeks ago": "/v1/runs?limit=100&since={since}&until={until}",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    rows: int = 10_000_000
    """Of history, for lists."""
    seconds: float = 20.0
    """Of each load."""
    clients: int = 32
    batch: int = 1_000
    batching_clients: int = 2
    expressions: int = 100
    """Distinct schedules of the jobs that are made."""
    listing_rate: int = 50
    """Lists a second."""
    crowd: int = 200
    """Clients that ask as fast as they can while runs are due."""
    firing_rate: int = 200
    """Runs a second meanwhile."""


@dataclasses.dataclass(frozen=True)
class _Api:
    """A `clockhand api` with its database, and a token of an editor."""

    url: str
    token: str
    meter: usage.Meter


async def run(settings: Settings) -> report.Report:
    """Everything on one server, a fresh database for each part."""
    made = report.Report("rest", dataclasses.asdict(settings))
    with drain.server() as server:
        await _add_made(made, server, settings)
        await _add_listed(made, server, settings)
        await _add_crowded(made, server, settings)
    return made


async def _add_made(made: report.Report, server: postgres.PostgresServer, settings: Settings) -> None:
    loads = {
        "one by one": clients.Load(
            what="create", clients=settings.clients, seconds=settings.seconds, expressions=settings.expressions
        ),
        f"{settings.batch:,} a call": clients.Load(
            what="createMany",
            clients=settings.batching_clients,
            seconds=settings.seconds,
            batch=settings.batch,
            expressions=settings.expressions,
        ),
    }
    rows = []
    for title, load in loads.items():
        async with _database(server) as url, _serving(url, server) as api:
            counted, spent = await _measured(api, load)
            stored = await _count(url, "SELECT count(*) FROM jobs")
            assert stored >= counted.made, f"{stored} jobs are stored, {counted.made} were answered"
            per_second = counted.made / counted.seconds
            rows.append((title, *_row(counted, per_second, counted.made, spent)))
    title = f"jobs made, {settings.expressions} distinct schedules, 200 bytes of payload; calls are timed, jobs counted"
    made.add(title, ("how", *_COLUMNS, *_PARTS), rows)


async def _add_listed(made: report.Report, server: postgres.PostgresServer, settings: Settings) -> None:
    async with _database(server) as url:
        now = await _filled(url, settings.rows)
        day = {"since": _text(now - 28 * 86_400), "until": _text(now - 27 * 86_400)}
        rows = []
        async with _serving(url, server) as api:
            for title, path in _LISTED.items():
                load = clients.Load(
                    what="list",
                    clients=settings.clients,
                    seconds=settings.seconds,
                    rate=settings.listing_rate,
                    path=path.format(**day),
                )
                counted, spent = await _measured(api, load)
                rows.append((title, *_row(counted, counted.good / counted.seconds, counted.good, spent)))
    title = f"pages of 100 runs over {settings.rows:,} rows of history, at {settings.listing_rate} a second"
    made.add(title, ("list", *_COLUMNS, *_PARTS), rows)


async def _add_crowded(made: report.Report, server: postgres.PostgresServer, settings: Settings) -> None:
    """Lateness of runs, without clients and with more than the API has room for."""
    rows = []
    load = clients.Load(what="list", clients=settings.crowd, seconds=settings.seconds, path="/v1/runs?limit=1000")
    for title, pressing in (("no clients", None), (f"{settings.crowd} clients that never pause", load)):
        late, counted = await _firing(server, settings, pressing)
        p50, p99, last = report.spread(late)
        told = (None, None, None) if counted is None else (counted.good, counted.shed, counted.failed)
        rows.append((title, len(late), 1e3 * p50, 1e3 * p99, 1e3 * last, *told))
    made.add(
        f"lateness of {settings.firing_rate} runs a second, from due to the handler's start",
        ("while there are", "runs", "p50, ms", "p99, ms", "largest, ms", "answered", "shed", "failed"),
        rows,
    )


async def _firing(
    server: postgres.PostgresServer, settings: Settings, load: clients.Load | None
) -> tuple[Sequence[float], clients.Counted | None]:
    contender = ours.Clockhand(spread=settings.seconds)
    async with _database(server) as url, contender.working(url, drain.Mode.RECURRING) as working:
        runs = int(settings.firing_rate * settings.seconds)
        due: float = math.ceil(time.time()) + 10
        await contender.fill(url, drain.Mode.RECURRING, runs=runs, due=due)
        await asyncio.sleep(max(0.0, due - time.time() - 1))
        counted = None
        if load is not None:
            token = await asyncio.to_thread(_token, url, "rest/bench")
            counted = await clients.put(load, url=working.url, token=token)
        async with asyncio.timeout(drain.PATIENCE_SECONDS):
            while working.telling.handled < runs:  # noqa: ASYNC110 (it changes elsewhere)
                await asyncio.sleep(0.1)
        return working.telling.late, counted


async def _measured(api: _Api, load: clients.Load) -> tuple[clients.Counted, Mapping[str, float]]:
    api.meter.start()
    counted = await clients.put(load, url=api.url, token=api.token)
    return counted, {**api.meter.spent(), "k6": counted.cpu}


def _row(
    counted: clients.Counted, per_second: float, things: int, spent: Mapping[str, float]
) -> Sequence[report.Value]:
    each = {part: 1e6 * seconds / max(1, things) for part, seconds in spent.items()}
    times = (counted.p50, counted.p99, counted.longest)
    own = each["postgres"] + each["API"]
    return (counted.good, per_second, counted.shed, counted.failed, *times, own, *(each[part] for part in _PARTS))


@contextlib.asynccontextmanager
async def _database(server: postgres.PostgresServer) -> AsyncIterator[str]:
    name = await asyncio.to_thread(server.new_database)
    try:
        url = server.url(name)
        await asyncio.to_thread(steps.run, ours.command("migrate"), env=ours.environment(url))
        yield url
    finally:
        await asyncio.to_thread(server.drop_database, name)


@contextlib.asynccontextmanager
async def _serving(url: str, server: postgres.PostgresServer) -> AsyncIterator[_Api]:
    token = await asyncio.to_thread(_token, url, _OWNER)
    port, health = ports.free(2)
    told = {"CLOCKHAND_API_PORT": str(port), "CLOCKHAND_HEALTH_PORT": str(health)}
    async with drain.at_work(ours.command("api"), ours.environment(url, told)) as served:
        await ours.ready(health)
        meter = usage.Meter({"postgres": (server.pid,), "API": served.pids})
        yield _Api(f"http://127.0.0.1:{port}", token, meter)


def _token(url: str, owner: str) -> str:
    words = ours.command("tokens", "create", "--owner", owner, "--role", "editor", "--name", "bench", "-o", "json")
    token: str = json.loads(steps.run(words, env=ours.environment(url)))["token"]
    return token


async def _filled(url: str, rows: int) -> float:
    """History of many tenants; when it ends, in seconds since 1970."""
    db = database.Database(url, size=2, name="benchmark")
    await db.open()
    try:
        async with db.transaction() as connection:
            now = await database.now(connection)
            await history.fill(connection, rows, now=now, prefix="rest/team-")
    finally:
        await db.close()
    await asyncio.to_thread(history.analyze, url)
    return ids.whole_ms(now).timestamp()


async def _count(url: str, query: str) -> int:
    db = database.Database(url, size=1, name="benchmark")
    await db.open()
    try:
        async with db.transaction() as connection:
            cursor = await connection.execute(f"/* benchmarks/ */ {query}".encode())
            row = await cursor.fetchone()
            assert row is not None
            return int(row[0])
    finally:
        await db.close()


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
