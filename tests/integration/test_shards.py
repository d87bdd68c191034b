"""Shard leases: shared evenly, taken over when they lapse, and a former holder writes nothing."""

from __future__ import annotations

import dataclasses
from typing import LiteralString

import pytest
from tests.support import jobs

from clockhand.domain import ids
from clockhand.domain.states import RunState as S
from clockhand.engine import shards
from clockhand.store import database, runs
from clockhand.store import shards as rows

LEASE = 10.0


@dataclasses.dataclass
class Clock:
    """A monotonic clock that stands still until it is moved."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def replica(db: database.Database, name: str, clock: Clock) -> shards.Shards:
    return shards.Shards(db, replica=name, lease=LEASE, clock=clock)


async def lapse(db: database.Database, name: str) -> None:
    """As if `name` had not been heard of for a lease."""
    async with db.transaction() as connection:
        await connection.execute("UPDATE shard_leases SET expires_at = now() WHERE holder = %s", (name,))
        await connection.execute("UPDATE replicas SET last_seen = now() - interval '1 min' WHERE replica = %s", (name,))


def held(*replicas: shards.Shards) -> list[int]:
    return [len(one.holder().generations) for one in replicas]


async def settle(*replicas: shards.Shards) -> None:
    """Rounds enough for what one gives back to be taken by another."""
    for _ in range(3):
        for one in replicas:
            await one.run_once()


async def test_one_replica_holds_everything(db: database.Database, clock: Clock) -> None:
    one = replica(db, "one", clock)
    assert len(await one.run_once()) == ids.SHARDS
    assert await one.run_once() == frozenset()
    assert held(one) == [ids.SHARDS]
    assert one.holds(0)


@pytest.mark.parametrize("count", [2, 3])
async def test_several_share_evenly_and_nobody_holds_what_another_holds(
    db: database.Database, clock: Clock, count: int
) -> None:
    replicas = [replica(db, f"operator-{number}", clock) for number in range(count)]
    await settle(*replicas)
    counts = held(*replicas)
    assert sum(counts) == ids.SHARDS
    assert len({shard for one in replicas for shard in one.holder().generations}) == ids.SHARDS
    assert min(counts) > ids.SHARDS / count / 2


async def test_once_shared_out_nothing_moves(db: database.Database, clock: Clock) -> None:
    replicas = [replica(db, f"operator-{number}", clock) for number in range(3)]
    await settle(*replicas)
    before = [one.holder().generations for one in replicas]
    for _ in range(10):
        for one in replicas:
            assert await one.run_once() == frozenset()
    assert [one.holder().generations for one in replicas] == before


async def test_a_live_holder_keeps_its_shards_until_it_gives_them_back(db: database.Database, clock: Clock) -> None:
    one, two = replica(db, "one", clock), replica(db, "two", clock)
    await one.run_once()
    assert await two.run_once() == frozenset()
    await one.run_once()
    assert 0 < held(one)[0] < ids.SHARDS
    assert len(await two.run_once()) == ids.SHARDS - held(one)[0]


async def test_a_lapsed_lease_is_taken_over_with_a_higher_generation(db: database.Database, clock: Clock) -> None:
    one, two = replica(db, "one", clock), replica(db, "two", clock)
    await settle(one, two)
    before = one.holder().generations
    await lapse(db, "one")
    gained = await two.run_once()
    assert gained == frozenset(before)
    after = two.holder().generations
    assert all(after[shard] == generation + 1 for shard, generation in before.items())


async def test_a_former_holder_is_refused_and_finds_out(db: database.Database, clock: Clock) -> None:
    one, two = replica(db, "one", clock), replica(db, "two", clock)
    await one.run_once()
    former = one.holder()
    async with db.transaction() as connection:
        job = await jobs.make_job(connection)
        run_id = await jobs.make_run(connection, job, S.CLAIMED)
    await lapse(db, "one")
    await two.run_once()
    started = runs.Started(run_id, jobs.TOKEN, job.shard, run_id, None)
    async with db.transaction() as connection:
        now = await database.now(connection)
        assert await runs.running(connection, holder=former, items=[started], now=now) == 0
        assert await runs.running(connection, holder=two.holder(), items=[started], now=now) == 1
    await one.run_once()
    assert held(one) == [0]


async def test_a_lease_that_lapsed_and_nobody_took_goes_on(db: database.Database, clock: Clock) -> None:
    one = replica(db, "one", clock)
    await one.run_once()
    before = one.holder().generations
    await lapse(db, "one")
    assert await one.run_once() == frozenset()
    assert one.holder().generations == before


async def test_a_process_that_slept_trusts_nothing_before_it_has_renewed(db: database.Database, clock: Clock) -> None:
    one = replica(db, "one", clock)
    await one.run_once()
    clock.now += LEASE * 0.89
    assert one.trusted()
    clock.now += LEASE * 0.02
    assert not one.trusted()
    assert not one.holds(0)
    assert held(one) == [0]
    await one.run_once()
    assert held(one) == [ids.SHARDS]


async def test_trust_begins_before_the_renewal_was_sent(
    db: database.Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica(db, "one", clock)
    beat = rows.beat

    async def slow(*args: object, **named: object) -> object:
        clock.now += 8.0
        return await beat(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rows, "beat", slow)
    await one.run_once()
    clock.now += 1.5
    assert not one.trusted()


async def test_who_leaves_gives_back_at_once(db: database.Database, clock: Clock) -> None:
    one, two = replica(db, "one", clock), replica(db, "two", clock)
    await settle(one, two)
    share = held(one)[0]
    await one.leave()
    assert held(one) == [0]
    assert len(await two.run_once()) == share
    assert held(two) == [ids.SHARDS]


async def test_the_silent_are_forgotten(db: database.Database, clock: Clock) -> None:
    await replica(db, "one", clock).run_once()
    await replica(db, "two", clock).run_once()
    async with db.transaction() as connection:
        await connection.execute("UPDATE replicas SET last_seen = now() - interval '2 h' WHERE replica = 'one'")
        await rows.forget(connection)
        assert await jobs.query(connection, "SELECT replica FROM replicas") == [("two",)]


def test_a_rotation_keeps_every_shard() -> None:
    seen = {tuple(rows.rotated({3, 1, 2})) for _ in range(200)}
    assert seen == {(1, 2, 3), (2, 3, 1), (3, 1, 2)}
    assert rows.rotated([]) == []


async def began(db: database.Database, name: str, *, minutes_ago: float) -> None:
    """As if `name` had started some minutes ago."""
    async with db.transaction() as connection:
        text = "UPDATE replicas SET started_at = now() - make_interval(secs => %s) WHERE replica = %s"
        await connection.execute(text, (60 * minutes_ago, name))


async def test_a_replica_trusts_a_clock_that_somebody_watched_while_another_died(
    db: database.Database, clock: Clock
) -> None:
    witness, victim, heir = (replica(db, name, clock) for name in ("witness", "victim", "heir"))
    await settle(witness, victim)
    await began(db, "witness", minutes_ago=5)
    await lapse(db, "victim")
    await heir.run_once()
    assert not heir.doubtful


async def test_a_replica_doubts_the_clock_where_all_others_are_silent(db: database.Database, clock: Clock) -> None:
    victim, heir = replica(db, "victim", clock), replica(db, "heir", clock)
    await victim.run_once()
    await lapse(db, "victim")
    await heir.run_once()
    assert heir.doubtful


@pytest.mark.parametrize(
    "seen", ["- interval '1 min'", "+ interval '1 h'"], ids=["silent before", "seen in the future"]
)
async def test_one_that_started_after_the_silence_is_no_witness(
    db: database.Database, clock: Clock, seen: LiteralString
) -> None:
    newcomer, victim, heir = (replica(db, name, clock) for name in ("newcomer", "victim", "heir"))
    await settle(newcomer, victim)
    async with db.transaction() as connection:
        await connection.execute(f"UPDATE replicas SET last_seen = now() {seen} WHERE replica = 'victim'".encode())
    await heir.run_once()
    assert heir.doubtful
