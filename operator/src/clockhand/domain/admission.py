"""Which of a job's waiting runs may go on.

A place is held by every run that is Queued, Claimed, Running or Stopping: a Queued run has reserved its place, so a claim
never has to look at the limits of jobs and groups, and a Stopping one keeps its place until its pod is gone. Places are
counted from the rows each time, under the job's row lock; a counter would leak.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
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
    group: str | None = None
    """The concurrency group that it counts against."""
    waits_for_group: bool = False
    """It is in the queue of its group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """What a job lets go: at once, or once their group has a place for them. `back` leave their group's queue again."""

    at_once: tuple[uuid.UUID, ...] = ()
    to_groups: Mapping[uuid.UUID, str] = dataclasses.field(default_factory=dict)
    back: tuple[uuid.UUID, ...] = ()


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


def admit(job: spec.JobSpec, live: Sequence[LiveRun], *, now: datetime) -> Admitted:
    """Sorts the job's waiting runs by what they may do now."""
    chosen = set(promote(job, live, now=now))
    return Admitted(
        at_once=tuple(run.run_id for run in live if run.run_id in chosen and run.group is None),
        to_groups={run.run_id: run.group for run in live if run.run_id in chosen and run.group is not None},
        back=tuple(run.run_id for run in live if run.waits_for_group and run.run_id not in chosen),
    )


def promote(job: spec.JobSpec, live: Sequence[LiveRun], *, now: datetime) -> tuple[uuid.UUID, ...]:
    """The Blocked runs, and the Retrying ones whose back-off has ended, that may have a place now, oldest first."""
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
