"""Which of a job's waiting runs may go on.

A place is held by every run that is Queued, Claimed, Running or Stopping: a Queued run has reserved its place, so a claim
never has to look at limits, and a Stopping one keeps its place until its pod is gone. Places are counted from the rows
each time, under the job's row lock; a counter would leak.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import datetime

from clockhand.domain import spec, states


@dataclasses.dataclass(frozen=True, slots=True)
class LiveRun:
    """What admission needs to know of a live run."""

    run_id: uuid.UUID
    state: states.RunState
    ready_at: datetime
    serial: bool = False
    backfill: bool = False
    """It is of a past slot that somebody asked for."""


def places(job: spec.JobSpec) -> int | None:
    """How many runs of `job` may hold a place at once; None: no limit.

    Forbid, Replace and Queue mean one at a time, so that a manual run waits its turn there as well.
    """
    if job.max_concurrent_runs is not None:
        return job.max_concurrent_runs
    return None if job.concurrency_policy is spec.ConcurrencyPolicy.ALLOW else 1


def taken(job: spec.JobSpec, live: Sequence[LiveRun]) -> int:
    """How many places are held. With Queue a Retrying run keeps its place, or a later slot would overtake it."""
    holding = states.HOLDS_PLACE
    if job.concurrency_policy is spec.ConcurrencyPolicy.QUEUE:
        holding = holding | {states.RunState.RETRYING}
    return sum(run.state in holding for run in live)


def promote(job: spec.JobSpec, live: Sequence[LiveRun], *, now: datetime) -> tuple[uuid.UUID, ...]:
    """The Blocked runs, and the Retrying ones whose back-off has ended, that may become Queued now, oldest first."""
    limit = places(job)
    held = taken(job, live)
    keeps_place = job.concurrency_policy is spec.ConcurrencyPolicy.QUEUE
    oldest = min((run.run_id for run in live), default=None)
    promoted = []
    for run in sorted(live, key=lambda run: run.run_id):
        if run.state is states.RunState.RETRYING:
            if run.ready_at > now:
                continue
            needs_place = not keeps_place
        elif run.state is states.RunState.BLOCKED:
            if run.serial and run.run_id != oldest:
                continue
            needs_place = True
        else:
            continue
        if needs_place and limit is not None:
            if held >= limit:
                continue
            held += 1
        promoted.append(run.run_id)
    return tuple(promoted)
