"""Runs reach the workers that wait for them: handed over at fire, or taken from the queue."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs

from clockhand import errors
from clockhand.domain import limits as domain
from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.engine import limits
from clockhand.engine.pools import service
from clockhand.store import database

A, B = "k8s/team-a", "k8s/team-b"


def claim(worker: str = jobs.WORKER, **fields: Any) -> protocol.ClaimRequest:
    given = {"request_id": uuid.uuid4(), "handlers": (jobs.HANDLER,), "max": 10, "wait_seconds": 0.0, **fields}
    return protocol.ClaimRequest(worker=worker, **given)


def administered(**fields: Any) -> limits.LimitsFile:
    """Limits as a file would have them."""
    found = limits.LimitsFile(None)
    found.current = domain.Limits(**fields)
    return found


async def make_pool(connection: database.Connection, **columns: Any) -> None:
    row = {"pool": jobs.POOL, "owner": jobs.OWNER, "name": "mailers", **columns}
    names, places = ", ".join(row), ", ".join(f"%({column})s" for column in row)
    await connection.execute(f"INSERT INTO pools ({names}) VALUES ({places})".encode(), row)


async def queued(
    connection: database.Connection, count: int, *, owner: str = jobs.OWNER, handler: str = jobs.HANDLER
) -> Sequence[uuid.UUID]:
    """That many runs in the queue of `POOL`, each a second younger than the one before."""
    plan = jobs.pooled(pool="team-a/mailers", handler=handler)
    made = await jobs.make_jobs(connection, count, job=plan, owner=owner, name=f"j{uuid.uuid4().hex[:6]}")
    now = await database.now(connection)
    return [
        await jobs.make_run(connection, job, S.QUEUED, queue_at=now - timedelta(seconds=count - number))
        for number, job in enumerate(made)
    ]


@contextlib.asynccontextmanager
async def looking(pools: service.Pools) -> AsyncIterator[service.Pools]:
    """Its loop over marked queues runs in the block."""
    step = pools.steps()["queue"]

    async def go() -> None:
        while True:
            await step()

    task = asyncio.create_task(go())
    try:
        yield pools
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    """Returns once something holds that other tasks bring about."""
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def pools(db: database.Database) -> AsyncIterator[service.Pools]:
    async with db.transaction() as connection:
        await make_pool(connection)
    async with looking(service.Pools(db, replica="one", lease=jobs.LONG)) as serving:
        yield serving


async def test_a_claim_takes_what_is_queued_oldest_first(db: database.Database, pools: service.Pools) -> None:
    async with db.transaction() as connection:
        made = await queued(connection, 5)
        other = await queued(connection, 2, handler="other")
    answer = await pools.claim(jobs.POOL, claim(max=3))
    assert {run.run_id for run in answer.runs} == set(made[:3])
    assert (answer.lease_seconds, answer.heartbeat_seconds) == (90, 30)
    [run] = [run for run in answer.runs if run.run_id == made[0]]
    assert (run.owner, run.handler, run.kind, run.attempt) == (jobs.OWNER, jobs.HANDLER, "Slot", 1)
    assert (run.timeout_seconds, bytes(run.payload)) == (None, b'{"made": "for a test"}')
    async with db.transaction() as connection:
        text = """SELECT *, lease_until - claimed_at AS lease, launched_at = claimed_at AS at_once, state::text AS now
                  FROM live_runs WHERE run_id = %s"""
        [row] = await jobs.query(connection, text, made[0])
        assert (row.now, str(row.token), row.fencing, row.worker) == (
            "Claimed", run.token, run.fencing_token, jobs.WORKER,
        )  # fmt: skip
        assert (row.lease, row.at_once) == (timedelta(seconds=90), True)
        assert await jobs.changes(connection) == [(one.run_id, S.CLAIMED) for one in answer.runs]
        assert await jobs.state_of(connection, other[0]) == (S.QUEUED,)


async def test_a_pool_that_is_not_there_is_said_so(pools: service.Pools) -> None:
    with pytest.raises(errors.NotFound, match="no WorkerPool nobodys in namespace team-a"):
        await pools.claim("k8s/team-a/nobodys", claim())


async def test_a_pool_that_is_deleted_gives_out_nothing_and_hears_of_what_it_gave(
    db: database.Database, pools: service.Pools
) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        await queued(connection, 2)
    [run] = (await pools.claim(jobs.POOL, claim(max=1))).runs
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET deleted_at = now()")
    held = protocol.Held(run_id=run.run_id, token=run.token)
    other, stop = service.Pools(db, replica="two", lease=jobs.LONG), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(other.run(stop))
        presented = protocol.StartRequest(worker=jobs.WORKER, held=(held,))
        for call in (other.claim(jobs.POOL, claim()), other.start(jobs.POOL, presented)):
            with pytest.raises(errors.NotFound, match="no WorkerPool mailers in namespace team-a"):
                await call
        beat = await other.heartbeat(jobs.POOL, protocol.HeartbeatRequest(worker=jobs.WORKER, held=(held,)))
        assert [one.standing for one in beat.held] == [protocol.Standing.HELD]
        sent = protocol.Report(run_id=run.run_id, token=run.token, outcome=protocol.Outcome.SUCCEEDED)
        answer = await other.report(jobs.POOL, protocol.ReportRequest(worker=jobs.WORKER, reports=(sent,)))
        assert [(one.accepted, one.state) for one in answer.reports] == [(True, S.SUCCEEDED)]
        stop.set()


async def test_a_tenants_pool_comes_with_its_first_claim(db: database.Database) -> None:
    set_up = {"rest/acme/work": domain.PoolLimits(lease_seconds=40, heartbeat_seconds=9, allowed_owners=("rest/x",))}
    async with looking(service.Pools(db, replica="one", lease=10, limits=administered(pools=set_up))) as pools:
        answer = await pools.claim("rest/acme/work", claim())
        assert (answer.runs, answer.lease_seconds, answer.heartbeat_seconds) == ((), 40, 9)
        settings = await pools.settings("rest/acme/work")
    assert [settings.allows(owner) for owner in ("rest/acme", "rest/x", "rest/y")] == [True, True, False]
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT owner || ' ' || name FROM pools") == "rest/acme work"


async def test_a_tenants_pool_is_rescued_by_the_leases_of_the_file(db: database.Database) -> None:
    async def rhythm() -> object:
        async with db.transaction() as connection:
            return await jobs.one(connection, "SELECT lease_seconds || ' ' || heartbeat_seconds FROM pools")

    for lease in (40, 20):
        set_up = {"rest/acme/work": domain.PoolLimits(lease_seconds=lease, heartbeat_seconds=9)}
        async with looking(service.Pools(db, replica="one", lease=10, limits=administered(pools=set_up))) as pools:
            await pools.claim("rest/acme/work", claim())
            assert await rhythm() == f"{lease} 9"


async def test_a_pool_takes_its_own_and_allowed_owners_runs(db: database.Database) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, allowed_owners=[B])
        for owner in (A, B, "k8s/team-c"):
            await queued(connection, 2, owner=owner)
    async with looking(service.Pools(db, replica="one", lease=10)) as pools:
        answer = await pools.claim(jobs.POOL, claim())
        assert Counter(run.owner for run in answer.runs) == {A: 2, B: 2}
        assert (await pools.claim(jobs.POOL, claim())).runs == ()


async def test_a_crowd_that_is_not_allowed_stands_in_nobodys_way(
    db: database.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clockhand.engine.pools.backlog._MOST_OWNERS", 3)
    async with db.transaction() as connection:
        await make_pool(connection, allowed_owners=[B])
        for owner in ("k8s/a", "k8s/aa", "k8s/b", "k8s/team-aa", A, B):
            await queued(connection, 1, owner=owner)
    async with looking(service.Pools(db, replica="one", lease=10)) as pools:
        answer = await pools.claim(jobs.POOL, claim())
        assert Counter(run.owner for run in answer.runs) == {A: 1, B: 1}


async def test_owners_take_turns_by_their_weight(db: database.Database) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, allowed_owners=["*"])
        for owner, count in ((A, 50), (B, 50), ("k8s/team-c", 1)):
            await queued(connection, count, owner=owner)
    weights = administered(owners={B: domain.OwnerLimits(weight=2)})
    async with looking(service.Pools(db, replica="one", lease=10, limits=weights)) as pools:
        first = await pools.claim(jobs.POOL, claim(max=4))
        assert Counter(run.owner for run in first.runs) == {A: 1, B: 2, "k8s/team-c": 1}
        one_each = [(await pools.claim(jobs.POOL, claim(max=1))).runs[0].owner for _ in range(6)]
    assert one_each == [A, B, B, A, B, B]


async def test_priority_goes_before_age(db: database.Database, pools: service.Pools) -> None:
    async with db.transaction() as connection:
        *_, urgent = await queued(connection, 3)
        await connection.execute(
            "UPDATE live_runs SET queue_at = queue_at - interval '60 s' WHERE run_id = %s", (urgent,)
        )
    [run] = (await pools.claim(jobs.POOL, claim(max=1))).runs
    assert run.run_id == urgent


async def test_caps_of_owner_and_pool_hold(db: database.Database) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, allowed_owners=["*"])
        for owner in (A, B):
            await queued(connection, 20, owner=owner)
    caps = administered(
        owners={A: domain.OwnerLimits(max_concurrent_runs=3)},
        pools={jobs.POOL: domain.PoolLimits(max_concurrent_runs=8)},
    )
    async with looking(service.Pools(db, replica="one", lease=10, limits=caps)) as pools:
        answers = await asyncio.gather(*(pools.claim(jobs.POOL, claim(f"w{number}", max=4)) for number in range(5)))
        assert Counter(run.owner for answer in answers for run in answer.runs) == {A: 3, B: 5}
        assert (await pools.claim(jobs.POOL, claim())).runs == ()


async def test_no_claim_is_given_more_than_it_asked_for(db: database.Database, pools: service.Pools) -> None:
    async with db.transaction() as connection:
        made = await queued(connection, 30)
    answers = await asyncio.gather(*(pools.claim(jobs.POOL, claim(f"w{number}", max=number)) for number in range(1, 8)))
    assert all(1 <= len(answer.runs) <= number for number, answer in enumerate(answers, 1))
    given = [run.run_id for answer in answers for run in answer.runs]
    assert len(given) == len(set(given))
    assert set(given) <= set(made)


async def test_a_repeated_claim_is_given_the_same_answer(db: database.Database, pools: service.Pools) -> None:
    async with db.transaction() as connection:
        await queued(connection, 4)
    asked = claim(max=2)
    first = await pools.claim(jobs.POOL, asked)
    assert len(first.runs) == 2
    assert await pools.claim(jobs.POOL, asked) == first
    assert len((await pools.claim(jobs.POOL, claim())).runs) == 2


async def test_another_process_gives_a_worker_what_it_was_given(db: database.Database, pools: service.Pools) -> None:
    async with db.transaction() as connection:
        await queued(connection, 3)
    kept, lost = (await pools.claim(jobs.POOL, claim(max=2))).runs
    held = (protocol.Held(run_id=kept.run_id, token=kept.token),)
    async with looking(service.Pools(db, replica="two", lease=10)) as other:
        again = await other.claim(jobs.POOL, claim(max=2, held=held))
        assert again.runs == (lost,)
        assert len((await other.claim(jobs.POOL, claim(max=2, held=held))).runs) == 1


async def test_a_claim_repeated_at_a_process_that_knows_the_worker_is_looked_up(
    db: database.Database, pools: service.Pools
) -> None:
    async with looking(service.Pools(db, replica="two", lease=10)) as other:
        assert (await other.claim(jobs.POOL, claim(wait_seconds=0))).runs == ()
        async with db.transaction() as connection:
            await queued(connection, 1)
        [lost] = (await pools.claim(jobs.POOL, claim())).runs
        assert (await other.claim(jobs.POOL, claim(wait_seconds=0))).runs == ()
        assert (await other.claim(jobs.POOL, claim(wait_seconds=0, repeated=True))).runs == (lost,)


async def test_two_processes_never_give_a_run_twice(db: database.Database) -> None:
    async with db.transaction() as connection:
        await make_pool(connection)
        made = await queued(connection, 60)
    async with contextlib.AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(looking(service.Pools(db, replica=name, lease=10))) for name in ("1", "2")
        ]
        found: Counter[uuid.UUID] = Counter()

        async def work(pools: service.Pools, worker: str) -> None:
            while runs := (await pools.claim(jobs.POOL, claim(worker, max=3, wait_seconds=0))).runs:
                found.update(run.run_id for run in runs)

        await asyncio.gather(
            *(work(pools, f"w{name}{number}") for name, pools in enumerate(both) for number in range(3))
        )
    assert found == dict.fromkeys(made, 1)


async def test_a_claim_waits_until_something_is_queued(db: database.Database, pools: service.Pools) -> None:
    waiting = asyncio.create_task(pools.claim(jobs.POOL, claim(wait_seconds=30)))
    await until(lambda: bool(pools.desk.spans()) and not pools.desk.marked.is_set())
    async with db.transaction() as connection:
        [made] = await queued(connection, 1)
    pools.desk.queued({(jobs.POOL, jobs.HANDLER)})
    assert [run.run_id for run in (await waiting).runs] == [made]


async def test_a_process_without_shards_finds_what_others_queue(db: database.Database, pools: service.Pools) -> None:
    waiting = asyncio.create_task(pools.claim(jobs.POOL, claim(wait_seconds=30)))
    await until(lambda: bool(pools.desk.spans()) and pools.desk.sitting(jobs.POOL)[0].looked.is_set())
    async with db.transaction() as connection:
        [made] = await queued(connection, 1)
    await pools.steps()["pulse"]()
    assert [run.run_id for run in (await waiting).runs] == [made]


async def test_whoever_hangs_up_gives_the_seat_back(db: database.Database, pools: service.Pools) -> None:
    waiting = asyncio.create_task(pools.claim(jobs.POOL, claim(wait_seconds=30)))
    await until(lambda: bool(pools.desk.spans()))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert pools.desk.spans() == {}
