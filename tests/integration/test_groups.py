"""Concurrency groups: a place is given to the first in the queue, whichever job it is of, and never one too many."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support import jobs, statements
from tests.support import limits as files

from clockhand.domain import ids, spec
from clockhand.domain.states import Reason
from clockhand.domain.states import RunState as S
from clockhand.engine import admit, fire, limits
from clockhand.store import database, runs

EVERYWHERE = ids.EVERY_SHARD
TEXT = "groups: {exports: {maxConcurrentRuns: 2}, none: {maxConcurrentRuns: 0}, any: {}}"
EXPORTS = jobs.plan(concurrency_group="exports")


@dataclasses.dataclass
class World:
    """An installation with limits."""

    db: database.Database
    file: limits.LimitsFile
    folder: Path

    async def make(self, count: int, plan: spec.JobSpec = EXPORTS, **fields: Any) -> Sequence[jobs.Job]:
        async with self.db.transaction() as connection:
            return await jobs.make_jobs(connection, count, job=plan, **fields)

    async def run(
        self, job: jobs.Job, state: S, *, group: str = "exports", seconds: float = 0, **columns: Any
    ) -> uuid.UUID:
        """A run of `group` that has been there for some seconds."""
        async with self.db.transaction() as connection:
            at = await database.now(connection) - timedelta(seconds=seconds)
            columns = {"concurrency_group": group, "queue_at": at, **columns}
            return await jobs.make_run(connection, job, state, at=at, **columns)

    async def end(self, run_id: uuid.UUID) -> None:
        """The open attempt of a run ends well, and what follows from that is done."""
        async with self.db.transaction() as connection:
            [job_id] = [
                row.job_id
                for row in await jobs.query(connection, "SELECT job_id FROM live_runs WHERE run_id = %s", run_id)
            ]
            outcome = runs.Outcome(run_id, jobs.TOKEN, S.SUCCEEDED, None, None, 0, 0, None)
            await runs.finish(connection, [outcome], now=await database.now(connection))
        await admit.Admit(self.db, self.file).follow([job_id])

    async def sweep(self) -> int:
        return await admit.Admit(self.db, self.file).run_once(EVERYWHERE)

    async def look(self, *run_ids: uuid.UUID) -> list[tuple[S, str | None]]:
        """State and reason of each run."""
        async with self.db.transaction() as connection:
            text = "SELECT state::text, reason FROM live_runs WHERE run_id = %s"
            found = [await jobs.query(connection, text, run_id) for run_id in run_ids]
        return [(S(row.state), row.reason) for [row] in found]

    async def message(self, run_id: uuid.UUID) -> str | None:
        async with self.db.transaction() as connection:
            found: str | None = await jobs.one(connection, "SELECT message FROM live_runs WHERE run_id = %s", run_id)
            return found


@pytest.fixture
async def world(db: database.Database, tmp_path: Path) -> World:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    return World(db, files.file(tmp_path, TEXT), tmp_path)


WAITS = (S.BLOCKED, Reason.GROUP_LIMIT.value)
QUEUED = (S.QUEUED, None)


async def test_a_place_goes_to_the_first_in_the_queue_whichever_job_it_is_of(world: World) -> None:
    made = await world.make(5)
    first, second = [await world.run(job, S.RUNNING, seconds=99) for job in made[:2]]
    young, old, important = [
        await world.run(job, S.BLOCKED, seconds=seconds, priority=priority, reason=Reason.JOB_LIMIT)
        for job, seconds, priority in zip(made[2:], (1, 10, 5), (0, 0, 1), strict=True)
    ]
    async with world.db.transaction() as connection:
        await connection.execute("UPDATE live_runs SET queue_at = queue_at - priority * interval '10 s'")
    assert await world.sweep() == 0
    assert await world.look(young, old, important) == [WAITS] * 3
    await world.end(first)
    assert await world.look(young, old, important) == [WAITS, WAITS, QUEUED]
    await world.end(second)
    assert await world.look(young, old, important) == [WAITS, QUEUED, QUEUED]


async def test_a_retry_whose_back_off_is_over_waits_in_the_queue_of_its_group(world: World) -> None:
    one, two, three = await world.make(3)
    full = [await world.run(job, S.RUNNING) for job in (one, two)]
    retried = await world.run(three, S.RETRYING, attempt=1, failures=1, message="it broke")
    later = await world.run(one, S.RETRYING, seconds=1, attempt=1, ready_at=datetime.max.replace(year=2100))
    await world.sweep()
    assert await world.look(retried, later) == [WAITS, (S.RETRYING, None)]
    await world.end(full[0])
    assert await world.look(retried, later) == [QUEUED, (S.RETRYING, None)]


async def test_a_group_that_nobody_knows_has_no_places_and_says_so(world: World) -> None:
    [job] = await world.make(1)
    lost = await world.run(job, S.BLOCKED, group="lost", reason=Reason.JOB_LIMIT)
    closed = await world.run(job, S.BLOCKED, group="none", seconds=1, reason=Reason.JOB_LIMIT)
    fired = await world.run(job, S.BLOCKED, group="lost", seconds=2, reason=Reason.GROUP_LIMIT)
    assert await world.sweep() == 0
    assert await world.look(lost, closed, fired) == [WAITS] * 3
    assert 'no group "lost"' in str(await world.message(lost))
    assert 'the group "none" no places' in str(await world.message(closed))
    assert await world.message(fired) == await world.message(lost)

    await files.rewrite(
        world.file, world.folder, "groups: {lost: {maxConcurrentRuns: 1}, none: {maxConcurrentRuns: 1}}"
    )
    assert await world.sweep() == 2
    assert await world.look(lost, closed, fired) == [WAITS, QUEUED, QUEUED]
    assert [await world.message(run) for run in (lost, closed, fired)] == [None] * 3


async def test_a_group_may_be_without_a_limit(world: World) -> None:
    found = [await world.run(job, S.BLOCKED, group="any", reason=Reason.JOB_LIMIT) for job in await world.make(40)]
    assert await world.sweep() == 40
    assert set(await world.look(*found)) == {QUEUED}


async def test_a_run_that_its_job_holds_back_is_in_nobodys_way(world: World) -> None:
    single, other = [
        (await world.make(1, jobs.plan(concurrency_group="exports", max_concurrent_runs=1), name=name))[0]
        for name in ("single", "other")
    ]
    running = await world.run(single, S.RUNNING, seconds=30)
    # as if the job's place had been taken after it came into the queue
    held_back = await world.run(single, S.BLOCKED, seconds=20, reason=Reason.GROUP_LIMIT)
    free = await world.run(other, S.BLOCKED, seconds=10, reason=Reason.JOB_LIMIT)
    assert await world.sweep() == 1
    assert await world.look(held_back, free) == [(S.BLOCKED, Reason.JOB_LIMIT), QUEUED]
    await world.end(running)
    assert await world.look(held_back, free) == [QUEUED, QUEUED]


async def test_a_job_that_cannot_be_read_does_not_stop_its_group(world: World) -> None:
    broken, other = [(await world.make(1, name=name))[0] for name in ("broken", "other")]
    stuck = await world.run(broken, S.BLOCKED, seconds=20, reason=Reason.GROUP_LIMIT)
    stuck_too = await world.run(broken, S.BLOCKED, seconds=19, reason=Reason.GROUP_LIMIT)
    free = await world.run(other, S.BLOCKED, seconds=10, reason=Reason.JOB_LIMIT)
    async with world.db.transaction() as connection:
        await connection.execute("UPDATE job_specs SET spec = '{\"every\": 5}' WHERE spec_id = %s", (broken.spec_id,))
    assert await world.sweep() == 1
    assert await world.look(stuck, stuck_too, free) == [(S.BLOCKED, Reason.JOB_LIMIT)] * 2 + [QUEUED]


async def test_without_the_limits_a_run_of_a_group_is_left_to_whoever_has_them(world: World) -> None:
    [job] = await world.make(1)
    waiting = await world.run(job, S.BLOCKED, reason=Reason.JOB_LIMIT)
    async with world.db.transaction() as connection:
        assert await admit.promote_for(connection, [job.job_id], now=await database.now(connection)) == 0
    assert await world.look(waiting) == [(S.BLOCKED, Reason.JOB_LIMIT)]
    assert await world.sweep() == 1


async def fired(world: World, *plans: spec.JobSpec, count: int = 1) -> Sequence[Any]:
    """Jobs of each plan, whose slots of this minute have fired; their runs by job name: rows (state, reason, message)."""
    async with world.db.transaction() as connection:
        minute = (await database.now(connection)).replace(second=0, microsecond=0)
        for number, plan in enumerate(plans):
            await jobs.make_jobs(connection, count, job=plan, next_slot_at=minute, name=f"fired-{number}")
    await fire.Fire(world.db, file=world.file).run_once(EVERYWHERE)
    async with world.db.transaction() as connection:
        text = "SELECT state::text, reason, message FROM live_runs WHERE job_name LIKE 'fired%%' ORDER BY job_name"
        return await jobs.query(connection, text)


async def test_a_slot_finds_no_place_in_a_full_group(world: World) -> None:
    found = await fired(world, EXPORTS, count=5)
    assert sorted((row.state, row.reason) for row in found) == [("Blocked", "GroupLimit")] * 3 + [("Queued", None)] * 2


async def test_pods_and_workers_share_a_group(world: World) -> None:
    found = await fired(world, EXPORTS, jobs.pooled(concurrency_group="exports"), count=2)
    assert sorted(row.state for row in found) == ["Blocked"] * 2 + ["Queued"] * 2


async def test_no_slot_overtakes_what_waits_for_the_group(world: World) -> None:
    [job] = await world.make(1)
    waiting = await world.run(job, S.BLOCKED, seconds=30, reason=Reason.GROUP_LIMIT)
    [found] = await fired(world, EXPORTS)
    assert (found.state, found.reason) == ("Blocked", "GroupLimit")
    assert await world.sweep() == 2
    assert await world.look(waiting) == [QUEUED]


async def test_a_slot_says_at_once_that_nobody_knows_its_group(world: World) -> None:
    known, unknown = await fired(world, EXPORTS, jobs.plan(concurrency_group="lost"))
    assert (known.state, known.message) == ("Queued", None)
    assert (unknown.state, unknown.reason) == ("Blocked", "GroupLimit")
    assert 'no group "lost"' in unknown.message


async def test_a_slot_that_replaces_a_run_locks_its_group_first(world: World) -> None:
    """Whoever has the group may wait, by way of those that report ends, for what firing would have locked before it."""
    plan = jobs.plan(concurrency_group="exports", concurrency_policy=spec.ConcurrencyPolicy.REPLACE)
    async with world.db.transaction() as connection:
        minute = (await database.now(connection)).replace(second=0, microsecond=0)
    [job] = await world.make(1, plan, next_slot_at=minute)
    replaced = await world.run(job, S.QUEUED, seconds=99)
    async with world.db.transaction() as holder:
        await limits.room(holder, world.file.current, groups=["exports"])
        firing = asyncio.create_task(fire.Fire(world.db, file=world.file).run_once(EVERYWHERE))
        await statements.until_somebody_waits(world.db)
        await holder.execute("SELECT FROM live_runs FOR UPDATE NOWAIT")
        await holder.execute("SELECT FROM job_status FOR UPDATE NOWAIT")
    assert await firing == 1
    async with world.db.transaction() as connection:
        assert await jobs.one(connection, "SELECT run_id FROM run_history WHERE reason = 'Replaced'") == replaced


@pytest.mark.parametrize("policy", list(spec.ConcurrencyPolicy))
async def test_a_run_that_waits_for_its_group_counts_for_its_job_as_any_other(
    world: World, policy: spec.ConcurrencyPolicy
) -> None:
    full = [await world.run(job, S.RUNNING, seconds=200) for job in await world.make(2)]
    plan = jobs.plan(concurrency_group="exports", concurrency_policy=policy)
    assert [row.state for row in await fired(world, plan)] == ["Blocked"]
    async with world.db.transaction() as connection:
        await connection.execute(
            "UPDATE jobs SET next_slot_at = next_slot_at + interval '1 s', next_run_at = next_slot_at + interval '1 s', "
            "last_slot_at = next_slot_at WHERE name LIKE 'fired%'"
        )
        later = await database.now(connection) + timedelta(minutes=2)
        await connection.execute(
            "UPDATE live_runs SET scheduled_at = scheduled_at - interval '1 min' WHERE job_name LIKE 'fired%'"
        )
        [job_id] = [
            row.job_id for row in await jobs.query(connection, "SELECT job_id FROM jobs WHERE name LIKE 'fired%%'")
        ]
        await fire.settle_due(connection, [job_id], now=later)
        text = "SELECT reason, count(*) AS n FROM live_runs WHERE job_name LIKE 'fired%%' GROUP BY reason"
        live = {row.reason: row.n for row in await jobs.query(connection, text)}
        skips = await jobs.one(connection, "SELECT count(*) FROM skips WHERE reason = 'Forbid'")
        cancelled = await jobs.one(connection, "SELECT count(*) FROM run_history WHERE reason = 'Replaced'")
    expected = {
        spec.ConcurrencyPolicy.ALLOW: ({"GroupLimit": 2}, 0, 0),
        spec.ConcurrencyPolicy.FORBID: ({"GroupLimit": 1}, 1, 0),
        spec.ConcurrencyPolicy.REPLACE: ({"GroupLimit": 1}, 0, 1),
        spec.ConcurrencyPolicy.QUEUE: ({"GroupLimit": 1, "JobLimit": 1}, 0, 0),
    }
    assert (live, skips, cancelled) == expected[policy]
    for run_id in full:
        await world.end(run_id)
    async with world.db.transaction() as connection:
        text = "SELECT count(*) FROM live_runs WHERE job_name LIKE 'fired%%' AND state = 'Queued'"
        [[queued]] = await jobs.query(connection, text)
    assert queued == (2 if policy is spec.ConcurrencyPolicy.ALLOW else 1)
