"""Workers that fall silent, and those that only could not be heard. Time goes by at the test's word."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.support import jobs, postgres, steppable

from clockhand.domain import protocol, sharding, spec
from clockhand.domain.protocol import Outcome, Standing
from clockhand.domain.states import RunState as S
from clockhand.engine import aftermath, clock, loops, shards
from clockhand.engine.pools import heartbeats, reports, rescue
from clockhand.store import database, pools

SHARD_LEASE = 10.0
LEASE = timedelta(seconds=90)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MARGIN = timedelta(seconds=20)
"""More than a test takes between two of its lines."""
SETTINGS = pools.Settings(jobs.POOL, jobs.OWNER)
Held = tuple[uuid.UUID, int]


@dataclasses.dataclass
class Api:
    """What of an API process keeps leases, on connections of its own."""

    db: database.Database
    at: steppable.Time
    held: shards.Shards
    heartbeats: heartbeats.Heartbeats
    reports: reports.Reports
    rescue: rescue.Rescue
    queued: list[tuple[str, str]]

    async def turn(self) -> int:
        """Its own lease is renewed and leases are looked at."""
        await self.held.run_once()
        return await self.rescue.run_once()

    async def wait(self, span: timedelta, *alive: str) -> int:
        """Lets time go by, step by step, while the workers named `alive` renew all that they have."""
        done = 0
        while span > timedelta():
            step = min(span, timedelta(seconds=SHARD_LEASE / 2))
            self.at.hurry(step)
            span -= step
            for worker in alive:
                await self.beat(worker, *await self.open_of(worker))
            done += await self.turn()
        return done

    async def open_of(self, worker: str) -> list[Held]:
        text = "SELECT run_id, token FROM live_runs WHERE worker = %s AND token IS NOT NULL"
        async with self.db.transaction() as connection:
            return [(row.run_id, row.token) for row in await jobs.query(connection, text, worker)]

    async def beat(self, worker: str, *held: Held) -> protocol.HeartbeatAnswer:
        listed = tuple(protocol.Held(run_id=run_id, token=str(token)) for run_id, token in held)
        return await self.heartbeats.renew(SETTINGS, protocol.HeartbeatRequest(worker=worker, held=listed))

    async def report(self, worker: str, held: Held, outcome: Outcome = Outcome.SUCCEEDED) -> protocol.Reported:
        sent = protocol.Report(run_id=held[0], token=str(held[1]), outcome=outcome)
        request = protocol.ReportRequest(worker=worker, reports=(sent,))
        [answer] = (await self.reports.submit(jobs.POOL, request)).reports
        return answer


@pytest.fixture
def at(server: postgres.PostgresServer, template: str) -> Iterator[steppable.Time]:
    name = server.new_database(template=template)
    steppable.make(server, name)
    yield steppable.Time(server.url(name))
    server.drop_database(name)


@contextlib.asynccontextmanager
async def process(at: steppable.Time, name: str) -> AsyncIterator[Api]:
    """An API process that ends without a word."""
    db = database.Database(at.url, size=4, name=name, monotonic=at.monotonic)
    await db.open()
    held = shards.Shards(db, replica=name, lease=SHARD_LEASE, role=sharding.Role.API, clock=at.monotonic)
    after = aftermath.Aftermath(db)
    queued: list[tuple[str, str]] = []
    beats = heartbeats.Heartbeats(db)
    taken = reports.Reports(db, after=after, queued=queued.extend)
    saving = rescue.Rescue(db, held=held, after=after, queued=queued.extend)
    tasks = [asyncio.create_task(loops.forever("intake", step)) for step in (beats.step, taken.step)]
    try:
        yield Api(db, at, held, beats, taken, saving, queued)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await db.close()


@pytest.fixture
async def api(at: steppable.Time) -> AsyncIterator[Api]:
    async with process(at, "api-1") as opened:
        async with opened.db.transaction() as connection:
            await jobs.make_partitions(connection)
            text = "INSERT INTO pools (pool, owner, name) VALUES (%s, %s, 'mailers')"
            await connection.execute(text, (jobs.POOL, jobs.OWNER))
        await opened.turn()
        # from here on workers have had somebody to renew with for longer than any lease
        await opened.wait(LEASE + SECOND)
        yield opened


async def given(
    api: Api, worker: str | None, count: int = 1, *, state: S = S.CLAIMED, job: spec.JobSpec | None = None
) -> list[Held]:
    """Attempts that `worker` has been given just now."""
    async with api.db.transaction() as connection:
        now = await database.now(connection)
        made = await jobs.make_jobs(connection, count, job=job or jobs.pooled(), name=f"of-{uuid.uuid4()}")
        columns: dict[str, Any] = {"worker": worker, "lease_until": now + LEASE, "claimed_at": now}
        return [(await jobs.make_run(connection, one, state, **columns), jobs.TOKEN) for one in made]


async def live(api: Api, held: Held) -> Any:
    async with api.db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT * FROM live_runs WHERE run_id = %s", held[0])
        return row


async def states_of(api: Api, held: Sequence[Held]) -> list[S]:
    async with api.db.transaction() as connection:
        return [state for run_id, _ in held for state in await jobs.state_of(connection, run_id)]


async def claimed_again(api: Api, held: Held, worker: str) -> Held:
    """The next attempt of a run, whatever its back-off says."""
    text = (
        "UPDATE live_runs SET state = 'Claimed', token = token_before.t, attempt = attempt + 1, worker = %s, "
        "claimed_at = now(), lease_until = now() + interval '90 s', reason = NULL FROM (SELECT 4712 AS t) AS token_before "
        "WHERE run_id = %s"
    )
    async with api.db.transaction() as connection:
        await connection.execute(text.encode(), (worker, held[0]))
    return held[0], 4712


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def standings(answer: protocol.HeartbeatAnswer) -> list[tuple[Standing, str | None]]:
    return [(one.standing, one.reason) for one in answer.held]


async def test_a_heartbeat_keeps_what_a_worker_has(api: Api) -> None:
    [held] = await given(api, "worker-1")
    assert standings(await api.beat("worker-1", held)) == [(Standing.HELD, None)]
    row = await live(api, held)
    assert (row.state, row.started_at) == (S.RUNNING, row.claimed_at)
    assert await api.wait(10 * LEASE, "worker-1") == 0
    assert (await live(api, held)).state == S.RUNNING
    async with api.db.transaction() as connection:
        assert await jobs.changes(connection) == [(held[0], S.RUNNING)]


async def test_a_heartbeat_says_what_has_become_of_each_attempt(api: Api) -> None:
    mine, theirs = await given(api, "worker-1", 2), await given(api, "worker-2")
    stopping = await given(api, "worker-1", state=S.STOPPING)
    answer = await api.beat("worker-1", mine[0], (mine[1][0], 1), *theirs, *stopping, (uuid.uuid4(), 5))
    lost = (Standing.LOST, None)
    assert standings(answer) == [(Standing.HELD, None), lost, lost, (Standing.STOP, "Cancelled"), lost]
    other = dataclasses.replace(SETTINGS, pool="k8s/team-b/mailers")
    listed = (protocol.Held(run_id=mine[0][0], token=str(mine[0][1])),)
    elsewhere = await api.heartbeats.renew(other, protocol.HeartbeatRequest(worker="worker-1", held=listed))
    assert standings(elsewhere) == [lost]


async def test_a_heartbeat_brings_what_the_worker_was_given_and_does_not_know(api: Api) -> None:
    [lost] = await given(api, "worker-1")
    assert (await api.beat("worker-1")).runs == (), "the answer may be on its way"
    api.at.hurry(6 * SECOND)
    assert [(run.run_id, int(run.token)) for run in (await api.beat("worker-1")).runs] == [lost]
    assert (await api.beat("worker-2")).runs == ()


async def test_many_workers_beat_at_once(api: Api) -> None:
    held = {f"worker-{n}": (await given(api, f"worker-{n}"))[0] for n in range(30)}
    answers = await asyncio.gather(*(api.beat(worker, one) for worker, one in held.items()))
    assert [standings(answer) for answer in answers] == [[(Standing.HELD, None)]] * 30


async def test_a_silent_worker_loses_its_attempt_and_its_late_report_is_refused(api: Api) -> None:
    [held] = await given(api, "worker-1")
    await given(api, "worker-1")
    assert await api.wait(LEASE - MARGIN) == 0
    assert await api.wait(MARGIN) == 2
    row = await live(api, held)
    assert (row.state, row.reason, row.failures, row.disruptions) == (S.RETRYING, "LeaseLost", 0, 1)
    again = await claimed_again(api, held, "worker-2")
    seen = metric("clockhand_stale_writes_total")
    late = await api.report("worker-1", held)
    assert (late.accepted, late.state) == (False, S.CLAIMED)
    assert metric("clockhand_stale_writes_total") == seen + 1
    assert standings(await api.beat("worker-1", held)) == [(Standing.LOST, None)]
    assert (await api.report("worker-2", again)).accepted
    assert await states_of(api, [held]) == [S.SUCCEEDED]
    assert not (await api.report("worker-1", held)).accepted
    assert not (await api.report("worker-1", held, Outcome.DISRUPTED)).accepted


async def test_a_worker_that_thaws_before_anybody_has_looked_goes_on(api: Api) -> None:
    first, second = await given(api, "worker-1", 2)
    api.at.hurry(LEASE + SECOND)
    assert standings(await api.beat("worker-1", first)) == [(Standing.HELD, None)]
    assert (await api.report("worker-1", second)).accepted
    await api.held.run_once()
    assert await api.turn() == 0


async def test_at_most_once_is_unknown_once_its_worker_is_silent(api: Api) -> None:
    once = jobs.pooled(delivery=spec.Delivery.AT_MOST_ONCE)
    alone, company = await given(api, "worker-1", job=once), await given(api, "worker-2", 2, job=once)
    stopping = await given(api, "worker-3", state=S.STOPPING, job=once)
    await api.wait(LEASE + SECOND)
    assert await states_of(api, [*alone, *company, *stopping]) == [S.UNKNOWN] * 4
    assert not (await api.report("worker-1", alone[0])).accepted


@pytest.mark.parametrize(("company", "reason", "attempts"), [(0, "AttemptsUsed", 3), (1, "Disrupted", 6)])
async def test_a_handler_that_takes_its_worker_with_it_is_given_up(
    api: Api, company: int, reason: str, attempts: int
) -> None:
    [held] = await given(api, "worker-0")
    for number in range(1, attempts + 1):
        await given(api, f"worker-{number - 1}", company)
        await api.wait(LEASE + SECOND)
        if number < attempts:
            assert (await live(api, held)).state == S.RETRYING
            held = await claimed_again(api, held, f"worker-{number}")
    assert await states_of(api, [held]) == [S.DEAD]
    async with api.db.transaction() as connection:
        assert await jobs.one(connection, "SELECT reason FROM run_history WHERE run_id = %s", held[0]) == reason
        text = "SELECT count(*) FROM attempts WHERE run_id = %s AND outcome = 'Unseen' AND token IS NULL"
        assert await jobs.one(connection, text, held[0]) == attempts


async def test_what_was_claimed_last_is_not_taken_for_the_only_one(api: Api) -> None:
    [first] = await given(api, "worker-1")
    await api.wait(2 * MARGIN)
    [last] = await given(api, "worker-1")
    assert await api.wait(LEASE - MARGIN) == 0
    assert await api.wait(MARGIN) == 2
    assert [(await live(api, one)).disruptions for one in (first, last)] == [1, 1]


async def test_what_a_living_worker_does_not_know_of_is_rescued_a_lease_later(api: Api) -> None:
    known, forgotten = await given(api, "worker-1", 2, state=S.RUNNING)
    for _ in range(4):
        await api.beat("worker-1", known)
        assert await api.wait(2 * MARGIN) == 0
    await api.beat("worker-1", known)
    assert await api.wait(2 * MARGIN) == 1
    assert await states_of(api, [known, forgotten]) == [S.RUNNING, S.RETRYING]


async def test_a_message_that_nobody_started_goes_back_uncharged(api: Api) -> None:
    [waiting], [stopping] = await given(api, None), await given(api, None, state=S.STOPPING)
    assert await api.wait(LEASE + SECOND) == 2
    row = await live(api, waiting)
    assert (row.state, row.failures, row.disruptions, row.token) == (S.QUEUED, 0, 0, None)
    assert api.queued == [(jobs.POOL, jobs.HANDLER)]
    assert await states_of(api, [stopping]) == [S.CANCELLED]


async def test_after_the_api_was_away_leases_count_from_its_return(at: steppable.Time, api: Api) -> None:
    held = [one for n in range(100) for one in await given(api, f"worker-{n}", state=S.RUNNING)]
    at.hurry(5 * MINUTE)
    async with process(at, "api-2") as back:
        assert await back.turn() == 0
        assert await back.wait(LEASE - MARGIN) == 0
        for n in range(99):
            assert standings(await back.beat(f"worker-{n}", held[n])) == [(Standing.HELD, None)]
        assert await back.wait(MARGIN + SECOND) == 1
    assert await states_of(api, held) == [S.RUNNING] * 99 + [S.RETRYING]


async def test_nobody_is_rescued_by_a_process_that_slept(api: Api) -> None:
    await given(api, "worker-1")
    api.at.hurry(5 * MINUTE)
    assert await api.rescue.run_once() == 0
    assert await api.turn() == 0, "it was away itself"


async def test_a_second_process_does_not_begin_the_count_anew(at: steppable.Time, api: Api) -> None:
    async with process(at, "api-2") as other:
        await other.held.run_once()
        await given(api, "worker-1")
        assert await api.wait(LEASE + SECOND) == 1


async def test_where_most_of_a_pool_falls_silent_it_waits_one_lease_longer(api: Api) -> None:
    silent = [one for n in range(5) for one in await given(api, f"worker-{n}")]
    await given(api, "worker-5")
    seen = metric("clockhand_rescues_put_off_total")
    assert await api.wait(LEASE + MARGIN, "worker-5") == 0
    assert metric("clockhand_rescues_put_off_total") == seen + 1
    assert standings(await api.beat("worker-0", silent[0])) == [(Standing.HELD, None)]
    assert await api.wait(LEASE - 2 * MARGIN, "worker-0", "worker-5") == 0
    assert await api.wait(2 * MARGIN, "worker-0", "worker-5") == 4
    assert metric("clockhand_rescues_put_off_total") == seen + 1
    assert await states_of(api, silent) == [S.RUNNING, *[S.RETRYING] * 4]


async def test_a_half_is_not_most_and_three_are_not_many(api: Api) -> None:
    for n in range(4):
        await given(api, f"worker-{n}")
    for n in range(4, 8):
        await given(api, f"worker-{n}")
    assert await api.wait(LEASE + SECOND, *(f"worker-{n}" for n in range(4, 8))) == 4
    assert await api.wait(2 * MINUTE, "worker-4") == 3


async def leap(api: Api) -> None:
    """The database's clock jumps, and somebody says that it is right."""
    api.at.leap(HOUR)
    for _ in range(2):
        with contextlib.suppress(database.ClockStepped):
            await api.turn()
    assert await api.wait(MINUTE) == 0
    confirmed = await clock.confirm(api.db)
    assert confirmed is not None
    assert abs(confirmed - HOUR) < SECOND


async def test_a_step_of_the_clock_ends_no_lease(api: Api) -> None:
    held = await given(api, "worker-1", state=S.RUNNING)
    await leap(api)
    assert await api.wait(LEASE - MINUTE - MARGIN) == 0
    assert await states_of(api, held) == [S.RUNNING]
    assert await api.wait(MARGIN + SECOND) == 1


async def test_a_step_while_a_pool_waits_moves_the_wait(api: Api) -> None:
    for n in range(5):
        await given(api, f"worker-{n}")
    assert await api.wait(LEASE + SECOND) == 0
    await leap(api)
    assert await api.wait(LEASE - MINUTE - MARGIN) == 0
    assert await api.wait(2 * MARGIN) == 5


async def test_an_attempt_past_its_time_out_is_asked_to_stop(api: Api) -> None:
    [slow] = await given(api, "worker-1", job=jobs.pooled(attempt_timeout_seconds=60))
    [quick] = await given(api, "worker-1")
    async with api.db.transaction() as connection:
        text = "UPDATE live_runs SET deadline_at = claimed_at + interval '60 s' WHERE run_id = %s"
        await connection.execute(text, (slow[0],))
    assert await api.wait(MINUTE + SECOND, "worker-1") == 1
    assert standings(await api.beat("worker-1", slow, quick)) == [
        (Standing.STOP, "AttemptTimeout"),
        (Standing.HELD, None),
    ]
    assert (await api.report("worker-1", slow, Outcome.DISRUPTED)).state == S.RETRYING
    row = await live(api, slow)
    assert (row.failures, row.disruptions, row.reason) == (1, 0, "AttemptTimeout")


async def test_what_was_to_stop_is_over_once_its_worker_is_silent(api: Api) -> None:
    held = await given(api, "worker-1", state=S.STOPPING)
    assert await api.wait(2 * LEASE, "worker-1") == 0, "it may take its time"
    assert await api.wait(LEASE + SECOND) == 1
    assert await states_of(api, held) == [S.CANCELLED]
