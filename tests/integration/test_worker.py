"""`clockhand worker` as a process, against the API on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import jobs, ports, tcpproxy, worker_process, workers_api

from clockhand.domain import spec
from clockhand.domain.states import RunState as S
from clockhand.store import database


@pytest.fixture
async def api(db: database.Database) -> AsyncIterator[workers_api.Served]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    await workers_api.make_pool(db)
    async with workers_api.served(db) as running:
        yield running


@pytest.fixture
async def secret(db: database.Database) -> str:
    return await workers_api.make_token(db)


async def queued(db: database.Database, handler: str, payload: Any = None, **fields: Any) -> str:
    """A run for a handler; the name of its job."""
    async with db.transaction() as connection:
        plan = jobs.pooled(handler=handler, **fields)
        job = await jobs.make_job(connection, plan, name=handler.replace(".", "-"))
        text = json.dumps({} if payload is None else payload)
        limit = plan.attempt_timeout_seconds
        await jobs.make_run(connection, job, S.QUEUED, payload=text, attempt_timeout=limit)
        return job.name


async def ended(db: database.Database, *names: str) -> Mapping[str, Any]:
    """Waits until those jobs' runs are over: their rows by the names of the jobs."""
    while True:
        async with db.transaction() as connection:
            rows = await jobs.query(
                connection,
                "SELECT job_name, state, reason, attempt, worker, result FROM run_history WHERE job_name = ANY(%s)",
                list(names),
            )
        if len(rows) == len(names):
            return {name: tuple(row) for name, *row in rows}
        await asyncio.sleep(0.05)


async def test_every_kind_of_handler_takes_its_runs(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    commands = tmp_path / "commands.yaml"
    commands.write_text("greet: [sh, -c, 'echo hello; cat >&2']\n", encoding="utf-8")
    names = [
        await queued(db, "email.send", {"to": "ann"}),
        await queued(db, "thread"),
        await queued(db, "process"),
        await queued(db, "exec", {"command": "greet"}),
    ]
    async with worker_process.working(api.url, secret, tmp_path, exec_commands=str(commands)) as worker:
        rows = await ended(db, *names)
        assert sorted(worker.effects()) == sorted(f"{name} 1 sent" for name in names[:2])
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    assert [rows[name] for name in names] == [
        ("Succeeded", None, 1, "one", {"to": "ann", "attempt": 1}),
        ("Succeeded", None, 1, "one", "from a thread"),
        ("Succeeded", None, 1, "one", 1),
        ("Succeeded", None, 1, "one", None),
    ]


Case = tuple[str, Any, str, tuple[str, int | None, str, str | None]]


@pytest.mark.parametrize(
    "case",
    [
        ("fail", {"as": "fatal"}, "HandlerFailed", ("Fail", None, "no such user", "looking for fatal\nnot found\n")),
        ("fail", {"as": "it"}, "AttemptsUsed", ("LookupError", None, "it", "looking for it\nnot found\nTraceback")),
        ("large", {}, "AttemptsUsed", ("ResultTooLarge", None, "the result has 20,002 bytes", None)),
        ("null", {}, "AttemptsUsed", ("ReportRefused", None, "report: 422", None)),
        ("exec", {"command": "exit"}, "AttemptsUsed", ("ExitCode", 3, "the process exited with code 3", "not found\n")),
        (
            "exec",
            {"command": "rm"},
            "HandlerFailed",
            ("exec.NotAllowed", None, "the pool allows no command 'rm'", None),
        ),
        (
            "http",
            {"url": "https://127.0.0.1/"},
            "HandlerFailed",
            ("http.NotAllowed", None, "the host has an address", None),
        ),
    ],
    ids=lambda case: f"{case[0]}-{case[3][0]}",
)
async def test_a_failure_is_recorded_with_its_log(
    db: database.Database,
    api: workers_api.Served,
    secret: str,
    tmp_path: Path,
    case: Case,
) -> None:
    handler, payload, reason, attempt = case
    write(tmp_path / "commands.yaml", "exit: [sh, -c, 'echo not found; exit 3']\n")
    write(tmp_path / "hosts.yaml", "hosts: ['*']\n")
    files = {"exec_commands": str(tmp_path / "commands.yaml"), "http_hosts": str(tmp_path / "hosts.yaml")}
    name = await queued(db, handler, payload, retry=spec.Retry(max_attempts=1))
    async with worker_process.working(api.url, secret, tmp_path, **files):
        assert (await ended(db, name))[name] == ("Dead", reason, 1, "one", None)
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT reason, exit_code, message, log_tail AS log FROM attempts")
    assert (row.reason, row.exit_code) == attempt[:2]
    assert attempt[2] in row.message
    assert (attempt[3] or "") in (row.log or "")
    assert (row.log is None) == (attempt[3] is None)


async def test_reports_that_are_large_together_go_in_several_requests(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    """Twenty logs of 64 KiB, each six times that in JSON: a request may have 1 MiB."""
    async with db.transaction() as connection:
        plan = jobs.pooled(handler="loud", retry=spec.Retry(max_attempts=1))
        loud = await jobs.make_jobs(connection, 20, job=plan, name="loud")
        for job in loud:
            await jobs.make_run(connection, job, S.QUEUED)
    async with worker_process.working(api.url, secret, tmp_path, concurrency="20") as worker:
        rows = await ended(db, *[job.name for job in loud])
        assert "report_not_understood" not in worker.log()
    assert {row[:3] for row in rows.values()} == {("Dead", "AttemptsUsed", 1)}
    async with db.transaction() as connection:
        sizes = await jobs.query(connection, "SELECT reason, length(log_tail) > 65000 FROM attempts")
    assert sizes == [("LookupError", True)] * 20


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


async def test_a_worker_that_is_told_to_stop_lets_its_runs_end(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    name = await queued(db, "wait")
    async with worker_process.working(api.url, secret, tmp_path) as worker:
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        worker.send(signal.SIGTERM)
        await until_logged(worker, "worker_stops")
        later = await queued(db, "email.send")
        worker.tell("go")
        assert (await ended(db, name))[name][:3] == ("Succeeded", None, 1)
        assert await worker.ended() == 0
    async with db.transaction() as connection:
        assert await jobs.query(connection, "SELECT job_name, state, attempt FROM live_runs") == [(later, "Queued", 0)]


@pytest.mark.parametrize("signals", [1, 2])
async def test_what_does_not_end_in_time_is_handed_on(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path, signals: int
) -> None:
    """By the grace that is over, or a second signal: a disruption, and none of the attempts that the job allows."""
    await queued(db, "wait")
    grace = "0.3" if signals == 1 else "3600"
    async with worker_process.working(api.url, secret, tmp_path, grace_seconds=grace) as worker:
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        for _ in range(signals):
            worker.send(signal.SIGTERM)
            await until_logged(worker, "worker_stops")
        assert await worker.ended() == 0
        assert worker.effects() == ["wait-00000 1 begun", "wait-00000 1 cancelled"]
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT state, failures, disruptions, worker FROM live_runs")
    assert row == ("Retrying", 0, 1, None)


async def test_the_probes_answer_while_a_handler_blocks(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await queued(db, "block", {"seconds": 60})
    port = ports.free_row(1)
    async with worker_process.working(api.url, secret, tmp_path, health_port=str(port)) as worker:
        await worker.until(lambda effects: effects == ["block-00000 1 begun"])
        for probe in ("healthz", "readyz"):
            async with api.session.get(f"http://127.0.0.1:{port}/{probe}") as answer:
                assert answer.status == 200
        async with api.session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "clockhand_worker_running 1.0" in await answer.text()


async def test_a_port_that_is_taken_is_said_so(api: workers_api.Served, secret: str, tmp_path: Path) -> None:
    async with worker_process.working(api.url, secret, tmp_path, health_port=str(api.port)) as worker:
        assert await worker.ended() == 1
        assert "clockhand: the probes cannot be served" in worker.log()


@contextlib.asynccontextmanager
async def through_a_wire(
    api: workers_api.Served, secret: str, folder: Path
) -> AsyncIterator[tuple[tcpproxy.TcpProxy, worker_process.Running]]:
    """A worker that reaches the API through what can be cut."""
    async with (
        tcpproxy.TcpProxy("127.0.0.1", api.port) as wire,
        worker_process.working(f"http://127.0.0.1:{wire.port}", secret, folder) as worker,
    ):
        yield wire, worker


async def until_logged(worker: worker_process.Running, event: str) -> None:
    await worker_process.until(lambda: event in worker.log())


async def short_leases(db: database.Database, seconds: int = 5) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET lease_seconds = %s, heartbeat_seconds = 1", (seconds,))


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db)
    name = await queued(db, "block", {"seconds": 8})
    async with worker_process.working(api.url, secret, tmp_path) as worker:
        assert (await ended(db, name))[name][:3] == ("Succeeded", None, 1)
        assert worker.effects() == ["block-00000 1 begun", "block-00000 1 done"]


async def test_an_attempt_that_goes_on_is_seen_to_run_before_a_heartbeat_is_due(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE pools SET lease_seconds = 7200, heartbeat_seconds = 3600")
    await queued(db, "wait")
    async with worker_process.working(api.url, secret, tmp_path) as worker:
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        state = S.CLAIMED.value
        while state != S.RUNNING:
            async with db.transaction() as connection:
                state = await jobs.one(connection, "SELECT state::text FROM live_runs")
            await asyncio.sleep(0.1)
        worker.tell("go")
        await worker.until(lambda effects: effects[-1] == "wait-00000 1 done")


async def test_a_run_that_cannot_be_renewed_is_ended_before_its_lease(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db, seconds=10)
    await queued(db, "wait")
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        wire.cut()
        async with db.transaction() as connection:
            lease_until = await jobs.one(connection, "SELECT lease_until FROM live_runs")
        await worker.until(lambda effects: effects[-1] == "wait-00000 1 cancelled")
        assert worker.acted_at() < lease_until
        wire.mend()
        worker.tell("go")
        await worker.until(lambda effects: effects[-1].endswith(" done"))


async def test_who_asks_before_its_effect_waits_for_an_api_that_comes_back(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db, seconds=60)
    name = await queued(db, "careful")
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await worker.until(lambda effects: effects == ["careful-00000 1 begun"])
        wire.cut()
        worker.tell("go")
        await worker_process.until(lambda: worker.log().count("heartbeat_failed") >= 2)
        wire.mend()
        assert (await ended(db, name))[name][:3] == ("Succeeded", None, 1)


async def test_who_asks_before_its_effect_does_nothing_once_its_lease_is_lost(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db, seconds=10)
    retry = spec.Retry(max_attempts=50, max_disruptions=50, backoff=spec.Backoff(initial_seconds=1, max_seconds=1))
    name = await queued(db, "careful", retry=retry)
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await worker.until(lambda effects: effects[:1] == ["careful-00000 1 begun"])
        wire.cut()
        worker.tell("go")
        await until_logged(worker, "lease_lost")
        wire.mend()
        state, _, last, *_ = (await ended(db, name))[name]
    assert (state, last > 1) == ("Succeeded", True)
    # a slow machine may lose further ones in the same way
    assert [line for line in worker.effects() if line.endswith(" done")] == [f"careful-00000 {last} done"]


async def test_a_worker_that_was_frozen_past_its_lease_does_nothing_more(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db)
    name = await queued(db, "wait", retry=spec.Retry(backoff=spec.Backoff(initial_seconds=1)))
    async with worker_process.working(api.url, secret, tmp_path, name="first") as first:
        await first.until(lambda effects: effects == ["wait-00000 1 begun"])
        first.send(signal.SIGSTOP)
        first.tell("go")
        async with worker_process.working(api.url, secret, tmp_path, name="second"):
            assert (await ended(db, name))[name] == ("Succeeded", None, 2, "second", "went on")
            first.send(signal.SIGCONT)
            await until_logged(first, "lease_lost")
            first.send(signal.SIGTERM)
            assert await first.ended() == 0
    assert sorted(first.effects()) == [
        "wait-00000 1 begun",
        "wait-00000 1 cancelled",
        "wait-00000 2 begun",
        "wait-00000 2 done",
    ]


async def test_a_run_that_is_cancelled_is_ended(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    await short_leases(db)
    name = await queued(db, "wait")
    async with worker_process.working(api.url, secret, tmp_path) as worker:
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        async with db.transaction() as connection:
            await connection.execute("UPDATE live_runs SET state = 'Stopping', stop_reason = 'Cancelled'")
        assert (await ended(db, name))[name][:2] == ("Cancelled", "Cancelled")
        assert worker.effects()[-1] == "wait-00000 1 cancelled"


async def test_the_time_of_an_attempt_is_kept_by_the_worker(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    name = await queued(db, "wait", attempt_timeout_seconds=1, retry=spec.Retry(max_attempts=1))
    async with worker_process.working(api.url, secret, tmp_path) as worker:
        assert (await ended(db, name))[name][:2] == ("Dead", "AttemptTimeout")
        assert worker.effects() == ["wait-00000 1 begun", "wait-00000 1 cancelled"]
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT reason FROM attempts") == "AttemptTimeout"


async def test_what_ended_while_the_api_was_away_is_reported_when_it_is_back(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    name = await queued(db, "wait")
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await worker.until(lambda effects: effects == ["wait-00000 1 begun"])
        wire.cut()
        worker.tell("go")
        await until_logged(worker, '"report"')
        wire.mend()
        assert (await ended(db, name))[name][:3] == ("Succeeded", None, 1)


async def test_a_claim_whose_answer_was_lost_is_answered_again(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await until_waiting(api)
        wire.clog()
        name = await queued(db, "email.send")
        await until_claimed(db)
        wire.cut()
        wire.clear()
        wire.mend()
        assert (await ended(db, name))[name][:3] == ("Succeeded", None, 1)
        assert worker.effects() == ["email-send-00000 1 sent"]


async def test_what_nobody_remembers_of_a_lost_answer_comes_with_a_heartbeat(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    """Another process gave it to the worker, which is known and has nothing here."""
    await short_leases(db, seconds=60)
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await until_waiting(api)
        wire.cut()
        await until_logged(worker, '"claim"')
        async with db.transaction() as connection:
            job = await jobs.make_job(connection, jobs.pooled(handler="email.send"), name="email-send")
            await jobs.make_run(connection, job, S.CLAIMED, worker="one", attempt_timeout=300, fencing=1)
        wire.mend()
        assert (await ended(db, job.name))[job.name][:3] == ("Succeeded", None, 1)
        assert worker.effects() == ["email-send-00000 1 sent"]


async def test_what_a_worker_never_began_is_given_back(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    """The answer to its last claim is on the way when it is told to stop."""
    async with through_a_wire(api, secret, tmp_path) as (wire, worker):
        await until_waiting(api)
        wire.clog()
        await queued(db, "email.send")
        await until_claimed(db)
        worker.send(signal.SIGTERM)
        await until_logged(worker, "worker_stops")
        wire.clear()
        assert await worker.ended() == 0
        assert worker.effects() == []
    async with db.transaction() as connection:
        left = await jobs.query(connection, "SELECT state, failures, disruptions, worker FROM live_runs")
    assert left == [("Queued", 0, 0, None)]


async def test_a_worker_takes_no_more_than_it_has_places_for(
    db: database.Database, api: workers_api.Served, secret: str, tmp_path: Path
) -> None:
    async with db.transaction() as connection:
        waiting = await jobs.make_jobs(connection, 5, job=jobs.pooled(handler="wait"), name="wait")
        for job in waiting:
            await jobs.make_run(connection, job, S.QUEUED)
    async with worker_process.working(api.url, secret, tmp_path, concurrency="2") as worker:
        await worker.until(lambda effects: len(effects) >= 2)
        async with db.transaction() as connection:
            assert await jobs.one(connection, "SELECT count(*) FROM live_runs WHERE state = 'Queued'") == 3
        assert len(worker.effects()) == 2
        worker.tell("go")
        rows = await ended(db, *[job.name for job in waiting])
    assert {row[:3] for row in rows.values()} == {("Succeeded", None, 1)}


async def until_waiting(api: workers_api.Served) -> None:
    await worker_process.until(lambda: bool(api.pools.desk.sitting(jobs.POOL)))


async def until_claimed(db: database.Database) -> None:
    while True:
        async with db.transaction() as connection:
            if await jobs.one(connection, "SELECT count(*) FROM live_runs WHERE state = 'Claimed'"):
                return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pool": "team-a"}, "CLOCKHAND_POOL: 'team-a' is not a pool such as team-a/mailers"),
        ({"pool": "team-a/reports"}, "CLOCKHAND_POOL: is team-a/reports, and the code is for the pool mailers"),
        (
            {"handlers": "tests.support.no_worker:worker"},
            "CLOCKHAND_HANDLERS: tests.support.no_worker:worker: No module",
        ),
        ({"exec_commands": "/no/such/file"}, "CLOCKHAND_EXEC_COMMANDS: /no/such/file is no file of commands"),
    ],
)
async def test_wrong_settings_end_it_at_once(tmp_path: Path, settings: Mapping[str, str], says: str) -> None:
    async with worker_process.working("http://127.0.0.1:9", "x", tmp_path, **settings) as worker:
        assert await worker.ended() == 2
        assert worker.log().startswith(f"clockhand: {says}")
        assert worker.log().count("\n") == 1
