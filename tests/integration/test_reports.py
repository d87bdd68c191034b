"""Ends of attempts as workers report them: each counts once, whoever sends it however often."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY
from tests.support import jobs

from clockhand import errors
from clockhand.domain import protocol, spec
from clockhand.domain.protocol import Failure, Outcome
from clockhand.domain.states import RunState as S
from clockhand.engine import aftermath, loops, requests
from clockhand.engine.pools import reports
from clockhand.store import database

TOKEN = str(jobs.TOKEN)
MINUTE = timedelta(minutes=1)


class Desk:
    """Reports with their loop, and what they said is queued."""

    def __init__(self, db: database.Database) -> None:
        self.queued: list[tuple[str, str]] = []
        self.reports = reports.Reports(db, after=aftermath.Aftermath(db), queued=self.queued.extend)

    async def send(self, *sent: protocol.Report, worker: str = jobs.WORKER, pool: str = jobs.POOL) -> list[Any]:
        request = protocol.ReportRequest(worker=worker, reports=sent)
        answer = await self.reports.submit(pool, request)
        return [(one.accepted, one.state) for one in answer.reports]


@pytest.fixture
async def desk(db: database.Database) -> AsyncIterator[Desk]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    opened = Desk(db)
    task = asyncio.create_task(loops.forever("reports", opened.reports.step))
    yield opened
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def report(run_id: uuid.UUID, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> protocol.Report:
    return protocol.Report(run_id=run_id, **{"token": TOKEN, "outcome": outcome, **fields})


def failed(run_id: uuid.UUID, error: str = "ValueError", **fields: Any) -> protocol.Report:
    return report(run_id, Outcome.FAILED, failure=Failure(error=error, **fields))


async def made(
    db: database.Database, state: S = S.CLAIMED, *, job: spec.JobSpec | None = None, **columns: Any
) -> uuid.UUID:
    """A run whose attempt the worker has."""
    async with db.transaction() as connection:
        at = await database.now(connection) - MINUTE
        columns = {"claimed_at": at, **columns} if state in (S.CLAIMED, S.RUNNING, S.STOPPING) else columns
        return await jobs.make_run(connection, await jobs.make_job(connection, job or jobs.pooled()), state, **columns)


async def row_of(db: database.Database, run_id: uuid.UUID, table: str = "run_history") -> Any:
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, f"SELECT * FROM {table} WHERE run_id = %s", run_id)
        return row


def stale() -> float:
    return REGISTRY.get_sample_value("clockhand_stale_writes_total") or 0.0


async def test_a_success_ends_the_run_with_its_result(db: database.Database, desk: Desk) -> None:
    run_id = await made(db)
    sent = report(run_id, seconds=2.5, result=msgspec.Raw(b'{"mails": 3}'))
    assert await desk.send(sent) == [(True, S.SUCCEEDED)]
    row = await row_of(db, run_id)
    assert (row.state, row.worker, row.token, row.result) == (S.SUCCEEDED, jobs.WORKER, jobs.TOKEN, {"mails": 3})
    assert (row.finished_at - row.started_at).total_seconds() == 2.5
    async with db.transaction() as connection:
        assert await jobs.changes(connection) == [(run_id, S.SUCCEEDED)]
        assert await jobs.one(connection, "SELECT last_success_at = %s FROM job_status", row.finished_at)


async def test_the_same_report_again_is_taken_again_and_changes_nothing(db: database.Database, desk: Desk) -> None:
    well, ill, cut = [await made(db) for _ in range(3)]
    sent = [report(well), failed(ill), report(cut, Outcome.DISRUPTED)]
    first = await desk.send(*sent)
    before = [await row_of(db, well), await row_of(db, ill, "live_runs"), await row_of(db, cut, "live_runs")]
    seen = stale()
    assert await desk.send(*sent) == first == [(True, S.SUCCEEDED), (True, S.RETRYING), (True, S.RETRYING)]
    assert before == [await row_of(db, well), await row_of(db, ill, "live_runs"), await row_of(db, cut, "live_runs")]
    assert stale() == seen


async def test_twice_in_one_request_is_once(db: database.Database, desk: Desk) -> None:
    well, ill = await made(db), await made(db)
    assert await desk.send(report(well), failed(ill), report(well), failed(ill), failed(well)) == [
        (True, S.SUCCEEDED),
        (True, S.RETRYING),
        (True, S.SUCCEEDED),
        (True, S.RETRYING),
        (False, S.SUCCEEDED),
    ]
    assert (await row_of(db, ill, "live_runs")).failures == 1


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.DISRUPTED, Outcome.RELEASED])
async def test_whoever_has_not_the_attempt_changes_nothing(db: database.Database, desk: Desk, outcome: Outcome) -> None:
    run_id = await made(db)
    before = await row_of(db, run_id, "live_runs")
    seen = stale()
    assert await desk.send(report(run_id, outcome, token="4710")) == [(False, S.CLAIMED)]
    assert await desk.send(report(run_id, outcome, token="9" * 19)) == [(False, S.CLAIMED)]
    assert await desk.send(report(run_id, outcome), worker="worker-2") == [(False, S.CLAIMED)]
    assert await desk.send(report(run_id, outcome), pool="k8s/team-b/mailers") == [(False, S.CLAIMED)]
    strangers = [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1), uuid.UUID("ffffffff-ffff-8fff-bfff-ffffffffffff")]
    for stranger in strangers:
        assert await desk.send(report(stranger, outcome)) == [(False, None)]
    assert await row_of(db, run_id, "live_runs") == before
    assert stale() - seen == (0 if outcome is Outcome.RELEASED else 4 + len(strangers))


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.RELEASED])
async def test_who_names_anothers_token_at_the_same_moment_takes_nothing_from_it(
    db: database.Database, desk: Desk, outcome: Outcome
) -> None:
    run_id, other = await made(db), await made(db)
    answers = await asyncio.gather(
        desk.send(report(run_id, outcome), worker="worker-2"),
        desk.send(report(run_id, outcome), pool="k8s/team-b/mailers"),
        desk.send(report(other), report(run_id)),
        desk.send(report(run_id, outcome), worker="worker-2"),
    )
    assert answers[2] == [(True, S.SUCCEEDED), (True, S.SUCCEEDED)]
    assert [answers[0], answers[1], answers[3]] == [[(False, S.SUCCEEDED)]] * 3


async def test_another_outcome_than_the_one_that_was_stored_is_refused(db: database.Database, desk: Desk) -> None:
    well, ill = await made(db), await made(db)
    await desk.send(report(well), failed(ill))
    seen = stale()
    assert await desk.send(failed(well), report(ill)) == [(False, S.SUCCEEDED), (False, S.RETRYING)]
    assert await desk.send(report(well, Outcome.RELEASED)) == [(False, S.SUCCEEDED)]
    assert await desk.send(report(ill, Outcome.DISRUPTED)) == [(False, S.RETRYING)]
    assert stale() - seen == 3


async def test_a_run_that_finished_first_has_succeeded_although_it_was_to_stop(
    db: database.Database, desk: Desk
) -> None:
    run_id = await made(db, S.STOPPING)
    assert await desk.send(report(run_id)) == [(True, S.SUCCEEDED)]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.DISRUPTED, Outcome.RELEASED])
async def test_a_run_that_was_to_stop_is_over_once_its_worker_has_let_go(
    db: database.Database, desk: Desk, outcome: Outcome
) -> None:
    run_id = await made(db, S.STOPPING)
    assert await desk.send(report(run_id, outcome)) == [(True, S.CANCELLED)]
    assert (await row_of(db, run_id, "attempts")).outcome == "Stopped"


async def test_what_was_never_begun_goes_back_to_its_place_in_the_queue(db: database.Database, desk: Desk) -> None:
    run_id = await made(db)
    before = await row_of(db, run_id, "live_runs")
    assert await desk.send(report(run_id, Outcome.RELEASED)) == [(True, S.QUEUED)]
    row = await row_of(db, run_id, "live_runs")
    assert (row.state, row.token, row.worker, row.lease_until, row.deadline_at) == (S.QUEUED, None, None, None, None)
    assert (row.queue_at, row.attempt, row.failures, row.disruptions) == (before.queue_at, 1, 0, 0)
    assert desk.queued == [(jobs.POOL, jobs.HANDLER)]


async def test_what_has_begun_cannot_be_released_and_counts_as_disrupted(db: database.Database, desk: Desk) -> None:
    run_id = await made(db, S.RUNNING)
    assert await desk.send(report(run_id, Outcome.RELEASED)) == [(True, S.RETRYING)]
    row = await row_of(db, run_id, "live_runs")
    assert (row.failures, row.disruptions, row.reason) == (0, 1, "WorkerStopped")
    assert desk.queued == []


async def test_a_failure_is_recorded_with_the_end_of_its_log(db: database.Database, desk: Desk) -> None:
    run_id = await made(db)
    log = "x" * protocol.MAX_LOG_BYTES + "\nthe \x00end"
    sent = report(
        run_id, Outcome.FAILED, seconds=3, log=log, failure=Failure(error="E\x00", message="no\x00 mail", exit_code=3)
    )
    assert await desk.send(sent) == [(True, S.RETRYING)]
    kept = await row_of(db, run_id, "attempts")
    assert (kept.outcome, kept.reason, kept.exit_code, kept.message) == ("Failed", "E", 3, "no mail")
    assert (kept.worker, kept.token, kept.pod_name, kept.log_tail) == (jobs.WORKER, jobs.TOKEN, None, "the end")
    assert (kept.ended_at - kept.started_at).total_seconds() == 3
    row = await row_of(db, run_id, "live_runs")
    assert (row.message, row.token, row.worker) == ("E: exit code 3: no mail", None, None)


async def test_what_a_handler_says_of_its_failure_decides_what_comes_next(db: database.Database, desk: Desk) -> None:
    ignoring = spec.Retry(rules=(spec.Rule(on_errors=("http.503",), action=spec.RuleAction.IGNORE),))
    fatal, later, ignored = await made(db), await made(db), await made(db, job=jobs.pooled(retry=ignoring))
    sent = [failed(fatal, fatal=True), failed(later, retry_after_seconds=3_600), failed(ignored, "http.503")]
    assert await desk.send(*sent) == [(True, S.DEAD), (True, S.RETRYING), (True, S.RETRYING)]
    assert (await row_of(db, fatal)).reason == "HandlerFailed"
    row = await row_of(db, later, "live_runs")
    kept = await row_of(db, later, "attempts")
    assert (row.failures, row.ready_at - kept.ended_at) == (1, timedelta(hours=1))
    row = await row_of(db, ignored, "live_runs")
    assert (row.failures, row.disruptions) == (0, 1)
    # the same again, although the verdict was another than the outcome
    assert await desk.send(failed(ignored, "http.503")) == [(True, S.RETRYING)]


async def test_at_most_once_ends_with_what_was_seen(db: database.Database, desk: Desk) -> None:
    once = jobs.pooled(delivery=spec.Delivery.AT_MOST_ONCE)
    ill, cut, back = await made(db, job=once), await made(db, job=once), await made(db, job=once)
    sent = [failed(ill), report(cut, Outcome.DISRUPTED), report(back, Outcome.RELEASED)]
    assert await desk.send(*sent) == [(True, S.DEAD), (True, S.UNKNOWN), (True, S.QUEUED)]
    assert await desk.send(*sent[:2]) == [(True, S.DEAD), (True, S.UNKNOWN)]


BAD = {
    "result": report(uuid.uuid4(), result=msgspec.Raw(b'"' + b"x" * protocol.MAX_RESULT_BYTES + b'"')),
    "result: surrogate": report(uuid.uuid4(), result=msgspec.Raw(rb'"\ud800"')),
    "result: NUL": report(uuid.uuid4(), result=msgspec.Raw(rb'{"a": ["\u0000"]}')),
    "result: number": report(uuid.uuid4(), result=msgspec.Raw(b"[1e999]")),
    "result: depth": report(uuid.uuid4(), result=msgspec.Raw(b"[" * 8_000 + b"]" * 8_000)),
    "result: of a failure": report(uuid.uuid4(), Outcome.FAILED, result=msgspec.Raw(b"1")),
    "failure: of a success": report(uuid.uuid4(), failure=Failure()),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_request_that_cannot_be_stored_names_what_is_wrong(
    db: database.Database, desk: Desk, name: str
) -> None:
    run_id = await made(db)
    with pytest.raises(errors.InvalidInput) as caught:
        await desk.send(report(run_id), BAD[name])
    assert caught.value.field.startswith(f"reports[1].{name.partition(':')[0]}")
    assert (await row_of(db, run_id, "live_runs")).state == S.CLAIMED


async def test_an_end_lets_those_go_on_that_waited_for_it(db: database.Database, desk: Desk) -> None:
    one_at_a_time = jobs.pooled(concurrency_policy=spec.ConcurrencyPolicy.QUEUE)
    async with db.transaction() as connection:
        now = await database.now(connection)
        job = await jobs.make_job(connection, one_at_a_time)
        first = await jobs.make_run(connection, job, S.RUNNING, at=now - 2 * MINUTE)
        second = await jobs.make_run(connection, job, S.BLOCKED, at=now - MINUTE)
    assert await desk.send(report(first)) == [(True, S.SUCCEEDED)]
    await desk.reports.follow_step()
    assert (await row_of(db, second, "live_runs")).state == S.QUEUED


async def test_what_could_not_be_followed_up_is_left_for_the_next_time(db: database.Database, desk: Desk) -> None:
    one_at_a_time = jobs.pooled(concurrency_policy=spec.ConcurrencyPolicy.QUEUE)
    waiting = []
    for number in range(2):
        async with db.transaction() as connection:
            now = await database.now(connection)
            job = await jobs.make_job(connection, one_at_a_time, name=f"job-{number}")
            first = await jobs.make_run(connection, job, S.RUNNING, at=now - 2 * MINUTE)
            waiting.append(await jobs.make_run(connection, job, S.BLOCKED, at=now - MINUTE))
        assert await desk.send(report(first)) == [(True, S.SUCCEEDED)]
        if number == 0:
            async with db.transaction() as blocker:
                await blocker.execute("SELECT FROM jobs FOR UPDATE")
                with pytest.raises(errors.Unavailable):
                    await desk.reports.follow_step()
    await desk.reports.follow_step()
    assert [(await row_of(db, run_id, "live_runs")).state for run_id in waiting] == [S.QUEUED, S.QUEUED]


async def test_a_job_that_keeps_dying_is_paused(db: database.Database, desk: Desk) -> None:
    async with db.transaction() as connection:
        soon = await database.now(connection) + MINUTE
        job = await jobs.make_job(connection, jobs.pooled(pause_after_failures=1), next_slot_at=soon)
        run_id = await jobs.make_run(connection, job, S.CLAIMED)
    assert await desk.send(failed(run_id, fatal=True)) == [(True, S.DEAD)]
    await desk.reports.follow_step()
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT paused_at IS NOT NULL FROM jobs")


async def test_reports_of_many_workers_are_stored_in_few_transactions(db: database.Database, desk: Desk) -> None:
    async with db.transaction() as connection:
        made = [
            await jobs.make_run(connection, job, S.CLAIMED, worker=f"worker-{number}")
            for number, job in enumerate(await jobs.make_jobs(connection, 100, job=jobs.pooled()))
        ]
    sent = [desk.send(report(run_id), worker=f"worker-{number}") for number, run_id in enumerate(made)]
    assert await asyncio.gather(*sent) == [[(True, S.SUCCEEDED)]] * 100
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM run_changes") <= 2


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_tenants_job_has_no_object_to_be_shown(db: database.Database, desk: Desk, failures: int) -> None:
    """Only the count of failures in a row matters there: the row is written where a success ends one."""
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled(), owner="rest/acme")
        run_id = await jobs.make_run(connection, job, S.CLAIMED)
        await connection.execute("UPDATE job_status SET consecutive_failures = %s", (failures,))
        before = await jobs.one(connection, "SELECT ctid::text FROM job_status")
    assert await desk.send(report(run_id), pool="rest/acme/mailers") == [(True, S.SUCCEEDED)]
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT consecutive_failures, dirty_at, ctid::text AS at FROM job_status")
    assert (row.consecutive_failures, row.dirty_at) == (0, None)
    assert (row.at == before) == (failures == 0)


async def test_redriven_it_runs_again_and_the_old_report_is_known_still(db: database.Database, desk: Desk) -> None:
    run_id = await made(db)
    assert await desk.send(failed(run_id, fatal=True)) == [(True, S.DEAD)]
    async with db.transaction() as connection:
        now = await database.now(connection)
        await requests.retry(connection, owner=jobs.OWNER, run_id=run_id, actor="me", now=now)
    row = await row_of(db, run_id, "live_runs")
    assert (row.state, row.pool, row.handler, row.failures) == (S.QUEUED, jobs.POOL, jobs.HANDLER, 0)
    assert await desk.send(failed(run_id)) == [(True, S.QUEUED)]
    assert await desk.send(report(run_id)) == [(False, S.QUEUED)]
