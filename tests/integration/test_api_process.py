"""`clockhand api` as a process: it serves workers without a cluster, and ends without cutting anybody off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import pytest
from tests.support import jobs, ports, postgres, workers_api

from clockhand.domain.states import RunState as S
from clockhand.store import database

START_SECONDS = 60.0


@dataclass(frozen=True)
class Process:
    """A running `clockhand api`, with a session to talk to it."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    port: int
    health: int

    def caller(self, secret: str) -> workers_api.Caller:
        return workers_api.Caller(self.session, f"http://127.0.0.1:{self.port}", secret)

    async def probe(self, path: str) -> int:
        """The status of a probe; 0 where nobody answers."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with self.session.get(f"http://127.0.0.1:{self.health}{path}") as answer:
                return answer.status
        return 0

    async def until_answered(self, path: str) -> None:
        """Waits until a probe says yes."""
        await until(lambda: self._yes(path))

    async def _yes(self, path: str) -> bool:
        assert self.process.returncode is None
        return await self.probe(path) == 200

    async def shows(self, line: str) -> bool:
        """Whether the metrics have this line."""
        async with self.session.get(f"http://127.0.0.1:{self.health}/metrics") as answer:
            return f"\n{line}\n" in await answer.text()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(url: str, *, program: str = "clockhand", **settings: str) -> AsyncIterator[Process]:
    port, health = ports.free(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CLOCKHAND_", "KUBE"))}
    environment |= {
        "CLOCKHAND_DATABASE_URL": url,
        "CLOCKHAND_API_PORT": f"{port}",
        "CLOCKHAND_HEALTH_PORT": f"{health}",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", program, "api", env=environment | settings, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Process(process, session, port, health)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture
async def secret(db: database.Database) -> str:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    await workers_api.make_pool(db)
    return await workers_api.make_token(db)


async def test_from_a_claim_that_waits_to_a_run_that_is_over(
    db: database.Database, database_url: str, secret: str
) -> None:
    async with running(database_url) as one:
        await one.until_answered("/readyz")
        worker = one.caller(secret)
        waiting = asyncio.create_task(worker.call("claim", waitSeconds=60))
        async with db.transaction() as connection:
            now = await database.now(connection)
            await jobs.make_job(connection, jobs.pooled(), next_slot_at=now.replace(second=0, microsecond=0))
        [run] = (await waiting).json["runs"]
        held = {"runId": run["runId"], "token": run["token"]}
        assert (await worker.call("heartbeat", held=[held])).json["held"][0]["standing"] == "Held"
        ended = await worker.call("report", reports=[{**held, "outcome": "Succeeded"}])
        assert ended.json["reports"] == [{**held, "accepted": True, "state": "Succeeded"}]
        assert await one.shows('clockhand_api_requests_total{call="report",code="200"} 1.0')


async def test_sigterm_answers_who_waits_and_stores_what_is_under_way(
    db: database.Database, database_url: str, secret: str
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled())
        run_id = await jobs.make_run(connection, job, S.RUNNING)
    async with running(database_url) as one:
        await one.until_answered("/readyz")
        worker = one.caller(secret)
        waiting = [asyncio.create_task(worker.call("claim", worker=f"w-{n}", waitSeconds=60)) for n in range(20)]
        report = {"runId": str(run_id), "token": str(jobs.TOKEN), "outcome": "Succeeded"}
        await until(lambda: one.shows("clockhand_api_waiting_claims 20.0"))
        async with db.transaction() as connection:
            await connection.execute("SELECT FROM live_runs WHERE run_id = %s FOR UPDATE", (run_id,))
            reported = asyncio.create_task(worker.call("report", reports=[report]))
            await until(lambda: is_waiting_for_a_lock(db))
            one.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*waiting)
            assert {answer.status for answer in answers} == {200}
            assert not any(answer.json["runs"] for answer in answers)
        assert (await reported).json["reports"][0]["accepted"]
        assert await one.process.wait() == 0
        assert one.process.stderr is not None
        said = (await one.process.stderr.read()).decode()
    assert secret not in said
    assert "Traceback" not in said
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM shard_leases WHERE holder IS NOT NULL") == 0


async def is_waiting_for_a_lock(db: database.Database) -> bool:
    async with db.transaction() as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return bool(await jobs.one(connection, text))


async def test_it_is_alive_but_not_ready_before_the_schema_is_there(server: postgres.PostgresServer) -> None:
    name = server.new_database()
    async with running(server.url(name)) as one:
        await one.until_answered("/healthz")
        assert await one.probe("/readyz") == 503
        one.process.send_signal(signal.SIGTERM)
        assert await one.process.wait() == 0
    server.drop_database(name)


async def test_limits_that_cannot_be_used_end_it_with_2(database_url: str) -> None:
    async with running(database_url, CLOCKHAND_LIMITS="/nowhere/limits.yaml") as one:
        assert await one.process.wait() == 2
        assert one.process.stderr is not None
        assert "/nowhere/limits.yaml" in (await one.process.stderr.read()).decode()
