"""Changes of jobs over REST: never retroactive, nothing lost, and only of those that are declared there."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.support import jobs, rested, sighted, statements
from tests.support.rested import ACME, NIGHTLY, TEAM, rows

from clockhand import errors
from clockhand.domain import resources, states
from clockhand.domain.states import RunState as S
from clockhand.engine import answers, mirror, status, templates
from clockhand.engine.jobs import asking, service
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import objects, pods
from clockhand.store import database, duties, mirroring, partitions, workerpools

MINUTELY = "* * * * *"
NOBODY = connections.Connection(server="http://127.0.0.1:1")


@pytest.fixture
async def core(db: database.Database) -> AsyncIterator[service.Jobs]:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
    async with rested.at_work(db) as made:
        yield made


async def overdue(db: database.Database, job: resources.Job, minutes: int = 3) -> datetime:
    """Makes a job every minute of which the last few slots are due; returns the first of them."""
    [row] = await rows(db, "SELECT date_trunc('minute', now()) - %s * interval '1 minute' AS first", minutes - 1)
    first: datetime = row.first
    await rows(
        db,
        "UPDATE jobs SET last_slot_at = %s, next_slot_at = %s, next_run_at = %s WHERE job_id = %s",
        first - timedelta(minutes=1), first, first, job.id,
    )  # fmt: skip
    return first


async def test_an_edit_fires_what_is_due_under_the_spec_before(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core, schedule=MINUTELY, priority=1, catchUp={"policy": "All"})
    first = await overdue(db, job)
    edited = rested.of(await core.patch(ACME, job.id, {"priority": 2, "payload": {"new": True}}))
    assert (edited.generation, edited.priority, edited.payload) == (2, 2, {"new": True})
    runs = await rows(
        db, "SELECT scheduled_at, priority, s.payload::text FROM live_runs JOIN job_specs s USING (spec_id) ORDER BY 1"
    )
    assert [run.scheduled_at for run in runs][:3] == [first + timedelta(minutes=n) for n in range(3)]
    assert {(run.priority, run.payload) for run in runs} == {(1, "{}")}
    assert edited.status.next_run_at is not None
    assert edited.status.next_run_at > runs[-1].scheduled_at
    [row] = await rows(db, "SELECT last_slot_at, resource_version FROM jobs")
    assert row.last_slot_at >= runs[-1].scheduled_at
    assert row.resource_version == 2


async def test_a_resume_records_what_did_not_run(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core, schedule=MINUTELY)
    paused = rested.read((await core.pause(ACME, job.id)).body)
    assert (paused.suspend, paused.status.standing) == (True, resources.Standing.SUSPENDED)
    assert paused.status.next_run_at is None
    await rows(db, "UPDATE jobs SET last_slot_at = date_trunc('minute', now()) - interval '4 minutes 1 ms'")
    resumed = rested.read((await core.resume(ACME, job.id)).body)
    assert (resumed.suspend, resumed.status.standing) == (False, resources.Standing.ACTIVE)
    [skip] = await rows(db, "SELECT reason, count FROM skips")
    assert (skip.reason, skip.count >= 4) == ("Suspended", True)
    assert await rows(db, "SELECT 1 FROM live_runs") == []


async def test_what_is_so_already_changes_nothing(db: database.Database, core: service.Jobs) -> None:
    made = await core.create(ACME, {**NIGHTLY, "payload": {"a": [1, 2.5, None]}, "labels": {"a": "b"}})
    job = rested.read(made.body)
    for call in (
        core.replace(ACME, job.id, json.loads(made.body)),
        core.patch(ACME, job.id, {}),
        core.patch(ACME, job.id, {"payload": {"a": [1, 2.5, None]}, "suspend": False}),
    ):
        assert (await call).version == 1
    assert (await core.resume(ACME, job.id)).version == 1
    labelled = await core.patch(ACME, job.id, {"labels": {"a": None, "c": "d"}})
    assert (labelled.version, rested.of(labelled).labels, rested.of(labelled).generation) == (2, {"c": "d"}, 1)
    assert len(await rows(db, "SELECT 1 FROM job_specs")) == 1
    assert (await core.pause(ACME, job.id)).version == 3
    assert (await core.pause(ACME, job.id)).version == 3
    bare = await core.replace(ACME, job.id, NIGHTLY)
    shown = rested.of(bare)
    assert (shown.payload, shown.labels, shown.suspend, shown.name) == ({}, {}, False, job.name), (
        "a PUT says everything"
    )


async def test_a_version_that_has_gone_by_changes_nothing(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core)
    assert (await core.patch(ACME, job.id, {"priority": 1}, match={1, 7})).version == 2
    calls: Any = (
        core.patch(ACME, job.id, {"priority": 2}, match={1}),
        core.replace(ACME, job.id, NIGHTLY, match={1, 3}),
        core.delete(ACME, job.id, match=()),
    )
    for call in calls:
        with pytest.raises(errors.Changed):
            await call
    assert (await core.get("rest/acme", job.id)).version == 2
    await core.delete(ACME, job.id, match={2})


async def test_of_edits_that_race_each_sees_the_one_before(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core)
    fields = [f"l{number}" for number in range(8)]
    await asyncio.gather(*(core.patch(ACME, job.id, {"payload": {one: 1}}) for one in fields))
    shown = await rested.get(core, job)
    assert shown.payload == dict.fromkeys(fields, 1)
    assert shown.generation == 9
    outcomes = await asyncio.gather(
        *(core.patch(ACME, job.id, {"priority": number}, match={9}) for number in range(1, 9)), return_exceptions=True
    )
    assert sum(isinstance(one, errors.Changed) for one in outcomes) == 7


async def test_an_edit_that_waited_for_another_reads_its_spec(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core)
    async with db.transaction() as connection:
        await connection.execute("SELECT 1 FROM jobs WHERE job_id = %s FOR UPDATE", (job.id,))
        waiting = asyncio.create_task(core.patch(ACME, job.id, {"priority": 5}))
        await statements.until_somebody_waits(db)
        await connection.execute(
            "WITH s AS (INSERT INTO job_specs (job_id, generation, spec, payload, stored_at) "
            "SELECT job_id, 2, spec, '{\"theirs\": 1}', now() FROM job_specs RETURNING spec_id) "
            "UPDATE jobs SET spec_id = s.spec_id, generation = 2, resource_version = 2 FROM s"
        )
    edited = rested.of(await waiting)
    assert (edited.generation, edited.priority, edited.payload) == (3, 5, {"theirs": 1})


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"schedule": "61 * * * *"}, "schedule"),
        ({"name": "another"}, "name"),
        ({"every": "5m"}, ""),
        ({"retry": {"backoff": {"maxSeconds": 1}}}, "retry.backoff.maxSeconds"),
        ([], ""),
        ({"handler": None}, ""),
    ],
)
async def test_an_edit_that_is_wrong_changes_nothing(
    db: database.Database, core: service.Jobs, patch: object, field: str
) -> None:
    job = await rested.make(core, schedule=MINUTELY)
    await overdue(db, job)
    with pytest.raises(errors.InvalidInput) as caught:
        await core.patch(ACME, job.id, patch)
    assert caught.value.field == field
    assert (await core.get("rest/acme", job.id)).version == 1
    assert await rows(db, "SELECT 1 FROM live_runs") == []


async def test_a_job_may_go_over_to_another_way_of_running(db: database.Database, core: service.Jobs) -> None:
    made = await core.create(TEAM, {"schedule": "0 2 * * *", "template": rested.TEMPLATE})
    job = rested.read(made.body)
    await core.patch(TEAM, job.id, {"template": None, "handler": "x", "schedule": None, "every": "1h"})
    [row] = await rows(db, "SELECT shard >= 256 AS pooled, pool, handler FROM jobs")
    assert row == (True, "k8s/team-a/default", "x")
    shown = await rested.get(core, job, "k8s/team-a")
    assert (shown.template, shown.every, shown.schedule) == (None, "1h", None)


async def test_a_one_shot_may_be_moved_and_is_never_retroactive(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core, schedule=None, at="2037-01-01T00:00:00Z")
    past = rested.of(await core.patch(ACME, job.id, {"at": "2026-01-01T00:00:00Z"}))
    assert past.status.standing is resources.Standing.FINISHED
    ahead = rested.of(await core.patch(ACME, job.id, {"run_at": "2038-01-01T00:00:00Z"}))
    assert ahead.status.standing is resources.Standing.ACTIVE
    assert ahead.ttl_seconds_after_finished == resources.TTL_SECONDS


@pytest.mark.parametrize(
    ("said", "runs", "ends"),
    [
        ("Finish", None, S.RUNNING),
        ("Cancel", None, S.STOPPING),
        ("Finish", asking.LiveRuns.CANCEL, S.STOPPING),
        ("Cancel", asking.LiveRuns.FINISH, S.RUNNING),
    ],
)
async def test_what_becomes_of_runs_when_their_job_goes(
    db: database.Database, core: service.Jobs, said: str, runs: asking.LiveRuns | None, ends: S
) -> None:
    job = await rested.make(core, schedule=MINUTELY, onDelete=said)
    [row] = await rows(db, "SELECT * FROM jobs")
    made = jobs.Job(job.id, row.owner, row.name, row.shard, row.spec_id, row.pool)
    async with db.transaction() as connection:
        now = await database.now(connection)
        for number, state in enumerate((S.RUNNING, S.QUEUED, S.BLOCKED, S.RETRYING)):
            await jobs.make_run(connection, made, state, at=now - timedelta(hours=number + 1))
    await overdue(db, job, minutes=1)
    await core.delete(ACME, job.id, runs=runs)
    [live] = await rows(db, "SELECT state, stop_reason FROM live_runs")
    assert live.state == ends
    ended = await rows(db, "SELECT state, reason FROM run_history")
    assert len(ended) == 4, "the slot that was due became a run first"
    assert {(one.state, one.reason) for one in ended} == {(S.CANCELLED, states.Reason.JOB_DELETED)}
    with pytest.raises(errors.NotFound):
        await core.get("rest/acme", job.id)
    with pytest.raises(errors.NotFound):
        await core.delete(ACME, job.id)
    [gone] = await rows(db, "SELECT next_run_at, deleted_at IS NOT NULL AS deleted FROM jobs")
    assert gone == (None, True)


class Cluster:
    """A mirror over a cluster whose API server has what it is told."""

    def __init__(self, db: database.Database, client: clients.Client) -> None:
        self.db = db
        self.mirror = mirror.Mirror(db, templates.Templates(db, pods.Pods(client)))

    async def take(self) -> duties.Held:
        async with self.db.transaction() as connection:
            held = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
        assert held is not None
        return held


@pytest.fixture
async def cluster(db: database.Database) -> AsyncIterator[Cluster]:
    async with clients.connect(NOBODY) as client:
        yield Cluster(db, client)


async def test_a_job_of_the_cluster_is_changed_there_alone(
    db: database.Database, core: service.Jobs, cluster: Cluster
) -> None:
    seen = sighted.job(template=None, handler="x", name="kept")
    await cluster.mirror.store(await cluster.take(), [seen])
    shown = rested.of(await core.get("k8s/team-a", seen.uid))
    assert (shown.origin, shown.name) == (resources.Origin.KUBERNETES, seen.name)
    before = await rows(db, "SELECT * FROM jobs")
    calls: Any = (
        core.replace(TEAM, seen.uid, NIGHTLY),
        core.patch(TEAM, seen.uid, {"priority": 1}),
        core.pause(TEAM, seen.uid),
        core.resume(TEAM, seen.uid),
        core.delete(TEAM, seen.uid),
    )
    for call in calls:
        with pytest.raises(errors.Conflict, match="kubectl"):
            await call
    assert await rows(db, "SELECT * FROM jobs") == before
    with pytest.raises(errors.Conflict, match="exists already"):
        await core.create(TEAM, {**NIGHTLY, "name": seen.name})


async def test_who_compares_rows_with_objects_leaves_other_jobs_alone(
    db: database.Database, core: service.Jobs, cluster: Cluster
) -> None:
    own = rested.read((await core.create(TEAM, NIGHTLY)).body)
    seen = sighted.job(handler="x", template=None)
    held = await cluster.take()
    await cluster.mirror.store(held, [seen])
    async with db.transaction() as connection:
        for owners in (None, ["k8s/team-a"]):
            listed = await mirroring.page(connection, after=mirroring.Place(), owners=owners, size=10)
            assert [one.job_id for one in listed] == [seen.uid]
        _, named = await workerpools.jobs_page(connection, after=mirroring.Place(), pools=None, size=10)
        assert [one.job_id for one in named] == [seen.uid]
    assert await cluster.mirror.stop_all(held) == 1
    assert (await rested.get(core, own, "k8s/team-a")).status.standing is resources.Standing.ACTIVE


async def test_no_object_is_written_for_a_job_that_is_none(db: database.Database, core: service.Jobs) -> None:
    job = rested.read((await core.create(TEAM, NIGHTLY)).body)
    await rows(db, "UPDATE job_status SET dirty_at = now() - interval '1 hour', urgent = true")
    async with clients.connect(NOBODY) as client:
        writer = status.StatusWriter(db, objects.Objects(client))
        assert await writer.run_once(range(256)) == 0
    [row] = await rows(db, "SELECT dirty_at, urgent FROM job_status WHERE job_id = %s", job.id)
    assert row == (None, False)


async def test_pauses_and_resumes_that_are_sent_again_have_no_second_effect(core: service.Jobs) -> None:
    job = await rested.make(core)
    key = answers.Key.of("k", method="POST", path=f"/v1/jobs/{job.id}:pause", body=b"")
    first = await core.pause(ACME, job.id, key=key)
    await core.resume(ACME, job.id)
    again = await core.pause(ACME, job.id, key=key)
    assert (again.status, again.body) == (first.status, first.body)
    assert (await rested.get(core, job)).suspend is False
    with pytest.raises(errors.NotFound):
        await core.pause(ACME, uuid.uuid4(), key=answers.Key.of("n", method="POST", path="x", body=b""))
    assert msgspec.json.decode(first.body)["suspend"] is True
