"""What runs handlers, on real threads and real processes: how they start, what is kept of them, and how they are ended."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import attempts as made
from tests.support import childs_play

from clockhand import errors
from clockhand.worker import attempts, commands, outcomes, processes, sdk, threads, worker
from clockhand.worker.attempts import Ending

Call = Callable[[attempts.Attempt, sdk.Run], Awaitable[object]]


def started(call: Call, attempt: attempts.Attempt) -> asyncio.Task[object]:
    """The attempt under way, to be interrupted as a worker interrupts it."""

    async def make() -> object:
        return await call(attempt, made.seen(attempt))

    loop, task = asyncio.get_running_loop(), asyncio.create_task(make())
    attempt.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
    return task


async def ended(task: asyncio.Task[object]) -> BaseException | None:
    await asyncio.wait({task})
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def pids(file: Path) -> list[int]:
    """Waits until they are written."""
    return await asyncio.to_thread(_pids, file)


def _pids(file: Path) -> list[int]:
    while not (file.is_file() and (text := file.read_text(encoding="utf-8"))):
        time.sleep(0.01)
    return [int(pid) for pid in text.split()]


async def gone(pid: int) -> None:
    """Waits until there is no such process, or nothing of it but its exit code."""
    await asyncio.to_thread(_gone, pid)


def _gone(pid: int) -> None:
    while is_alive(pid):
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
async def in_processes() -> AsyncIterator[worker.Worker]:
    code = worker.Worker()
    for function in (childs_play.double, childs_play.fail, childs_play.large, childs_play.hang):
        code.handler(function.__name__, processes=True)(function)
    yield code
    await code.children.close()


async def test_a_process_is_used_again_and_logs_of_runs_stay_apart(in_processes: worker.Worker) -> None:
    results: list[dict[str, Any]] = []
    for number in (1, 2):
        attempt = made.attempt({"number": number})
        answer = await started(in_processes.calls["double"], attempt)
        report = outcomes.returned(attempt, answer, 0)
        results.append(json.loads(bytes(report.result)))
        assert sorted((attempt.tail.text() or "").splitlines()) == [
            "from a program",
            "to standard error",
            "to standard output",
        ]
    assert [result["twice"] for result in results] == [2, 4]
    assert results[0]["pid"] == results[1]["pid"] != os.getpid()
    assert (results[0]["id"], results[0]["attempt"]) == (str(made.RUN_ID), 2)


@pytest.mark.parametrize(
    ("payload", "error", "fatal", "after", "code"),
    [
        ("fatal", "Fail", True, None, None),
        ("later", "RetryAfter", False, 30, None),
        ("", "ValueError", False, None, None),
        ("large", "ExitCode", False, None, 3),
        ("kill", "SIGKILL", False, None, 137),
    ],
)
async def test_a_failure_in_a_process_is_the_attempts(
    in_processes: worker.Worker, payload: str, error: str, fatal: bool, after: float | None, code: int | None
) -> None:
    attempt = made.attempt(payload)
    with pytest.raises(outcomes.Failed) as failed:
        await started(in_processes.calls["fail"], attempt)
    failure = failed.value.failure
    assert (failure.error, failure.fatal, failure.retry_after_seconds, failure.exit_code) == (error, fatal, after, code)
    assert ("ValueError: broken" in (attempt.tail.text() or "")) is (error == "ValueError")
    assert await started(in_processes.calls["double"], made.attempt({"number": 1}))


async def test_a_result_that_is_too_large_is_refused_in_the_process(in_processes: worker.Worker) -> None:
    with pytest.raises(outcomes.Failed, match="the result has 20,002 bytes"):
        await started(in_processes.calls["large"], made.attempt())


@pytest.mark.parametrize("ending", [Ending.STOP, Ending.TIMEOUT, Ending.DRAIN, Ending.LOST])
async def test_a_process_is_ended_with_what_it_started(
    in_processes: worker.Worker, ending: Ending, tmp_path: Path
) -> None:
    attempt = made.attempt({"file": str(tmp_path / "pids")})
    task = started(in_processes.calls["hang"], attempt)
    running = await pids(tmp_path / "pids")
    await asyncio.to_thread(attempt.end, ending)
    assert isinstance(await ended(task), asyncio.CancelledError | outcomes.Failed)
    for pid in running:
        await gone(pid)


async def test_a_lost_lease_kills_a_process_though_the_loop_is_blocked(
    in_processes: worker.Worker, tmp_path: Path
) -> None:
    attempt = made.attempt({"file": str(tmp_path / "pids")})
    task = started(in_processes.calls["hang"], attempt)
    [handler, program] = await pids(tmp_path / "pids")
    killed = threading.Thread(target=attempt.end, args=(Ending.LOST,))
    killed.start()
    killed.join()  # the loop stands still here
    while is_alive(handler) or is_alive(program):
        pass
    await ended(task)


def allowed(folder: Path, **listed: list[str]) -> commands.Exec:
    file = folder / "commands.yaml"
    file.write_text(json.dumps(listed), encoding="utf-8")
    return commands.Exec(commands.read(str(file)))


async def test_a_command_has_the_payload_and_what_is_known_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOCKHAND_TOKEN", "the worker's own")
    monkeypatch.setenv("TZ", "UTC")
    call = allowed(tmp_path, show=["sh", "-c", "cat; echo; env | grep -E '^(CLOCKHAND_|TZ=)' | sort; echo worse >&2"])
    attempt = made.attempt({"command": "show", "n": 1})
    assert await started(call, attempt) is None
    assert (attempt.tail.text() or "").splitlines() == [
        '{"command":"show","n":1}',
        "CLOCKHAND_ATTEMPT=2",
        "CLOCKHAND_FENCING_TOKEN=9",
        "CLOCKHAND_JOB=mail",
        "CLOCKHAND_NAMESPACE=team-a",
        'CLOCKHAND_PAYLOAD={"command":"show","n":1}',
        f"CLOCKHAND_RUN_ID={made.RUN_ID}",
        "CLOCKHAND_RUN_NAME=mail-20260301t080000z",
        "CLOCKHAND_SCHEDULED_AT=2026-03-01T08:00:00Z",
        "TZ=UTC",
        "worse",
    ]


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        (["sh", "-c", "exit 42"], "ExitCode", 42),
        (["sh", "-c", "kill -TERM $$"], "SIGTERM", 143),
        (["/no/such/program"], "exec.NotStarted", None),
    ],
)
async def test_the_exit_code_decides(tmp_path: Path, command: list[str], error: str, code: int | None) -> None:
    with pytest.raises(outcomes.Failed) as failed:
        await started(allowed(tmp_path, run=command), made.attempt({"command": "run"}))
    assert (failed.value.failure.error, failed.value.failure.exit_code) == (error, code)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"command": "rm"}, "exec.NotAllowed"),
        ({}, "exec.Payload"),
        ({"command": ["sh"]}, "exec.Payload"),
        ([], "exec.Payload"),
    ],
)
async def test_only_listed_commands_run(tmp_path: Path, payload: object, error: str) -> None:
    with pytest.raises(sdk.Fail) as failed:
        await started(allowed(tmp_path, show=["true"]), made.attempt(payload))
    assert failed.value.error == error


async def test_only_the_end_of_what_a_command_writes_is_kept(tmp_path: Path) -> None:
    attempt = made.attempt({"command": "pour"})
    await started(
        allowed(tmp_path, pour=["sh", "-c", "yes 0123456789 | head -c 1000000; printf 'the \\377 end'"]), attempt
    )
    text = attempt.tail.text() or ""
    assert len(text.encode()) <= 65_536
    assert text.endswith("the \ufffd end")


@pytest.mark.parametrize("ending", [Ending.STOP, Ending.LOST])
async def test_a_command_is_ended_with_its_group(tmp_path: Path, ending: Ending) -> None:
    file = tmp_path / "pids"
    call = allowed(tmp_path, hang=["sh", "-c", f"sleep 3600 & echo $$ $! > {file}.new; mv {file}.new {file}; wait"])
    attempt = made.attempt({"command": "hang"})
    task = started(call, attempt)
    running = await pids(file)
    await asyncio.to_thread(attempt.end, ending)
    await ended(task)
    for pid in running:
        await gone(pid)


async def test_a_command_that_leaves_children_behind_is_over_when_it_exits(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    call = allowed(tmp_path, leave=["sh", "-c", f"sleep 3600 & echo $! > {file}"])
    await started(call, made.attempt({"command": "leave"}))
    for pid in await pids(file):
        await gone(pid)


@pytest.mark.parametrize("text", ["- a", "show: sh", "show: [1]", "{", 'a: ["x\\0"]'])
def test_a_wrong_file_of_commands_is_said_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "commands.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(errors.InvalidInput, match=r"CLOCKHAND_EXEC_COMMANDS: .* is no file of commands"):
        commands.read(str(file))


async def test_threads_are_as_many_as_calls_at_the_same_time() -> None:
    pool, meet = threads.Threads(), threading.Barrier(3)

    def call() -> int:
        meet.wait()
        return threading.get_ident()

    first = await asyncio.gather(*[pool.call(call) for _ in range(3)])
    second = await asyncio.gather(*[pool.call(call) for _ in range(3)])
    assert set(first) == set(second)
    assert len(set(first)) == 3


async def test_a_thread_goes_on_when_its_attempt_is_ended_and_is_told() -> None:
    pool, begun, told = threads.Threads(), asyncio.Event(), threading.Event()
    loop, attempt = asyncio.get_running_loop(), made.attempt()

    def handler(run: sdk.Run) -> str:
        loop.call_soon_threadsafe(begun.set)
        while not run.stopping:
            told.wait(0.001)
        with pytest.raises(errors.Stale, match="this attempt is to end"):
            run.heartbeat_sync()
        return "cleaned up"

    async def call(_: attempts.Attempt, run: sdk.Run) -> object:
        return await pool.call(lambda: handler(run))

    task = started(call, attempt)
    await begun.wait()
    attempt.end(Ending.STOP)
    assert await task == "cleaned up"


async def test_a_thread_that_never_ends_is_left_when_the_process_ends() -> None:
    pool, begun, never = threads.Threads(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handler() -> None:
        loop.call_soon_threadsafe(begun.set)
        never.wait()

    task = asyncio.create_task(pool.call(handler))
    await begun.wait()
    pool.abandon()
    task.cancel()
    assert isinstance(await ended(task), asyncio.CancelledError)
    never.set()


@pytest.mark.parametrize("error", [StopIteration(1), SystemExit(1), KeyError("x")])
async def test_whatever_a_thread_raises_comes_back(error: BaseException) -> None:
    def handler() -> None:
        raise error

    task = asyncio.create_task(caught(threads.Threads(), handler))
    assert type(await task) is (RuntimeError if isinstance(error, StopIteration) else type(error))


async def caught(pool: threads.Threads, function: Callable[[], object]) -> BaseException | None:
    try:
        await pool.call(function)
    except BaseException as error:
        return error
    return None


def test_the_end_of_a_process_by_an_unknown_signal_has_its_number() -> None:
    assert processes.failure_of(-200).error == "200"
