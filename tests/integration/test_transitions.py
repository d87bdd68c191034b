"""The transition table against the SQL: what it allows happens, anything else changes nothing."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from tests.support import jobs

from clockhand.domain import firing, states
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.store import database, groups, partitions, redrives, runs
from clockhand.store import firing as fire_rows

POD = uuid.UUID(int=99)
AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
LIVE = sorted(states.LIVE)
ALL = [None, *LIVE, *sorted(states.OVER)]


@dataclasses.dataclass(frozen=True)
class World:
    """A run in one state, and everything that a write about it may name."""

    connection: database.Connection
    holder: runs.Holder
    job: jobs.Job
    run_id: uuid.UUID
    token: int = jobs.TOKEN

    @property
    def key(self) -> runs.Key:
        return runs.Key(self.run_id, self.token, self.job.shard)


async def _claim(world: World) -> None:
    now = await database.now(world.connection)
    await jobs.claim(world.connection, holder=world.holder, limit=5, now=now)


async def _running(world: World) -> None:
    item = runs.Started(world.run_id, world.token, world.job.shard, POD, "node")
    now = await database.now(world.connection)
    await runs.running(world.connection, holder=world.holder, items=[item], now=now)


async def _promote(world: World) -> None:
    await runs.promote(world.connection, [world.run_id], now=await database.now(world.connection))


async def _wait_for_group(world: World) -> None:
    if await jobs.state_of(world.connection, world.run_id) == (S.BLOCKED,):
        return  # it stays Blocked, for another reason
    await groups.wait(world.connection, {world.run_id: None}, now=await database.now(world.connection))


async def _promote_group(world: World) -> None:
    waits = "UPDATE live_runs SET concurrency_group = 'exports', reason = 'GroupLimit' WHERE state = 'Blocked'"
    await world.connection.execute(waits.encode())
    now = await database.now(world.connection)
    await groups.promote(world.connection, {"exports": 5}, job_ids=[world.job.job_id], now=now)


async def _hand_back(world: World) -> None:
    await runs.hand_back(world.connection, holder=world.holder, items=[world.key])


async def _stop(world: World) -> None:
    await runs.stop_open(world.connection, run_ids=[world.run_id], reason="Cancelled")


async def _retry(world: World) -> None:
    if not await runs.lock_open(world.connection, holder=world.holder, items=[world.key]):
        return
    now = await database.now(world.connection)
    later = now + timedelta(seconds=10)
    await runs.retry(
        world.connection, [runs.Outcome(world.run_id, world.token, S.RETRYING, "Error", None, 1, 0, later)]
    )


async def _redrive(world: World) -> None:
    now = await database.now(world.connection)
    await redrives.redrive(world.connection, {world.run_id: jobs.plan()}, owner=world.job.owner, now=now)


def _finish(state: S) -> Callable[[World], Awaitable[None]]:
    async def finish(world: World) -> None:
        if await runs.lock_open(world.connection, holder=world.holder, items=[world.key]):
            outcome = runs.Outcome(world.run_id, world.token, state, "why", None, 1, 0, None)
            await runs.finish(world.connection, [outcome], now=await database.now(world.connection))

    return finish


def _end_waiting(state: S) -> Callable[[World], Awaitable[None]]:
    async def end(world: World) -> None:
        now = await database.now(world.connection)
        await runs.cancel_waiting(world.connection, run_ids=[world.run_id], reason="why", state=state, now=now)

    return end


def _insert(state: S) -> Callable[[World], Awaitable[None]]:
    async def insert(world: World) -> None:
        now = await database.now(world.connection)
        made = fire.new_run(job_id=world.job.job_id, name="run", plan=jobs.plan(), slot=firing.Slot(AT, state))
        await fire_rows.insert_runs(world.connection, [made], now=now)

    return insert


# what each store function may do, from where it may do it
MOVES: Mapping[str, tuple[Callable[[World], Awaitable[None]], S, frozenset[S | None]]] = {
    "insert Queued": (_insert(S.QUEUED), S.QUEUED, frozenset({None})),
    "insert Blocked": (_insert(S.BLOCKED), S.BLOCKED, frozenset({None})),
    "promote": (_promote, S.QUEUED, frozenset({S.BLOCKED, S.RETRYING})),
    "wait for the group": (_wait_for_group, S.BLOCKED, frozenset({S.RETRYING})),
    "promote in the group": (_promote_group, S.QUEUED, frozenset({S.BLOCKED})),
    "claim": (_claim, S.CLAIMED, frozenset({S.QUEUED})),
    "hand back": (_hand_back, S.QUEUED, frozenset({S.CLAIMED})),
    "running": (_running, S.RUNNING, frozenset({S.CLAIMED})),
    "stop": (_stop, S.STOPPING, frozenset({S.CLAIMED, S.RUNNING})),
    "retry": (_retry, S.RETRYING, states.ATTEMPT_OPEN),
    "finish Succeeded": (_finish(S.SUCCEEDED), S.SUCCEEDED, states.ATTEMPT_OPEN),
    "finish Dead": (_finish(S.DEAD), S.DEAD, states.ATTEMPT_OPEN),
    "finish Unknown": (_finish(S.UNKNOWN), S.UNKNOWN, states.ATTEMPT_OPEN),
    "finish Cancelled": (_finish(S.CANCELLED), S.CANCELLED, states.ATTEMPT_OPEN),
    "cancel waiting": (_end_waiting(S.CANCELLED), S.CANCELLED, states.WAITING),
    "time out waiting": (_end_waiting(S.DEAD), S.DEAD, states.WAITING),
    "redrive": (_redrive, S.BLOCKED, frozenset({S.DEAD, S.UNKNOWN, S.CANCELLED})),
}
CASES = [(name, old) for name in MOVES for old in ALL]


async def _world(connection: database.Connection, old: S | None) -> World:
    holder = await jobs.hold_all(connection)
    job = await jobs.make_job(connection)
    # a slot is never made twice, so that the row to be inserted is one after the high-water mark
    made = fire.new_run(job_id=job.job_id, name="run", plan=jobs.plan(), slot=firing.Slot(AT, S.QUEUED))
    if old is None:
        return World(connection, holder, job, made.run_id)
    if old.is_over:
        await connection.execute("UPDATE jobs SET last_slot_at = %s", (AT,))
    return World(connection, holder, job, await jobs.make_run(connection, job, old, at=AT))


@pytest.fixture
async def partitioned(db: database.Database) -> database.Database:
    async with db.transaction() as connection:
        await partitions.ensure(connection, oldest=AT, newest=AT)
    return db


async def test_every_pair_of_states_and_every_function_that_moves_a_run(partitioned: database.Database) -> None:
    for name, old in CASES:
        act, new, allowed_from = MOVES[name]
        async with partitioned.transaction() as connection:
            world = await _world(connection, old)
            before = await jobs.query(connection, "TABLE live_runs")
            await act(world)
            found = await jobs.state_of(connection, world.run_id)
            logged = await jobs.changes(connection)
            if old in allowed_from:
                assert states.may_become(old, new), (name, old)
                assert found == (new,), (name, old)
                assert logged == [(world.run_id, new)], (name, old)
            else:
                assert found == ((old,) if old else ()), (name, old)
                assert logged == [], (name, old)
                assert await jobs.query(connection, "TABLE live_runs") == before, (name, old)
            await connection.rollback()


def test_every_move_of_the_table_has_a_function_that_makes_it() -> None:
    made = {(old, new) for _, new, allowed_from in MOVES.values() for old in allowed_from}
    wanted = {(old, new) for old, targets in states.TRANSITIONS.items() for new in targets}
    # Claimed at once is for hand-off at fire, a redriven run is Blocked until it is admitted in the same transaction
    later = {(None, S.CLAIMED), (S.DEAD, S.QUEUED), (S.UNKNOWN, S.QUEUED), (S.CANCELLED, S.QUEUED)}
    assert wanted - made == later
    assert made <= wanted


NEEDS_TOKEN = [
    "hand back", "running", "retry", "finish Succeeded", "finish Dead", "finish Unknown", "finish Cancelled"
]  # fmt: skip


@pytest.mark.parametrize("stale", ["token", "generation", "replica", "shard given up"])
async def test_a_stale_writer_changes_nothing(partitioned: database.Database, stale: str) -> None:
    for name in NEEDS_TOKEN:
        async with partitioned.transaction() as connection:
            world = await _world(connection, S.CLAIMED)
            old = world.holder
            if stale == "token":
                world = dataclasses.replace(world, token=jobs.TOKEN + 1)
            elif stale == "generation":
                await jobs.hold_all(connection, "two")
                await jobs.hold_all(connection, "one")
            elif stale == "replica":
                world = dataclasses.replace(world, holder=dataclasses.replace(old, replica="two"))
            else:
                world = dataclasses.replace(world, holder=dataclasses.replace(old, generations={}))
            await MOVES[name][0](world)
            assert await jobs.state_of(connection, world.run_id) == (S.CLAIMED,), (name, stale)
            assert await jobs.changes(connection) == [], (name, stale)
            await connection.rollback()


async def test_finish_and_retry_are_guarded_by_the_token_alone_too(partitioned: database.Database) -> None:
    async with partitioned.transaction() as connection:
        world = await _world(connection, S.RUNNING)
        now = await database.now(connection)
        stale = runs.Outcome(world.run_id, world.token + 1, S.DEAD, None, None, 1, 0, now)
        assert await runs.finish(connection, [stale], now=now) == []
        assert await runs.retry(connection, [stale]) == 0
        assert await jobs.state_of(connection, world.run_id) == (S.RUNNING,)


async def test_a_stale_holder_claims_nothing(partitioned: database.Database) -> None:
    async with partitioned.transaction() as connection:
        world = await _world(connection, S.QUEUED)
        await jobs.hold_all(connection, "two")
        await _claim(world)
        assert await jobs.state_of(connection, world.run_id) == (S.QUEUED,)


BROKEN = [
    "UPDATE live_runs SET state = 'Claimed'",
    "UPDATE live_runs SET token = 1",
    "UPDATE live_runs SET state = 'Stopping', token = 1",
    "UPDATE live_runs SET stop_reason = 'why'",
    "UPDATE live_runs SET state = 'Dead'",
    "UPDATE jobs SET next_run_at = now()",
    "UPDATE jobs SET next_slot_at = last_slot_at, next_run_at = last_slot_at",
    "UPDATE jobs SET suspended = true, next_slot_at = now(), next_run_at = now()",
    "UPDATE jobs SET parked = 'why', next_slot_at = now(), next_run_at = now()",
    "UPDATE jobs SET deleted_at = now(), next_slot_at = now(), next_run_at = now()",
    "UPDATE jobs SET shard = 256",
    "INSERT INTO owners (owner) VALUES ('team-a')",
    "INSERT INTO run_changes (runs, states) VALUES ('{}', '{}')",
    "INSERT INTO run_changes (runs, states) SELECT array_agg(run_id), '{}' FROM live_runs",
    "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
    "SELECT job_id, owner, name, now(), now(), 0, 'Forbid', now() FROM jobs",
    "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
    "SELECT job_id, owner, name, now(), now() - interval '1 s', 1, 'Forbid', now() FROM jobs",
    "INSERT INTO installation (one, timeline) VALUES (false, '')",
]


@pytest.mark.parametrize("statement", BROKEN)
async def test_the_schema_refuses_rows_that_mean_nothing(partitioned: database.Database, statement: str) -> None:
    async with partitioned.transaction() as connection:
        await _world(connection, S.QUEUED)
        with pytest.raises(psycopg.errors.CheckViolation):
            await connection.execute(statement.encode())
        await connection.rollback()


async def test_an_ended_run_cannot_be_stored_as_live_in_history(partitioned: database.Database) -> None:
    async with partitioned.transaction() as connection:
        await _world(connection, S.DEAD)
        with pytest.raises(psycopg.errors.CheckViolation):
            await connection.execute("UPDATE run_history SET state = 'Running'")
        await connection.rollback()


async def test_one_statement_moves_many_and_logs_exactly_those(partitioned: database.Database) -> None:
    async with partitioned.transaction() as connection:
        await jobs.hold_all(connection)
        made = await jobs.make_jobs(connection, 20)
        ids_by_state: dict[S, set[uuid.UUID]] = {}
        for number, job in enumerate(made):
            state = LIVE[number % len(LIVE)]
            run_id = await jobs.make_run(connection, job, state, at=AT)
            ids_by_state.setdefault(state, set()).add(run_id)
        now = await database.now(connection)
        everything = [job.job_id for job in made]
        ended = await runs.cancel_waiting(connection, job_ids=everything, reason="JobDeleted", now=now)
        stopped = await runs.stop_open(connection, job_ids=everything, reason="JobDeleted")
        waiting = {run_id for state in states.WAITING for run_id in ids_by_state[state]}
        opened = ids_by_state[S.CLAIMED] | ids_by_state[S.RUNNING]
        assert {row.run_id for row in ended} == waiting
        assert all(row.kept for row in ended)
        assert stopped == len(opened)
        assert sorted(await jobs.changes(connection)) == sorted(
            [(run_id, S.CANCELLED) for run_id in waiting] + [(run_id, S.STOPPING) for run_id in opened]
        )
        assert await jobs.one(connection, "SELECT count(*) FROM run_changes") == 2
