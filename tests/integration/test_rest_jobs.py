"""Jobs that are made over REST: stored once, whoever asks how often, and shown as they are."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.support import jobs, rested, statements
from tests.support.rested import ACME, NIGHTLY, OTHER, TEAM, TEMPLATE, rows

from clockhand import errors
from clockhand.domain import limits as limits_domain
from clockhand.domain import resources
from clockhand.domain.states import RunState as S
from clockhand.engine import answers, fire, limits, loops, pauses, prune
from clockhand.engine.jobs import asking, begins, creating, service
from clockhand.store import database, partitions, pools

NOTHING = limits.LimitsFile(None)


@pytest.fixture
async def core(db: database.Database) -> AsyncIterator[service.Jobs]:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
    made = service.Jobs(db, NOTHING)
    task = asyncio.create_task(loops.forever("creates", made.step))
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.close()


def key(text: str = "k1", body: bytes = b"{}") -> answers.Key:
    return answers.Key.of(text, method="POST", path="/v1/jobs", body=body)


async def test_a_job_is_made_with_its_place_and_fires(db: database.Database, core: service.Jobs) -> None:
    answer = await core.create(ACME, {**NIGHTLY, "name": "nightly", "labels": {"team": "a"}, "payload": {"to": "you"}})
    job = rested.read(answer.body)
    assert (answer.status, answer.location, answer.version) == (201, f"/v1/jobs/{job.id}", 1)
    assert (job.name, job.owner, job.origin, job.generation) == ("nightly", "rest/acme", resources.Origin.REST, 1)
    assert (job.schedule, job.payload, job.labels) == ("0 2 * * *", {"to": "you"}, {"team": "a"})
    assert job.status.standing is resources.Standing.ACTIVE
    assert job.status.next_run_at is not None
    assert await rested.get(core, job) == job
    [row] = await rows(db, "SELECT declared, pool, created_at, last_slot_at FROM jobs")
    assert row == (False, "rest/acme/default", job.created_at, job.created_at)
    due = "last_slot_at + interval '1 ms'"
    await rows(db, f"UPDATE jobs SET next_slot_at = {due}, next_run_at = {due}")
    assert await fire.Fire(db).run_once(range(256, 512)) == 1
    [run] = await rows(db, "SELECT name, state, labels FROM live_runs")
    assert (run.name.startswith("nightly-"), run.state, run.labels) == (True, "Queued", {"team": "a"})
    [status] = await rows(db, "SELECT dirty_at, last_scheduled_at FROM job_status")
    assert status == (None, None), "no object shows it"


async def test_an_instant_that_is_over_is_due_at_once(db: database.Database, core: service.Jobs) -> None:
    job = rested.read((await core.create(ACME, {"run_at": "2026-01-01T00:00:00Z", "handler": "x"})).body)
    assert job.name == f"job-{job.id}"
    assert job.ttl_seconds_after_finished == resources.TTL_SECONDS
    assert await fire.Fire(db).run_once(range(256, 512)) == 1
    assert (await rested.get(core, job)).status.standing is resources.Standing.FINISHED
    [row] = await rows(db, "SELECT ttl_seconds, next_run_at FROM jobs")
    assert row == (resources.TTL_SECONDS, None)


async def test_a_name_is_one_jobs_at_a_time(db: database.Database, core: service.Jobs) -> None:
    second = service.Jobs(db, NOTHING)
    task = asyncio.create_task(loops.forever("creates", second.step))
    tries = [(core, second)[number % 2].create(ACME, {**NIGHTLY, "name": "nightly"}) for number in range(20)]
    many = core.create_many(ACME, [{**NIGHTLY, "name": "nightly"}] * 3)
    outcomes = await asyncio.gather(*tries, many, return_exceptions=True)
    task.cancel()
    made = [one for one in outcomes[:-1] if isinstance(one, answers.Answer)]
    refused = [one for one in outcomes if isinstance(one, errors.Conflict)]
    batch = json.loads(outcomes[-1].body)  # type: ignore[union-attr]
    assert len(made) + batch["created"] == 1
    assert len(refused) + batch["refused"] == 22
    assert {str(one) for one in refused} == {"a job named 'nightly' exists already"}
    [row] = await rows(db, "SELECT job_id FROM jobs")
    await rested.make(core, OTHER, name="nightly")
    await core.delete(ACME, row.job_id)
    assert (await rested.make(core, name="nightly")).id != row.job_id


async def test_a_key_that_many_come_with_has_one_effect(db: database.Database, core: service.Jobs) -> None:
    outcomes = await asyncio.gather(
        *(core.create(ACME, NIGHTLY, key=key()) for _ in range(10)),
        *(service.Jobs(db, NOTHING).create_many(ACME, [NIGHTLY], key=key()) for _ in range(10)),
        return_exceptions=True,
    )
    answered = [one for one in outcomes if isinstance(one, answers.Answer)]
    assert len({one.body for one in answered}) == 1
    assert all("is being served" in str(one) for one in outcomes if not isinstance(one, answers.Answer))
    assert len(await rows(db, "SELECT 1 FROM jobs")) == len(await rows(db, "SELECT 1 FROM kept_answers")) == 1


async def test_a_key_brings_the_same_answer_for_a_day(db: database.Database, core: service.Jobs) -> None:
    first = await core.create(ACME, NIGHTLY, key=key())
    await core.delete(ACME, rested.read(first.body).id)
    again = await core.create(ACME, NIGHTLY, key=key())
    assert (again.status, again.location, again.body) == (first.status, first.location, first.body)
    with pytest.raises(errors.InvalidInput, match="was used for another request"):
        await core.create(ACME, NIGHTLY, key=key(body=b'{"other": 1}'))
    assert (await core.create(OTHER, NIGHTLY, key=key())).body != first.body, "keys are their owner's"
    await rows(db, "UPDATE kept_answers SET stored_at = stored_at - interval '1 day'")
    assert (await core.create(ACME, NIGHTLY, key=key(body=b'{"other": 1}'))).body != first.body
    async with db.transaction() as connection:
        now = await database.now(connection)
    await prune.Prune(db, replica="one", retention_days=30).run_once(now)
    assert len(await rows(db, "SELECT 1 FROM kept_answers")) == 1, "the other owner's is a day old"


async def test_what_died_before_it_was_stored_leaves_its_key_free(db: database.Database, core: service.Jobs) -> None:
    wanted = [creating.read(ACME, {**NIGHTLY, "name": "nightly"})]

    async def dies(connection: database.Connection, now: datetime) -> answers.Answer:
        await creating.add(connection, limits_domain.NONE, wanted, begun=begins.Begins(), now=now)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await answers.once(db, owner="rest/acme", key=key(), act=dies)
    for table in ("jobs", "job_specs", "kept_answers", "audit"):
        assert await rows(db, f"SELECT 1 FROM {table}") == []
    assert (await core.create(ACME, {**NIGHTLY, "name": "nightly"}, key=key())).status == 201


async def test_of_a_thousand_the_bad_ones_are_nothing_to_the_good_ones(
    db: database.Database, core: service.Jobs
) -> None:
    await rested.make(core, name="taken")
    bad: dict[int, tuple[object, int, str | None]] = {
        3: ({"schedule": "61 * * * *", "handler": "x"}, 422, "/schedule"),
        7: ("no object", 422, None),
        40: ({**NIGHTLY, "name": "taken"}, 409, None),
        41: ({**NIGHTLY, "name": "job-5"}, 409, None),
        500: ({"schedule": "* * * * *", "template": TEMPLATE}, 403, None),
        998: ({**NIGHTLY, "retry": {"rules": [{"action": "Fail"}]}}, 422, "/retry/rules/0"),
        999: ({**NIGHTLY, "labels": {"a/b": 7}}, 422, "/labels/a~1b"),
    }
    wanted = [bad[n][0] if n in bad else {**NIGHTLY, "name": f"job-{n}", "payload": n} for n in range(1_000)]
    answer = await core.create_many(ACME, wanted)
    said = msgspec.json.decode(answer.body, type=resources.BatchAnswer)
    assert (answer.status, said.created, said.refused, len(said.items)) == (200, 993, 7, 1_000)
    for number, item in enumerate(said.items):
        if number in bad:
            assert item.error is not None
            assert (item.error.status, item.error.pointer) == bad[number][1:], item
        else:
            assert (item.name, item.error) == (f"job-{number}", None)
    stored = await rows(db, "SELECT job_id, name, payload::text FROM jobs JOIN job_specs USING (job_id, spec_id)")
    assert {row.name: (row.job_id, row.payload) for row in stored if row.name != "taken"} == {
        item.name: (item.id, item.name.removeprefix("job-")) for item in said.items if item.name is not None
    }
    assert len(await rows(db, "SELECT 1 FROM audit WHERE action = 'create'")) == 994


async def test_what_a_batch_takes_does_not_grow_with_it(core: service.Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = statements.named(monkeypatch)
    counts = []
    for size in (1, 1_000):
        sent.clear()
        await core.create_many(ACME, [NIGHTLY] * size, key=key(str(size)))
        counts.append(len(sent))
    assert counts[0] == counts[1] == 6, sent
    sent.clear()
    await asyncio.gather(*(rested.make(core) for _ in range(200)))
    assert len(sent) <= 2 * 4, "those that come together are stored together"


async def test_a_quota_cannot_be_raced_past(db: database.Database, core: service.Jobs) -> None:
    file = limits.LimitsFile(None)
    file.current = limits_domain.parse('owners: {rest/acme: {maxJobs: 25}, "*": {maxJobs: 1}}')
    processes = [service.Jobs(db, file) for _ in range(3)]
    tasks = [asyncio.create_task(loops.forever("creates", one.step)) for one in processes]
    singles = [processes[number % 3].create(ACME, NIGHTLY) for number in range(30)]
    outcomes = await asyncio.gather(
        *singles, *(one.create_many(ACME, [NIGHTLY] * 10) for one in processes), return_exceptions=True
    )
    assert len(await rows(db, "SELECT 1 FROM jobs")) == 25
    refused = [one for one in outcomes if isinstance(one, errors.Refused)]
    assert all("maxJobs" in str(one) and "25" in str(one) for one in refused)
    [victim, *_] = await rows(db, "SELECT job_id FROM jobs")
    await core.delete(ACME, victim.job_id)
    assert (await processes[0].create(ACME, NIGHTLY)).status == 201, "what was deleted counts no more"
    await processes[0].create(OTHER, NIGHTLY)
    with pytest.raises(errors.Refused):
        await processes[0].create(OTHER, NIGHTLY)
    for task in tasks:
        task.cancel()


async def test_a_template_is_for_who_may_create_pods(core: service.Jobs) -> None:
    wanted = {"schedule": "0 2 * * *", "template": TEMPLATE}
    with pytest.raises(errors.Refused):
        await core.create(ACME, wanted)
    job = rested.read((await core.create(TEAM, wanted)).body)
    assert job.template == TEMPLATE
    colleague = asking.Asker("k8s/team-a", "joe@example.com")
    edited = await core.patch(colleague, job.id, {"priority": 1})
    assert edited.version == 2, "the template stays as it is"
    other = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    for attempt in (
        core.patch(colleague, job.id, {"template": other}),
        core.replace(colleague, job.id, {**wanted, "template": other}),
    ):
        with pytest.raises(errors.Refused):
            await attempt
    assert (await core.patch(TEAM, job.id, {"template": other})).version == 3


async def test_jobs_are_listed_by_name_a_page_at_a_time(core: service.Jobs) -> None:
    for number in range(7):
        await rested.make(
            core, name=f"job-{number}", labels={"parity": str(number % 2)}, payload={"large": "x" * 1_000}
        )
    await rested.make(core, name="other-1", handler="other", pool="slow")
    await rested.make(core, OTHER, name="job-9")
    found: list[Any] = []
    after = None
    while True:
        page = await core.page("rest/acme", asking.Filter(), after=after, size=3)
        found += page.items
        after = page.next
        if after is None:
            break
    assert [item["name"] for item in found] == [*(f"job-{number}" for number in range(7)), "other-1"]
    assert not any({"payload", "template"} & set(item) for item in found)

    async def names(**fields: Any) -> list[str]:
        page = await core.page("rest/acme", asking.Filter(**fields), after=None, size=10)
        assert page.next is None
        return [str(item["name"]) for item in page.items]

    assert await names(prefix="job-") == [f"job-{number}" for number in range(7)]
    assert await names(prefix="job-6x") == []
    assert await names(handler="other") == await names(pool="slow") == ["other-1"]
    assert await names(labels={"parity": "1"}) == ["job-1", "job-3", "job-5"]
    assert await names(labels={"parity": "1"}, handler="other") == []
    assert await names(standing=resources.Standing.SUSPENDED) == []
    first = await core.page("rest/acme", asking.Filter(labels={"parity": "1"}), after=None, size=1)
    second = await core.page("rest/acme", asking.Filter(labels={"parity": "1"}), after=first.next, size=1)
    assert [item["name"] for item in (*first.items, *second.items)] == ["job-1", "job-3"]


@pytest.mark.parametrize(
    ("change", "standing", "message"),
    [
        ("suspended = true, next_slot_at = NULL, next_run_at = NULL", "Suspended", None),
        ("paused_at = now(), next_slot_at = NULL, next_run_at = NULL", "Paused", None),
        (
            "parked = 'spec.schedule: is wrong', next_slot_at = NULL, next_run_at = NULL",
            "Invalid",
            "schedule: is wrong",
        ),
        ("next_slot_at = NULL, next_run_at = NULL", "Finished", None),
    ],
)
async def test_a_job_says_whether_it_fires(
    db: database.Database, core: service.Jobs, change: str, standing: str, message: str | None
) -> None:
    job = await rested.make(core)
    await rows(db, f"UPDATE jobs SET {change}")
    shown = (await rested.get(core, job)).status
    assert (shown.standing, shown.message, shown.next_run_at) == (standing, message, None)
    page = await core.page("rest/acme", asking.Filter(standing=resources.Standing(standing)), after=None, size=5)
    assert len(page.items) == 1


async def test_what_is_known_of_runs_is_shown(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core)
    [row] = await rows(db, "SELECT * FROM jobs")
    made = jobs.Job(job.id, row.owner, row.name, row.shard, row.spec_id, row.pool)
    at = job.created_at - timedelta(minutes=5)
    async with db.transaction() as connection:
        await jobs.make_run(connection, made, S.SUCCEEDED, at=at, finished_at=at + timedelta(seconds=3))
        await jobs.make_run(connection, made, S.DEAD, at=at + timedelta(minutes=1))
        await jobs.make_run(connection, made, S.RUNNING, at=at + timedelta(minutes=2))
        await connection.execute("UPDATE job_status SET consecutive_failures = 1")
    status = (await rested.get(core, job)).status
    assert (status.active, status.consecutive_failures) == (1, 1)
    assert (status.last_scheduled_at, status.last_success_at) == (at + timedelta(minutes=2), at + timedelta(seconds=3))
    [listed] = (await core.page("rest/acme", asking.Filter(), after=None, size=5)).items
    assert listed["status"].last_scheduled_at == at + timedelta(minutes=2)  # type: ignore[attr-defined]


async def test_a_job_says_whether_workers_will_find_its_runs(db: database.Database, core: service.Jobs) -> None:
    own, foreign = await rested.make(core), await rested.make(core, pool="other/jobs")
    cluster = rested.read((await core.create(TEAM, NIGHTLY)).body)
    assert own.status.message == "no worker of the pool default has come yet: runs wait until one does"
    assert "the pool jobs of other does not take runs of others" in str(foreign.status.message)
    assert "there is no WorkerPool default of namespace team-a" in str(cluster.status.message)
    async with db.transaction() as connection:
        await pools.add(connection, pool="rest/acme/default", owner="rest/acme", name="default")
        await pools.add(connection, pool="k8s/team-a/default", owner="k8s/team-a", name="default")
    assert (await rested.get(core, own)).status.message is None
    assert (await rested.get(core, cluster, "k8s/team-a")).status.message is None


async def test_nobody_sees_or_changes_a_job_of_others(core: service.Jobs) -> None:
    job = await rested.make(core)
    calls: Sequence[Any] = (
        core.get("rest/other", job.id),
        core.replace(OTHER, job.id, NIGHTLY),
        core.patch(OTHER, job.id, {"priority": 1}),
        core.pause(OTHER, job.id),
        core.resume(OTHER, job.id),
        core.delete(OTHER, job.id),
        core.get("rest/acme", uuid.uuid4()),
    )
    for call in calls:
        with pytest.raises(errors.NotFound):
            await call
    assert (await core.page("rest/other", asking.Filter(), after=None, size=5)).items == []
    assert (await core.audit_page("rest/other", size=5)).items == []
    assert (await core.audit_page("rest/other", job=str(job.id), size=5)).items == []
    assert await rested.get(core, job) == job


async def test_the_audit_says_who_did_what_newest_first(core: service.Jobs) -> None:
    job = await rested.make(core, name="nightly")
    await core.pause(ACME, job.id)
    await core.resume(asking.Asker("rest/acme", "jane"), job.id)
    await core.patch(ACME, job.id, {"labels": {"a": "b"}})
    await core.patch(ACME, job.id, {"labels": {"a": "b"}})
    await core.delete(ACME, job.id)
    await rested.make(core, name="another")
    found = [one for one in (await core.audit_page("rest/acme", job=str(job.id), size=10)).items]
    assert [one.action for one in found] == ["delete", "edit", "resume", "pause", "create"], (
        "what changes nothing is no edit"
    )
    assert {one.action: one.actor for one in found}["resume"] == "jane"
    assert found[-1].detail == found[0].detail == {"name": "nightly"}
    assert {one.job_name for one in found} == {"nightly"}
    everything = (await core.audit_page("rest/acme", size=10)).items
    assert [one.action for one in everything] == ["create", *(one.action for one in found)]
    rest = await core.audit_page("rest/acme", after=(everything[1].at, everything[1].id), size=2)
    assert list(rest.items) == list(everything[2:4])
    assert list((await core.audit_page("rest/acme", since=found[1].at, until=found[0].at, size=9)).items) == [found[1]]


async def test_a_pause_after_failures_says_why(db: database.Database, core: service.Jobs) -> None:
    job = await rested.make(core, pauseAfterFailures=2)
    await rows(db, "UPDATE job_status SET consecutive_failures = 2")
    assert await pauses.pause(db, [job.id]) == 1
    shown = await rested.get(core, job)
    assert shown.status.standing is resources.Standing.PAUSED
    assert "2 runs in a row ended Dead" in str(shown.status.message)
    assert "spec." not in str(shown.status.message)
    resumed = rested.read((await core.resume(ACME, job.id)).body)
    assert (resumed.status.standing, resumed.status.consecutive_failures) == (resources.Standing.ACTIVE, 0)
    assert resumed.status.next_run_at == job.status.next_run_at
    [row] = await rows(db, "SELECT dirty_at FROM job_status")
    assert row.dirty_at is None
