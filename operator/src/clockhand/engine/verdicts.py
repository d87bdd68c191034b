"""Attempts that are over get their verdict, and it is stored: in the run, the history, and a record of what went wrong.

All in the caller's one transaction. What it means for others, a place that is free or a pause that is due, is only noted
here: it is acted upon once this is stored.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from clockhand import logs, metrics, tracing
from clockhand.domain import observed, outcome, pods, states, verdict
from clockhand.engine import endings, pauses, specs
from clockhand.store import database, runs, status

log = structlog.get_logger(__name__)

Attempt = tuple[uuid.UUID, int]
"""Run and token: what tells an attempt from every other one."""
_RECORDED = {
    verdict.Ending.SUCCEEDED: "Stopped",
    verdict.Ending.FAILED: "Failed",
    verdict.Ending.DISRUPTED: "Disrupted",
    verdict.Ending.GONE: "Unseen",
    verdict.Ending.NEVER_STARTED: "Stopped",
    verdict.Ending.REFUSED: "Refused",
    verdict.Ending.NAME_TAKEN: "Refused",
    verdict.Ending.NAMESPACE_DELETED: "Stopped",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over, as seen; `pod` is None where there is none to read a log from."""

    key: runs.Key
    end: verdict.AttemptEnd
    pod: observed.Pod | None = None

    @property
    def attempt(self) -> Attempt:
        return self.key.run_id, self.key.token


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """How an attempt ended, and what else is known of it. What its worker has `reported`, the worker may report again."""

    end: verdict.AttemptEnd
    pod: observed.Pod | None = None
    started_at: datetime | None = None
    log_tail: str | None = None
    reported: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """Attempts whose end was stored, and what that means for the jobs."""

    attempts: dict[Attempt, str] = dataclasses.field(default_factory=dict)
    """With the state that the run is in now."""
    jobs: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those in which another run may now go on."""
    pausing: pauses.Candidates = dataclasses.field(default_factory=pauses.Candidates)
    backfills: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those that may now make another run."""

    @property
    def calls_for_more(self) -> bool:
        """Whether anything is to be done about the rest."""
        return bool(self.jobs or self.backfills or self.pausing.dead or self.pausing.succeeded_by_hand)

    def join(self, other: Stored) -> None:
        """Takes over what `other` calls for: each job counts once, however many of its attempts have ended."""
        self.jobs.update(other.jobs)
        self.pausing.join(other.pausing)
        self.backfills.update(other.backfills)

    def note_over(self, row: Any) -> None:
        """Takes note of a run that is over."""
        self.attempts[(row.run_id, row.token)] = row.state
        self.pausing.note(row.job_id, kind=row.kind, state=row.state)
        if row.followed:
            self.jobs.add(row.job_id)
        if row.kind == states.RunKind.BACKFILL:
            self.backfills.add(uuid.UUID(row.key))
        if not row.kept:
            metrics.HISTORY_CONFLICTS.inc()
            log.error("run_already_in_history", **logs.of_run(row.run_id, attempt=row.attempt))


def end_of(pod: observed.Pod) -> verdict.AttemptEnd | None:
    """How the attempt of `pod` ended, None while it has not."""
    asked = pod.metadata.deletion_timestamp is not None
    match outcome.classify(pod):
        case outcome.Succeeded():
            return verdict.AttemptEnd(verdict.Ending.SUCCEEDED, asked=asked)
        case outcome.Failed(reason=reason, exit_code=code, message=message):
            return verdict.AttemptEnd(verdict.Ending.FAILED, reason, code, message or None, asked)
        case outcome.Disrupted(reason=reason, exit_code=code, message=message):
            return verdict.AttemptEnd(verdict.Ending.DISRUPTED, reason, code, message or None, asked)
    return None


async def store(
    connection: database.Connection,
    holder: runs.Holder,
    ended: Sequence[Ended],
    logs: Mapping[Attempt, str],
    *,
    now: datetime,
) -> Stored:
    """Stores the verdicts over those attempts of pods that are still open and ours."""
    if not ended:
        return Stored()
    rows = await runs.lock_open(connection, holder=holder, items=[item.key for item in ended])
    found = {one.attempt: Finding(one.end, one.pod, log_tail=logs.get(one.attempt)) for one in ended}
    stored = await conclude(connection, rows, found, now=now)
    # a pod is seen again by every new holder, long after its outcome was stored; what a launch reports is not
    metrics.STALE_WRITES.inc(sum(item.pod is None and item.attempt not in stored.attempts for item in ended))
    return stored


async def conclude(
    connection: database.Connection,
    rows: Sequence[Any],
    findings: Mapping[Attempt, Finding],
    *,
    now: datetime,
    successes: Sequence[runs.Outcome] = (),
) -> Stored:
    """Stores the verdicts over the attempts of `rows`, which the caller has locked, by what was found of them.

    `successes` are workers' and stored as they are, of those that are still open: nothing has to be read for them.
    """
    began = tracing.now()
    stored = Stored()
    outcomes, records, again = [], [], []
    for row in rows:
        found = findings[(row.run_id, row.token)]
        plan = specs.of(row.spec)
        stored.pausing.expect(row.job_id, plan)
        decided = verdict.judge(plan, _open_run(row), found.end, now=now)
        stored.attempts[(row.run_id, row.token)] = decided.state
        outcomes.append(_outcome(row, decided, found))
        if decided.state is not states.RunState.SUCCEEDED:
            records.append(_record(row, found))
        if not decided.state.is_over:
            again.append((row, decided))
        if row.followed:
            stored.jobs.add(row.job_id)
    await runs.record_attempts(connection, records, now=now)
    await runs.retry(connection, [one for one in outcomes if not one.state.is_over])
    over = [*successes, *(one for one in outcomes if one.state.is_over)]
    ended = await runs.finish(connection, over, now=now, named=tracing.on())
    for row in ended:
        stored.note_over(row)
    failed = [(row.job_id, row.run_id, row.attempt) for row, _ in again if row.owner.startswith("k8s/")]
    await status.note_failed(connection, failed, now=now)
    for row, decided in again:
        endings.tell_again(row, decided, findings[(row.run_id, row.token)].end, now=now)
    endings.tell_over(ended, began=began, now=now)
    return stored


def _open_run(row: Any) -> verdict.OpenRun:
    return verdict.OpenRun(
        run_id=row.run_id,
        state=states.RunState(row.state),
        attempt=row.attempt,
        failures=row.failures,
        disruptions=row.disruptions,
        stop_reason=row.stop_reason,
        job_is_deleted=row.job_is_deleted,
    )


def _outcome(row: Any, decided: verdict.Verdict, found: Finding) -> runs.Outcome:
    # a pod can be over before anything else of it was stored
    pod = found.pod
    return runs.Outcome(
        run_id=row.run_id,
        token=row.token,
        state=decided.state,
        reason=decided.reason,
        message=decided.message,
        failures=decided.failures,
        disruptions=decided.disruptions,
        ready_at=decided.ready_at,
        pod_uid=uuid.UUID(pod.metadata.uid) if pod else None,
        node=pod.spec.node_name or None if pod else None,
        created_at=pod.metadata.creation_timestamp if pod else None,
        started_at=_started_at(found),
        pool=row.pool,
        worker=row.worker,
        reported=found.reported,
    )


def _record(row: Any, found: Finding) -> runs.AttemptRecord:
    end = found.end
    timed_out = row.stop_reason in (states.Reason.ATTEMPT_TIMEOUT, states.Reason.PENDING_TIMEOUT)
    return runs.AttemptRecord(
        run_id=row.run_id,
        scheduled_at=row.scheduled_at,
        attempt=row.attempt,
        claimed_at=row.claimed_at,
        started_at=row.started_at or _started_at(found),
        outcome="TimedOut" if timed_out else "Stopped" if row.stop_reason else _RECORDED[end.ending],
        reason=row.stop_reason or end.reason or end.ending.value,
        exit_code=end.exit_code,
        message=end.message,
        pod_name=pods.pod_name(row.job_name, row.run_id, row.attempt) if row.pool is None else None,
        node=row.node or (found.pod.spec.node_name or None if found.pod else None),
        log_tail=found.log_tail,
        worker=row.worker,
        token=row.token if found.reported else None,
    )


def _started_at(found: Finding) -> datetime | None:
    return outcome.started_at_of(found.pod) if found.pod else found.started_at
