"""What goes wrong in installations: each function brings about one thing, for real, and some keep it up until cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import resource
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from tests.support import jobs, steppable, workers_api

from clockhand.domain import spec, tokens
from clockhand.domain.states import RunState as S
from clockhand.store import database, partitions

AGAIN_SECONDS = 1.0
LEASE = 12
WORKERS, EACH = 4, 3
CROWD = 4_200
OWNER, PLACE = "rest/acme", "acme"
PODS = "/api/v1/namespaces/throttled/pods"
_WAIT, _PACE = 60.0, 0.005


async def keep(act: Callable[[], Awaitable[object]], every: float = AGAIN_SECONDS) -> None:
    """Does it again and again; that nobody answers is part of it."""
    while True:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            await act()
        await asyncio.sleep(every)


@contextlib.asynccontextmanager
async def doing(*things: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Goes on with all of them for the length of the block."""
    tasks = [asyncio.create_task(thing) for thing in things]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Tenant:
    """Somebody who has jobs over REST, and a worker that takes their runs."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, editor: str, worker: str) -> None:
        self._editor = workers_api.Caller(session, url, editor)
        self._worker = workers_api.Caller(session, url, worker)

    @staticmethod
    async def made(db: database.Database, session: aiohttp.ClientSession, url: str) -> Tenant:
        editor = await workers_api.make_token(db, owner=OWNER, role=tokens.Role.EDITOR)
        return Tenant(session, url, editor=editor, worker=await workers_api.make_token(db, owner=OWNER))

    async def make_jobs(self, count: int, **when: str) -> Sequence[str]:
        """Their ids."""
        wanted = [{"handler": jobs.HANDLER, "pool": workers_api.NAME, **when} for _ in range(count)]
        answer = await self._editor.post("/v1/jobs:batch", wanted)
        return [one["id"] for one in answer.json["items"]]

    async def work(self) -> None:
        """One claim, and a report on all that it brought."""
        answer = await self._worker.call("claim", place=PLACE, max=100, waitSeconds=5)
        held = [{"runId": run["runId"], "token": run["token"]} for run in answer.json["runs"]]
        if held:
            reports = [{**one, "outcome": "Succeeded"} for one in held]
            await self._worker.call("report", place=PLACE, reports=reports)

    async def run_now(self, job: str) -> None:
        await self._editor.post(f"/v1/jobs/{job}:run", {})


@contextlib.asynccontextmanager
async def blocked_runs(url: str) -> AsyncIterator[None]:
    """Somebody makes an index of live runs, and does not come to an end: nothing can be written to them."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("LOCK TABLE live_runs IN SHARE MODE")
        yield


async def worn(url: str) -> psycopg.AsyncConnection[object]:
    """A database that nobody has looked after: partitions are missing and left over, and a report runs since yesterday.

    The connection returned keeps it so.
    """
    db = database.Database(url, size=1, name="worn")
    await db.open()
    async with db.transaction() as connection:
        now = await database.now(connection)
        old = now - timedelta(days=90)
        await partitions.ensure(connection, oldest=old, newest=old)
        for row in await jobs.query(connection, "SELECT relname FROM pg_class WHERE relname ~ '^skips_[0-9]{4}w'"):
            monday = partitions.week_of(row.relname)
            if monday and monday > (now - timedelta(days=8)).date():
                await connection.execute(f"DROP TABLE {row.relname}".encode())
        waits = await jobs.make_job(connection, jobs.pooled(jobs.NEVER, handler="nobody"), name="waits")
        hour = timedelta(hours=1)
        await jobs.make_run(connection, waits, S.QUEUED, ready_at=now - hour, queue_at=now - hour)
    await db.close()
    holding = await psycopg.AsyncConnection.connect(url)
    await holding.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await holding.execute("SELECT pg_advisory_lock(hashtext('clockhand.partitions')::bigint)")
    return holding


class Pool:
    """A pool of which little goes well, over its API and its database."""

    def __init__(self, db: database.Database, session: aiohttp.ClientSession, url: str) -> None:
        self._db = db
        self._session = session
        self._url = url

    async def furnish(self) -> None:
        await workers_api.make_pool(self._db)
        async with self._db.transaction() as connection:
            await connection.execute("UPDATE pools SET lease_seconds = %s, heartbeat_seconds = 4", (LEASE,))
        self.worker = workers_api.Caller(self._session, self._url, await workers_api.make_token(self._db))

    async def runs(self, count: int, job: spec.JobSpec) -> Sequence[uuid.UUID]:
        """Runs that wait for a worker, all of one job."""
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            name, due = f"job-{uuid.uuid4().hex[:6]}", now + timedelta(days=1)
            made = await jobs.make_job(connection, job, name=name, next_slot_at=due)
            times = (now - timedelta(seconds=number) for number in range(count))
            return [await jobs.make_run(connection, made, S.QUEUED, at=at) for at in times]

    async def claim(self, worker: str, count: int) -> list[dict[str, str]]:
        answer = await self.worker.call("claim", worker=worker, max=count, waitSeconds=10)
        return [{"runId": run["runId"], "token": run["token"]} for run in answer.json["runs"]]

    async def _report(self, worker: str, reports: Sequence[Mapping[str, Any]]) -> None:
        answer = await self.worker.call("report", worker=worker, reports=reports)
        assert all(one["accepted"] for one in answer.json["reports"]), answer.json

    async def fall_silent(self) -> None:
        """Workers that take runs and say nothing more."""
        await self.runs(WORKERS * EACH - 1, jobs.pooled(jobs.NEVER))
        await self.runs(1, jobs.pooled(jobs.NEVER, delivery=spec.Delivery.AT_MOST_ONCE))
        for number in range(WORKERS):
            assert await self.claim(f"silent-{number}", EACH)

    async def die(self) -> None:
        """Runs that fail for good."""
        retry = spec.Retry(max_attempts=1)
        await self.runs(12, jobs.pooled(jobs.NEVER, retry=retry, pause_after_failures=5))
        held = await self.claim("dying", 12)
        failure = {"error": "LookupError", "message": "no such user"}
        reports = [{**one, "outcome": "Failed", "failure": failure} for one in held]
        await self._report("dying", reports)

    async def end_twice(self) -> None:
        """A run whose end history has already."""
        await self.runs(1, jobs.pooled(jobs.NEVER))
        [held] = await self.claim("twice", 1)
        async with self._db.transaction() as connection:
            await connection.execute(
                "INSERT INTO run_history (run_id, job_id, owner, job_name, name, kind, key, scheduled_at, created_at, shard,"
                " spec_id, state, attempt, failures, disruptions, finished_at)"
                " SELECT run_id, job_id, owner, job_name, name, kind, key, scheduled_at, created_at, shard, spec_id, 'Dead',"
                " 1, 0, 0, now() FROM live_runs WHERE run_id = %s",
                (held["runId"],),
            )
        await self._report("twice", [{**held, "outcome": "Succeeded"}])

    async def report_late(self) -> None:
        """On a run that somebody else has by now."""
        await self.worker.call("report")

    async def come_with_a_wrong_token(self) -> None:
        await workers_api.Caller(self._session, self._url, "clockhand_nonsense").call("claim")

    async def crowd(self) -> None:
        """More workers wait than one process should hold. They come one by one, and again whenever they are sent off."""

        async def wait(number: int) -> None:
            await asyncio.sleep(number * _PACE)
            await keep(functools.partial(self.worker.call, "claim", worker=f"w-{number}", waitSeconds=_WAIT))

        await asyncio.gather(*(wait(number) for number in range(CROWD)))


async def worker_token(db: database.Database) -> str:
    """Of the tenant's pool."""
    return await workers_api.make_token(db, owner=OWNER)


async def in_a_moment(db: database.Database) -> str:
    """An instant that a one-shot may still be made for."""
    async with db.transaction() as connection:
        return (await database.now(connection) + timedelta(seconds=2)).isoformat().replace("+00:00", "Z")


def kubeconfig(server: str, *, ca: str | None = None, token: str = "none") -> str:
    """Of one user of one cluster, as text."""
    cluster = {"server": server, **({"certificate-authority": ca} if ca else {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
    )


def one_at_a_time(namespace: str, account: str) -> Sequence[dict[str, Any]]:
    """Objects by which an API server does no more than one thing for a service account at the same time."""
    version = "flowcontrol.apiserver.k8s.io/v1"
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {
        "apiVersion": version,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": limited},
    }
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    schema = {
        "apiVersion": version,
        "kind": "FlowSchema",
        "metadata": {"name": "narrow"},
        "spec": {
            "priorityLevelConfiguration": {"name": "narrow"},
            "matchingPrecedence": 2,
            "rules": [{"subjects": [subject], "resourceRules": [everything]}],
        },
    }
    return level, schema


async def keep_server_busy(session: aiohttp.ClientSession, url: str, *, ca: Path, token: str) -> None:
    """A list that is to be as new as none is: the server waits some seconds for it to become so."""
    trust = ssl.create_default_context(cafile=str(ca))
    query = {"resourceVersion": "999999999", "resourceVersionMatch": "NotOlderThan"}
    headers = {"Authorization": f"Bearer {token}"}
    async with session.get(url, params=query, headers=headers, ssl=trust) as answer:
        await answer.read()


def allow_connections() -> None:
    """As many as the crowd has."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * CROWD), hard))


def leap(url: str) -> None:
    """The database's clock jumps by an hour."""
    steppable.set_offset(url, 3600)
