"""Ends of attempts, as workers report them.

Reports of all workers are stored together, a batch in one transaction. A success is taken at its word: the run is over
without having been read. Everything else gets its verdict. A report whose attempt is not open any more is looked up: if
the same was stored of that attempt before, the answer was lost and is given again; else somebody newer has the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from clockhand import errors, metrics
from clockhand.domain import documents, ids, protocol, states, texts, verdict
from clockhand.domain.protocol import Outcome
from clockhand.engine import aftermath, verdicts
from clockhand.engine.pools import intake, messages
from clockhand.store import database, leases, runs

BATCH = 500
_ERROR_BYTES, _MESSAGE_BYTES = 256, 4_096
_LONGEST_SECONDS = 1e9
_NOTHING = b"null"
_KEPT_AS: Mapping[Outcome, frozenset[str]] = {
    Outcome.FAILED: frozenset({"Failed", "TimedOut", "Stopped"}),
    Outcome.DISRUPTED: frozenset({"Disrupted", "TimedOut", "Stopped"}),
}

Queued = Callable[[Collection[tuple[str, str]]], None]
"""Is told of pools and handlers for which runs have become Queued."""


class _Item(NamedTuple):
    key: verdicts.Attempt
    attempt: leases.Attempt
    report: protocol.Report


class Reports:
    """Stores reports with `step`, batch by batch, and acts on what they mean for others with `follow_step`."""

    def __init__(self, db: database.Database, *, after: aftermath.Aftermath, queued: Queued) -> None:
        self._db = db
        self._queued = queued
        self._aftermath = after
        self._left = verdicts.Stored()
        self._followed = asyncio.Event()
        self._intake: intake.Intake[_Item, protocol.Reported] = intake.Intake(self._store, most=BATCH)
        self.step = self._intake.step
        self.close = self._intake.close

    async def submit(self, pool: str, request: protocol.ReportRequest) -> protocol.ReportAnswer:
        """Ends what the worker reports on; returns once that is stored.

        Raises InvalidInput, and stores nothing of the request, where something in it cannot be stored.
        """
        for index, report in enumerate(request.reports):
            _check(report, at=f"reports[{index}]")
        items = [_item(one, pool, request.worker) for one in request.reports]
        return protocol.ReportAnswer(reports=tuple(await self._intake.submit(items)))

    async def follow_step(self) -> float:
        """Pauses, successors and backfills, as soon as something has been stored that calls for them."""
        await self._followed.wait()
        self._followed.clear()
        left, self._left = self._left, verdicts.Stored()
        try:
            await self._aftermath.follow(left)
        except errors.ClockhandError:
            self._call_for(left)
            raise
        return 0.0

    def _call_for(self, stored: verdicts.Stored) -> None:
        # joined, so that however far this falls behind there is no more of it than there are jobs
        self._left.join(stored)
        self._followed.set()

    async def _store(self, items: Sequence[_Item]) -> Sequence[protocol.Reported]:
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            first = await _first(connection, sorted(items, key=lambda item: item.report.run_id.int))
            released = await _release(connection, first.values())
            done: dict[verdicts.Attempt, str] = {(row.run_id, row.token): states.RunState.QUEUED for row in released}
            stored = await _conclude(connection, [one for one in first.values() if one.key not in done], now=now)
            done |= stored.attempts
            taken = {id(item) for item in first.values() if item.key in done}
            kept = await _recall(connection, [item for item in items if id(item) not in taken])
        if released:
            self._queued({(row.pool, row.handler) for row in released})
        if stored.calls_for_more:
            self._call_for(stored)
        return [
            _reported(item, accepted=True, state=done[item.key])
            if id(item) in taken
            else _repeated(item, kept.get(item.key))
            for item in items
        ]


def _item(report: protocol.Report, pool: str, worker: str) -> _Item:
    token = messages.read_token(report.token)
    return _Item((report.run_id, token), leases.Attempt(report.run_id, token, pool, worker), report)


async def _release(connection: database.Connection, items: Collection[_Item]) -> Sequence[Any]:
    unbegun = [item.attempt for item in items if item.report.outcome is Outcome.RELEASED]
    return await leases.release(connection, unbegun)


async def _first(connection: database.Connection, items: Sequence[_Item]) -> Mapping[verdicts.Attempt, _Item]:
    """The first report of each attempt. Where several workers name its token, that of the worker who has it counts."""
    first: dict[verdicts.Attempt, _Item] = {}
    rivals = [item for item in items if first.setdefault(item.key, item).attempt != item.attempt]
    if rivals:
        named = {item.key for item in rivals}
        contested = [item for item in items if item.key in named]
        rows = await leases.lock_open(connection, [item.attempt for item in contested])
        held = {leases.Attempt(row.run_id, row.token, row.pool, row.worker) for row in rows}
        first |= {item.key: item for item in reversed(contested) if item.attempt in held}
    return first


async def _conclude(connection: database.Connection, items: Collection[_Item], *, now: datetime) -> verdicts.Stored:
    unwell = {item.key: item for item in items if item.report.outcome is not Outcome.SUCCEEDED}
    rows = await leases.lock_open(connection, [item.attempt for item in unwell.values()])
    findings = {key: _finding(item.report, now) for key, item in unwell.items()}
    well = [_success(item, now) for item in items if item.report.outcome is Outcome.SUCCEEDED]
    return await verdicts.conclude(connection, rows, findings, successes=well, now=now)


async def _recall(connection: database.Connection, items: Collection[_Item]) -> Mapping[verdicts.Attempt, Any]:
    known = [item.attempt for item in items if ids.names_instant(item.attempt.run_id)]
    if not known:
        return {}
    return {(row.run_id, row.token): row for row in await leases.recall(connection, known)}


def _repeated(item: _Item, kept: Any | None) -> protocol.Reported:
    outcome = item.report.outcome
    same = kept is not None and (
        kept.succeeded if outcome is Outcome.SUCCEEDED else kept.outcome in _KEPT_AS.get(outcome, ())
    )
    # a release leaves nothing behind by which it would be known
    if not same and outcome is not Outcome.RELEASED:
        metrics.STALE_WRITES.inc()
    return _reported(item, accepted=same, state=None if kept is None else kept.state)


def _reported(item: _Item, *, accepted: bool, state: str | None) -> protocol.Reported:
    return protocol.Reported(run_id=item.report.run_id, token=item.report.token, accepted=accepted, state=state)


def _success(item: _Item, now: datetime) -> runs.Outcome:
    result = bytes(item.report.result)
    return runs.Outcome(
        run_id=item.attempt.run_id,
        token=item.attempt.token,
        state=states.RunState.SUCCEEDED,
        started_at=_started_at(item.report, now),
        pool=item.attempt.pool,
        worker=item.attempt.worker,
        reported=True,
        result=None if result == _NOTHING else result.decode(),
    )


def _finding(report: protocol.Report, now: datetime) -> verdicts.Finding:
    return verdicts.Finding(
        end=_end(report),
        started_at=_started_at(report, now),
        log_tail=None if report.log is None else texts.tail(report.log, protocol.MAX_LOG_BYTES),
        reported=True,
    )


def _end(report: protocol.Report) -> verdict.AttemptEnd:
    failure = report.failure or protocol.Failure()
    message = None if failure.message is None else texts.head(failure.message, _MESSAGE_BYTES)
    if report.outcome is Outcome.FAILED:
        wait = failure.retry_after_seconds
        return verdict.AttemptEnd(
            verdict.Ending.FAILED,
            reason=texts.head(failure.error, _ERROR_BYTES),
            exit_code=failure.exit_code,
            message=message,
            fatal=failure.fatal,
            retry_after=None if wait is None else timedelta(seconds=wait),
        )
    ending = verdict.Ending.DISRUPTED if report.outcome is Outcome.DISRUPTED else verdict.Ending.NEVER_STARTED
    return verdict.AttemptEnd(ending, reason=states.Reason.WORKER_STOPPED, message=message)


def _started_at(report: protocol.Report, now: datetime) -> datetime | None:
    return None if report.seconds is None else now - timedelta(seconds=min(report.seconds, _LONGEST_SECONDS))


def _check(report: protocol.Report, *, at: str) -> None:
    result = bytes(report.result)
    if result != _NOTHING:
        if report.outcome is not Outcome.SUCCEEDED:
            raise errors.InvalidInput(f"{at}.result", "goes with outcome Succeeded alone: leave it out")
        _check_result(result, at=f"{at}.result")
    if report.failure is not None and report.outcome not in (Outcome.FAILED, Outcome.DISRUPTED):
        raise errors.InvalidInput(f"{at}.failure", "goes with outcomes Failed and Disrupted alone: leave it out")


def _check_result(result: bytes, *, at: str) -> None:
    if len(result) > protocol.MAX_RESULT_BYTES:
        sentence = f"is {len(result)} bytes, more than {protocol.MAX_RESULT_BYTES}: return a reference to the data"
        raise errors.InvalidInput(at, sentence)
    try:
        value = msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError) as error:
        raise errors.InvalidInput(at, f"cannot be read as JSON: {error}") from error
    documents.check_text(value, at=at)
