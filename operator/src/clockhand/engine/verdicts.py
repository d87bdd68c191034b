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

from clockhand import metrics
from clockhand.domain import observed, outcome, pods, spec, states, verdict
from clockhand.engine import pauses, specs
from clockhand.store import database, runs

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
class Stored:
    """Attempts whose end was stored, and what that means for the jobs."""

    attempts: set[Attempt] = dataclasses.field(default_factory=set)
    jobs: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those in which another run may now go on."""
    pausing: pauses.Candidates = dataclasses.field(default_factory=pauses.Candidates)
    backfills: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those that may now make another run."""


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
    """Stores the verdicts over those attempts that are still open and ours."""
    stored = Stored()
    if not ended:
        return stored
    by_attempt = {item.attempt: item for item in ended}
    outcomes, records, stored_items = [], [], []
    for row in await runs.lock_open(connection, holder=holder, items=[item.key for item in ended]):
        item = by_attempt[(row.run_id, row.token)]
        stored.attempts.add((row.run_id, row.token))
        stored_items.append(item)
        plan = specs.of(row.spec)
        stored.pausing.expect(row.job_id, plan)
        decided = verdict.judge(plan, _open_run(row), item.end, now=now)
        outcomes.append(_outcome(row, decided, item))
        if decided.state is not states.RunState.SUCCEEDED:
            records.append(_record(row, item, logs.get((row.run_id, row.token))))
        if _has_successors(plan):
            stored.jobs.add(row.job_id)
    # a pod is seen again by every new holder, long after its outcome was stored; what a launch reports is not
    metrics.STALE_WRITES.inc(sum(item.pod is None for item in ended) - sum(item.pod is None for item in stored_items))
    await runs.record_attempts(connection, records, now=now)
    await runs.retry(connection, [one for one in outcomes if not one.state.is_over])
    for row in await runs.finish(connection, [one for one in outcomes if one.state.is_over], now=now):
        _note_over(stored, row)
    return stored


def _note_over(stored: Stored, row: Any) -> None:
    metrics.RUNS_ENDED.labels(state=row.state).inc()
    stored.pausing.note(row.job_id, kind=row.kind, state=row.state)
    if row.kind == states.RunKind.BACKFILL:
        stored.backfills.add(uuid.UUID(row.key))
    if not row.kept:
        metrics.HISTORY_CONFLICTS.inc()
        log.error("run_already_in_history", run=str(row.run_id))


def _has_successors(plan: spec.JobSpec) -> bool:
    one_at_a_time = plan.max_concurrent_runs is not None
    return (
        one_at_a_time
        or plan.concurrency_policy is not spec.ConcurrencyPolicy.ALLOW
        or plan.catch_up.policy is spec.CatchUpPolicy.ALL
    )


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


def _outcome(row: Any, decided: verdict.Verdict, item: Ended) -> runs.Outcome:
    # a pod can be over before anything else of it was stored
    pod = item.pod
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
        started_at=outcome.started_at_of(pod) if pod else None,
    )


def _record(row: Any, item: Ended, log_tail: str | None) -> runs.AttemptRecord:
    end = item.end
    timed_out = row.stop_reason in (states.Reason.ATTEMPT_TIMEOUT, states.Reason.PENDING_TIMEOUT)
    return runs.AttemptRecord(
        run_id=row.run_id,
        scheduled_at=row.scheduled_at,
        attempt=row.attempt,
        claimed_at=row.claimed_at,
        started_at=row.started_at or (outcome.started_at_of(item.pod) if item.pod else None),
        outcome="TimedOut" if timed_out else "Stopped" if row.stop_reason else _RECORDED[end.ending],
        reason=row.stop_reason or end.reason or end.ending.value,
        exit_code=end.exit_code,
        message=end.message,
        pod_name=pods.pod_name(row.job_name, row.run_id, row.attempt),
        node=row.node or (item.pod.spec.node_name or None if item.pod else None),
        log_tail=log_tail,
    )
