"""A job that keeps dying stops by itself, loses no slot by it, and goes on once somebody has looked after it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.support import jobs, sighted, statements

from clockhand.domain import ids, sightings, spec, verdict
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S
from clockhand.engine import deadlines, fire, mirror, observe, pauses, requests, shards, status, templates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties, runs
from clockhand.store import status as status_rows

NOBODY = connections.Connection(server="http://127.0.0.1:1")
EVERYWHERE = range(ids.SHARDS)
MINUTE = timedelta(minutes=1)
FAILED = verdict.AttemptEnd(verdict.Ending.FAILED, "Error", 1)
SUCCEEDED = verdict.AttemptEnd(verdict.Ending.SUCCEEDED)
ONCE = spec.Retry(max_attempts=1)
READY = {"type": "Ready", "status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": "then"}


@pytest.fixture
async def minute(db: database.Database) -> datetime:
    """The whole minute that has just gone by, on the database's clock; weeks have their partitions."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        return (await database.now(connection)).replace(second=0, microsecond=0)


@pytest.fixture
async def held(db: database.Database) -> shards.Shards:
    one = shards.Shards(db, replica="one", lease=jobs.LONG)
    await one.run_once()
    return one


@pytest.fixture
async def client() -> AsyncIterator[clients.Client]:
    """An API server that cannot be reached: nothing here may depend on it."""
    async with clients.connect(NOBODY) as unreachable:
        yield unreachable


@dataclass(frozen=True)
class Replica:
    """The parts of an operator that this file is about."""

    held: shards.Shards
    observer: observe.Observe


@pytest.fixture
def replica(db: database.Database, held: shards.Shards, client: clients.Client) -> Replica:
    return Replica(held, observe.Observe(db, pods.Pods(client), held=held))


@pytest.fixture
async def duty(db: database.Database) -> duties.Held:
    async with db.transaction() as connection:
        taken = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert taken
    return taken


@pytest.fixture
def mirrored(db: database.Database, client: clients.Client) -> mirror.Mirror:
    return mirror.Mirror(db, templates.Templates(db, pods.Pods(client)))


async def make(
    db: database.Database, due_at: datetime | None, limit: int | None = 2, *, failures: int = 0, **fields: Any
) -> jobs.Job:
    """A job due at `due_at`, whose runs have one attempt each."""
    plan = spec.JobSpec(**{"schedule": jobs.EVERY_MINUTE, "pause_after_failures": limit, "retry": ONCE, **fields})
    async with db.transaction() as connection:
        made = await jobs.make_job(connection, plan, next_slot_at=due_at)
        await connection.execute("UPDATE job_status SET consecutive_failures = %s", (failures,))
    return made


async def row(db: database.Database, job_id: uuid.UUID) -> Any:
    async with db.transaction() as connection:
        [found] = await jobs.query(
            connection, "SELECT * FROM jobs JOIN job_status USING (job_id, shard) WHERE job_id = %s", job_id
        )
    return found


async def change(db: database.Database, text: str, *parameters: object) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode(), parameters)


async def query(db: database.Database, text: str) -> list[tuple[Any, ...]]:
    async with db.transaction() as connection:
        return [tuple(found) for found in await jobs.query(connection, text)]


async def skips(db: database.Database) -> list[tuple[Any, ...]]:
    return await query(db, "SELECT reason::text, count, first_at, last_at FROM skips ORDER BY first_at, recorded_at")


async def states(db: database.Database) -> list[tuple[str, str]]:
    found = await query(db, "SELECT kind::text, state::text FROM runs ORDER BY scheduled_at")
    return [(kind, state) for kind, state in found]


async def run_all(db: database.Database, replica: Replica, end: verdict.AttemptEnd) -> int:
    """Claims what is Queued and lets it end like this, as a replica does; returns how many runs that were."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        claims = await jobs.claim(connection, holder=replica.held.holder(), limit=100, now=now)
    for claim in claims:
        replica.observer.note_claim_end(claim, end)
    await replica.observer.run_once()
    return len(claims)


async def end_all(db: database.Database, held: shards.Shards, state: S) -> None:
    """Claims what is Queued and stores this end: a replica that dies directly after has done no more."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        claims = await jobs.claim(connection, holder=held.holder(), limit=100, now=now)
        ended = [runs.Outcome(one.run_id, one.token, state, "AttemptsUsed", None, 1, 0, None) for one in claims]
        await runs.finish(connection, ended, now=now)


async def ask(db: database.Database, job: jobs.Job, name: str = "by-hand") -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await requests.request_run(connection, owner=job.owner, job_id=job.job_id, name=name, actor="somebody", now=now)


def condition(found: Any, kind: str) -> dict[str, Any]:
    [one] = [one for one in found.conditions if one["type"] == kind]
    return dict(one)


def kinds(found: Any) -> list[str]:
    return [one["type"] for one in found.conditions]


async def paused(db: database.Database, minute: datetime, **fields: Any) -> jobs.Job:
    """A job of which two runs died, ten and nine minutes before `minute`; paused ever since the second."""
    job = await make(db, None, **fields)
    async with db.transaction() as connection:
        for ago in (10, 9):
            await jobs.make_run(connection, job, S.DEAD, at=minute - ago * MINUTE, reason="AttemptsUsed")
    await change(db, "UPDATE jobs SET next_slot_at = %s, next_run_at = %s", minute, minute)
    await change(db, "UPDATE jobs SET last_slot_at = %s", minute - 9 * MINUTE)
    await change(db, "UPDATE job_status SET consecutive_failures = 2")
    assert await pauses.pause(db, [job.job_id]) == 1
    return job


async def test_the_run_that_reaches_the_limit_pauses_its_job(
    db: database.Database, minute: datetime, replica: Replica
) -> None:
    job = await make(db, minute, schedule=jobs.NEVER)
    await change(db, "UPDATE job_status SET conditions = %s", Jsonb([READY]))
    await fire.Fire(db).run_once(EVERYWHERE)
    assert await run_all(db, replica, FAILED) == 1
    assert (await row(db, job.job_id)).paused_at is None, "one run is not two in a row"

    await change(db, "UPDATE jobs SET next_slot_at = %s, next_run_at = %s", minute + MINUTE, minute + MINUTE)
    await ask(db, job)
    assert await run_all(db, replica, FAILED) == 1
    found = await row(db, job.job_id)
    assert found.paused_at is not None
    assert (found.next_slot_at, found.next_run_at, found.last_slot_at) == (None, None, minute)
    assert (found.urgent, found.consecutive_failures) == (True, 2)
    shown = condition(found, "Paused")
    assert (shown["status"], shown["reason"]) == ("True", "Failures")
    assert shown["message"] == (
        "2 runs in a row ended Dead, last by-hand (AttemptsUsed): no slot fires until the spec is edited, "
        "spec.suspend is set to true and then to false, or a manual run succeeds"
    )
    assert (condition(found, "Ready")["status"], condition(found, "Ready")["reason"]) == ("True", "Paused")


async def test_a_paused_job_shows_no_next_run_and_is_not_finished(db: database.Database, minute: datetime) -> None:
    await paused(db, minute)
    async with db.transaction() as connection:
        [one] = await status_rows.dirty(
            connection, EVERYWHERE, written_before=minute, settled=minute, batch=10, usual=0
        )
    shown = status.status_of(one)
    assert shown["nextRunTime"] is None
    assert "Finished" not in [condition["reason"] for condition in shown["conditions"]]
    assert [condition["type"] for condition in shown["conditions"]] == ["Paused"]


@pytest.mark.parametrize("limit", [None, 3])
async def test_a_job_below_its_limit_or_without_one_goes_on(
    db: database.Database, minute: datetime, replica: Replica, limit: int | None
) -> None:
    job = await make(db, minute, limit, failures=1, schedule=jobs.NEVER)
    await fire.Fire(db).run_once(EVERYWHERE)
    await run_all(db, replica, FAILED)
    found = await row(db, job.job_id)
    assert (found.consecutive_failures, found.paused_at) == (2, None)
    assert found.next_run_at > minute


async def test_a_success_starts_the_count_anew(db: database.Database, minute: datetime, replica: Replica) -> None:
    job = await make(db, minute, failures=1)
    await fire.Fire(db).run_once(EVERYWHERE)
    await run_all(db, replica, SUCCEEDED)
    await ask(db, job)
    await run_all(db, replica, FAILED)
    found = await row(db, job.job_id)
    assert (found.consecutive_failures, found.paused_at) == (1, None)


async def test_a_success_that_is_stored_first_is_seen(db: database.Database, minute: datetime) -> None:
    job = await make(db, minute, failures=2)
    async with db.transaction() as other:
        await other.execute("UPDATE job_status SET consecutive_failures = 0")
        pausing = asyncio.create_task(pauses.pause(db, [job.job_id]))
        await statements.until_somebody_waits(db)
    assert await pausing == 0
    assert (await row(db, job.job_id)).paused_at is None


async def test_a_run_that_waits_until_its_time_is_over_counts(db: database.Database, minute: datetime) -> None:
    job = await make(db, minute, failures=1)
    async with db.transaction() as connection:
        await jobs.make_run(connection, job, S.BLOCKED, at=minute - MINUTE, run_deadline_at=minute - MINUTE)
    assert await deadlines.Deadlines(db).run_once(EVERYWHERE) == 1
    assert (await row(db, job.job_id)).paused_at is not None


async def test_a_one_shot_that_died_has_nothing_to_pause(
    db: database.Database, minute: datetime, replica: Replica
) -> None:
    job = await make(db, minute, 1, schedule=None, at=f"{minute:%Y-%m-%dT%H:%M:%SZ}")
    await fire.Fire(db).run_once(EVERYWHERE)
    await run_all(db, replica, FAILED)
    found = await row(db, job.job_id)
    assert (found.consecutive_failures, found.paused_at) == (1, None)


async def test_a_process_that_dies_before_the_pause_lets_no_slot_through(
    db: database.Database, minute: datetime, held: shards.Shards
) -> None:
    job = await make(db, minute - 3 * MINUTE, failures=1)
    await ask(db, job)
    await end_all(db, held, S.DEAD)
    assert (await row(db, job.job_id)).paused_at is None, "it died there"
    assert await fire.Fire(db).run_once(EVERYWHERE) == 1
    found = await row(db, job.job_id)
    assert (found.paused_at is not None, found.next_run_at) == (True, None)
    assert await states(db) == [("Manual", "Dead")]
    assert await skips(db) == [], "the pause is not over"
    assert await fire.Fire(db).run_once(EVERYWHERE) == 0


async def test_the_others_of_a_batch_fire(db: database.Database, minute: datetime) -> None:
    stopped = await make(db, minute, failures=2)
    async with db.transaction() as connection:
        going = await jobs.make_job(connection, jobs.plan(pause_after_failures=2), next_slot_at=minute, name="other")
    assert await fire.Fire(db).run_once(EVERYWHERE) == 2
    fired = await query(db, "SELECT job_id FROM live_runs")
    assert fired == [(going.job_id,)]
    assert (await row(db, stopped.job_id)).paused_at is not None


async def test_a_limit_that_is_not_reached_costs_one_statement(
    db: database.Database, minute: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(db, minute, failures=1)
    names = statements.named(monkeypatch)
    await fire.Fire(db).run_once(EVERYWHERE)
    assert [name for name in names if name.startswith("pauses.")] == ["pauses.failures"]


async def test_runs_that_wait_go_on_and_manual_runs_may_be_made(
    db: database.Database, minute: datetime, replica: Replica
) -> None:
    """As with suspend: a pause stops slots, not runs."""
    job = await make(db, minute, failures=1, concurrency_policy=Concurrency.QUEUE)
    async with db.transaction() as connection:
        await jobs.make_run(connection, job, S.QUEUED, at=minute - 2 * MINUTE)
        waits = await jobs.make_run(connection, job, S.BLOCKED, at=minute - MINUTE)
    await run_all(db, replica, FAILED)
    assert (await row(db, job.job_id)).paused_at is not None
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, waits) == (S.QUEUED,)
    await ask(db, job)
    await run_all(db, replica, SUCCEEDED)
    assert await pauses.sweep(db, EVERYWHERE) == 0
    assert (await row(db, job.job_id)).paused_at is not None, "it was a slot's run that succeeded"
    await run_all(db, replica, SUCCEEDED)
    assert (await row(db, job.job_id)).paused_at is None


async def test_a_manual_run_that_succeeds_ends_the_pause(
    db: database.Database, minute: datetime, replica: Replica
) -> None:
    job = await paused(db, minute)
    await ask(db, job, "fails")
    await run_all(db, replica, FAILED)
    assert (await row(db, job.job_id)).paused_at is not None
    await ask(db, job, "works")
    await run_all(db, replica, SUCCEEDED)
    found = await row(db, job.job_id)
    assert (found.paused_at, found.consecutive_failures, found.urgent) == (None, 0, True)
    assert kinds(found) == []
    assert found.next_run_at > minute
    [(reason, count, first, last)] = await skips(db)
    assert (reason, first) == ("Paused", minute - 8 * MINUTE)
    assert last == minute + (count - 9) * MINUTE
    assert count >= 9, "minutes may have gone by since the test began"
    assert [kind for kind, _ in await states(db)] == ["Slot", "Slot", "Manual", "Manual"]


async def test_a_manual_success_before_the_pause_does_not_end_it(
    db: database.Database, minute: datetime, replica: Replica
) -> None:
    job = await make(db, minute)
    await ask(db, job)
    await run_all(db, replica, SUCCEEDED)
    await change(db, "UPDATE job_status SET consecutive_failures = 2")
    assert await pauses.pause(db, [job.job_id]) == 1
    assert await pauses.resume(db, [job.job_id]) == 0
    assert await pauses.sweep(db, EVERYWHERE) == 0
    assert (await row(db, job.job_id)).paused_at is not None


async def test_the_sweep_ends_the_pause_that_a_dead_process_left(
    db: database.Database, minute: datetime, held: shards.Shards
) -> None:
    job = await paused(db, minute)
    assert await pauses.sweep(db, EVERYWHERE) == 0
    await ask(db, job)
    await end_all(db, held, S.SUCCEEDED)
    assert (await row(db, job.job_id)).paused_at is not None, "it died there"
    others = [shard for shard in EVERYWHERE if shard != job.shard]
    assert await pauses.sweep(db, others) == 0
    await held.run_once()
    assert held.paused
    await change(db, "UPDATE job_status SET consecutive_failures = 1")
    assert await pauses.sweep(db, EVERYWHERE) == 1
    found = await row(db, job.job_id)
    assert (found.paused_at, found.consecutive_failures) == (None, 0), "another death since then is not counted"
    await held.run_once()
    assert not held.paused
    [(reason, *_)] = await skips(db)
    assert reason == "Paused"


async def test_two_that_end_one_pause_record_it_once(
    db: database.Database, minute: datetime, held: shards.Shards
) -> None:
    job = await paused(db, minute)
    await ask(db, job)
    await end_all(db, held, S.SUCCEEDED)
    assert sum(await asyncio.gather(*(pauses.resume(db, [job.job_id]) for _ in range(4)))) == 1
    assert len(await skips(db)) == 1


async def test_a_pause_that_cannot_be_ended_stops_its_job_alone(
    db: database.Database, minute: datetime, held: shards.Shards
) -> None:
    job = await paused(db, minute)
    await ask(db, job)
    await end_all(db, held, S.SUCCEEDED)
    await change(db, "UPDATE job_specs SET spec = jsonb_set(spec::jsonb, '{schedule}', '\"61 * * * *\"')")
    assert await pauses.resume(db, [job.job_id]) == 0
    assert "spec.schedule" in (await row(db, job.job_id)).parked
    assert await pauses.sweep(db, EVERYWHERE) == 0


async def stored(db: database.Database, seen: sightings.Sighting, mirrored: mirror.Mirror, duty: duties.Held) -> Any:
    await mirrored.store(duty, [seen])
    return await row(db, seen.uid)


async def paused_object(db: database.Database, mirrored: mirror.Mirror, duty: duties.Held) -> sightings.Sighting:
    """An object whose job is paused since five minutes."""
    seen = sighted.job(schedule=sighted.EVERY_MINUTE, pauseAfterFailures=2)
    await mirrored.store(duty, [seen])
    await change(db, "UPDATE job_status SET consecutive_failures = 2")
    assert await pauses.pause(db, [seen.uid]) == 1
    await change(db, "UPDATE jobs SET last_slot_at = date_trunc('minute', now()) - interval '5 minutes'")
    return seen


@pytest.mark.parametrize("fields", [{"priority": 1}, {"suspend": True}, {"pauseAfterFailures": None}])
async def test_any_edit_ends_a_pause(
    db: database.Database, minute: datetime, duty: duties.Held, mirrored: mirror.Mirror, fields: dict[str, Any]
) -> None:
    seen = await paused_object(db, mirrored, duty)
    again = sighted.edited(seen, **{"schedule": sighted.EVERY_MINUTE, "pauseAfterFailures": 2, **fields})
    found = await stored(db, again, mirrored, duty)
    assert (found.paused_at, found.consecutive_failures, found.urgent) == (None, 0, True)
    assert (found.next_run_at is None) == bool(fields.get("suspend"))
    assert "Paused" not in kinds(found)
    [(reason, count, _, _)] = await skips(db)
    assert (reason, count >= 5) == ("Paused", True)
    assert await states(db) == []


async def test_suspend_and_resume_leave_a_job_that_fires(
    db: database.Database, minute: datetime, duty: duties.Held, mirrored: mirror.Mirror
) -> None:
    seen = await paused_object(db, mirrored, duty)
    fields: dict[str, Any] = {"schedule": sighted.EVERY_MINUTE, "pauseAfterFailures": 2}
    suspended = sighted.edited(seen, suspend=True, **fields)
    await mirrored.store(duty, [suspended])
    found = await stored(db, sighted.edited(suspended, suspend=False, **fields), mirrored, duty)
    assert condition(found, "Ready")["reason"] == "Scheduled"
    assert found.next_run_at > minute
    await change(db, "UPDATE job_status SET consecutive_failures = 1")
    assert await pauses.pause(db, [seen.uid]) == 0, "one death more is the first of a fresh count"


async def test_a_change_of_labels_ends_no_pause(
    db: database.Database, minute: datetime, duty: duties.Held, mirrored: mirror.Mirror
) -> None:
    seen = await paused_object(db, mirrored, duty)
    found = await stored(db, sighted.replaced(seen, labels={"tier": "gold"}), mirrored, duty)
    assert (found.labels, found.paused_at is not None) == ({"tier": "gold"}, True)
    assert kinds(found) == ["Paused", "Ready"]


@pytest.mark.parametrize("how", ["edit", "delete"])
async def test_what_comes_between_the_outcome_and_the_pause_runs_no_slot(
    db: database.Database, minute: datetime, duty: duties.Held, mirrored: mirror.Mirror, how: str
) -> None:
    seen = sighted.job(schedule=sighted.EVERY_MINUTE, pauseAfterFailures=2)
    await mirrored.store(duty, [seen])
    await change(db, "UPDATE job_status SET consecutive_failures = 2")
    await change(
        db,
        "UPDATE jobs SET last_slot_at = %(at)s - interval '1 minute', next_slot_at = %(at)s, next_run_at = %(at)s".replace(
            "%(at)s", f"'{(minute - 3 * MINUTE).isoformat()}'::timestamptz"
        ),
    )
    later = sighted.deleted(seen) if how == "delete" else sighted.edited(seen, schedule=sighted.EVERY_MINUTE)
    found = await stored(db, later, mirrored, duty)
    assert await states(db) == []
    [(reason, count, first, _)] = await skips(db)
    assert (reason, first, count >= 4) == ("Paused", minute - 3 * MINUTE, True)
    assert found.paused_at is None
    assert (how == "delete") or found.consecutive_failures == 0


async def test_a_paused_job_that_is_deleted_accounts_for_its_slots(
    db: database.Database, minute: datetime, duty: duties.Held, mirrored: mirror.Mirror
) -> None:
    seen = await paused_object(db, mirrored, duty)
    found = await stored(db, sighted.deleted(seen), mirrored, duty)
    assert (found.paused_at, found.deleted_at is not None) == (None, True)
    [(reason, count, _, _)] = await skips(db)
    assert (reason, count >= 5) == ("Paused", True)
