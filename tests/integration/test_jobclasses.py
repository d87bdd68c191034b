"""Jobs whose pods an administrator's JobClass makes: what is stored of them, and what follows when the class changes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs, kube_http, local_kube, postgres, rested, sighted

from clockhand import errors
from clockhand.domain import declared, resources, sightings, spec, times
from clockhand.domain.states import RunState as S
from clockhand.engine import classes as rendering
from clockhand.engine import fire, jobclasses, limits, loops, mirror, redrive, requests, templates
from clockhand.engine.jobs import service
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import objects, pods
from clockhand.store import classes, database, duties, partitions, redrives, runs

CLASSES = "/apis/clockhand.dev/v1alpha1/jobclasses"
TEMPLATE = {"spec": {"serviceAccountName": "reporter", "containers": [{"name": "main", "image": "reports:1"}]}}
JANE = replace(rested.TEAM, templates=False, classes=("batch",))
OF_CLASS = {"schedule": sighted.NEVER, "run": {"class": "batch", "args": ["all"]}}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_kube.LocalKube]:
    with (
        postgres.server() as server,
        local_kube.running(tmp_path_factory.mktemp("kube"), server.url(server.new_database())) as running,
    ):
        yield running


@dataclass
class World:
    """A mirror that has the duty, and the classes of a cluster."""

    db: database.Database
    kube: local_kube.LocalKube
    held: duties.Held
    mirror: mirror.Mirror
    classes: jobclasses.JobClasses

    async def has(self, name: str = "batch", **fields: Any) -> None:
        """The class is so, and known to be."""
        await self.apply(name, **fields)
        await self.classes.run_once(self.held)

    async def apply(self, name: str = "batch", **fields: Any) -> None:
        said = {"namespaces": ["*"], "template": TEMPLATE, "allow": ["Args"], **fields}
        body = {"apiVersion": "clockhand.dev/v1alpha1", "kind": "JobClass", "metadata": {"name": name}, "spec": said}
        made = await asyncio.to_thread(self.kube.http.call, "POST", CLASSES, body)
        if made.code == 409:
            body = {"spec": {"allow": None, "namespaces": None, **said}}
            made = await asyncio.to_thread(self.kube.http.call, "PATCH", f"{CLASSES}/{name}", body, kube_http.MERGE)
        assert made.code in (200, 201), made.body

    async def has_not(self, name: str = "batch") -> None:
        await asyncio.to_thread(self.kube.http.call, "DELETE", f"{CLASSES}/{name}")
        await self.classes.run_once(self.held)

    async def sees(self, **fields: Any) -> sightings.Sighting:
        """A job of the class, stored."""
        seen = sighted.job(template=None, **{"run": {"class": "batch", "args": ["all"]}, **fields})
        await self.mirror.store(self.held, [seen])
        return seen

    async def due(self) -> None:
        """Every job has a slot that has come."""
        at = "date_trunc('minute', now())"
        await rested.rows(
            self.db,
            f"UPDATE jobs SET last_slot_at = {at} - interval '1 minute', next_slot_at = {at}, next_run_at = {at} "
            "WHERE parked IS NULL",
        )

    async def row(self, seen: sightings.Sighting) -> Any:
        [found] = await rested.rows(
            self.db,
            "SELECT j.*, p.template, p.class_hash, s.conditions FROM jobs j JOIN job_specs p USING (spec_id) "
            "JOIN job_status s ON s.job_id = j.job_id WHERE j.job_id = %s",
            seen.uid,
        )
        return found


@pytest.fixture
async def world(db: database.Database, kube: local_kube.LocalKube) -> AsyncIterator[World]:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
        held = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert held
    async with clients.connect(await connections.from_kubeconfig(str(kube.kubeconfig))) as client:
        checked = templates.Templates(db, pods.Pods(client))
        catalogue = jobclasses.Catalogue(db, objects.Objects(client, objects.JOB_CLASSES))
        mirrored = mirror.Mirror(db, checked, catalogue)
        yield World(db, kube, held, mirrored, jobclasses.JobClasses(db, catalogue, checked, turn=mirrored.turn))
    await asyncio.to_thread(kube.http.call, "DELETE", f"{CLASSES}/batch")


@pytest.fixture
async def core(world: World) -> AsyncIterator[service.Jobs]:
    made = service.Jobs(world.db, limits.LimitsFile(None))
    task = asyncio.create_task(loops.forever("creates", made.step))
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.close()


async def died(world: World, seen: sightings.Sighting, *, minutes: int) -> uuid.UUID:
    """A run of the job as it is now, of a slot so long ago, which is Dead."""
    row = await world.row(seen)
    job = jobs.Job(row.job_id, row.owner, row.name, row.shard, row.spec_id)
    async with world.db.transaction() as connection:
        at = await database.now(connection) - timedelta(minutes=minutes)
        return await jobs.make_run(connection, job, S.DEAD, at=at, finished_at=at)


async def retried(world: World, run_id: uuid.UUID) -> None:
    async with world.db.transaction() as connection:
        now = await database.now(connection)
        await requests.retry(connection, owner="k8s/team-a", run_id=run_id, actor="somebody", now=now)


async def somebody_waits(db: database.Database) -> bool:
    """Whether anybody comes to wait for an advisory lock, before he gives up."""
    for _ in range(200):
        if await rested.rows(db, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            return True
        await asyncio.sleep(0.02)
    return False


def ready(row: Any) -> tuple[str, str, str]:
    [found] = [one for one in row.conditions if one["type"] == "Ready"]
    return found["status"], found["reason"], found["message"]


def main(row: Any) -> dict[str, Any]:
    container: dict[str, Any] = row.template["spec"]["containers"][0]
    return container


async def test_a_job_that_is_applied_with_its_class_fires_at_once(world: World) -> None:
    await world.apply()
    row = await world.row(await world.sees(schedule=sighted.EVERY_MINUTE))
    assert (row.parked, row.pool, row.shard < 256) == (None, None, True)
    assert row.next_slot_at is not None
    assert row.template["spec"]["serviceAccountName"] == "reporter"
    assert main(row) == {"name": "main", "image": "reports:1", "args": ["all"]}
    assert ready(row)[:2] == ("True", "Scheduled")


async def test_without_its_class_a_job_waits_and_skips(world: World) -> None:
    seen = await world.sees(schedule=sighted.EVERY_MINUTE)
    row = await world.row(seen)
    why = "spec.run.class: there is no JobClass batch: nothing fires until there is"
    assert (row.parked, row.next_slot_at, row.template, row.class_hash) == (why, None, None, None)
    assert ready(row) == ("False", "ClassNotFound", why)
    ago = "date_trunc('minute', now()) - interval '150 s'"
    await rested.rows(world.db, f"UPDATE jobs SET last_slot_at = {ago}")
    await world.has()
    row = await world.row(seen)
    assert (row.parked, ready(row)[:2]) == (None, ("True", "Scheduled"))
    assert main(row)["args"] == ["all"]
    [skip] = await rested.rows(world.db, "SELECT reason, count FROM skips")
    assert (skip.reason, skip.count >= 3) == ("Edited", True)
    [late] = await rested.rows(world.db, "SELECT next_slot_at > now() - interval '1 minute' AS ahead FROM jobs")
    assert late.ahead
    assert await rested.rows(world.db, "SELECT run_id FROM live_runs") == []


async def test_a_class_that_changes_changes_the_pods_of_its_jobs_and_no_run_that_there_is(world: World) -> None:
    await world.has()
    seen = await world.sees(schedule=sighted.EVERY_MINUTE)
    others = await world.sees(name="other", run={"class": "else"})
    before = await world.row(seen)
    await world.due()
    await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:2"}]}})
    after = await world.row(seen)
    assert main(after) == {"name": "main", "image": "reports:2", "args": ["all"]}
    assert (after.spec_id != before.spec_id, after.generation) == (True, before.generation)
    # what was due was due under the old pods
    [run] = await rested.rows(world.db, "SELECT spec_id FROM live_runs")
    assert run.spec_id == before.spec_id
    assert (await world.row(others)).parked.startswith("spec.run.class: there is no JobClass else")


async def test_a_class_that_lets_more_be_chosen_leaves_its_jobs_alone(world: World) -> None:
    await world.has()
    seen = await world.sees()
    await rested.rows(world.db, "UPDATE jobs SET paused_at = now(), next_slot_at = NULL, next_run_at = NULL")
    before = await world.row(seen)
    await world.has(allow=["Args", "Env"])
    after = await world.row(seen)
    assert (after.spec_id, after.paused_at) == (before.spec_id, before.paused_at)
    assert after.class_hash != before.class_hash
    async with world.db.transaction() as connection:
        page = await classes.stale_page(connection, after=0, size=10)
    assert page.job_ids == ()


@pytest.mark.parametrize(
    ("fields", "reason", "sentence"),
    [
        ({"allow": []}, "ClassForbids", "spec.run.args: JobClass batch does not leave it to its users"),
        (
            {"namespaces": ["team-b"]},
            "ClassForbids",
            "spec.run.class: JobClass batch is not for jobs of namespace team-a",
        ),
        (None, "ClassNotFound", "spec.run.class: there is no JobClass batch"),
    ],
)
async def test_a_class_that_is_gone_or_forbids_stops_its_jobs_until_it_is_back(
    world: World, fields: dict[str, Any] | None, reason: str, sentence: str
) -> None:
    await world.has()
    seen = await world.sees(schedule=sighted.EVERY_MINUTE)
    if fields is None:
        await world.has_not()
    else:
        await world.has(**fields)
    row = await world.row(seen)
    assert (row.next_slot_at, row.next_run_at, row.template) == (None, None, None)
    assert ready(row)[:2] == ("False", reason)
    assert row.parked.startswith(sentence)
    await world.has()
    row = await world.row(seen)
    assert (row.parked, ready(row)[0]) == (None, "True")
    assert row.next_slot_at is not None


async def test_a_class_that_the_api_server_should_not_have_taken_stops_its_jobs_too(world: World) -> None:
    await world.has()
    seen = await world.sees()
    await rested.rows(world.db, "UPDATE job_classes SET spec = '{}', hash = 'x'")
    again = sighted.edited(seen, template=None, run={"class": "batch"})
    await world.mirror.store(world.held, [again])
    row = await world.row(again)
    assert ready(row)[1] == "ClassInvalid"
    assert "JobClass batch cannot be used: spec.namespaces: is missing" in row.parked
    # the next look stores the class as it is
    await world.classes.run_once(world.held)
    assert (await world.row(again)).parked is None


async def test_whoever_takes_the_duty_finds_what_the_holder_before_it_did_not_come_to(world: World) -> None:
    await world.has()
    seen = await world.sees()
    await rested.rows(world.db, "UPDATE job_specs SET class_hash = 'old', template = '{}', template_hash = 'old'")
    held = replace(world.held, generation=world.held.generation + 1)
    await rested.rows(world.db, "UPDATE duty_leases SET generation = %s WHERE duty = 'mirror'", held.generation)
    await world.classes.run_once(world.held)
    await world.classes.run_once(held)
    assert main(await world.row(seen))["image"] == "reports:1"


async def test_a_job_made_over_rest_takes_the_right_to_use_its_class(world: World, core: service.Jobs) -> None:
    await world.has(namespaces=["team-a"])
    with pytest.raises(errors.Refused, match="whose user may use the JobClass batch in the namespace"):
        await core.create(rested.TEAM, OF_CLASS)
    with pytest.raises(errors.Refused, match="whose user may use the JobClass batch in the namespace"):
        await core.create(rested.ACME, OF_CLASS)
    job = rested.read((await core.create(JANE, OF_CLASS)).body)
    assert job.run is not None
    assert (job.run.class_name, job.run.args, job.template) == ("batch", ("all",), None)
    assert job.status.standing is resources.Standing.ACTIVE
    assert (await rested.get(core, job, "k8s/team-a")).template is None
    [row] = await rested.rows(world.db, "SELECT template, class AS named FROM job_specs")
    assert (row.template["spec"]["containers"][0]["args"], row.named) == (["all"], "batch")
    with pytest.raises(errors.InvalidInput) as caught:
        await core.create(JANE, {**OF_CLASS, "run": {"class": "batch", "image": "mine:1"}})
    assert (caught.value.field, caught.value.sentence) == (
        "run.image",
        "JobClass batch does not let its users choose mine:1: leave it out",
    )


async def test_an_edit_over_rest_takes_it_where_the_run_changes(world: World, core: service.Jobs) -> None:
    await world.has()
    job = rested.read((await core.create(JANE, OF_CLASS)).body)
    edited = rested.of(await core.patch(rested.TEAM, job.id, {"priority": 5}))
    assert (edited.priority, edited.run) == (5, job.run)
    with pytest.raises(errors.Refused):
        await core.patch(rested.TEAM, job.id, {"run": {"args": ["some"]}})
    edited = rested.of(await core.patch(JANE, job.id, {"run": {"args": ["some"]}}))
    assert edited.run is not None
    assert edited.run.args == ("some",)
    [row] = await rested.rows(world.db, "SELECT s.template FROM jobs JOIN job_specs s USING (spec_id)")
    with pytest.raises(errors.Refused, match="create pods"):
        await core.patch(JANE, job.id, {"run": None, "template": row.template})
    await world.has_not()
    shown = rested.of(await core.patch(rested.TEAM, job.id, {"suspend": True}))
    assert (shown.suspend, shown.status.standing) == (True, resources.Standing.INVALID)
    assert shown.status.message == "run.class: there is no JobClass batch: nothing fires until there is"
    with pytest.raises(errors.InvalidInput, match=r"run\.class: there is no JobClass batch"):
        await core.patch(JANE, job.id, {"run": {"args": ["all"]}})
    await world.has()
    assert (await rested.get(core, job, "k8s/team-a")).status.standing is resources.Standing.SUSPENDED


async def test_a_run_is_fired_with_the_pod_of_the_class(world: World) -> None:
    await world.has()
    await world.sees(schedule=sighted.EVERY_MINUTE)
    await world.due()
    assert await fire.Fire(world.db).run_once(range(256)) == 1
    [run] = await rested.rows(world.db, "SELECT r.state, s.template FROM live_runs r JOIN job_specs s USING (spec_id)")
    assert (run.state, run.template["spec"]["containers"][0]["args"]) == ("Queued", ["all"])


async def test_an_ended_run_of_a_class_that_is_another_by_now_is_not_tried_again(world: World) -> None:
    await world.has()
    seen = await world.sees()
    first, second = await died(world, seen, minutes=9), await died(world, seen, minutes=8)
    await world.has(allow=["Args", "Env"])  # the pod is the same
    await retried(world, first)
    await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:2"}]}})
    with pytest.raises(errors.Conflict, match="its JobClass has changed since: make a new run"):
        await retried(world, second)
    third = await died(world, seen, minutes=7)
    selection = redrives.Selection("k8s/team-a", S.DEAD, datetime.now(UTC))
    async with world.db.transaction() as connection:
        counted = await redrive.count(connection, selection, after=runs.NO_RUN, most=10)
        assert (counted.redriven, counted.passed_over) == (1, 1)
    async with world.db.transaction() as connection:
        done = await redrive.step(connection, selection, most=10, actor="somebody")
        assert done == counted
        assert await jobs.state_of(connection, third) != (S.DEAD,)
        assert await jobs.state_of(connection, second) == (S.DEAD,)
    last = await died(world, seen, minutes=6)
    await world.has_not()
    with pytest.raises(errors.Conflict):
        await retried(world, last)


async def test_a_job_that_cannot_be_evaluated_stops_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.has()
    first, lost, last = [await world.sees(name=name) for name in ("first", "lost", "last")]
    begin = declared.begin

    def of_a_lost_zone(job: spec.JobSpec, origin: times.Origin, **how: Any) -> declared.Begin:
        if origin.job_id == lost.uid:
            raise RuntimeError("the zone is gone")
        return begin(job, origin, **how)

    monkeypatch.setattr(declared, "begin", of_a_lost_zone)
    await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:2"}]}})
    for one in (first, last):
        assert main(await world.row(one))["image"] == "reports:2"
    row = await world.row(lost)
    assert (row.next_slot_at, row.parked) == (None, "cannot be evaluated: the zone is gone")
    assert ready(row)[:2] == ("False", "InvalidSchedule")
    assert row.class_hash == (await world.row(first)).class_hash

    def no_span(*_: Any, **__: Any) -> None:
        raise RuntimeError("the zone is gone")

    await rested.rows(world.db, "UPDATE jobs SET last_slot_at = now() - interval '1 hour' WHERE name = 'lost'")
    monkeypatch.setattr(times, "span", no_span)
    await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:3"}]}})
    assert main(await world.row(last))["image"] == "reports:3"
    assert (await world.row(lost)).parked == "cannot be evaluated: the zone is gone"


async def test_what_is_too_much_for_one_statement_goes_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.has()
    seen = [await world.sees(name=f"job-{number}") for number in range(5)]
    sizes: list[int] = []
    store_anew = rendering.store_anew

    async def slow(
        connection: database.Connection, checked: templates.Templates, found: Sequence[classes.Job], *, now: datetime
    ) -> Sequence[declared.Reading]:
        sizes.append(len(found))
        if len(found) > 2:
            await connection.execute("SET LOCAL statement_timeout = '20ms'")
            await connection.execute("SELECT pg_sleep(60)")
        return await store_anew(connection, checked, found, now=now)

    monkeypatch.setattr(rendering, "store_anew", slow)
    await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:2"}]}})
    assert {main(await world.row(one))["image"] for one in seen} == {"reports:2"}
    assert sizes[0] == 5


async def test_classes_are_learnt_while_jobs_follow_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobclasses, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(jobclasses, "PAGE", 1)
    await world.has()
    for number in range(3):
        await world.sees(name=f"job-{number}")
    store_anew = rendering.store_anew
    known: list[int] = []

    async def beside(*given: Any, **how: Any) -> Sequence[declared.Reading]:
        if not known:
            await world.apply("beside")
        known.append(len(await rested.rows(world.db, "SELECT name FROM job_classes")))
        return await store_anew(*given, **how)

    monkeypatch.setattr(rendering, "store_anew", beside)
    try:
        await world.has(template={"spec": {"containers": [{"name": "main", "image": "reports:2"}]}})
        assert known == [1, 2, 2]
    finally:
        await world.has_not("beside")


async def test_a_class_that_comes_while_a_job_is_stored_without_it_is_not_missed(world: World) -> None:
    await world.apply()
    async with world.db.transaction() as connection:
        assert await classes.share(connection, ["batch"]) == {}
        storing = asyncio.create_task(world.classes.run_once(world.held))
        assert await somebody_waits(world.db)
        assert not storing.done()
    await storing
    assert [one.name for one in await rested.rows(world.db, "SELECT name FROM job_classes")] == ["batch"]


async def test_jobs_that_are_made_alike_stay_alike(world: World) -> None:
    await world.has()
    reading = sightings.read_new(sighted.job(template=None, run={"class": "batch"}), now=datetime.now(UTC))
    async with world.db.transaction() as connection:
        one, other = await rendering.rendered(connection, [reading, reading])
    assert one is other
    assert one.template_json
