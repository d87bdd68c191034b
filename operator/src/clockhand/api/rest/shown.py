"""From rows about runs to what REST shows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from clockhand.api.runs import objects
from clockhand.domain import resources
from clockhand.store import listing


def run(row: listing.Run, *, result: Any = None) -> resources.Run:
    """A run; `result` is what its handler returned."""
    late = objects.lateness(row)
    return resources.Run(
        id=row.run_id,
        name=row.name,
        job=row.job_name,
        job_id=row.job_id,
        owner=row.owner,
        kind=row.kind,
        state=row.state,
        scheduled_at=row.scheduled_at,
        created_at=row.created_at,
        labels=row.labels,
        reason=row.reason,
        message=row.message,
        attempt=row.attempt,
        failures=row.failures,
        disruptions=row.disruptions,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        finished_at=None if row.state == listing.SKIPPED else row.finished_at,
        lateness_seconds=None if late is None else round(late, 3),
        worker=row.worker,
        pod=objects.pod_name(row),
        node=row.node,
        first_skipped_at=row.first_at,
        count=row.count,
        result=msgspec.UNSET if result is None else result,
        backfill=None if row.backfill is None else _backfill(row.backfill),
    )


def _backfill(row: listing.Backfill) -> Mapping[str, Any]:
    reached = {} if row.reached_at is None else {"reachedAt": row.reached_at}
    return {
        "from": row.span.first,
        "to": row.span.last,
        "order": row.span.order,
        "concurrency": row.concurrency,
        "slots": row.slots,
        "made": row.made,
        "passed": row.passed,
        "succeeded": row.succeeded,
        "failed": row.failed,
        **reached,
    }


def attempt(row: Any) -> resources.Attempt:
    """An attempt, by a row of `listing.attempts`."""
    return resources.Attempt(
        attempt=row.attempt,
        outcome=row.outcome,
        reason=row.reason,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        message=row.message,
        pod=row.pod_name,
        node=row.node,
        worker=row.worker,
        logged=row.logged,
    )
