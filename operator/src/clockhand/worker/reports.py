"""Reports go out together: what ends within some milliseconds is one request, repeated until it is answered."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence

import structlog

from clockhand import errors, metrics
from clockhand.domain import protocol
from clockhand.worker import client
from clockhand.worker.attempts import Attempt, Attempts, named

_GATHER_SECONDS = 0.02
_ENOUGH = 100
# below the API's limit of 1 MiB a body, whatever JSON makes of the characters of a log
_LARGEST_BODY = 900_000
log = structlog.get_logger(__name__)


class Reports:
    """The way out: `add` never waits; `run` sends, until it is cancelled."""

    def __init__(self, api: client.Api, attempts: Attempts, *, worker: str) -> None:
        self._api = api
        self._attempts = attempts
        self._worker = worker
        self._waiting: collections.deque[tuple[Attempt, protocol.Report]] = collections.deque()
        self._some, self._enough, self._none = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._none.set()

    def add(self, attempt: Attempt, report: protocol.Report) -> None:
        """Takes the end of an attempt, which is this worker's until that was answered."""
        self._waiting.append((attempt, report))
        self._none.clear()
        self._some.set()
        if len(self._waiting) >= _ENOUGH:
            self._enough.set()

    async def all_answered(self) -> None:
        """Waits until nothing is left to send."""
        self._enough.set()
        await self._none.wait()

    async def run(self) -> None:
        """Sends what comes in."""
        while True:
            await self._some.wait()
            if not self._enough.is_set():
                await self._gather()
            self._enough.clear()
            while batch := self._batch():
                await self._send(batch)
            self._some.clear()
            self._none.set()

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(_GATHER_SECONDS):
                await self._enough.wait()
        except TimeoutError:
            return

    def _batch(self) -> Sequence[tuple[Attempt, protocol.Report]]:
        """The next reports that fit in one request, less those of attempts that are not ours any more."""
        batch: list[tuple[Attempt, protocol.Report]] = []
        size = 0
        while self._waiting and len(batch) < protocol.MAX_RUNS:
            attempt, report = self._waiting[0]
            size += _weight(report)
            if batch and size > _LARGEST_BODY:
                break
            self._waiting.popleft()
            if self._attempts.get(attempt.key) is attempt:
                batch.append((attempt, report))
        return batch

    async def _send(self, batch: Sequence[tuple[Attempt, protocol.Report]]) -> None:
        request = protocol.ReportRequest(worker=self._worker, reports=tuple(report for _, report in batch))
        try:
            answer = await client.persist("report", lambda: self._api.report(request))
        except errors.InvalidInput as error:
            await self._apart(batch, str(error))
            return
        for outcome, count in collections.Counter(report.outcome for _, report in batch).items():
            metrics.WORKER_ATTEMPTS.labels(outcome=outcome).inc(count)
        for (attempt, report), reported in zip(batch, answer.reports, strict=False):
            self._attempts.forget(attempt)
            if not reported.accepted:
                told = {"outcome": report.outcome, "state": reported.state}
                log.warning("report_refused", **named(attempt.run), **told)

    async def _apart(self, batch: Sequence[tuple[Attempt, protocol.Report]], sentence: str) -> None:
        """One of them is not as it must be: each is sent alone, and that one as a failure that says so."""
        if len(batch) > 1:
            for one in batch:
                await self._send([one])
            return
        [(attempt, report)] = batch
        log.error("report_not_understood", **named(attempt.run), error=sentence)
        if report.failure is not None and report.failure.error == _REFUSED:
            self._attempts.forget(attempt)
            return
        await self._send([(attempt, _without_texts(report, sentence))])


_REFUSED = "ReportRefused"


def _without_texts(report: protocol.Report, sentence: str) -> protocol.Report:
    failure = protocol.Failure(error=_REFUSED, message=sentence[:1000])
    return protocol.Report(run_id=report.run_id, token=report.token, outcome=protocol.Outcome.FAILED, failure=failure)


def _weight(report: protocol.Report) -> int:
    """The bytes of a report at most: a character of a text may become six."""
    message = "" if report.failure is None else report.failure.message or ""
    return 512 + len(report.result) + 6 * (len(report.log or "") + len(message))
