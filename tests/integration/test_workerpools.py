"""Pools as rows, and what jobs are told of them: by the mirror when they are stored, and when their pool changes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs, sighted

from clockhand import errors
from clockhand.domain import sightings
from clockhand.domain.states import RunState as S
from clockhand.engine import mirror, poolready, templates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties, partitions, workerpools

NOBODY = connections.Connection(server="http://127.0.0.1:1")
POOL = jobs.POOL
SETUP = workerpools.Setup(uuid.UUID(int=9), "clockhand-pool-mailers", (), (), "Poll", 90, 30)


@pytest.fixture
async def held(db: database.Database) -> duties.Held:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
        taken = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert taken
    return taken


@pytest.fixture
async def mirrored(db: database.Database) -> AsyncIterator[mirror.Mirror]:
    async with clients.connect(NOBODY) as client:
        yield mirror.Mirror(db, templates.Templates(db, pods.Pods(client)))


async def store(db: database.Database, setup: workerpools.Setup = SETUP, *, pool: str = POOL) -> None:
    async with db.transaction() as connection:
        await workerpools.store(connection, pool, setup, resource_version=1)


async def load(db: database.Database, *, owners: list[str] | None = None) -> dict[str, workerpools.Loaded]:
    async with db.transaction() as connection:
        now = await database.now(connection)
        return dict(await workerpools.all_pools(connection, owners=owners, now=now))


async def pool_ready(db: database.Database, seen: sightings.Sighting) -> dict[str, Any] | None:
    """The condition that the job shows."""
    async with db.transaction() as connection:
        stored = await jobs.one(connection, "SELECT conditions FROM job_status WHERE job_id = %s", seen.uid)
    return next((one for one in stored if one["type"] == "PoolReady"), None)


def pooled(name: str = "sample", *, namespace: str = "team-a", **fields: Any) -> sightings.Sighting:
    return sighted.job(
        name, namespace=namespace, template=None, **{"handler": "email.send", "pool": "mailers", **fields}
    )


async def test_a_pool_is_stored_set_up_anew_and_removed(db: database.Database) -> None:
    await store(db)
    assert (await load(db))[POOL] == workerpools.Loaded(SETUP, None, 0, 0.0, 0)
    other = workerpools.Setup(uuid.UUID(int=8), None, ("k8s/team-b", "*"), ("one", "two"), "Kafka", 60, 20)
    await store(db, other)
    assert (await load(db))[POOL].setup == other
    assert await load(db, owners=["k8s/team-b"]) == {}
    async with db.transaction() as connection:
        await workerpools.remove(connection, [POOL], now=await database.now(connection))
        assert await workerpools.found(connection, [POOL]) == {}
    assert await load(db) == {}
    await store(db)
    assert POOL in await load(db)


async def test_a_pool_that_polls_again_has_no_trouble_with_brokers(db: database.Database) -> None:
    await store(db, workerpools.Setup(uuid.UUID(int=9), None, (), (), "Kafka", 90, 30))
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET kafka_error = 'no broker'")
    assert (await load(db))[POOL].kafka_error == "no broker"
    await store(db)
    assert (await load(db))[POOL].kafka_error is None


async def test_what_waits_and_what_runs_is_counted_a_pool(db: database.Database) -> None:
    await store(db)
    await store(db, pool="k8s/team-a/idle")
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure_window(connection, now=now, retention_days=30)
        job = await jobs.make_job(connection, jobs.pooled())
        pod = await jobs.make_job(connection, name="pod")
        for number in range(3):
            at = now - timedelta(minutes=number)
            # ready since a minute, and ahead of others by its priority
            queued = {"priority": 10, "queue_at": now - timedelta(seconds=60 + 100)}
            await jobs.make_run(connection, job, S.QUEUED, at=at, **queued)
        await jobs.make_run(connection, job, S.CLAIMED, at=now - timedelta(hours=1), worker=None)
        await jobs.make_run(connection, job, S.RUNNING, at=now - timedelta(hours=2))
        await jobs.make_run(connection, job, S.STOPPING, at=now - timedelta(hours=3))
        await jobs.make_run(connection, job, S.RETRYING, at=now - timedelta(hours=4))
        await jobs.make_run(connection, pod, S.QUEUED)
        found = await workerpools.all_pools(connection, owners=None, now=now)
    loaded = found[POOL]
    assert (loaded.backlog, loaded.running) == (4, 2)
    assert loaded.oldest_seconds == 60.0
    assert (found["k8s/team-a/idle"].backlog, found["k8s/team-a/idle"].oldest_seconds) == (0, 0.0)


async def test_a_job_is_told_of_its_pool_when_it_is_stored(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    early, pod = pooled("early"), sighted.job("pod")
    await mirrored.store(held, [early, pod])
    missing = await pool_ready(db, early)
    assert missing is not None
    assert (missing["status"], missing["reason"]) == ("False", "PoolMissing")
    assert missing["message"] == "there is no WorkerPool mailers of namespace team-a: runs wait until there is"
    assert await pool_ready(db, pod) is None
    await store(db)
    late = pooled("late")
    await mirrored.store(held, [late])
    told = await pool_ready(db, late)
    assert told is not None
    assert (told["status"], told["reason"]) == ("True", "PoolFound")


async def test_a_job_of_another_namespace_or_handler_is_told_why_its_runs_wait(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    await store(db, workerpools.Setup(uuid.UUID(int=9), None, ("k8s/team-b",), ("email.send",), "Poll", 90, 30))
    allowed = pooled("allowed", namespace="team-b", pool="team-a/mailers")
    foreign = pooled("foreign", namespace="team-c", pool="team-a/mailers")
    lacking = pooled("lacking", handler="sms.send")
    await mirrored.store(held, [allowed, foreign, lacking])
    reasons = [told["reason"] if (told := await pool_ready(db, one)) else None for one in (allowed, foreign, lacking)]
    assert reasons == ["PoolFound", "NotAllowed", "HandlerMissing"]


async def test_an_edit_to_a_pod_takes_the_condition_away(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    seen = pooled()
    await mirrored.store(held, [seen])
    assert await pool_ready(db, seen) is not None
    await mirrored.store(held, [sighted.edited(seen)])
    assert await pool_ready(db, seen) is None


async def test_a_change_of_the_pool_is_told_to_its_jobs_and_to_no_others(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poolready, "PAGE", 3)
    mine = [pooled(f"mine-{number}") for number in range(5)]
    others = [pooled(f"other-{number}", pool="other") for number in range(5)]
    await mirrored.store(held, [*mine, *others, *(sighted.job(f"pod-{number}") for number in range(5))])
    await store(db)
    await store(db, pool="k8s/team-a/other")
    turn = asyncio.Lock()
    assert await poolready.tell(db, held, pools={POOL}, turn=turn) == len(mine)
    assert [told["status"] for one in mine if (told := await pool_ready(db, one))] == ["True"] * 5
    assert [told["status"] for one in others if (told := await pool_ready(db, one))] == ["False"] * 5
    # whoever takes the duty over asks about all of them, and what they show already is no news
    assert await poolready.tell(db, held, pools=None, turn=turn) == len(others)
    assert await poolready.tell(db, held, pools=None, turn=turn) == 0


async def test_nobody_without_the_duty_tells_jobs(db: database.Database, held: duties.Held) -> None:
    stale = duties.Held(held.duty, held.replica, held.generation - 1)
    with pytest.raises(errors.Stale):
        await poolready.tell(db, stale, pools=None, turn=asyncio.Lock())
