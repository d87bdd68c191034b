"""Sightings become rows: once, in the right order, and whatever one of them is like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import sighted

from clockhand import errors
from clockhand.domain import ids, sightings
from clockhand.engine import fire, inbox, mirror, parking, templates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties, partitions, runs

NOBODY = connections.Connection(server="http://127.0.0.1:1")


@pytest.fixture
async def checked(db: database.Database) -> AsyncIterator[templates.Templates]:
    """Template checks whose API server cannot be reached: nothing here may depend on it."""
    async with clients.connect(NOBODY) as client:
        yield templates.Templates(db, pods.Pods(client))


@pytest.fixture
async def held(db: database.Database) -> duties.Held:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
        taken = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert taken
    return taken


@pytest.fixture
def mirrored(db: database.Database, checked: templates.Templates) -> mirror.Mirror:
    return mirror.Mirror(db, checked)


async def query(db: database.Database, text: str, *parameters: object) -> list[Any]:
    async with db.transaction() as connection:
        cursor = await connection.execute(text.encode(), parameters)
        return await cursor.fetchall()


async def change(db: database.Database, text: str, *parameters: object) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode(), parameters)


async def row(db: database.Database, seen: sightings.Sighting) -> Any:
    """The job's row, its version and its Ready condition."""
    [found] = await query(
        db,
        "SELECT j.*, j.xmin::text AS version, s.conditions, s.dirty_at, s.urgent, p.spec, p.payload "
        "FROM jobs j JOIN job_status s USING (job_id) JOIN job_specs p USING (spec_id) WHERE j.job_id = %s",
        seen.uid,
    )
    return found


def ready(found: Any) -> dict[str, Any]:
    [condition] = [one for one in found.conditions if one["type"] == "Ready"]
    assert isinstance(condition, dict)
    return condition


async def test_new_job_counts_from_its_creation(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    created = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=90)
    seen = sighted.job(created_at=created, schedule=sighted.EVERY_MINUTE, payload={"to": "you"})
    await mirrored.store(held, [seen])
    found = await row(db, seen)
    assert found.owner == "k8s/team-a"
    assert found.last_slot_at == created
    first = created.replace(second=0) + timedelta(minutes=1)
    assert found.next_slot_at == found.next_run_at == first
    assert first < datetime.now(UTC), "the slot between apply and mirror is due, not lost"
    assert found.payload == {"to": "you"}
    assert ready(found)["status"] == "True"
    assert await fire.Fire(db).run_once([found.shard]) == 1
    assert len(await query(db, "SELECT 1 FROM live_runs WHERE job_id = %s", seen.uid)) == 1


async def test_the_same_sighting_twice_writes_nothing(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    seen = sighted.job()
    await mirrored.store(held, [seen])
    before = await row(db, seen)
    await mirrored.store(held, [seen])
    assert await row(db, seen) == before


async def test_an_older_version_never_overwrites_a_newer(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    old = sighted.job(priority=1)
    new = sighted.edited(old, priority=2)
    await mirrored.store(held, [new])
    await mirrored.store(held, [old])
    await mirrored.store(held, [sighted.replaced(sighted.deleted(old), resource_version=old.resource_version)])
    found = await row(db, new)
    assert found.spec["priority"] == 2
    assert found.generation == 2
    assert found.deleted_at is None


async def test_a_change_of_labels_is_no_edit(db: database.Database, held: duties.Held, mirrored: mirror.Mirror) -> None:
    seen = sighted.job()
    await mirrored.store(held, [seen])
    before = await row(db, seen)
    labelled = sighted.replaced(seen, labels={"team": "a"})
    await mirrored.store(held, [labelled])
    found = await row(db, seen)
    assert found.labels == {"team": "a"}
    assert found.resource_version == labelled.resource_version
    assert (found.spec_id, found.last_slot_at, found.dirty_at) == (
        before.spec_id,
        before.last_slot_at,
        before.dirty_at,
    )


POISON: dict[str, dict[str, Any]] = {
    "InvalidSchedule": {"schedule": "61 * * * *"},
    "InvalidTimeZone": {"timeZone": "Mars/Base"},
    "PayloadTooLarge": {"payload": "x" * 65_536},
    "TemplateInvalid": {"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "a"}]}}},
    "InvalidSpec": {"payload": "\x00"},
}


@pytest.mark.parametrize("reason", POISON)
async def test_a_bad_object_stops_alone(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, reason: str
) -> None:
    bad, good = sighted.job("bad", **POISON[reason]), sighted.job("good")
    await mirrored.store(held, [bad, good])
    found = await row(db, bad)
    assert found.parked
    assert found.next_run_at is None
    assert found.spec == {}
    assert found.urgent
    assert ready(found)["status"] == "False"
    assert ready(found)["reason"] == reason
    assert ready(found)["message"] == found.parked
    assert (await row(db, good)).next_run_at is not None


@pytest.mark.parametrize("spec", [{}, {"schedule": 5}, {"payload": "\ud800"}, {"wrong": {"a": [1]}}])
async def test_whatever_a_spec_holds_a_repair_brings_the_job_back(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, spec: dict[str, object]
) -> None:
    seen = sighted.replaced(sighted.job(), spec=spec)
    await mirrored.store(held, [seen])
    assert (await row(db, seen)).parked
    await mirrored.store(held, [sighted.edited(seen)])
    found = await row(db, seen)
    assert found.parked is None
    assert found.next_run_at is not None
    assert ready(found)["status"] == "True"
    assert found.urgent


async def test_what_the_database_refuses_is_parked_and_the_batch_goes_on(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    crowd = [sighted.job(f"good-{number}") for number in range(20)]
    refused = sighted.replaced(sighted.job("refused"), labels={"a": "\x00"})
    hopeless = sighted.replaced(sighted.job("hopeless"), resource_version=2**63)
    await mirrored.store(held, [*crowd[:10], refused, hopeless, *crowd[10:]])
    found = await row(db, refused)
    assert ready(found)["reason"] == "NotStored"
    assert found.labels is None
    assert await query(db, "SELECT 1 FROM jobs WHERE job_id = %s", hopeless.uid) == []
    [count] = await query(db, "SELECT count(*) AS n FROM jobs WHERE parked IS NULL")
    assert count.n == len(crowd)


async def test_deletion_fires_what_was_due_and_cancels_what_waits(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    created = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=90)
    seen = sighted.job(created_at=created, schedule=sighted.EVERY_MINUTE)
    await mirrored.store(held, [seen])
    await mirrored.store(held, [sighted.deleted(seen)])
    found = await row(db, seen)
    assert found.deleted_at is not None
    assert found.next_run_at is None
    assert found.dirty_at is None
    assert await query(db, "SELECT 1 FROM live_runs WHERE job_id = %s", seen.uid) == []
    [ended] = await query(db, "SELECT state::text, reason FROM run_history WHERE job_id = %s", seen.uid)
    assert (ended.state, ended.reason) == ("Cancelled", "JobDeleted")
    await mirrored.store(held, [seen])
    assert (await row(db, seen)).deleted_at is not None, "a late event does not bring it back"


async def test_a_batch_that_takes_too_long_is_halved(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many jobs that go at once, each with thousands of waiting runs, must not hold up the mirror for good."""
    crowd = [sighted.job(f"job-{number}") for number in range(5)]
    await mirrored.store(held, crowd)
    cancel = runs.cancel_waiting

    async def slow(connection: database.Connection, **what: Any) -> Any:
        if len(what["job_ids"]) > 2:
            await connection.execute("SET LOCAL statement_timeout = '20ms'")
            await connection.execute("SELECT pg_sleep(60)")
        return await cancel(connection, **what)

    monkeypatch.setattr(runs, "cancel_waiting", slow)
    await mirrored.store(held, [sighted.deleted(seen) for seen in crowd])
    assert [(await row(db, seen)).deleted_at is not None for seen in crowd] == [True] * 5


async def test_one_object_that_takes_too_long_waits_and_is_not_parked(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = sighted.job()
    await mirrored.store(held, [seen])

    async def slow(connection: database.Connection, **_: Any) -> None:
        await connection.execute("SET LOCAL statement_timeout = '20ms'")
        await connection.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(runs, "cancel_waiting", slow)
    with pytest.raises(errors.Unavailable, match="took longer"):
        await mirrored.store(held, [sighted.deleted(seen)])
    found = await row(db, seen)
    assert (found.deleted_at, found.parked) == (None, None)


@pytest.mark.parametrize(("on_delete", "state"), [("Finish", "Claimed"), ("Cancel", "Stopping")])
async def test_an_open_attempt_finishes_unless_the_job_says_cancel(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, on_delete: str, state: str
) -> None:
    created = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=90)
    seen = sighted.job(created_at=created, schedule=sighted.EVERY_MINUTE, onDelete=on_delete)
    await mirrored.store(held, [seen])
    await fire.Fire(db).run_once([(await row(db, seen)).shard])
    await change(db, "UPDATE live_runs SET state = 'Claimed', token = 1, attempt = 1, claimed_at = now()")
    await mirrored.store(held, [sighted.deleted(seen)])
    found = await query(db, "SELECT state::text FROM live_runs WHERE token = 1")
    assert [run.state for run in found] == [state]


async def test_the_same_name_again_is_another_job(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    first, second = sighted.job("same"), sighted.job("same")
    await mirrored.store(held, [first])
    await mirrored.store(held, [sighted.deleted(first), second])
    assert (await row(db, first)).deleted_at is not None
    assert (await row(db, second)).next_run_at is not None


async def test_who_lost_the_duty_writes_nothing(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    await change(db, "UPDATE duty_leases SET expires_at = now() WHERE duty = 'mirror'")
    async with db.transaction() as connection:
        assert await duties.take(connection, duties.MIRROR, replica="two", lease=timedelta(days=30))
    with pytest.raises(errors.Stale):
        await mirrored.store(held, [sighted.job()])
    assert await query(db, "SELECT 1 FROM jobs") == []


async def test_a_large_owner_spreads_over_shards(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    crowd = [sighted.job(f"job-{number}") for number in range(200)]
    await mirrored.store(held, crowd[:150])
    await mirrored.store(held, crowd[150:])
    [owner] = await query(db, "SELECT jobs_made FROM owners WHERE owner = 'k8s/team-a'")
    assert owner.jobs_made == 200
    rows = await query(db, "SELECT job_id, shard FROM jobs")
    stored = {one.job_id: one.shard for one in rows}
    assert stored == {
        seen.uid: ids.shard_of("k8s/team-a", job_id=seen.uid, width=1 + number // 64)
        for number, seen in enumerate(crowd)
    }
    assert len(set(stored.values())) > 1


async def test_firing_stops_with_the_resource_and_resumes_with_it(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    jobs = [sighted.job(f"job-{number}", schedule=sighted.EVERY_MINUTE) for number in range(3)]
    await mirrored.store(held, jobs)
    assert await mirrored.stop_all(held) == 3
    assert await mirrored.stop_all(held) == 0
    assert (await row(db, jobs[0])).parked == parking.RESOURCE_GONE
    assert await query(db, "SELECT 1 FROM jobs WHERE next_run_at IS NOT NULL OR deleted_at IS NOT NULL") == []
    await mirrored.store(held, jobs)
    found = await row(db, jobs[0])
    assert found.parked is None
    assert found.next_run_at is not None


async def test_a_batch_that_fails_waits_again(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    box = inbox.Inbox()
    seen = sighted.job()
    box.put(seen)
    await change(db, "UPDATE duty_leases SET generation = generation + 1 WHERE duty = 'mirror'")
    with pytest.raises(errors.Stale):
        await mirrored.flush_once(held, box)
    assert len(box) == 1
    await change(db, "UPDATE duty_leases SET generation = generation - 1 WHERE duty = 'mirror'")
    assert await mirrored.flush_once(held, box) == 1
    assert (await row(db, seen)).name == "sample"


async def test_an_edit_and_firing_at_once_lose_and_double_nothing(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror
) -> None:
    created = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    policy = {"policy": "All", "limit": 100}
    jobs = [
        sighted.job(f"job-{number}", created_at=created, schedule=sighted.EVERY_MINUTE, catchUp=policy)
        for number in range(100)
    ]
    await mirrored.store(held, jobs)
    firing = fire.Fire(db)

    async def fire_all() -> None:
        while await firing.run_once(range(256)):
            pass

    edits = [sighted.edited(seen, schedule="30 4 1 1 *") for seen in jobs]
    await asyncio.gather(fire_all(), mirrored.store(held, edits), fire_all())
    counts = await query(db, "SELECT count(*) AS n FROM live_runs GROUP BY job_id")
    assert {one.n for one in counts} <= {10, 11}
    assert len(counts) == len(jobs)
    assert await query(db, "SELECT 1 FROM skips") == []


async def test_an_unreachable_api_server_leaves_the_template_to_be_checked(
    db: database.Database, held: duties.Held, mirrored: mirror.Mirror, checked: templates.Templates
) -> None:
    seen = sighted.job()
    await mirrored.store(held, [seen])
    with pytest.raises(errors.Unavailable):
        await checked.check_once(held)
    found = await row(db, seen)
    assert found.next_run_at is not None
    assert "TemplateValid" not in json.dumps(found.conditions)
    with pytest.raises(errors.Unavailable):
        await checked.check_once(held)


async def test_a_template_that_no_pod_can_be_made_of_stops_its_own_job_and_no_check(
    db: database.Database, mirrored: mirror.Mirror, checked: templates.Templates, held: duties.Held
) -> None:
    no_name = {"spec": {"containers": [{"name": "main", "image": "any", "env": [{"name": ["A"]}]}]}}
    odd, unreadable = sighted.job("odd", template=no_name), sighted.job("unreadable")
    await mirrored.store(held, [odd, unreadable])
    text = "UPDATE job_specs SET template = '[1]' WHERE spec_id = (SELECT spec_id FROM jobs WHERE job_id = %s)"
    await change(db, text, unreadable.uid)
    while await checked.check_once(held):
        pass
    why = "spec.template.spec.containers.env: must be a list of names and values"
    assert (await row(db, odd)).parked == why
    assert (await row(db, unreadable)).parked.startswith("spec.template: its pod cannot be made: ")
