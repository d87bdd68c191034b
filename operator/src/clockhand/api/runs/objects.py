"""From a row to a `Run` object, as a whole or as metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from clockhand.api.runs import group, selection
from clockhand.domain import instants, pods, states
from clockhand.store import listing

Json = dict[str, Any]
_COMPLETE = frozenset({states.RunState.SUCCEEDED.value})
_FAILED = frozenset({states.RunState.DEAD.value, states.RunState.CANCELLED.value, states.RunState.UNKNOWN.value})


def run_object(run: listing.Run, version: int) -> Json:
    """The object as lists and watches carry it."""
    return {
        "apiVersion": group.API_VERSION,
        "kind": group.KIND,
        "metadata": metadata(run, version),
        "spec": _spec(run),
        "status": _status(run) if run.backfill is None else _backfill_status(run, run.backfill),
    }


def detailed(run: listing.Run, version: int, *, payload: Any, result: Any, attempts: Sequence[Any]) -> Json:
    """The object as a single GET carries it: with what lists leave out."""
    whole = run_object(run, version)
    if payload is not None:
        whole["spec"]["payload"] = payload
    if result is not None:
        whole["status"]["result"] = result
    if attempts:
        whole["status"]["attempts"] = [_attempt(row) for row in attempts]
    return whole


def metadata_object(run: listing.Run, version: int, *, api: str = "v1") -> Json:
    """A PartialObjectMetadata."""
    return {
        "apiVersion": f"meta.k8s.io/{api}",
        "kind": "PartialObjectMetadata",
        "metadata": metadata(run, version),
    }


def metadata(run: listing.Run, version: int) -> Json:
    return {
        "name": run.name,
        "namespace": group.namespace_of(run.owner),
        "uid": str(run.run_id),
        "resourceVersion": str(version),
        "creationTimestamp": instants.rfc3339(run.created_at),
        "labels": selection.shown_labels(run),
    }


def pod_name(run: listing.Run) -> str | None:
    """The newest attempt's pod; None before the first claim, and where workers make the attempts."""
    return None if run.pooled or run.attempt == 0 else pods.pod_name(run.job_name, run.run_id, run.attempt)


def lateness(run: listing.Run) -> float | None:
    """Seconds from the scheduled instant until the first attempt's pod was accepted or a worker had it; a backfill's run
    has none."""
    if run.launched_at is None or run.kind == states.RunKind.BACKFILL:
        return None
    return max(0.0, (run.launched_at - run.scheduled_at).total_seconds())


def _spec(run: listing.Run) -> Json:
    if run.backfill is None:
        return {"job": run.job_name, "kind": run.kind, "scheduledTime": instants.rfc3339_ms(run.scheduled_at)}
    span = run.backfill.span
    asked = {
        "from": instants.rfc3339_ms(span.first),
        "to": instants.rfc3339_ms(span.last),
        "order": str(span.order),
        "concurrency": run.backfill.concurrency,
    }
    return {"job": run.job_name, "backfill": asked}


def _backfill_status(run: listing.Run, backfill: listing.Backfill) -> Json:
    values: Mapping[str, Any] = {
        "state": run.state,
        "reason": run.reason,
        "message": run.message,
        "completionTime": _maybe(run.finished_at),
        "backfill": {
            "slots": backfill.slots,
            "made": backfill.made,
            "passed": backfill.passed,
            "succeeded": backfill.succeeded,
            "failed": backfill.failed,
            **({} if backfill.reached_at is None else {"reachedTime": instants.rfc3339_ms(backfill.reached_at)}),
        },
        "conditions": _conditions(run) or None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _status(run: listing.Run) -> Json:
    late = lateness(run)
    values: Mapping[str, Any] = {
        "state": run.state,
        "reason": run.reason,
        "message": run.message,
        "attempt": run.attempt,
        "failures": run.failures,
        "disruptions": run.disruptions,
        "claimedTime": _maybe(run.claimed_at),
        "launchedTime": _maybe(run.launched_at),
        "startTime": _maybe(run.started_at),
        "completionTime": None if run.state == listing.SKIPPED else _maybe(run.finished_at),
        "latenessSeconds": None if late is None else round(late, 3),
        "podName": pod_name(run),
        "node": run.node,
        "worker": run.worker,
        "firstSkippedTime": _maybe(run.first_at),
        "count": run.count,
        "conditions": _conditions(run) or None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _conditions(run: listing.Run) -> list[Json]:
    if run.finished_at is None or run.state == listing.SKIPPED:
        return []
    return [
        _condition(run, "Complete", run.state in _COMPLETE),
        _condition(run, "Failed", run.state in _FAILED),
    ]


def _condition(run: listing.Run, kind: str, holds: bool) -> Json:
    assert run.finished_at is not None
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "lastTransitionTime": instants.rfc3339(run.finished_at),
        "reason": run.reason or run.state,
        "message": run.message or "",
    }


def _attempt(row: Any) -> Json:
    values = {
        "attempt": row.attempt,
        "outcome": row.outcome,
        "reason": row.reason,
        "message": row.message,
        "exitCode": row.exit_code,
        "podName": row.pod_name,
        "node": row.node,
        "worker": row.worker,
        "claimedTime": instants.rfc3339_ms(row.claimed_at),
        "startTime": _maybe(row.started_at),
        "endTime": instants.rfc3339_ms(row.ended_at),
        "logged": row.logged,
    }
    return {key: value for key, value in values.items() if value is not None}


def _maybe(value: datetime | None) -> str | None:
    return None if value is None else instants.rfc3339_ms(value)
