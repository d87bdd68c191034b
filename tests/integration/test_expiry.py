"""When the object of a one-shot goes: never too early, never with a live run, and only as the mirror last saw it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs, sighted, statements

from clockhand import errors
from clockhand.domain import ids, spec
from clockhand.domain.states import RunState as S
from clockhand.engine import expiry, mirror, replica, requests, shards, templates
from clockhand.engine.pools import service
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties

NOBODY = connections.Connection(server="http://127.0.0.1:1")
EVERYWHERE = range(ids.SHARDS)
HOUR = timedelta(hours=1)
TTL = timedelta(minutes=10)


class Deletions:
    """Takes note of what the API server would be asked, and answers as told."""

    def __init__(self, answer: errors.ClockhandError | None = None) -> None:
        self.asked: list[tuple[str, str, str, str | None]] = []
        self.answer = answer

    async def delete(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None) -> None:
        self.asked.append((namespace, name, uid, resource_version))
        if self.answer is not None:
            raise self.answer


@pytest.fixture
async def now(db: database.Database) -> datetime:
    """Database time; weeks have their partitions."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        return await database.now(connection)


async def make(
    db: database.Database, at: datetime, *, name: str = "once", owner: str = jobs.OWNER, job: spec.JobSpec | None = None
) -> jobs.Job:
    """A one-shot whose slot `at` was decided, with the usual time to live."""
    async with db.transaction() as connection:
        made = await jobs.make_job(connection, job, name=name, owner=owner)
        await connection.execute(
            "UPDATE jobs SET ttl_seconds = %s, last_slot_at = %s WHERE job_id = %s",
            (TTL.total_seconds(), at, made.job_id),
        )
    return made


async def run(db: database.Database, job: jobs.Job, state: S, at: datetime, **columns: Any) -> uuid.UUID:
    async with db.transaction() as connection:
        return await jobs.make_run(connection, job, state, at=at, **columns)


async def change(db: database.Database, text: str, *parameters: object) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode(), parameters)


async def expires_at(db: database.Database, job: jobs.Job) -> datetime | None:
    async with db.transaction() as connection:
        found: datetime | None = await jobs.one(connection, "SELECT expires_at FROM jobs WHERE job_id = %s", job.job_id)
    return found


async def step(
    db: database.Database, deletions: Deletions | None = None, where: Sequence[int] = EVERYWHERE
) -> Sequence[str]:
    """One batch; the names of the objects that were to be deleted."""
    noted = deletions or Deletions()
    await expiry.Expiry(db, noted).run_once(where)
    return [name for _, name, _, _ in noted.asked]


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.DEAD, S.CANCELLED, S.UNKNOWN])
async def test_the_time_counts_from_the_end_of_the_run(db: database.Database, now: datetime, state: S) -> None:
    job = await make(db, now - HOUR)
    await run(db, job, state, now - HOUR, finished_at=now - timedelta(minutes=3))
    assert await step(db) == []
    assert await expires_at(db, job) == now - timedelta(minutes=3) + TTL


async def test_an_object_whose_time_is_over_is_deleted_as_it_was_last_seen(
    db: database.Database, now: datetime
) -> None:
    job = await make(db, now - HOUR)
    await change(db, "UPDATE jobs SET resource_version = 4711")
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - TTL)
    deletions = Deletions()
    assert await expiry.Expiry(db, deletions).run_once(EVERYWHERE) == 1
    assert deletions.asked == [("team-a", "once-00000", str(job.job_id), "4711")]


async def test_a_slot_that_was_skipped_counts_from_its_record(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    recorded = now - timedelta(minutes=1)
    await change(
        db,
        "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
        "SELECT job_id, owner, name, last_slot_at, last_slot_at, 1, 'Deadline', %s FROM jobs",
        recorded,
    )
    assert await step(db) == []
    assert await expires_at(db, job) == recorded + TTL


async def test_without_a_run_or_a_record_it_counts_from_the_edit(db: database.Database, now: datetime) -> None:
    job = await make(db, now - timedelta(minutes=2))
    assert await step(db) == []
    assert await expires_at(db, job) == now - timedelta(minutes=2) + TTL


async def test_runs_of_an_earlier_rule_do_not_take_an_edited_object_away(db: database.Database, now: datetime) -> None:
    """Somebody makes a one-shot of a schedule, or moves one, and mistakes the date: nothing of the new rule has run."""
    edited = now - timedelta(minutes=2)
    job = await make(db, edited)
    await change(db, "UPDATE job_specs SET spec = jsonb_build_object('at', %s::timestamptz)", now - HOUR)
    await run(db, job, S.SUCCEEDED, now - 2 * HOUR, finished_at=now - 2 * HOUR)
    assert await step(db) == []
    assert await expires_at(db, job) == edited + TTL
    # its own run, or its own skip, is the end that counts, whatever was edited since
    await change(db, "UPDATE jobs SET expires_at = NULL")
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - HOUR)
    assert await step(db) == [job.name]


@pytest.mark.parametrize("state", sorted({S.BLOCKED, S.QUEUED, S.CLAIMED, S.RUNNING, S.STOPPING, S.RETRYING}))
async def test_nothing_goes_while_a_run_is_live(db: database.Database, now: datetime, state: S) -> None:
    job = await make(db, now - HOUR)
    await run(db, job, state, now - HOUR)
    assert await step(db) == []
    assert await expires_at(db, job) is None


async def test_a_manual_run_that_comes_in_between_postpones_it(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - TTL)
    await change(db, "UPDATE jobs SET expires_at = %s", now)
    by_hand = await run(db, job, S.RUNNING, now, kind="Manual", key="by-hand", name="by-hand")
    assert await step(db) == []
    assert await expires_at(db, job) is None, "it is live: nobody knows how long"
    await change(db, "DELETE FROM live_runs WHERE run_id = %s", by_hand)
    await run(db, job, S.DEAD, now, kind="Manual", key="by-hand", name="by-hand", finished_at=now)
    assert await step(db) == []
    assert await expires_at(db, job) == now + TTL


async def test_a_run_that_ended_after_the_instant_was_set_postpones_it(db: database.Database, now: datetime) -> None:
    """A redrive came and went between two passes."""
    job = await make(db, now - HOUR)
    await change(db, "UPDATE jobs SET expires_at = %s", now - timedelta(seconds=1))
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - timedelta(seconds=30))
    assert await step(db) == []
    assert await expires_at(db, job) == now - timedelta(seconds=30) + TTL


async def test_a_manual_run_that_is_asked_for_at_this_moment_is_seen(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - TTL)
    async with db.transaction() as connection:
        await requests.request_run(
            connection, owner=job.owner, job_id=job.job_id, name="by-hand", actor="somebody", now=now
        )
        assert await step(db) == [], "its job is locked by now"
    assert await step(db) == []
    assert await expires_at(db, job) is None


async def test_a_row_that_somebody_holds_is_passed_over(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    async with db.transaction() as blocker:
        await blocker.execute("SELECT FROM jobs FOR UPDATE")
        assert await asyncio.wait_for(step(db), 10) == [], "it waits for nobody"
    assert await step(db) == [job.name]


@pytest.mark.parametrize(
    "kept",
    [
        "suspended = true",
        "paused_at = now()",
        "parked = 'for a reason'",
        "deleted_at = now()",
        "ttl_seconds = NULL",
        "next_slot_at = now() + interval '1 hour', next_run_at = now() + interval '1 hour'",
    ],
)
async def test_what_is_not_over_or_not_asked_for_stays(db: database.Database, now: datetime, kept: str) -> None:
    job = await make(db, now - HOUR)
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now - TTL)
    for instant in (None, now - HOUR):
        await change(db, f"UPDATE jobs SET expires_at = %s, {kept}", instant)
        assert await step(db) == []
        assert await expires_at(db, job) == instant


async def test_only_objects_of_the_held_shards(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    others = [shard for shard in EVERYWHERE if shard != job.shard]
    assert await step(db, where=others) == []
    assert await step(db) == [job.name]


async def test_a_job_that_is_no_object_goes_with_its_row(db: database.Database, now: datetime) -> None:
    declared = await make(db, now - HOUR)
    made = [await make(db, now - HOUR, name=f"made-{number}", owner="rest/tenant") for number in range(3)]
    await run(db, made[1], S.SUCCEEDED, now - HOUR, finished_at=now - TTL / 2)
    live = await run(db, made[2], S.RUNNING, now - HOUR)
    await expiry.Expiry(db, None).clear(EVERYWHERE)
    async with db.transaction() as connection:
        cursor = await connection.execute("SELECT name, resource_version FROM jobs WHERE deleted_at IS NOT NULL")
        assert await cursor.fetchall() == [(made[0].name, 2)]
    assert await expires_at(db, made[1]) == now + TTL / 2
    assert await expires_at(db, made[2]) is None, f"{live} is under way"
    assert await step(db) == [declared.name], "who can delete no objects has left it alone"


async def test_more_than_a_batch_is_cleared_at_once(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, expiry.BATCH * 2 + 1, owner="rest/tenant")
        await connection.execute("UPDATE jobs SET ttl_seconds = 60, last_slot_at = %s", (now - HOUR,))
    await expiry.Expiry(db, None).clear(EVERYWHERE)
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM jobs WHERE deleted_at IS NULL") == 0


@pytest.mark.parametrize(
    "answer", [errors.NotFound("gone"), errors.Conflict("newer"), errors.Unavailable("away"), errors.Refused("no")]
)
async def test_an_object_that_is_not_deleted_now_comes_again_later(
    db: database.Database, now: datetime, answer: errors.ClockhandError
) -> None:
    job = await make(db, now - HOUR)
    deletions = Deletions(answer)
    for _ in range(2):
        assert await expiry.Expiry(db, deletions).run_once(EVERYWHERE) == 0
    assert len(deletions.asked) == 1, "not at once"
    again = await expires_at(db, job)
    assert again is not None
    assert now < again <= now + expiry.AGAIN + TTL
    await change(db, "UPDATE jobs SET expires_at = %s", now)
    assert await step(db) == [job.name]


async def test_a_process_that_dies_before_the_call_leaves_it_to_the_next(db: database.Database, now: datetime) -> None:
    job = await make(db, now - HOUR)
    [one] = (await expiry.Expiry(db, Deletions()).settle(EVERYWHERE)).objects
    assert one.job_id == job.job_id
    assert await step(db) == []
    await change(db, "UPDATE jobs SET expires_at = expires_at - %s", expiry.AGAIN)
    assert await step(db) == [job.name]


async def test_nothing_goes_while_the_clock_is_doubted(db: database.Database, database_url: str, now: datetime) -> None:
    job = await make(db, now - HOUR)
    await change(db, "UPDATE installation SET clock_step = interval '-1 hour', clock_noticed_at = now()")
    other = database.Database(database_url, size=1, name="began-after-the-jump")
    await other.open()
    assert await step(other) == []
    await other.close()
    await change(db, "UPDATE installation SET clock_step = NULL")
    assert await step(db) == [job.name]


async def test_two_at_once_ask_once(db: database.Database, now: datetime) -> None:
    for number in range(20):
        await make(db, now - HOUR, name=f"job-{number}")
    found = await asyncio.gather(*(step(db) for _ in range(4)))
    asked = [name for names in found for name in names]
    assert sorted(asked) == sorted(f"job-{number}-00000" for number in range(20))


async def test_a_crowd_goes_in_batches(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, expiry.BATCH + 30)
        await connection.execute("UPDATE jobs SET ttl_seconds = 60")
    assert [len(await step(db)) for _ in range(3)] == [expiry.BATCH, 30, 0]


async def test_the_renewal_of_the_leases_tells_whether_there_is_anything_to_do(
    db: database.Database, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = shards.Shards(db, replica="one", lease=jobs.LONG)
    await held.run_once()
    names = statements.named(monkeypatch)

    async def told() -> bool:
        await held.run_once()
        return held.expiring

    assert not await told()
    job = await make(db, now - HOUR)
    await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now)
    assert await told(), "no instant is set yet"
    await step(db)
    assert not await told(), "it comes later"
    await change(db, "UPDATE jobs SET expires_at = now() - interval '1 second'")
    assert await told()
    await change(db, "UPDATE jobs SET suspended = true, expires_at = NULL")
    assert not await told()
    assert [name for name in names if not name.startswith("expiry")].count("shards.beat") == 5


async def test_a_one_shot_from_its_object_to_its_end(db: database.Database, now: datetime) -> None:
    async with db.transaction() as connection:
        held = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert held
    async with clients.connect(NOBODY) as client:
        mirrored = mirror.Mirror(db, templates.Templates(db, pods.Pods(client)))
        seen = sighted.job(schedule=None, at=f"{now + HOUR:%Y-%m-%dT%H:%M:%SZ}", ttlSecondsAfterFinished=0)
        await mirrored.store(held, [seen])
        assert await step(db) == [], "its slot is to come"
        async with db.transaction() as connection:
            [job] = await jobs.query(connection, "SELECT job_id, owner, name, shard, spec_id FROM jobs")
        await change(db, "UPDATE jobs SET last_slot_at = next_slot_at, next_slot_at = NULL, next_run_at = NULL")
        at = (now + HOUR).replace(microsecond=0)
        made = await run(db, jobs.Job(*job), S.DEAD, at, finished_at=now)
        deletions = Deletions()
        assert await step(db, deletions) == ["sample"]
        assert deletions.asked == [("team-a", "sample", str(seen.uid), str(seen.resource_version))]
        await mirrored.store(held, [sighted.deleted(seen)])
        assert await step(db) == []
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, made) == (S.DEAD,), "the history stays"
        assert await jobs.one(connection, "SELECT ttl_seconds IS NULL AND expires_at IS NULL FROM jobs")


async def test_a_replica_looks_only_where_there_is_something(
    db: database.Database, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle replica may cost one statement a second, and other loops need it."""
    monkeypatch.setattr(expiry, "EVERY", 0.0)
    async with clients.connect(NOBODY) as client:
        one = replica.Replica(db, client, name="one", lease=jobs.LONG)
        tidy = one.steps()["tidy"]
        await one.held.run_once()
        names = statements.named(monkeypatch)
        await tidy()
        assert names == []

        job = await make(db, now - HOUR)
        await run(db, job, S.SUCCEEDED, now - HOUR, finished_at=now)
        async with db.transaction() as connection:
            await jobs.make_job(connection, name="paused")
            await connection.execute("UPDATE jobs SET paused_at = now() WHERE name = 'paused-00000'")
        await one.held.run_once()
        names.clear()
        for _ in range(3):
            await tidy()
        assert names.count("pauses.resumable") == 1, "a dead process is rare"
        assert names.count("expiry.settle") == 1
        assert await expires_at(db, job) == now + TTL


async def test_workers_jobs_go_too_whoever_can_take_them_away(
    db: database.Database, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "EVERY", 0.0)
    steps = service.Pools(db, replica="api", lease=jobs.LONG).steps()
    await steps["shards"]()
    made = await make(db, now - HOUR, name="made", owner="rest/tenant", job=jobs.pooled())
    declared = await make(db, now - HOUR, name="declared", job=jobs.pooled())
    await steps["shards"]()
    await steps["expire"]()
    async with db.transaction() as connection:
        [gone] = await jobs.query(connection, "SELECT job_id FROM jobs WHERE deleted_at IS NOT NULL")
    assert gone.job_id == made.job_id
    assert await expires_at(db, declared) is None, "an API process has no say over objects"
    async with clients.connect(NOBODY) as client:
        operator = replica.Replica(db, client, name="operator", lease=jobs.LONG)
        await operator.held.run_once()
        await operator.held.run_once()
        await operator.steps()["tidy"]()
    assert await expires_at(db, declared) is not None, "an operator looks after the objects of either kind"
