"""Past slots become runs on real rows: each once, a few at a time, whoever asks and whatever dies."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs, statements

from clockhand import errors
from clockhand.domain import backfill as domain
from clockhand.domain import ids, spec, verdict
from clockhand.domain.backfill import Order
from clockhand.domain.spec import ConcurrencyPolicy as Concurrency
from clockhand.domain.states import RunState as S
from clockhand.engine import admit, backfill, fire, observe, prune, requests, shards
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import backfills, database, partitions, runs

ACTOR = "somebody"
EVERYWHERE = range(ids.SHARDS)
KEPT_DAYS = 400
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURLY = "0 * * * *"


@pytest.fixture
async def now(db: database.Database) -> datetime:
    """Database time, and the weeks around it."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        return await database.now(connection)


@pytest.fixture
async def hour(now: datetime) -> datetime:
    """The whole hour before the last one."""
    return now.replace(minute=0, second=0, microsecond=0) - HOUR


@pytest.fixture
async def job(db: database.Database, now: datetime) -> jobs.Job:
    return await make_job(db, now)


async def make_job(db: database.Database, now: datetime, schedule: str | None = HOURLY, **plan: Any) -> jobs.Job:
    """A job whose next slot is a year away, so that only backfills make runs of it."""
    async with db.transaction() as connection:
        made = spec.JobSpec(schedule=schedule, **plan)
        return await jobs.make_job(connection, made, next_slot_at=now + 365 * DAY)


async def ask(
    db: database.Database,
    job: jobs.Job,
    first: datetime,
    last: datetime,
    *,
    name: str = "again",
    order: Order = Order.OLDEST_FIRST,
    concurrency: int = 1,
) -> uuid.UUID:
    wanted = domain.Wanted(domain.Span(first, last, order), concurrency, KEPT_DAYS)
    async with db.transaction() as connection:
        return await requests.request_backfill(
            connection,
            owner=job.owner,
            job_id=job.job_id,
            name=name,
            wanted=wanted,
            actor=ACTOR,
            now=await database.now(connection),
        )


async def cancel(db: database.Database, backfill_id: uuid.UUID, owner: str = jobs.OWNER) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await requests.cancel_backfill(connection, owner=owner, backfill_id=backfill_id, actor=ACTOR, now=now)


async def look(db: database.Database) -> int:
    """As the pulse does, when its time has come."""
    async with db.transaction() as connection:
        await connection.execute("UPDATE backfills SET look_at = now() - interval '1 s'")
    return await backfill.Backfill(db).run_once(EVERYWHERE)


async def row(db: database.Database, backfill_id: uuid.UUID) -> backfills.Backfill:
    async with db.transaction() as connection:
        found = await backfills.one(connection, backfill_id)
    assert found is not None
    return found.row


async def live(db: database.Database) -> list[tuple[datetime, S]]:
    async with db.transaction() as connection:
        found = await jobs.query(
            connection, "SELECT scheduled_at, state::text FROM live_runs ORDER BY scheduled_at, run_id"
        )
    return [(at, S(state)) for at, state in found]


async def slots(db: database.Database) -> list[datetime]:
    return [at for at, _ in await live(db)]


async def end_all(db: database.Database, state: S = S.SUCCEEDED, *, holder: runs.Holder | None = None) -> int:
    """Claims every Queued run and ends it; returns how many."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        holder = holder or await jobs.hold_all(connection)
        claims = await jobs.claim(connection, holder=holder, limit=500, now=now)
        outcomes = [runs.Outcome(one.run_id, one.token, state, None, None, 0, 0, None) for one in claims]
        return len(await runs.finish(connection, outcomes, now=now))


async def play(db: database.Database, *, at_most: int) -> list[datetime]:
    """Looks and ends in turn until the backfills are over; returns the slots that ran, in the order in which they did."""
    ran: list[datetime] = []
    for _ in range(2_000):
        await look(db)
        now_live = await slots(db)
        assert len(now_live) <= at_most
        ran += now_live
        async with db.transaction() as connection:
            if not await jobs.one(connection, "SELECT count(*) FROM backfills WHERE ended_at IS NULL"):
                return ran
        await end_all(db)
    raise AssertionError("it does not come to an end")


async def every_run(db: database.Database, kinds: Collection[str] = ("Slot", "Backfill")) -> list[datetime]:
    async with db.transaction() as connection:
        found = await jobs.query(
            connection, "SELECT scheduled_at FROM runs WHERE kind::text = ANY(%s) ORDER BY 1", list(kinds)
        )
    return [at for (at,) in found]


async def edit(db: database.Database, job: jobs.Job, plan: spec.JobSpec) -> None:
    async with db.transaction() as connection:
        await connection.execute(
            "WITH new AS (INSERT INTO job_specs (job_id, generation, spec, stored_at) VALUES (%s, 2, %s, now()) "
            "RETURNING spec_id) UPDATE jobs SET spec_id = new.spec_id, generation = 2 FROM new",
            (job.job_id, spec.encode(plan).decode()),
        )


async def test_its_runs_are_runs_like_others(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    backfill_id = await ask(db, job, hour - 2 * HOUR, hour)
    assert await slots(db) == []
    assert await look(db) == 1
    async with db.transaction() as connection:
        [run] = await jobs.query(connection, "SELECT *, kind::text AS why, state::text AS now FROM live_runs")
        audited = await jobs.query(connection, "SELECT actor, action, job_id, detail ->> 'name' FROM audit")
    assert (run.why, run.key, run.now, run.shard) == ("Backfill", str(backfill_id), "Queued", job.shard)
    assert (run.scheduled_at, run.spec_id, run.job_name) == (hour - 2 * HOUR, job.spec_id, job.name)
    assert run.name.startswith(f"job-00000-{run.scheduled_at:%Y%m%dt%H%M%Sz}-")
    assert audited == [(ACTOR, "backfill", job.job_id, "again")]


@pytest.mark.parametrize("order", list(Order))
async def test_every_slot_runs_in_order(db: database.Database, job: jobs.Job, hour: datetime, order: Order) -> None:
    backfill_id = await ask(db, job, hour - 9 * HOUR, hour, order=order)
    ran = await play(db, at_most=1)
    assert ran == sorted((hour - n * HOUR for n in range(10)), reverse=order is Order.NEWEST_FIRST)
    over = await row(db, backfill_id)
    assert (over.slots, over.made, over.passed, over.succeeded, over.failed) == (10, 10, 0, 10, 0)
    assert over.complete
    assert over.ended_at is not None


async def test_no_more_of_its_runs_are_live_than_it_may_have(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    await ask(db, job, hour - 19 * HOUR, hour, concurrency=3)
    await look(db)
    assert len(await slots(db)) == 3
    for _ in range(5):
        assert await look(db) == 0  # nothing has ended
    assert len(await slots(db)) == 3
    assert len(set(await play(db, at_most=3))) == 20


async def test_a_year_of_minutes_takes_small_steps(
    db: database.Database, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await make_job(db, now, jobs.EVERY_MINUTE)
    minute = now.replace(second=0, microsecond=0)
    backfill_id = await ask(db, job, minute - 365 * DAY, minute, concurrency=5)
    assert (await row(db, backfill_id)).slots == 365 * 24 * 60 + 1
    sent = statements.named(monkeypatch)
    assert await look(db) == 1
    assert len(sent) < 20
    assert len(await slots(db)) == 5
    # there is a week for each of them to end in
    assert await end_all(db) == 5


def last_sunday(month: int, before: datetime) -> datetime:
    """The last Sunday of the newest such month all of which lies before an instant: 01:00 UTC, when clocks change."""
    year = before.year if month < before.month else before.year - 1
    days = (datetime(year, month, day, 1, tzinfo=UTC) for day in range(25, 32))
    return max(day for day in days if day.weekday() == 6)


async def test_both_clock_changes(db: database.Database, now: datetime) -> None:
    job = await make_job(db, now, "30 2 * * *", time_zone="Europe/Berlin")
    spring, autumn = last_sunday(3, now), last_sunday(10, now)
    minutes = timedelta(minutes=30)
    await ask(db, job, spring - 2 * HOUR, spring + DAY, name="spring", concurrency=9)
    await ask(db, job, autumn - 2 * HOUR, autumn + DAY + HOUR, name="autumn", concurrency=9)
    await look(db)
    # no 02:30 in spring: straight after the gap; two of them in autumn: the first
    wanted = [spring, spring + DAY - minutes, autumn - minutes, autumn + DAY + minutes]
    assert await slots(db) == sorted(wanted)


async def test_what_ran_or_waits_is_left_alone_and_what_was_skipped_runs(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    ended = {S.SUCCEEDED: 0, S.DEAD: 1, S.CANCELLED: 2, S.UNKNOWN: 3}
    async with db.transaction() as connection:
        for state, hours in {**ended, S.RUNNING: 4, S.BLOCKED: 5}.items():
            await jobs.make_run(connection, job, state, at=hour - hours * HOUR)
        await connection.execute("UPDATE live_runs SET state = 'Retrying' WHERE state = 'Blocked'")
        await connection.execute(
            "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
            "VALUES (%s, %s, %s, %s, %s, 3, 'CatchUp', now())",
            (job.job_id, job.owner, job.name, hour - 8 * HOUR, hour - 6 * HOUR),
        )
        # by hand, at an instant that is a slot: no slot's run
        manual = {"kind": "Manual", "key": "hand", "name": "hand", "run_id": uuid.uuid4()}
        await jobs.make_run(connection, job, S.SUCCEEDED, at=hour - 9 * HOUR, **manual)
    backfill_id = await ask(db, job, hour - 9 * HOUR, hour, concurrency=10)
    await look(db)
    await end_all(db)
    await look(db)
    over = await row(db, backfill_id)
    assert (over.slots, over.made, over.passed, over.succeeded) == (10, 4, 6, 4)
    assert over.ended_at is not None
    assert await every_run(db) == [hour - n * HOUR for n in range(9, -1, -1)]
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM skips") == 1


async def test_asking_twice_makes_nothing_twice(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    await ask(db, job, hour - 9 * HOUR, hour, concurrency=4)
    await play(db, at_most=4)
    with pytest.raises(errors.Conflict, match="again"):
        await ask(db, job, hour - 9 * HOUR, hour)
    second = await ask(db, job, hour - 11 * HOUR, hour, name="once-more", order=Order.NEWEST_FIRST)
    assert await play(db, at_most=1) == [hour - 10 * HOUR, hour - 11 * HOUR]
    assert (await row(db, second)).passed == 10
    assert await every_run(db) == [hour - n * HOUR for n in range(11, -1, -1)]


async def test_four_backfills_of_one_range_at_the_same_time(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)

    async def through(name: str, order: Order) -> uuid.UUID:
        backfill_id = await ask(db, job, hour - 59 * HOUR, hour, name=name, order=order, concurrency=7)
        while (await row(db, backfill_id)).ended_at is None:
            await backfill.Backfill(db).look(backfill_id)
            await end_all(db, holder=holder)
        return backfill_id

    names = {f"n{number}": list(Order)[number % 2] for number in range(4)}
    done = await asyncio.gather(*(through(name, order) for name, order in names.items()))
    rows = [await row(db, backfill_id) for backfill_id in done]
    assert await every_run(db) == [hour - n * HOUR for n in range(59, -1, -1)]
    assert sum(one.made for one in rows) == 60
    assert all(one.made + one.passed == one.slots == 60 for one in rows)
    assert sum(one.succeeded for one in rows) == 60


async def test_one_name_at_the_same_time_is_one_backfill(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    async def one() -> bool:
        try:
            await ask(db, job, hour - HOUR, hour)
        except errors.Conflict:
            return False
        return True

    assert sum(await asyncio.gather(*(one() for _ in range(5)))) == 1


async def test_a_name_belongs_to_a_run_or_to_a_backfill(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        hand: dict[str, Any] = {"owner": job.owner, "job_id": job.job_id, "actor": ACTOR, "now": now}
        await requests.request_run(connection, name="by-hand", **hand)
    with pytest.raises(errors.Conflict, match="by-hand"):
        await ask(db, job, hour, hour, name="by-hand")
    await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        with pytest.raises(errors.Conflict, match="again"):
            await requests.request_run(connection, name="again", **hand)


async def test_a_slot_that_is_due_is_fired_first(db: database.Database, hour: datetime) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.plan(HOURLY), next_slot_at=hour)
    backfill_id = await ask(db, job, hour - HOUR, hour + HOUR, concurrency=5)
    await look(db)
    await fire.Fire(db).run_once(EVERYWHERE)
    # of the two due slots the newest runs by itself; the older one, skipped, and the one before are made up for
    assert await every_run(db, ["Slot"]) == [hour + HOUR]
    assert await every_run(db, ["Backfill"]) == [hour - HOUR, hour]
    assert (await row(db, backfill_id)).passed == 1


async def test_a_slot_whose_jitter_is_not_over_starts_at_once_as_its_own_run(
    db: database.Database, hour: datetime, now: datetime
) -> None:
    """Made by the backfill it would come a second time, once its delay is over."""
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.plan(HOURLY, jitter_seconds=86_400), next_slot_at=hour + HOUR)
        await connection.execute("UPDATE jobs SET next_run_at = %s", (now + HOUR,))
    assert await fire.Fire(db).run_once(EVERYWHERE) == 0
    backfill_id = await ask(db, job, hour, hour + HOUR, concurrency=5)
    await look(db)
    assert await every_run(db, ["Slot"]) == [hour + HOUR]
    assert await every_run(db, ["Backfill"]) == [hour]
    assert (await row(db, backfill_id)).passed == 1
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT next_slot_at FROM jobs") > hour + HOUR


async def test_whoever_stores_the_end_of_a_run_makes_the_next(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    held = shards.Shards(db, replica="one", lease=jobs.LONG)
    await held.run_once()
    backfill_id = await ask(db, job, hour - HOUR, hour)
    await look(db)
    # an API server that cannot be reached: nothing here may depend on it
    async with clients.connect(connections.Connection(server="http://127.0.0.1:1")) as client:
        observer = observe.Observe(db, pods.Pods(client), held=held)
        for slot in (hour - HOUR, hour):
            async with db.transaction() as connection:
                now = await database.now(connection)
                [claim] = await jobs.claim(connection, holder=held.holder(), limit=5, now=now)
            assert claim.scheduled_at == slot
            observer.note_claim_end(claim, verdict.AttemptEnd(verdict.Ending.SUCCEEDED))
            await observer.run_once()
    assert (await row(db, backfill_id)).ended_at is not None


async def test_a_suspended_job_can_be_backfilled(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET suspended = true, next_slot_at = NULL, next_run_at = NULL")
    await ask(db, job, hour - HOUR, hour)
    assert await play(db, at_most=1) == [hour - HOUR, hour]


async def test_a_death_between_two_looks_loses_nothing(
    db: database.Database, job: jobs.Job, hour: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill_id = await ask(db, job, hour - 7 * HOUR, hour, concurrency=2)

    class KilledError(BaseException):
        """Nothing of the process gets to do anything more."""

    async def dies(*arguments: object, **more: object) -> None:
        raise KilledError

    while (await row(db, backfill_id)).ended_at is None:
        with monkeypatch.context() as patched:
            patched.setattr(backfills, "save", dies)  # the runs are inserted, the row has not moved
            with pytest.raises(KilledError):
                await look(db)
        await look(db)
        assert len(await slots(db)) <= 2
        await end_all(db)
    assert await every_run(db) == [hour - n * HOUR for n in range(7, -1, -1)]


async def test_somebody_who_holds_the_job_is_not_waited_for(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    backfill_id = await ask(db, job, hour - HOUR, hour)
    async with db.transaction() as connection:
        await jobs.query(connection, "SELECT job_id FROM jobs FOR UPDATE")
        assert await look(db) == 0
    assert (await row(db, backfill_id)).reached_at is None
    assert await look(db) == 1


async def test_runs_that_do_not_succeed_are_counted_and_can_be_retried(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    backfill_id = await ask(db, job, hour - HOUR, hour, concurrency=2)
    await look(db)
    await end_all(db, S.DEAD)
    await look(db)
    over = await row(db, backfill_id)
    assert (over.succeeded, over.failed, over.ended_at is None) == (0, 2, False)
    async with db.transaction() as connection:
        now = await database.now(connection)
        run_id = over.run_id(hour)
        await requests.retry(connection, owner=job.owner, run_id=run_id, actor=ACTOR, now=now)
    again = await row(db, backfill_id)
    assert (again.failed, again.open_at, again.ended_at) == (1, (hour,), None)
    await end_all(db)
    await look(db)
    over = await row(db, backfill_id)
    assert (over.succeeded, over.failed, over.ended_at is None) == (1, 1, False)


async def test_a_run_retried_before_anybody_looked_is_counted_once(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    backfill_id = await ask(db, job, hour, hour)
    await look(db)
    await end_all(db, S.DEAD)
    async with db.transaction() as connection:
        now = await database.now(connection)
        run_id = (await row(db, backfill_id)).run_id(hour)
        await requests.retry(connection, owner=job.owner, run_id=run_id, actor=ACTOR, now=now)
    await end_all(db)
    await look(db)
    over = await row(db, backfill_id)
    assert (over.made, over.succeeded, over.failed, over.open_at) == (1, 1, 0, ())


async def test_cancel_in_the_middle(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    backfill_id = await ask(db, job, hour - 9 * HOUR, hour, concurrency=3)
    await look(db)
    await end_all(db)
    await look(db)
    async with db.transaction() as connection:
        now = await database.now(connection)
        holder = await jobs.hold_all(connection)
        [claimed] = await jobs.claim(connection, holder=holder, limit=1, now=now)
    await cancel(db, backfill_id)
    assert [state for _, state in await live(db)] == [S.STOPPING]
    stopping = await row(db, backfill_id)
    assert (stopping.stop_reason, stopping.ended_at, len(stopping.open_at)) == ("Cancelled", None, 1)
    assert await look(db) == 0
    async with db.transaction() as connection:
        end = runs.Outcome(claimed.run_id, claimed.token, S.CANCELLED, None, None, 0, 0, None)
        await runs.finish(connection, [end], now=now)
    await look(db)
    over = await row(db, backfill_id)
    assert over.ended_at is not None
    assert (over.slots, over.made, over.succeeded, over.failed) == (10, 6, 3, 3)
    assert len(await every_run(db)) == 6
    with pytest.raises(errors.Conflict, match="over"):
        await cancel(db, backfill_id)
    for strange in ((uuid.uuid4(), job.owner), (backfill_id, "k8s/another")):
        with pytest.raises(errors.NotFound):
            await cancel(db, *strange)


async def test_cancel_before_anything_was_made_ends_it_at_once(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    backfill_id = await ask(db, job, hour, hour)
    await cancel(db, backfill_id)
    over = await row(db, backfill_id)
    assert (over.made, over.ended_at is None, over.stop_reason) == (0, False, "Cancelled")
    async with db.transaction() as connection:
        assert await jobs.query(connection, "SELECT action FROM audit ORDER BY audit_id") == [
            ("backfill",),
            ("cancel",),
        ]


async def test_what_is_left_follows_the_job_as_it_is_now(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    backfill_id = await ask(db, job, hour - 2 * HOUR, hour)
    await look(db)
    await edit(db, job, jobs.plan("*/30 * * * *", priority=7))
    await end_all(db)
    await look(db)
    assert (await row(db, backfill_id)).slots == 5
    async with db.transaction() as connection:
        assert await jobs.query(connection, "SELECT scheduled_at, priority FROM live_runs") == [(hour - 1.5 * HOUR, 7)]
    await end_all(db)
    assert await play(db, at_most=1) == [hour - HOUR, hour - HOUR / 2, hour]
    over = await row(db, backfill_id)
    assert (over.slots, over.made) == (5, 5)


async def test_a_deleted_job_ends_its_backfills(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    backfill_id = await ask(db, job, hour - 9 * HOUR, hour)
    await look(db)
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET deleted_at = now(), next_slot_at = NULL, next_run_at = NULL")
    await look(db)
    assert (await row(db, backfill_id)).ended_at is None  # an open run finishes
    await end_all(db)
    await look(db)
    over = await row(db, backfill_id)
    assert (over.stop_reason, over.made, over.ended_at is None) == ("JobDeleted", 1, False)


async def test_a_job_that_is_gone_for_good_ends_its_backfills(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    backfill_id = await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        await connection.execute("DELETE FROM jobs")
    await look(db)
    assert (await row(db, backfill_id)).stop_reason == "JobDeleted"


async def test_a_parked_job_holds_its_backfills_up(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    backfill_id = await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET parked = 'why', next_slot_at = NULL, next_run_at = NULL")
    assert await look(db) == 0
    assert (await row(db, backfill_id)).ended_at is None
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET parked = NULL")
    assert await play(db, at_most=1) == [hour]


async def test_a_spec_that_cannot_be_read_stops_its_own_backfill_alone(
    db: database.Database, job: jobs.Job, now: datetime, hour: datetime
) -> None:
    broken = await ask(db, job, hour, hour, name="broken")
    async with db.transaction() as connection:
        await connection.execute("""UPDATE job_specs SET spec = '{"schedule": 7}'""")
    async with db.transaction() as connection:
        other = await jobs.make_job(connection, jobs.plan(HOURLY), next_slot_at=now + DAY, name="other")
    fine = await ask(db, other, hour, hour, name="fine")
    await look(db)
    assert (await row(db, broken)).reached_at is None
    assert (await row(db, fine)).made == 1


async def test_one_that_cannot_be_carried_on_stops_no_other(
    db: database.Database, job: jobs.Job, now: datetime, hour: datetime
) -> None:
    async with db.transaction() as connection:
        other = await jobs.make_job(connection, jobs.plan(HOURLY), next_slot_at=now + DAY, name="other")
        # no table refuses what the store ever writes; this one shall
        await connection.execute(f"ALTER TABLE live_runs ADD CHECK (job_id <> '{job.job_id}')".encode())
    broken, fine = await ask(db, job, hour, hour, name="broken"), await ask(db, other, hour, hour, name="fine")
    assert await look(db) == 1
    assert (await row(db, broken)).reached_at is None
    assert (await row(db, fine)).made == 1
    async with db.transaction() as connection:
        wake = await runs.wake(connection, shards=EVERYWHERE)
        assert wake.next_backfill is not None
        assert wake.next_backfill > wake.now


@pytest.mark.parametrize("policy", [Concurrency.FORBID, Concurrency.QUEUE, Concurrency.REPLACE])
async def test_one_at_a_time_is_kept_and_the_present_comes_first(
    db: database.Database, now: datetime, hour: datetime, policy: Concurrency
) -> None:
    job = await make_job(db, now, concurrency_policy=policy)
    await ask(db, job, hour - 3 * HOUR, hour, concurrency=4)
    await look(db)
    assert len(await slots(db)) == 1
    async with db.transaction() as connection:
        present = await jobs.make_run(connection, job, S.BLOCKED, at=now, reason="JobLimit")
    await end_all(db)
    assert await look(db) == 0  # somebody waits for the place
    async with db.transaction() as connection:
        await admit.promote_for(connection, [job.job_id], now=now)
        assert await jobs.state_of(connection, present) == (S.QUEUED,)
    await look(db)
    assert len(await slots(db)) == 1
    await end_all(db)
    assert len(await play(db, at_most=1)) == 3


async def test_forbid_skips_no_slot_of_the_present_for_a_backfill(
    db: database.Database, now: datetime, hour: datetime
) -> None:
    plan = jobs.plan(HOURLY, concurrency_policy=Concurrency.FORBID)
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, plan, next_slot_at=hour + HOUR)
    await ask(db, job, hour - HOUR, hour)
    await look(db)
    await fire.Fire(db).run_once(EVERYWHERE)
    assert await live(db) == [(hour - HOUR, S.QUEUED), (hour + HOUR, S.BLOCKED)]
    await end_all(db)
    async with db.transaction() as connection:
        await admit.promote_for(connection, [job.job_id], now=now)
    assert await live(db) == [(hour + HOUR, S.QUEUED)]
    await end_all(db)
    assert await play(db, at_most=1) == [hour]


async def test_beyond_what_is_kept_it_is_refused_with_a_sentence(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    for first, last, field in (
        (hour - (KEPT_DAYS + 1) * DAY, hour, "from"),
        (hour, hour - HOUR, "from"),
        (hour, hour + 9 * HOUR, "to"),
    ):
        with pytest.raises(errors.InvalidInput) as refused:
            await ask(db, job, first, last)
        assert refused.value.field == f"spec.backfill.{field}"
    with pytest.raises(errors.InvalidInput, match="no slot of 'job-00000' lies in this range"):
        await ask(db, job, hour + timedelta(minutes=1), hour + timedelta(minutes=2))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE jobs SET deleted_at = now(), next_slot_at = NULL, next_run_at = NULL", errors.NotFound),
        ("UPDATE jobs SET parked = 'why', next_slot_at = NULL, next_run_at = NULL", errors.Conflict),
    ],
)
async def test_a_job_that_cannot_run(
    db: database.Database, job: jobs.Job, hour: datetime, change: str, error: type[errors.ClockhandError]
) -> None:
    async with db.transaction() as connection:
        await connection.execute(change.encode())
    with pytest.raises(error):
        await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        assert await jobs.query(connection, "TABLE audit") == []


async def test_one_shots(db: database.Database, now: datetime, hour: datetime) -> None:
    job = await make_job(db, now, None, at=f"{hour:%Y-%m-%dT%H:%M:%SZ}")
    with pytest.raises(errors.InvalidInput, match="no slot"):
        await ask(db, job, hour - DAY, hour - HOUR)
    await ask(db, job, hour - DAY, hour + HOUR / 2)
    assert await play(db, at_most=1) == [hour]


async def test_weeks_that_an_open_backfill_covers_are_kept(
    db: database.Database, job: jobs.Job, hour: datetime
) -> None:
    old = hour - 60 * DAY
    backfill_id = await ask(db, job, old, hour)
    async with db.transaction() as connection:
        await partitions.ensure(connection, oldest=old, newest=hour)
        await jobs.make_run(connection, job, S.SUCCEEDED, at=old)
    pruner = prune.Prune(db, replica="one", retention_days=14)
    await pruner.run_once(hour)
    await look(db)
    assert (await row(db, backfill_id)).passed == 1
    await cancel(db, backfill_id)
    await pruner.run_once(hour + 2 * HOUR)
    assert old not in await every_run(db)
    async with db.transaction() as connection:
        await connection.execute("UPDATE backfills SET ended_at = ended_at - interval '20 days'")
    await pruner.run_once(hour + 4 * HOUR)
    async with db.transaction() as connection:
        assert await jobs.query(connection, "TABLE backfills") == []


async def test_a_clock_that_went_back_holds_nothing_up(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        await connection.execute("UPDATE backfills SET look_at = look_at + interval '1 hour'")
        wake = await runs.wake(connection, shards=EVERYWHERE)
    assert wake.next_backfill is not None
    assert backfill.is_due(wake.next_backfill, wake.now)
    assert await backfill.Backfill(db).run_once(EVERYWHERE) == 1


async def test_an_idle_replica_asks_nothing_more(db: database.Database, job: jobs.Job, hour: datetime) -> None:
    async with db.transaction() as connection:
        assert (await runs.wake(connection, shards=EVERYWHERE)).next_backfill is None
    await ask(db, job, hour, hour)
    async with db.transaction() as connection:
        wake = await runs.wake(connection, shards=[job.shard])
        assert wake.next_backfill is not None
        assert wake.next_backfill <= wake.now
        assert (await runs.wake(connection, shards=[job.shard + 1])).next_backfill is None
    await backfill.Backfill(db).run_once(EVERYWHERE)
    async with db.transaction() as connection:
        wake = await runs.wake(connection, shards=EVERYWHERE)
        assert wake.next_backfill is not None
        assert wake.next_backfill > wake.now
