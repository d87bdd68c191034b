"""The database's clock leaps by an hour, on a real server whose clock really does: nothing fires early, no flood follows.

Whole pulses run, of several replicas. Their own clocks are hurried where a test waits; the database's goes with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support import jobs, postgres, steppable

from clockhand.domain import clockstate, ids, verdict
from clockhand.domain.states import RunState as S
from clockhand.engine import clock, fire, prune, requests, verdicts
from clockhand.store import database, runs

ROOT = Path(__file__).resolve().parents[2]
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
COUNT = 60
MARGIN = timedelta(seconds=20)
"""More than a test takes between two of its lines."""


@pytest.fixture
def at(server: postgres.PostgresServer, template: str) -> Iterator[steppable.Time]:
    name = server.new_database(template=template)
    steppable.make(server, name)
    yield steppable.Time(server.url(name))
    server.drop_database(name)


@pytest.fixture
async def db(at: steppable.Time) -> AsyncIterator[database.Database]:
    """For looking: its own clock is of no account, so that it never takes part."""
    opened = database.Database(at.url, size=2, name="look", monotonic=at.monotonic)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def start(at: steppable.Time, db: database.Database) -> datetime:
    """Just after a full minute: no slot of a job of every minute falls due by the time that a test itself takes."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        now = await database.now(connection)
    at.hurry(now.replace(second=0, microsecond=0) + MINUTE - now)
    async with db.transaction() as connection:
        return await database.now(connection)


@pytest.fixture
async def fleet(at: steppable.Time, start: datetime) -> AsyncIterator[Sequence[steppable.Operator]]:
    """Three replicas that have shared out the shards."""
    async with contextlib.AsyncExitStack() as stack:
        operators = [await stack.enter_async_context(steppable.operator(at, f"operator-{n}")) for n in range(3)]
        await turn(operators, 5)
        yield operators


async def turn(operators: Sequence[steppable.Operator], times: int = 1) -> None:
    for _ in range(times):
        for one in operators:
            await one.turn()


async def wait(at: steppable.Time, operators: Sequence[steppable.Operator], span: timedelta) -> None:
    """Lets time go by while every loop goes round, if less often than it does in earnest."""
    while span > timedelta():
        step = min(span, 20 * SECOND)
        span -= step
        at.hurry(step)
        await turn(operators)


async def make(db: database.Database, when: datetime) -> datetime:
    """Jobs that are due at every minute from the first one after `when`, which is returned."""
    first = when.replace(second=0, microsecond=0) + MINUTE
    async with db.transaction() as connection:
        await jobs.make_jobs(connection, COUNT, next_slot_at=first)
    return first


async def slots(db: database.Database) -> Counter[datetime]:
    """How many runs there are of each instant."""
    async with db.transaction() as connection:
        found = await jobs.query(connection, "SELECT scheduled_at FROM runs WHERE kind = 'Slot'")
    return Counter(row.scheduled_at for row in found)


async def skipped(db: database.Database) -> int:
    async with db.transaction() as connection:
        return int(await jobs.one(connection, "SELECT coalesce(sum(count), 0) FROM skips"))


async def accounted(db: database.Database, first: datetime) -> None:
    """The slot `first` and every minute up to a job's high-water mark is a run or in skips; none is both."""
    per_job = """
        SELECT last_slot_at, (SELECT count(*) FROM runs r WHERE r.job_id = jobs.job_id AND kind = 'Slot')
               + (SELECT coalesce(sum(count), 0) FROM skips s WHERE s.job_id = jobs.job_id) AS decided
        FROM jobs"""
    async with db.transaction() as connection:
        for row in await jobs.query(connection, per_job):
            minutes = (row.last_slot_at - first) // MINUTE
            assert row.decided == 1 + minutes


async def stored(db: database.Database) -> tuple[timedelta | None, datetime | None]:
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT clock_step, clock_noticed_at FROM installation")
    return row.clock_step, row.clock_noticed_at


async def generations(db: database.Database) -> list[tuple[int, str, int]]:
    async with db.transaction() as connection:
        return await jobs.query(
            connection, "SELECT shard, holder, generation FROM shard_leases WHERE shard < 256 ORDER BY shard"
        )


async def paused(db: database.Database, by: timedelta) -> None:
    step, _ = await stored(db)
    assert step is not None
    assert abs(step - by) < SECOND


def test_nothing_escapes_the_clock_of_the_test(at: steppable.Time) -> None:
    assert steppable.defaults(at.url) == []
    assert steppable.escapes() == []


async def test_without_a_step_slots_fire(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    due = await make(db, start + MARGIN)
    await wait(at, fleet, due - start + SECOND)
    assert await slots(db) == {due: COUNT}
    assert await stored(db) == (None, None)
    assert all(one.refused == [] for one in fleet)


async def test_forwards_nothing_fires_early_and_after_confirmation_each_job_runs_once(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    first = await make(db, start + 5 * MINUTE)
    before = await generations(db)
    at.leap(HOUR)
    await turn(fleet, 3)
    await paused(db, HOUR)
    await wait(at, fleet, 8 * MINUTE)  # also its true time goes by
    assert await slots(db) == {}
    assert await generations(db) == before
    assert sum(len(one.refused) for one in fleet) >= 1
    assert await clock.confirm(db) is not None
    await turn(fleet, 3)
    assert await stored(db) == (None, (await stored(db))[1])
    fired = await slots(db)
    assert sum(fired.values()) == COUNT
    assert len(fired) == 1
    [newest] = fired
    assert newest > start + HOUR + 7 * MINUTE - SECOND
    await accounted(db, first)
    await turn(fleet, 5)
    assert sum((await slots(db)).values()) == COUNT
    assert await generations(db) == before


async def test_undone_slots_fire_when_they_are_due(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    due = await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    await wait(at, fleet, MINUTE)
    await paused(db, HOUR)
    at.leap(-HOUR)
    await turn(fleet, 3)
    assert (await stored(db))[0] is None
    assert await slots(db) == {}
    await wait(at, fleet, due - start - MINUTE + SECOND)
    assert await slots(db) == {due: COUNT}
    assert await skipped(db) == 0


@pytest.mark.parametrize("confirmed", [True, False], ids=["confirmed", "ten minutes old"])
async def test_backwards_no_slot_fires_twice_and_nothing_before_time_comes_again(
    db: database.Database,
    at: steppable.Time,
    fleet: Sequence[steppable.Operator],
    start: datetime,
    confirmed: bool,
) -> None:
    first = await make(db, start + MARGIN)
    await wait(at, fleet, first - start + SECOND)
    assert await slots(db) == {first: COUNT}
    before = await generations(db)
    at.leap(-HOUR)
    await turn(fleet, 3)
    await paused(db, -HOUR)
    if confirmed:
        await clock.confirm(db)
    else:
        await wait(at, fleet, 9 * MINUTE)
        assert await slots(db) == {first: COUNT}
        await paused(db, -HOUR)
        await wait(at, fleet, 2 * MINUTE)
    await turn(fleet, 3)
    assert (await stored(db))[0] is None
    await wait(at, fleet, 5 * MINUTE)
    assert await slots(db) == {first: COUNT}, "time has not come again"
    assert await generations(db) == before
    await wait(at, fleet, HOUR)
    fired = await slots(db)
    assert fired[first] == COUNT
    assert max(fired) > first
    assert set(fired.values()) == {COUNT}
    async with db.transaction() as connection:
        twice = "SELECT count(*) FROM (SELECT FROM runs GROUP BY job_id, scheduled_at HAVING count(*) > 1) AS twice"
        assert await jobs.one(connection, twice) == 0


async def test_ten_minutes_after_a_step_it_is_believed(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    first = await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    await turn(fleet, 3)
    await wait(at, fleet, 9 * MINUTE)
    assert await slots(db) == {}
    await wait(at, fleet, 2 * MINUTE)
    assert (await stored(db))[0] is None
    fired = await slots(db)
    assert max(fired) > start + HOUR
    by_job = sum(fired.values())
    assert COUNT <= by_job <= 2 * COUNT, "the newest missed slot, and at most one that fell due since"
    await accounted(db, first)


async def test_steps_in_a_row_are_one_pause(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    due = await make(db, start + 20 * MINUTE)
    for leap, total in ((HOUR, HOUR), (10 * MINUTE, 70 * MINUTE), (-3 * HOUR, -110 * MINUTE)):
        at.leap(leap)
        await wait(at, fleet, 4 * MINUTE)
        await paused(db, total)
    at.leap(110 * MINUTE)
    await turn(fleet, 3)
    assert (await stored(db))[0] is None
    assert await slots(db) == {}
    await wait(at, fleet, due - start - 12 * MINUTE + SECOND)
    assert await slots(db) == {due: COUNT}


async def test_a_decision_between_two_looks_is_refused(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    one = fleet[0].db
    with pytest.raises(database.ClockStepped):
        await fire.Fire(one).run_once(range(ids.SHARDS), anybodys=True)
    await paused(db, HOUR)
    assert await fire.Fire(one).run_once(range(ids.SHARDS), anybodys=True) == 0
    async with fleet[1].db.transaction() as connection:  # what an edit does first
        everything = [row.job_id for row in await jobs.query(connection, "SELECT job_id FROM jobs")]
        await fire.settle_due(connection, everything, now=await database.now(connection))
    assert await slots(db) == {}


async def test_a_replica_that_starts_in_the_pause_waits_too(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    await turn(fleet, 2)
    at.hurry(timedelta(seconds=steppable.LEASE + 1))  # the fleet is dead from here on
    async with steppable.operator(at, "heir") as heir:
        await wait(at, [heir], 6 * MINUTE)
        assert await slots(db) == {}
        assert len(heir.held.holder().generations) == ids.SHARDS
        await clock.confirm(db)
        await turn([heir], 3)
        assert sum((await slots(db)).values()) == COUNT


async def test_a_replica_that_starts_at_the_step_hears_of_it_before_it_fires(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    async with steppable.operator(at, "new") as new:
        await turn([new], 5)  # the others are about to look
        assert await slots(db) == {}
        await turn([*fleet, new], 3)
        await paused(db, HOUR)
        await wait(at, [*fleet, new], MINUTE)
        assert await slots(db) == {}


async def test_undone_while_nobody_looked_the_step_is_forgotten(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    due = await make(db, start + 5 * MINUTE)
    at.leap(HOUR)
    await turn(fleet, 2)
    at.hurry(MINUTE)
    at.leap(-HOUR)
    async with steppable.operator(at, "heir") as heir:
        await wait(at, [heir], MINUTE)
        assert (await stored(db))[0] is None
        assert await slots(db) == {}
        await wait(at, [heir], due - start - 2 * MINUTE + SECOND)
        assert await slots(db) == {due: COUNT}


async def test_a_suspended_machine_is_refuted_by_the_others(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    asleep = steppable.Time(at.url)
    async with steppable.operator(asleep, "suspended") as one:
        await turn([one, *fleet], 2)
        at.hurry(7 * MINUTE)  # all but its own clock went on
        await turn([one], 1)
        await paused(db, 7 * MINUTE)
        await turn(fleet, 1)
        assert (await stored(db))[0] is None
        await turn([one, *fleet], 3)
        assert (await stored(db))[0] is None


async def test_running_work_goes_on_and_keeps_the_time_it_had(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, name="work")
        slow = await jobs.make_run(
            connection, job, S.RUNNING, at=start, deadline_at=start + 15 * MINUTE, run_deadline_at=start + 40 * MINUTE
        )
        quick = await jobs.make_run(connection, job, S.RUNNING, at=start + SECOND, token=5)
        retrying = await jobs.make_run(
            connection, job, S.RETRYING, at=start + 2 * SECOND, ready_at=start + 5 * MINUTE, attempt=1
        )
        late = await jobs.make_run(
            connection, job, S.RETRYING, at=start + 3 * SECOND, ready_at=start + 30 * MINUTE, attempt=1
        )
        queued = await jobs.make_run(connection, job, S.QUEUED, at=start + 4 * SECOND)
    at.leap(HOUR)
    await wait(at, fleet, MINUTE)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, slow) == (S.RUNNING,)
        assert await jobs.state_of(connection, retrying) == (S.RETRYING,)
        assert await jobs.state_of(connection, queued) == (S.CLAIMED,)
        by_hand = await requests.request_run(
            connection,
            owner=job.owner,
            job_id=job.job_id,
            name="by-hand",
            actor="me",
            now=await database.now(connection),
        )
        [made] = await jobs.query(connection, "SELECT scheduled_at FROM live_runs WHERE run_id = %s", by_hand)
        assert made.scheduled_at < start + 10 * MINUTE
    holder = next(one for one in fleet if one.held.holds(job.shard))
    key = runs.Key(quick, 5, job.shard)
    holder.observer._end(verdicts.Ended(key, verdict.AttemptEnd(verdict.Ending.SUCCEEDED)))
    await turn(fleet, 2)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, quick) == (S.SUCCEEDED,)
        assert await jobs.state_of(connection, by_hand) == (S.CLAIMED,)
    await wait(at, fleet, 5 * MINUTE)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, retrying) == (S.CLAIMED,), "its back-off is over, step or no step"
    await clock.confirm(db)
    await turn(fleet, 3)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, slow) == (S.RUNNING,), "it has run for six minutes of its fifteen"
        assert await jobs.state_of(connection, late) == (S.RETRYING,)
        [row] = await jobs.query(connection, "SELECT run_deadline_at FROM live_runs WHERE run_id = %s", slow)
    assert abs(row.run_deadline_at - (start + HOUR + 40 * MINUTE)) < SECOND
    await wait(at, fleet, 10 * MINUTE)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, slow) == (S.STOPPING,)


async def test_no_attempt_times_out_in_the_pause(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, name="work")
        run = await jobs.make_run(connection, job, S.RUNNING, at=start, deadline_at=start + 2 * MINUTE)
    at.leap(HOUR)
    await wait(at, fleet, 5 * MINUTE)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, run) == (S.RUNNING,)
    at.leap(-HOUR)
    await turn(fleet, 3)
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, run) == (S.STOPPING,)


async def test_a_replica_that_dies_in_the_pause_is_replaced_after_a_lease(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator]
) -> None:
    for leap in (HOUR, -2 * HOUR):
        at.leap(leap)
        await turn(fleet, 2)
    assert all(one.held.trusted() for one in fleet)
    await wait(at, fleet[1:], 2 * MINUTE)
    assert {holder for _, holder, _ in await generations(db)} == {"operator-1", "operator-2"}


async def test_nothing_is_dropped_by_a_clock_that_has_jumped(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator], start: datetime
) -> None:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, name="old")
        await jobs.make_run(connection, job, S.SUCCEEDED, at=start)
    at.leap(timedelta(days=400))
    await turn(fleet, 2)
    pruning = prune.Prune(fleet[0].db, replica="operator-0", retention_days=7)
    await pruning.step()
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM run_history") == 1
    await clock.confirm(db)
    await fleet[0].turn()
    await pruning.step()
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM run_history") == 0


async def test_what_an_administrator_is_told(
    db: database.Database, at: steppable.Time, fleet: Sequence[steppable.Operator]
) -> None:
    assert clockstate.as_text(await clock.state(db), None).startswith("trusted: ")
    assert await clock.confirm(db) is None
    at.leap(HOUR)
    await turn(fleet, 2)
    state = await clock.state(db)
    assert "jumped by +1:00:00" in clockstate.as_text(state, None) or "jumped by +0:59:59" in clockstate.as_text(
        state, None
    )
    assert state.until is not None
    assert state.since is not None
    assert state.until - state.since == 10 * MINUTE
    assert '"trusted": false' in clockstate.as_json(state, None)
    confirmed = await clock.confirm(db)
    assert confirmed is not None
    assert abs(confirmed - HOUR) < SECOND
    assert '"trusted": true' in clockstate.as_json(await clock.state(db), confirmed)


async def process(at: steppable.Time, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.clocked_operator",
        at.url,
        name,
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
    )


async def command(at: steppable.Time, *arguments: str) -> str:
    """What `clockhand clock` prints."""
    one = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "clockhand", "clock", *arguments, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "CLOCKHAND_DATABASE_URL": at.url},
    )  # fmt: skip
    printed, _ = await one.communicate()
    assert one.returncode == 0
    return printed.decode()


async def until(db: database.Database, condition: str) -> None:
    async with asyncio.timeout(120):
        while True:
            async with db.transaction() as connection:
                if await jobs.one(connection, f"SELECT {condition}"):
                    return
            await asyncio.sleep(0.1)


async def test_processes_killed_and_started_in_the_pause(
    db: database.Database, at: steppable.Time, start: datetime
) -> None:
    first = await make(db, start + HOUR / 2)
    operators = [await process(at, f"operator-{n}") for n in range(3)]
    try:
        await until(db, "(SELECT count(DISTINCT holder) FROM shard_leases WHERE expires_at > now()) = 3")
        await asyncio.sleep(3)  # each has looked at the clock
        at.leap(HOUR)
        await until(db, "clock_step IS NOT NULL FROM installation")
        operators[0].kill()
        operators.append(await process(at, "operator-3"))
        await until(db, "EXISTS (SELECT FROM shard_leases WHERE holder = 'operator-3')")
        operators[1].kill()
        operators.append(await process(at, "operator-4"))
        await until(db, "NOT EXISTS (SELECT FROM shard_leases WHERE holder IN ('operator-0', 'operator-1'))")
        await asyncio.sleep(3)
        assert await slots(db) == {}
        told = json.loads(await command(at, "-o", "json"))
        assert told["trusted"] is False
        assert abs(told["stepSeconds"] - 3600) < 1
        assert (await command(at, "--confirm")).startswith("confirmed: the clock had jumped by +")
        await until(db, f"(SELECT count(DISTINCT job_id) FROM runs) = {COUNT}")
        await asyncio.sleep(3)
    finally:
        for one in operators:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            await one.wait()
    fired = await slots(db)
    assert min(fired) > start + HOUR - MINUTE
    assert len(fired) <= 2, "a minute may have begun since"
    await accounted(db, first)
    assert json.loads(await command(at, "-o", "json"))["trusted"] is True
