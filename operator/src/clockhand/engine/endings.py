"""What logs and traces tell of attempts that are over: a line for each that did not end well, a span for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import structlog

from clockhand import logs, tracing
from clockhand.domain import states, verdict

log = structlog.get_logger(__name__)


def tell_again(row: Any, decided: verdict.Verdict, end: verdict.AttemptEnd, *, now: datetime) -> None:
    """An attempt failed, and its run goes on."""
    about = logs.of_run(row.run_id, name=row.name, job=row.job_name, owner=row.owner, attempt=row.attempt)
    log.info("attempt_failed", **about, reason=decided.reason, exit_code=end.exit_code, again_at=str(decided.ready_at))
    told = {"clockhand.state": "Failed", "clockhand.reason": decided.reason or "", "clockhand.job": row.job_name}
    tracing.attempt_over(row.run_id, row.attempt, began=row.claimed_at, ended=now, attributes=told)


def tell_over(rows: Sequence[Any], *, began: int, now: datetime) -> None:
    """Runs are over, as was stored from `began` on. That one went well is no line."""
    for row in rows:
        if row.state != states.RunState.SUCCEEDED:
            about = logs.of_run(row.run_id, name=row.name, job=row.job_name, owner=row.owner, attempt=row.attempt)
            log.warning("run_ended", **about, state=row.state, reason=row.reason)
        if tracing.on():
            _trace(row, began, now)


def _trace(row: Any, began: int, now: datetime) -> None:
    told = {"clockhand.state": row.state, "clockhand.reason": row.reason or "", "clockhand.job": row.job_name}
    tracing.part_over("report", row.run_id, row.attempt, began=began, attributes={"clockhand.job": row.job_name})
    if row.claimed_at is not None:
        tracing.attempt_over(row.run_id, row.attempt, began=row.claimed_at, ended=now, attributes=told)
    tracing.run_over(row.run_id, now, {**told, "clockhand.run": row.name, "clockhand.owner": row.owner})
