"""Caps under fire: six claimers at once, connections cut at any statement, pods and workers mixed.

No cap is exceeded at any commit, and none leaks: in the end every run is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support import jobs, ledger
from tests.support import limits as files

from clockhand.domain import ids, protocol, spec, verdict
from clockhand.domain.states import RunState as S
from clockhand.engine import admit, aftermath, claim, fire, limits, loops, verdicts
from clockhand.engine.pools import service
from clockhand.store import database, runs

OWNERS = ("k8s/team-a", "k8s/team-b", "k8s/team-c")
GROUPS = ("exports", "imports")
SHARED = "k8s/team-a/mailers"
PODS, APIS = 3, 3
RUNS_OF_A_JOB = 6
CUTS = 60
SEEDS = (1, 2, 3)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def text_of(chance: random.Random) -> str:
    """Limits that are tight; one time in five none of owners and pools, so that runs are handed over."""
    often = 0.0 if chance.random() < 0.2 else 0.8

    def cap(most: int, often: float) -> str:
        return f"{{maxConcurrentRuns: {chance.randint(1, most)}}}" if chance.random() < often else "{}"

    lines = ["owners:", *(f"  {owner}: {cap(6, often)}" for owner in OWNERS), "groups:"]
    lines += [*(f"  {group}: {cap(4, 0.9)}" for group in GROUPS), "pools:", f"  {SHARED}: {cap(5, often)}"]
    return "\n".join(lines)


def plan_of(chance: random.Random) -> spec.JobSpec:
    what = {"pool": "team-a/mailers", "handler": jobs.HANDLER} if chance.random() < 0.5 else {}
    return jobs.plan(
        jobs.NEVER,
        concurrency_group=chance.choice([None, None, *GROUPS]),
        max_concurrent_runs=chance.choice([None, None, 1, 3]),
        retry=spec.Retry(max_attempts=2, backoff=spec.Backoff(initial_seconds=1, jitter=0.0)),
        **what,
    )


async def make(db: database.Database, chance: random.Random) -> dict[str, int]:
    """Jobs of every kind, each with runs that wait; returns the caps of jobs by their ids."""
    caps = {}
    async with db.transaction() as connection:
        await ledger.begin(connection)
        await jobs.make_partitions(connection)
        await connection.execute(
            b"INSERT INTO pools (pool, owner, name, allowed_owners, lease_seconds, heartbeat_seconds) "
            b"VALUES (%s, %s, 'mailers', '{*}', 10, 3)",
            (SHARED, OWNERS[0]),
        )
        now = await database.now(connection)
        for number in range(24):
            plan = plan_of(chance)
            job = await jobs.make_job(
                connection,
                plan,
                owner=chance.choice(OWNERS),
                name=f"job-{number}",
                next_slot_at=now.replace(microsecond=0),
            )
            if plan.max_concurrent_runs is not None:
                caps[str(job.job_id)] = plan.max_concurrent_runs
            for minutes in range(1, RUNS_OF_A_JOB):
                at = now - timedelta(minutes=minutes)
                await jobs.make_run(connection, job, S.BLOCKED, at=at, concurrency_group=plan.concurrency_group)
        await jobs.hold_all(connection)
    return caps


class Pods:
    """A claimer for pods, and what ends them: one of several that believe to hold the same shards."""

    def __init__(
        self, db: database.Database, file: limits.LimitsFile, holder: runs.Holder, chance: random.Random
    ) -> None:
        self._db, self._file, self._holder, self._chance = db, file, holder, chance
        self._claims = claim.Claims(file)
        self._admit = admit.Admit(db, file)
        self._after = aftermath.Aftermath(db, file)
        self._fire = fire.Fire(db, file=file)

    async def step(self) -> float:
        await self._fire.run_once(ids.POD_SHARDS)
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            await self._claims.take(connection, holder=self._holder, limit=self._chance.randint(1, 8), now=now)
        await self._end()
        if self._chance.random() < 0.3:
            await self._admit.run_once(ids.EVERY_SHARD)
        return 0.0

    async def _end(self) -> None:
        """Some of the open attempts end, whoever claimed them."""
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            found = await runs.open_of_shards(connection, shards=ids.POD_SHARDS, after=runs.NO_RUN, limit=50)
            chosen = [one for one in found if self._chance.random() < 0.4]
            ended = [
                verdicts.Ended(
                    runs.Key(one.run_id, one.token, one.shard),
                    verdict.AttemptEnd(self._chance.choice([verdict.Ending.SUCCEEDED, verdict.Ending.FAILED]), "Error"),
                )
                for one in chosen
            ]
            stored = await verdicts.store(connection, self._holder, ended, {}, now=now)
        await self._after.follow(stored)


class Worker:
    """Claims from one API process, and reports at once."""

    def __init__(self, pools: service.Pools, name: str, chance: random.Random) -> None:
        self._pools, self._name, self._chance = pools, name, chance
        self._held: tuple[protocol.Held, ...] = ()
        self._request_id = uuid.uuid4()

    async def step(self) -> float:
        claimed = await self._pools.claim(SHARED, self._claim())
        self._request_id = uuid.uuid4()
        self._held = tuple(
            {protocol.Held(run_id=one.run_id, token=one.token) for one in claimed.runs} | set(self._held)
        )
        if self._held:
            await self._pools.report(
                SHARED, protocol.ReportRequest(worker=self._name, reports=tuple(map(self._report, self._held)))
            )
            self._held = ()
        return 0.0

    def _claim(self) -> protocol.ClaimRequest:
        return protocol.ClaimRequest(
            request_id=self._request_id, worker=self._name, handlers=(jobs.HANDLER,), max=self._chance.randint(1, 6),
            wait_seconds=0.2, held=self._held,
        )  # fmt: skip

    def _report(self, held: protocol.Held) -> protocol.Report:
        failed = self._chance.random() < 0.3
        return protocol.Report(
            run_id=held.run_id,
            token=held.token,
            outcome=protocol.Outcome.FAILED if failed else protocol.Outcome.SUCCEEDED,
            failure=protocol.Failure() if failed else None,
        )


async def cut(db: database.Database, chance: random.Random) -> None:
    """Cuts connections, one after the other, wherever they are in what they do."""
    for _ in range(CUTS):
        async with db.transaction() as connection:
            text = (
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' "
                "AND application_name LIKE 'clockhand-actor%%'"
            )
            found = await jobs.query(connection, text)
            if found:
                await connection.execute("SELECT pg_terminate_backend(%s)", (chance.choice(found).pid,))
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def actors(url: str, file: limits.LimitsFile, holder: runs.Holder, chance: random.Random) -> AsyncIterator[None]:
    """All claimers at work."""
    async with contextlib.AsyncExitStack() as stack:
        stop = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def opened(number: int) -> database.Database:
            one = database.Database(url, size=4, name=f"actor-{number}")
            await one.open()
            stack.push_async_callback(one.close)
            return one

        for number in range(PODS):
            pods = Pods(await opened(number), file, holder, chance)
            tasks.append(asyncio.create_task(loops.forever(f"pods-{number}", pods.step)))
        serving = []
        for number in range(APIS):
            pools = service.Pools(await opened(PODS + number), replica=f"api-{number}", lease=3, limits=file)
            serving.append(asyncio.create_task(pools.run(stop)))
            worker = Worker(pools, f"worker-{number}", chance)
            tasks.append(asyncio.create_task(loops.forever(f"worker-{number}", worker.step)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stop.set()
            await asyncio.gather(*serving, return_exceptions=True)


async def until_all_are_over(db: database.Database) -> None:
    async with asyncio.timeout(120):
        while True:
            async with db.transaction() as connection:
                if await jobs.one(connection, "SELECT count(*) FROM live_runs") == 0:
                    return
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("chance", SEEDS, indirect=True)
async def test_no_cap_is_ever_exceeded_and_none_leaks(
    db: database.Database, database_url: str, tmp_path: Path, chance: random.Random
) -> None:
    file = files.file(tmp_path, text_of(chance))
    jobs_of = await make(db, chance)
    async with db.transaction() as connection:
        rows = await jobs.query(connection, "SELECT shard, generation FROM shard_leases WHERE holder = 'one'")
    holder = runs.Holder("one", {row.shard: row.generation for row in rows})
    async with actors(database_url, file, holder, chance):
        await cut(db, chance)
        await until_all_are_over(db)
    caps = ledger.caps(file.current, jobs_of)
    async with db.transaction() as connection:
        most: dict[str, int] = {}
        for taken in await ledger.taken(connection):
            for key, count in taken.counts.items():
                most[key] = max(count, most.get(key, 0))
        ended = await jobs.one(connection, "SELECT count(*) FROM run_history")
    assert ended == 24 * RUNS_OF_A_JOB
    assert {key: most[key] for key, cap in caps.items() if most.get(key, 0) > cap} == {}
    # what is capped was used to the full somewhere: the caps were what held things back
    assert any(most.get(key) == cap for key, cap in caps.items())
