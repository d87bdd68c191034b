"""Slots become runs on real rows: every one exactly once, however many fire at the same time."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.support import jobs, statements

from clockhand.domain import firing, ids, spec, states
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.store import database, runs
from clockhand.store import firing as rows

EVERYWHERE = range(ids.SHARDS)
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def minute(db: database.Database, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The whole minute that has just gone by, on the database's clock, which stands still; weeks have their partitions."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        found = await database.now(connection)
    asked = database.now

    async def now(connection: database.Connection) -> datetime:
        await asked(connection)
        return found

    monkeypatch.setattr(database, "now", now)
    return found.replace(second=0, microsecond=0)


async def fire_all(db: database.Database, shards: range = EVERYWHERE) -> int:
    firer, total = fire.Fire(db), 0
    while fired := await firer.run_once(shards):
        total += fired
    return total


async def counts(db: database.Database) -> Mapping[str, int]:
    async with db.transaction() as connection:
        found = await jobs.query(connection, "SELECT state::text, count(*) FROM live_runs GROUP BY 1")
    return dict(found)


async def skips(db: database.Database) -> list[tuple[str, int]]:
    async with db.transaction() as connection:
        found = await jobs.query(connection, "SELECT reason::text, count FROM skips ORDER BY first_at")
    return [(reason, count) for reason, count in found]


async def test_six_firers_make_each_of_2_000_runs_once(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        made = await jobs.make_jobs(connection, 2_000, next_slot_at=minute)
    fired = await asyncio.gather(*(fire_all(db) for _ in range(6)))
    assert sum(fired) == 2_000
    async with db.transaction() as connection:
        per_job = Counter(job for (job,) in await jobs.query(connection, "SELECT job_id FROM live_runs"))
        assert per_job == {job.job_id: 1 for job in made}
        ahead = "SELECT count(*) FROM jobs WHERE last_slot_at = %s AND next_run_at = %s AND next_slot_at = next_run_at"
        assert await jobs.one(connection, ahead, minute, minute + MINUTE) == 2_000
        logged = await jobs.changes(connection)
        assert len(logged) == len(set(logged)) == 2_000
        shown = "SELECT count(*) FROM job_status WHERE last_scheduled_at = %s AND dirty_at IS NOT NULL"
        assert await jobs.one(connection, shown, minute) == 2_000


async def test_a_run_is_what_its_spec_says(db: database.Database, minute: datetime) -> None:
    plan = jobs.plan(priority=3, run_timeout_seconds=60, attempt_timeout_seconds=20, pending_timeout_seconds=30)
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, plan, next_slot_at=minute)
        await connection.execute("""UPDATE jobs SET labels = '{"tier": "gold"}'""")
    await fire_all(db)
    async with db.transaction() as connection:
        [run] = await jobs.query(connection, "SELECT *, kind::text AS why, state::text AS now FROM live_runs")
    assert run.run_id == ids.run_id(job_id=job.job_id, scheduled_at=minute, kind=states.RunKind.SLOT, key="")
    assert run.name == f"job-00000-{minute:%Y%m%dt%H%M%Sz}"
    assert (run.why, run.key, run.now, run.attempt, run.shard) == ("Slot", "", "Queued", 0, job.shard)
    assert (run.scheduled_at, run.spec_id, run.labels) == (minute, job.spec_id, {"tier": "gold"})
    assert run.queue_at == run.ready_at - timedelta(seconds=30)
    assert run.run_deadline_at == run.created_at + MINUTE
    assert (run.attempt_timeout, run.pending_timeout, run.payload) == (20, 30, None)


async def test_a_poison_job_is_parked_and_the_others_fire(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        made = await jobs.make_jobs(connection, 5, next_slot_at=minute)
        broken = {1: '{"schedule": "not cron"}', 2: '{"schedule": 7}', 3: '{"schedule": "0 0 30 2 *"}'}
        for number, text in broken.items():
            await connection.execute("UPDATE job_specs SET spec = %s WHERE spec_id = %s", (text, made[number].spec_id))
    assert await fire_all(db) == 5
    assert await counts(db) == {"Queued": 2}
    async with db.transaction() as connection:
        parked = await jobs.query(
            connection,
            "SELECT name, parked FROM jobs JOIN job_status USING (job_id) "
            "WHERE parked IS NOT NULL AND next_run_at IS NULL AND next_slot_at IS NULL AND urgent ORDER BY name",
        )
    assert [row.name for row in parked] == [made[number].name for number in broken]
    assert all("\n" not in row.parked and len(row.parked) > 10 for row in parked)


async def test_a_missed_hour_is_one_run_and_one_row_of_skips(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        await jobs.make_job(connection, next_slot_at=minute - 60 * MINUTE)
    await fire_all(db)
    assert await counts(db) == {"Queued": 1}
    assert await skips(db) == [("CatchUp", 60)]


async def test_a_slot_of_months_ago_has_a_week_to_end_in(db: database.Database, minute: datetime) -> None:
    new_year = datetime(minute.year, 1, 1, tzinfo=minute.tzinfo)
    async with db.transaction() as connection:
        await jobs.make_job(connection, jobs.plan(jobs.NEVER), next_slot_at=new_year)
    await fire_all(db)
    async with db.transaction() as connection:
        run_id = await jobs.one(connection, "SELECT run_id FROM live_runs WHERE scheduled_at = %s", new_year)
        await runs.cancel_waiting(connection, run_ids=[run_id], reason="why", now=minute)
        assert await jobs.state_of(connection, run_id) == (S.CANCELLED,)


@pytest.mark.parametrize(
    ("plan", "live", "found", "skipped"),
    [
        (jobs.plan(concurrency_policy=Concurrency.FORBID), S.RUNNING, {"Running": 1}, [("Forbid", 1)]),
        (jobs.plan(concurrency_policy=Concurrency.FORBID), S.RETRYING, {"Retrying": 1}, [("Forbid", 1)]),
        (jobs.plan(concurrency_policy=Concurrency.QUEUE), S.RUNNING, {"Running": 1, "Blocked": 1}, []),
        (jobs.plan(concurrency_policy=Concurrency.QUEUE), S.RETRYING, {"Retrying": 1, "Blocked": 1}, []),
        (jobs.plan(concurrency_policy=Concurrency.REPLACE), S.RUNNING, {"Stopping": 1, "Blocked": 1}, []),
        (jobs.plan(concurrency_policy=Concurrency.REPLACE), S.QUEUED, {"Queued": 1}, []),
        (jobs.plan(concurrency_policy=Concurrency.REPLACE), S.RETRYING, {"Queued": 1}, []),
        (jobs.plan(concurrency_policy=Concurrency.REPLACE), S.BLOCKED, {"Queued": 1}, []),
        (jobs.plan(max_concurrent_runs=1), S.CLAIMED, {"Claimed": 1, "Blocked": 1}, []),
        (jobs.plan(max_concurrent_runs=2), S.CLAIMED, {"Claimed": 1, "Queued": 1}, []),
        (jobs.plan(), S.RUNNING, {"Running": 1, "Queued": 1}, []),
    ],
)
async def test_concurrency(
    db: database.Database,
    minute: datetime,
    plan: spec.JobSpec,
    live: S,
    found: Mapping[str, int],
    skipped: list[tuple[str, int]],
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, plan, next_slot_at=minute)
        before = await jobs.make_run(connection, job, live, at=minute - MINUTE)
    await fire_all(db)
    assert await counts(db) == found
    assert await skips(db) == skipped
    async with db.transaction() as connection:
        replaced = plan.concurrency_policy is Concurrency.REPLACE
        waited = live in (S.QUEUED, S.RETRYING, S.BLOCKED)
        if replaced and waited:
            assert await jobs.state_of(connection, before) == (S.CANCELLED,)
        elif replaced:
            assert await jobs.state_of(connection, before) == (S.STOPPING,)
        else:
            assert await jobs.state_of(connection, before) == (live,)


async def test_a_replacement_waits_for_a_run_that_is_claimed_while_it_fires(
    db: database.Database, minute: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.transaction() as connection:
        plan = jobs.plan(concurrency_policy=Concurrency.REPLACE)
        job = await jobs.make_job(connection, plan, next_slot_at=minute)
        before = await jobs.make_run(connection, job, S.QUEUED, at=minute - MINUTE)
    looked = rows.live_of_jobs

    async def look_and_be_overtaken(connection: database.Connection, job_ids: Any) -> Any:
        found = await looked(connection, job_ids)
        monkeypatch.setattr(rows, "live_of_jobs", looked)
        async with db.transaction() as other:
            await other.execute("UPDATE live_runs SET state = 'Claimed', token = 1 WHERE run_id = %s", (before,))
        return found

    monkeypatch.setattr(rows, "live_of_jobs", look_and_be_overtaken)
    await fire_all(db)
    assert await counts(db) == {"Stopping": 1, "Blocked": 1}


def _run(job: jobs.Job, at: datetime) -> rows.NewRun:
    return fire.new_run(job_id=job.job_id, name="n", plan=jobs.plan(), slot=firing.Slot(at, S.QUEUED))


async def test_the_high_water_mark_alone_refuses_a_slot(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, next_slot_at=minute)
        for at in (minute - MINUTE, minute - 2 * MINUTE):
            assert await rows.insert_runs(connection, [_run(job, at)], now=minute) == {}
        assert await counts_in(connection) == 0
        assert len(await rows.insert_runs(connection, [_run(job, minute)], now=minute)) == 1


async def test_the_unique_key_alone_refuses_a_second_run(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, next_slot_at=minute)
        first = _run(job, minute)
        assert len(await rows.insert_runs(connection, [first], now=minute)) == 1
        assert await rows.insert_runs(connection, [first], now=minute) == {}
        other_id = msgspec.structs.replace(first, run_id=uuid.uuid4())
        assert await rows.insert_runs(connection, [other_id], now=minute) == {}
        assert await counts_in(connection) == 1
        assert len(await jobs.changes(connection)) == 1


async def test_the_mark_never_goes_back(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, next_slot_at=minute)
        await rows.advance(connection, [rows.Advance(job.job_id, minute, minute + MINUTE)])
        await rows.advance(connection, [rows.Advance(job.job_id, minute - 5 * MINUTE, minute - 4 * MINUTE)])
        assert await jobs.one(connection, "SELECT next_run_at FROM jobs") == minute + MINUTE


async def counts_in(connection: database.Connection) -> int:
    found: int = await jobs.one(connection, "SELECT count(*) FROM live_runs")
    return found


async def test_only_long_overdue_slots_are_anybodys(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await jobs.make_job(connection, name="late", next_slot_at=now - timedelta(seconds=3, milliseconds=100))
        await jobs.make_job(connection, name="fresh", next_slot_at=now + timedelta(minutes=1))
    assert await fire.Fire(db).run_once(EVERYWHERE, anybodys=True) == 1
    assert await fire.Fire(db).run_once(EVERYWHERE, anybodys=True) == 0


async def test_only_the_held_shards_fire(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, 256, next_slot_at=minute)
    assert await fire_all(db, range(0, 100)) == 100
    assert await fire.Fire(db).run_once(range(0)) == 0
    assert await fire_all(db) == 156


async def test_what_was_named_first_and_has_moved_to_another_shard_is_its_holders(
    db: database.Database, minute: datetime
) -> None:
    async with db.transaction() as connection:
        stayed, moved = await jobs.make_jobs(connection, 2, next_slot_at=minute)
        await connection.execute("UPDATE jobs SET shard = 200 WHERE job_id = %s", (moved.job_id,))
        named = [moved.job_id, stayed.job_id]
        due = await rows.lock_due(connection, shards=range(100), before=minute, batch=10, first=named)
    assert [job.job_id for job in due] == [stayed.job_id]


async def test_settling_fires_what_is_due_and_nothing_else(db: database.Database, minute: datetime) -> None:
    async with db.transaction() as connection:
        due, other = await jobs.make_jobs(connection, 2, next_slot_at=minute)
        later = await jobs.make_job(connection, name="later", next_slot_at=minute + 10 * MINUTE)
        now = await database.now(connection)
        await fire.settle_due(connection, [due.job_id, later.job_id], now=now)
        fired = await jobs.query(connection, "SELECT job_id FROM live_runs")
        assert [row.job_id for row in fired] == [due.job_id]
        assert await jobs.one(connection, "SELECT count(*) FROM jobs WHERE next_slot_at <= %s", now) == 1
        assert await jobs.one(connection, "SELECT next_slot_at FROM jobs WHERE job_id = %s", other.job_id) == minute


@pytest.mark.parametrize("count", [1, 500])
async def test_a_batch_costs_the_same_statements_whatever_its_size(
    db: database.Database, minute: datetime, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.transaction() as connection:
        plan = jobs.plan(concurrency_policy=Concurrency.REPLACE)
        made = await jobs.make_jobs(connection, count, job=plan, next_slot_at=minute - MINUTE)
        await jobs.make_run(connection, made[0], S.RUNNING, at=minute - 5 * MINUTE)
    names = statements.named(monkeypatch)
    assert await fire.Fire(db).run_once(EVERYWHERE) == count
    assert names == [
        "installation.now", "firing.lock_due", "firing.live_of_jobs", "runs.cancel_waiting", "runs.stop_open",
        "firing.insert_runs", "firing.insert_skips", "firing.advance", "firing.show_fired",
        "runs.lock_specs_of_jobs", "firing.live_of_jobs",
    ]  # fmt: skip


async def test_a_plain_batch_is_five_statements(
    db: database.Database, minute: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, 300, next_slot_at=minute)
    names = statements.named(monkeypatch)
    assert await fire.Fire(db).run_once(EVERYWHERE) == 300
    assert names == ["installation.now", "firing.lock_due", "firing.insert_runs", "firing.advance", "firing.show_fired"]


async def test_a_fire_and_an_end_lock_the_status_rows_in_one_order(db: database.Database, minute: datetime) -> None:
    """Whoever waits for the lowest row holds none of the others, so two batches cannot wait for each other."""
    async with db.transaction() as connection:
        made = sorted(await jobs.make_jobs(connection, 50, next_slot_at=minute), key=lambda job: job.job_id)
    async with db.transaction() as blocker:
        await blocker.execute("SELECT FROM job_status WHERE job_id = %s FOR UPDATE", (made[0].job_id,))
        firing_now = asyncio.create_task(fire.Fire(db).run_once(EVERYWHERE))
        await statements.until_somebody_waits(db)
        async with db.transaction() as other:
            free = "SELECT FROM job_status WHERE job_id = ANY(%s) FOR UPDATE NOWAIT"
            await other.execute(free, ([job.job_id for job in made[1:]],))
    assert await firing_now == 50
