"""Claims: nobody gets a run that another has, and a claimer that dies takes nothing with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from tests.support import jobs

from clockhand import errors
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.store import database, runs

COUNT = 10_000


async def queue(db: database.Database, count: int) -> runs.Holder:
    """`count` Queued runs over all shards, and a holder of all of them. No other slot comes, however long that takes."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        minute = (await database.now(connection)).replace(second=0, microsecond=0)
        await jobs.make_jobs(connection, count, job=jobs.plan(jobs.NEVER), next_slot_at=minute)
        holder = await jobs.hold_all(connection)
    while await fire.Fire(db).run_once(range(256)):
        pass
    return holder


async def claim(connection: database.Connection, holder: runs.Holder, limit: int) -> list[runs.Claim]:
    now = await database.now(connection)
    return list(await jobs.claim(connection, holder=holder, limit=limit, now=now))


async def claim_all(db: database.Database, holder: runs.Holder, limit: int) -> list[runs.Claim]:
    found: list[runs.Claim] = []
    while True:
        async with db.transaction() as connection:
            claims = await claim(connection, holder, limit)
        assert len(claims) <= limit
        if not claims:
            return found
        found += claims


async def test_eight_claimers_share_10_000_runs(db: database.Database) -> None:
    holder = await queue(db, COUNT)
    shares = await asyncio.gather(*(claim_all(db, holder, limit) for limit in (97, 200, 333, 500) * 2))
    claims = [one for share in shares for one in share]
    assert len(claims) == len({one.run_id for one in claims}) == COUNT
    assert len({one.token for one in claims}) == COUNT
    assert len({one.fencing for one in claims}) == COUNT
    assert {(one.state, one.attempt) for one in claims} == {(S.CLAIMED, 1)}
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM live_runs WHERE state = 'Claimed'") == COUNT
        claimed = Counter(state for _, state in await jobs.changes(connection))
        assert claimed == {S.QUEUED: COUNT, S.CLAIMED: COUNT}


async def test_a_claimer_that_dies_midway_loses_nothing(db: database.Database) -> None:
    holder = await queue(db, 1_000)
    held: list[runs.Claim] = []

    async def claim_and_die() -> None:
        async with db.transaction() as connection:
            held.extend(await claim(connection, holder, 300))
            async with db.transaction() as other:
                await other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
            await claim(connection, holder, 300)

    with pytest.raises(errors.Unavailable):
        await claim_and_die()
    assert len(held) == 300
    claims = await claim_all(db, holder, 400)
    assert len({one.run_id for one in claims}) == 1_000
    lost = {one.token for one in held}
    assert not lost & {one.token for one in claims}


@pytest.mark.parametrize("limit", [1, 7, 255, 257])
async def test_never_more_than_asked_for(db: database.Database, limit: int) -> None:
    holder = await queue(db, 600)
    async with db.transaction() as connection:
        assert len(await claim(connection, holder, limit)) == limit


async def test_what_another_transaction_holds_is_stepped_over(db: database.Database) -> None:
    holder = await queue(db, 20)
    async with db.transaction() as first, db.transaction() as second:
        one, two = await claim(first, holder, 12), await claim(second, holder, 12)
    assert len({claimed.run_id for claimed in (*one, *two)}) == len(one) + len(two) == 20


async def test_a_higher_priority_goes_first_and_then_who_waits_longest(db: database.Database) -> None:
    async with db.transaction() as connection:
        holder = await jobs.hold_all(connection)
        now = await database.now(connection)
        waits = {"old": 50, "important": 105, "new": 1}  # important: five seconds, and ten steps of priority
        for name, seconds in waits.items():
            job = await jobs.make_job(connection, name=name)
            await jobs.make_run(connection, job, S.QUEUED, queue_at=now - timedelta(seconds=seconds))
        order = [(await claim(connection, holder, 1))[0].job_name for _ in waits]
    assert order == ["important-00000", "old-00000", "new-00000"]


async def test_the_next_claim_is_another_attempt_with_a_greater_fencing_token(db: database.Database) -> None:
    holder = await queue(db, 1)
    async with db.transaction() as connection:
        [first] = await claim(connection, holder, 5)
        await runs.hand_back(connection, holder=holder, items=[runs.Key(first.run_id, first.token, first.shard)])
        [second] = await claim(connection, holder, 5)
        await connection.execute("UPDATE installation SET epoch = epoch + 1")
        key = runs.Key(second.run_id, second.token, second.shard)
        await runs.hand_back(connection, holder=holder, items=[key])
        [third] = await claim(connection, holder, 5)
    assert first.run_id == second.run_id == third.run_id
    assert [first.attempt, second.attempt, third.attempt] == [1, 2, 3]
    assert len({first.token, second.token, third.token}) == 3
    assert first.fencing < second.fencing < third.fencing
    assert third.fencing - second.fencing > 2**39


async def test_a_deadline_is_set_for_what_cannot_start(db: database.Database) -> None:
    holder = await queue(db, 1)
    async with db.transaction() as connection:
        await connection.execute("UPDATE live_runs SET pending_timeout = 30")
        [one] = await claim(connection, holder, 1)
        waits = await jobs.one(connection, "SELECT deadline_at - claimed_at FROM live_runs")
        assert waits == timedelta(seconds=30)
        for seconds, reason in ((29, None), (30, "PendingTimeout")):
            at = one.claimed_at + timedelta(seconds=seconds)
            late = await runs.overdue(connection, shards=range(256), now=at, limit=10)
            assert [row.reason for row in late] == ([reason] if reason else [])


async def test_a_run_that_starts_at_this_moment_is_not_stopped_for_being_late(db: database.Database) -> None:
    holder = await queue(db, 1)
    async with db.transaction() as connection:
        [one] = await claim(connection, holder, 1)
        after = one.claimed_at + timedelta(days=1)
    started = runs.Started(one.run_id, one.token, one.shard, one.run_id, None)
    async with db.transaction() as starting:
        await runs.running(starting, holder=holder, items=[started], now=one.claimed_at)
        async with db.transaction() as connection:
            assert await runs.overdue(connection, shards=range(256), now=after, limit=10) == []
    async with db.transaction() as connection:
        assert await runs.overdue(connection, shards=range(256), now=after, limit=10) == []
