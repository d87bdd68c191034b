"""What a worker decides by itself: how long a lease is trusted, what is reported, and what is kept of a log."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import attempts as made

from clockhand import calling, errors
from clockhand.domain import protocol
from clockhand.worker import attempts, client, config, outcomes, processes, reports, runner, sdk, tail
from clockhand.worker.attempts import Ending

NO_LEASE = pytest.raises(asyncio.CancelledError)


@given(lease=st.integers(1, 3600))
def test_a_lease_is_not_trusted_to_its_end(lease: int) -> None:
    rhythm = attempts.Rhythm(lease, lease / 3)
    assert 100 < rhythm.trusted_until(100) < 100 + lease
    assert rhythm.wait <= lease / 3


def test_what_was_here_is_not_taken_again() -> None:
    table = attempts.Attempts(lambda: 0.0)
    first = table.take(made.run(), trusted_until=1)
    assert first is not None
    assert table.take(made.run(), trusted_until=1) is None
    table.forget(first)
    assert (len(table), table.take(made.run(), trusted_until=1)) == (0, None)
    assert table.take(made.run(token="8"), trusted_until=1) is not None


def test_what_was_here_is_remembered_for_longer_than_any_call_takes() -> None:
    now = 0.0
    table = attempts.Attempts(lambda: now)
    for number in range(300):  # one a second
        now = float(number)
        taken = table.take(made.run(token=str(number)), trusted_until=now + 1)
        assert taken is not None
        table.forget(taken)
    known = [number for number in range(300) if table.take(made.run(token=str(number)), trusted_until=now + 1) is None]
    assert known == list(range(known[0], 300))
    assert 60 <= len(known) <= 130


def test_the_first_reason_to_end_stays_but_for_a_lost_lease() -> None:
    asked, killed = [], []
    attempt = made.attempt()
    attempt.interrupt, attempt.kill = lambda: asked.append(attempt.ending), lambda: killed.append(attempt.ending)
    attempt.end(Ending.STOP, "Cancelled")
    attempt.end(Ending.TIMEOUT)
    assert (attempt.ending, attempt.reason, asked, killed) == (Ending.STOP, "Cancelled", [Ending.STOP], [])
    attempt.end(Ending.LOST)
    attempt.end(Ending.LOST)
    assert (attempt.ending, asked, killed) == (Ending.LOST, [Ending.STOP, Ending.LOST], [Ending.LOST])


def test_an_attempt_that_is_done_is_not_ended() -> None:
    attempt = made.attempt()
    attempt.done = True
    attempt.end(Ending.LOST)
    assert attempt.ending is None


class Begun:
    """A runner with places for 200, and what has begun in it; nothing is sent."""

    def __init__(self, clock: attempts.Clock = attempts.boot_time) -> None:
        self.tokens: list[str] = []
        self.attempts = attempts.Attempts(clock)
        settings = config.Settings(api_url="http://127.0.0.1:1", pool="team-a/mailers", worker_name="w", token="-")
        self.reports = reports.Reports(client.Api(settings), self.attempts, worker=settings.worker_name)
        self.runner = runner.Runner(
            {made.run().handler: self._call},
            attempts=self.attempts,
            reports=self.reports,
            rhythm=attempts.Rhythm(),
            beat=lambda _: made.beat(),
            concurrency=200,
        )

    def take(self, count: int) -> None:
        runs = [made.run(token=str(number)) for number in range(count)]
        self.runner.take(runs, self.attempts.clock())

    async def _call(self, attempt: attempts.Attempt, run: sdk.Run) -> object:
        self.tokens.append(attempt.run.token)
        return None

    def outcomes(self) -> list[tuple[str, protocol.Outcome]]:
        """What is to be reported, and is not a success."""
        told = [report for _, report in self.reports._batch()]
        return [(one.token, one.outcome) for one in told if one.outcome is not protocol.Outcome.SUCCEEDED]


async def test_others_have_their_turn_before_the_last_of_many_has_begun() -> None:
    here = Begun()
    here.take(150)
    assert here.runner.free == 50
    await asyncio.sleep(0)
    assert 0 < len(here.tokens) < 100
    for _ in range(10):
        await asyncio.sleep(0)
    assert here.tokens == [str(number) for number in range(150)]
    assert (here.runner.free, here.outcomes()) == (200, [])


async def test_what_was_ended_before_it_began_does_not_begin() -> None:
    here = Begun()
    here.take(210)  # ten more than there are places
    stopped, lost = (one for one in here.attempts if one.run.token in ("190", "191"))
    stopped.end(Ending.STOP, "Cancelled")
    here.attempts.lose(lost, "somebody else's")
    for _ in range(10):
        await asyncio.sleep(0)
    assert here.tokens == [str(number) for number in range(200) if number not in (190, 191)]
    assert here.outcomes() == [
        *((str(number), protocol.Outcome.RELEASED) for number in range(200, 210)),
        ("190", protocol.Outcome.DISRUPTED),
    ]


async def test_what_has_not_begun_when_the_worker_stops_is_given_back() -> None:
    """It is no disruption: nothing of it was done, and a run that may be tried only once is still to be."""
    here = Begun()
    here.take(200)
    await asyncio.sleep(0)
    await here.runner.drain(grace=10.0, hurry=asyncio.Event())
    assert 0 < len(here.tokens) < 200
    given_back = [str(number) for number in range(200) if str(number) not in here.tokens]
    assert here.outcomes() == [(token, protocol.Outcome.RELEASED) for token in given_back]


async def test_what_has_not_begun_when_its_lease_is_over_does_not_begin() -> None:
    """The process was frozen in between: the runs are others' by now."""
    now = 0.0
    here = Begun(lambda: now)
    here.take(200)
    await asyncio.sleep(0)
    begun = list(here.tokens)
    now = 3600.0
    for _ in range(10):
        await asyncio.sleep(0)
    assert 0 < len(begun) < 200
    assert (here.tokens, here.outcomes(), here.runner.free) == (begun, [], 200)


async def test_a_handler_goes_no_further_than_its_lease() -> None:
    steps, trusted = [], True

    async def handler() -> None:
        nonlocal trusted
        steps.append("begun")
        await asyncio.sleep(0)
        steps.append("went on")
        trusted = False
        await asyncio.sleep(0)
        steps.append("went too far")

    with NO_LEASE:
        await runner._leased(handler(), lambda: trusted)
    assert steps == ["begun", "went on"]


async def test_a_handler_is_otherwise_left_alone() -> None:
    async def handler() -> int:
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="mine"):
            await refuse()
        return await asyncio.wait_for(asyncio.shield(asyncio.sleep(0, 7)), 1)

    async def refuse() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    assert await runner._leased(handler(), lambda: True) == 7


@pytest.mark.parametrize(
    ("value", "result"), [(None, b"null"), ({"sent": 3}, b'{"sent":3}'), ("x", b'"x"'), (msgspec.Raw(b"[1]"), b"[1]")]
)
def test_what_a_handler_returns_is_the_result(value: object, result: bytes) -> None:
    report = outcomes.returned(made.attempt(), value, 1.5)
    assert (report.outcome, bytes(report.result), report.seconds) == (protocol.Outcome.SUCCEEDED, result, 1.5)
    assert (report.failure, report.log) == (None, None)


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (object(), "ResultNotJson", "the result cannot be written as JSON"),
        ({1j: 2}, "ResultNotJson", "the result cannot be written as JSON"),
        ("\ud800", "ResultNotJson", "the result cannot be written as JSON"),
        ("x" * 16_384, "ResultTooLarge", "the result has 16,386 bytes of JSON, 16,384 are allowed"),
    ],
)
def test_a_result_that_cannot_be_kept_is_a_failure(value: object, error: str, says: str) -> None:
    report = outcomes.returned(made.attempt(), value, 0)
    assert report.outcome is protocol.Outcome.FAILED
    assert report.failure is not None
    assert report.failure.error == error
    assert says in (report.failure.message or "")


class NoSuchUserError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (NoSuchUserError("ann"), protocol.Failure(error="NoSuchUserError", message="ann")),
        (TimeoutError(), protocol.Failure(error="TimeoutError")),
        (SystemExit(3), protocol.Failure(error="SystemExit", message="3")),
        (asyncio.CancelledError(), protocol.Failure(error="CancelledError")),
        (sdk.Fail("gone"), protocol.Failure(error="Fail", message="gone", fatal=True)),
        (sdk.Fail(error="NoUser"), protocol.Failure(error="NoUser", fatal=True)),
        (sdk.RetryAfter(30), protocol.Failure(error="RetryAfter", retry_after_seconds=30)),
        (sdk.RetryAfter(-1, "x"), protocol.Failure(error="RetryAfter", message="x", retry_after_seconds=0)),
        (sdk.RetryAfter(1e9), protocol.Failure(error="RetryAfter", retry_after_seconds=604_800)),
        (ValueError("a\0b\ud800"), protocol.Failure(error="ValueError", message="a\ufffdb?")),
        (outcomes.Failed(processes.failure_of(3)), processes.failure_of(3)),
    ],
)
def test_what_a_handler_raises_is_its_failure(error: BaseException, failure: protocol.Failure) -> None:
    report = outcomes.raised(made.attempt(), error, 0)
    assert (report.outcome, report.failure) == (protocol.Outcome.FAILED, failure)


def test_the_log_ends_with_the_handlers_trace() -> None:
    attempt = made.attempt()
    attempt.tail.write("before\n")
    try:
        raise NoSuchUserError("ann")
    except NoSuchUserError as error:
        log = outcomes.raised(attempt, error, 0).log
    assert log is not None
    assert log.startswith("before\nTraceback (most recent call last):\n")
    assert log.endswith("NoSuchUserError: ann\n")


@pytest.mark.parametrize(
    ("ending", "outcome", "error"),
    [
        (Ending.STOP, protocol.Outcome.DISRUPTED, "Stopped"),
        (Ending.DRAIN, protocol.Outcome.DISRUPTED, "WorkerStopped"),
        (Ending.TIMEOUT, protocol.Outcome.FAILED, "AttemptTimeout"),
    ],
)
def test_why_it_was_ended_counts_before_what_it_raised(ending: Ending, outcome: protocol.Outcome, error: str) -> None:
    attempt = made.attempt(timeout_seconds=5)
    attempt.end(ending)
    report = outcomes.raised(attempt, ValueError("in its clean-up"), 0)
    assert report.failure is not None
    assert (report.outcome, report.failure.error) == (outcome, error)


@pytest.mark.parametrize(
    ("code", "error", "exit_code"), [(3, "ExitCode", 3), (-9, "SIGKILL", 137), (-64, "SIGRTMAX", 192)]
)
def test_the_end_of_a_process_is_a_failure(code: int, error: str, exit_code: int) -> None:
    assert (processes.failure_of(code).error, processes.failure_of(code).exit_code) == (error, exit_code)


@given(st.lists(st.text(max_size=3000), max_size=60))
def test_the_tail_is_the_end_of_what_was_written(parts: list[str]) -> None:
    kept, whole = tail.Tail(), tail.clean("".join(parts))
    for part in parts:
        kept.write(part)
    text = kept.text() or ""
    assert whole.endswith(text)
    assert len(text.encode()) <= protocol.MAX_LOG_BYTES
    assert text == whole or len(text.encode()) > protocol.MAX_LOG_BYTES - 4


async def test_attempts_that_run_together_have_tails_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("app")
    log.setLevel(logging.INFO)

    async def handler(name: str) -> str | None:
        tail.current.set(kept := tail.Tail())
        log.info("%s logs", name)
        await asyncio.sleep(0)
        print(name, "prints")
        await asyncio.to_thread(sys.stderr.write, f"{name} complains\n")
        return kept.text()

    with tail.routed():
        ann, bob = await asyncio.gather(handler("ann"), handler("bob"))
        print("nobody's")
    assert ann == "INFO app: ann logs\nann prints\nann complains\n"
    assert bob == "INFO app: bob logs\nbob prints\nbob complains\n"
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["ann prints", "bob prints", "nobody's"]
    assert sorted(printed.err.splitlines()) == ["ann complains", "bob complains"]


def test_what_a_process_wrote_is_kept_once(capsys: pytest.CaptureFixture[str]) -> None:
    with tail.routed():
        tail.current.set(kept := tail.Tail())
        try:
            tail.keep(kept, "once\n")
        finally:
            tail.current.set(None)
    assert kept.text() == capsys.readouterr().err == "once\n"


def test_a_record_that_goes_to_a_routed_stream_is_kept_once() -> None:
    with tail.routed():
        handler = logging.StreamHandler(sys.stderr)
        logging.root.addHandler(handler)
        tail.current.set(kept := tail.Tail())
        try:
            logging.getLogger("app").warning("once")
        finally:
            tail.current.set(None)
            logging.root.removeHandler(handler)
    assert kept.text() == "once\n"


def test_a_token_is_read_again_where_it_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file = tmp_path / "token"
    file.write_text("old\n", encoding="utf-8")
    credential = calling.Credential(token=None, token_file=str(file))
    assert credential.header() == {"Authorization": "Bearer old"}
    file.write_text("new", encoding="utf-8")
    now += 10
    assert credential.header() == {"Authorization": "Bearer new"}
    file.unlink()
    now += 10
    with pytest.raises(errors.Refused, match="the token file cannot be read"):
        credential.header()


@given(failed=st.integers(1, 1000), asked=st.none() | st.floats(0, 3600))
def test_pauses_grow_and_keep_to_what_was_asked(failed: int, asked: float | None) -> None:
    wait = calling.pause(failed, errors.Unavailable("", retry_after=asked))
    assert 0.05 <= wait <= max(10.0, 1.2 * (asked or 0))
    assert wait >= (asked or 0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidInput),
        (413, errors.InvalidInput),
        (422, errors.InvalidInput),
        (401, errors.Refused),
        (403, errors.Refused),
        (404, errors.Refused),
        (302, errors.Refused),
        (408, errors.Unavailable),
        (429, errors.Unavailable),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_an_answer_says_what_to_do_next(status: int, kind: type[errors.ClockhandError]) -> None:
    error = client._error("claim", status, {"Retry-After": "7"})
    assert type(error) is kind
    assert getattr(error, "retry_after", 7) == 7
