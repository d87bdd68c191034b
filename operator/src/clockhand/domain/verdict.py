"""What an attempt's end means for its run: over, or another attempt, and when.

Failures are charged against `retry.maxAttempts`. Disruptions (eviction, node loss, a vanished pod, a worker that fell
silent, an Ignore rule) are nobody's fault and have a limit of their own. With `delivery: AtMostOnce` an attempt that may
have started is the last one: a failure that was seen is Dead, anything unseen is Unknown.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from clockhand.domain import spec, states


class Ending(enum.StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"  # seen to fail
    DISRUPTED = "Disrupted"  # ended from outside; whether its work was done is not known
    GONE = "Gone"  # the pod is not there or the worker has fallen silent, and no outcome was seen
    NEVER_STARTED = "NeverStarted"  # no pod was ever accepted for this attempt, no worker began it
    REFUSED = "Refused"  # the API server will never take this pod
    NAME_TAKEN = "NameTaken"  # a foreign pod has its name
    NAMESPACE_DELETED = "NamespaceDeleted"


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptEnd:
    """What was seen of the end. `asked` is true where the pod was already being deleted when it ended.

    A handler can say that it is `fatal`, or that the next attempt is to come after `retry_after`. `alone` is true of an
    attempt that is gone where its worker held nothing else: most likely the attempt took the worker with it.
    """

    ending: Ending
    reason: str = ""
    exit_code: int | None = None
    message: str | None = None
    asked: bool = False
    fatal: bool = False
    retry_after: timedelta | None = None
    alone: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class OpenRun:
    """What the verdict needs to know of a run whose attempt is open."""

    run_id: uuid.UUID
    state: states.RunState
    attempt: int
    failures: int
    disruptions: int
    stop_reason: str | None
    job_is_deleted: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The run's next state. `ready_at` is when the next attempt may be claimed, for Retrying alone."""

    state: states.RunState
    reason: str | None
    message: str | None
    failures: int
    disruptions: int
    ready_at: datetime | None = None


_TIMEOUTS = (states.Reason.ATTEMPT_TIMEOUT, states.Reason.PENDING_TIMEOUT)


def judge(job: spec.JobSpec, run: OpenRun, end: AttemptEnd, *, now: datetime) -> Verdict:
    """The verdict over `run` after its attempt ended as `end` says, at database time `now`."""
    if end.ending is Ending.SUCCEEDED and not (end.asked and run.stop_reason):
        return _over(run, states.RunState.SUCCEEDED, None, None)
    if end.ending is Ending.NAMESPACE_DELETED:
        return _over(run, states.RunState.CANCELLED, states.Reason.NAMESPACE_DELETED, end.message)
    if run.stop_reason is not None:
        return _stopped(job, run, end, now)
    if end.ending in (Ending.DISRUPTED, Ending.GONE, Ending.NEVER_STARTED) and not _to_blame(job, end):
        return _disrupted(job, run, end, now)
    return _failed(job, run, end, now)


def backoff(job: spec.JobSpec, run: OpenRun, *, tries: int) -> timedelta:
    """How long to wait after the `tries`-th unsuccessful attempt: exponential, capped, with a jitter of the run's own."""
    rule = job.retry.backoff
    exponent = min(max(tries - 1, 0), 64)
    seconds = min(rule.initial_seconds * rule.factor**exponent, rule.max_seconds)
    spread = hashlib.sha256(run.run_id.bytes + run.attempt.to_bytes(4, "big")).digest()
    share = int.from_bytes(spread[:4], "big") / 2**32
    return timedelta(seconds=seconds * (1 + rule.jitter * (2 * share - 1)))


def _stopped(job: spec.JobSpec, run: OpenRun, end: AttemptEnd, now: datetime) -> Verdict:
    reason = run.stop_reason
    unseen = end.ending in (Ending.GONE, Ending.DISRUPTED)
    if unseen and _at_most_once(job):
        return _over(run, states.RunState.UNKNOWN, states.Reason.OUTCOME_UNSEEN, f"stopped: {reason}")
    if reason in _TIMEOUTS:
        seen = None if unseen else end.message
        return _failed(job, run, dataclasses.replace(end, reason=reason, exit_code=None, message=seen), now)
    message = None if unseen else end.message  # that its pod went away is what stopping it means
    if reason == states.Reason.RUN_TIMEOUT:
        return _over(run, states.RunState.DEAD, reason, message)
    return _over(run, states.RunState.CANCELLED, reason, message)


def _failed(job: spec.JobSpec, run: OpenRun, end: AttemptEnd, now: datetime) -> Verdict:
    charged = dataclasses.replace(run, failures=run.failures + 1)
    if end.ending is Ending.REFUSED:
        return _over(charged, states.RunState.DEAD, states.Reason.POD_REFUSED, end.message)
    if end.fatal:
        return _over(charged, states.RunState.DEAD, states.Reason.HANDLER_FAILED, _told(end))
    action = _action(job.retry.rules, end)
    if action is spec.RuleAction.IGNORE and not _at_most_once(job):
        return _disrupted(job, run, end, now)
    if action is spec.RuleAction.FAIL:
        return _over(charged, states.RunState.DEAD, states.Reason.FAIL_RULE, _told(end))
    if _at_most_once(job) or charged.failures >= job.retry.max_attempts:
        reason = end.reason if end.reason in _TIMEOUTS else states.Reason.ATTEMPTS_USED
        return _over(charged, states.RunState.DEAD, reason, _told(end))
    return _again(job, charged, end, now, tries=charged.failures)


def _disrupted(job: spec.JobSpec, run: OpenRun, end: AttemptEnd, now: datetime) -> Verdict:
    if _at_most_once(job) and end.ending is not Ending.NEVER_STARTED:
        return _over(run, states.RunState.UNKNOWN, states.Reason.OUTCOME_UNSEEN, _told(end))
    charged = dataclasses.replace(run, disruptions=run.disruptions + 1)
    if charged.disruptions > job.retry.max_disruptions:
        return _over(charged, states.RunState.DEAD, states.Reason.DISRUPTED, _told(end))
    return _again(job, charged, end, now, tries=charged.disruptions)


def _again(job: spec.JobSpec, run: OpenRun, end: AttemptEnd, now: datetime, *, tries: int) -> Verdict:
    if run.job_is_deleted:
        return _over(run, states.RunState.DEAD, states.Reason.JOB_DELETED, _told(end))
    return Verdict(
        state=states.RunState.RETRYING,
        reason=end.reason or end.ending,
        message=_told(end),
        failures=run.failures,
        disruptions=run.disruptions,
        ready_at=now + (backoff(job, run, tries=tries) if end.retry_after is None else end.retry_after),
    )


def _over(run: OpenRun, state: states.RunState, reason: str | None, message: str | None) -> Verdict:
    return Verdict(state, reason, message, run.failures, run.disruptions)


def _told(end: AttemptEnd) -> str | None:
    facts = [end.reason or end.ending.value]
    if end.exit_code is not None:
        facts.append(f"exit code {end.exit_code}")
    if end.message:
        facts.append(end.message)
    return ": ".join(facts)


def _action(rules: Sequence[spec.Rule], end: AttemptEnd) -> spec.RuleAction:
    for rule in rules:
        if end.exit_code in rule.on_exit_codes or end.reason in rule.on_errors:
            return rule.action
    return spec.RuleAction.RETRY


def _to_blame(job: spec.JobSpec, end: AttemptEnd) -> bool:
    """Whether the attempt counts as failed although no outcome of it was seen."""
    return end.alone and not _at_most_once(job)


def _at_most_once(job: spec.JobSpec) -> bool:
    return job.delivery is spec.Delivery.AT_MOST_ONCE
