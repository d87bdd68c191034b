"""Ended runs that have something in common are tried again, under their own ids.

They go in batches, each a transaction of its own with its audit rows: what was said to be done is done, wherever the rest
breaks off, and the same call again does that rest.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from clockhand import errors
from clockhand.domain import limits, spec, states
from clockhand.engine import admit
from clockhand.engine import specs as decoded
from clockhand.store import backfills, database, redrives, runs

BATCH = 200
STATES = (states.RunState.DEAD, states.RunState.UNKNOWN, states.RunState.CANCELLED)
"""Those from which a run can be tried again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What one batch came to. `last` is the run that it looked at last; None: there are no more."""

    last: uuid.UUID | None
    redriven: int = 0
    passed_over: int = 0
    """Of jobs that are gone, that this release cannot read, or whose JobClass has changed."""


async def step(
    connection: database.Connection,
    selection: redrives.Selection,
    *,
    after: uuid.UUID = runs.NO_RUN,
    most: int = BATCH,
    actor: str,
    caps: limits.Limits | None = None,
) -> Step:
    """Takes back up to `most` runs of `selection`, oldest first, from after `after`: begin with none, go on with `last`.

    One a transaction: it locks all their jobs at once, in the order of locks.
    """
    now = await database.now(connection)
    found = await redrives.find(connection, selection, after=after, limit=most)
    if not found:
        return Step(None)
    job_ids = await redrives.lock_jobs(connection, {run.job_id for run in found})
    back = await take_back(
        connection, {run.run_id for run in found}, owner=selection.owner, job_ids=job_ids, actor=actor, now=now
    )
    await admit.promote_for(connection, job_ids, caps=caps, now=now)
    return Step(found[-1].run_id, back, len(found) - back)


async def count(connection: database.Connection, selection: redrives.Selection, *, after: uuid.UUID, most: int) -> Step:
    """The same, but it only looks."""
    found = await redrives.find(connection, selection, after=after, limit=most)
    if not found:
        return Step(None)
    run_ids, job_ids = [run.run_id for run in found], [run.job_id for run in found]
    able = _plans(await redrives.specs(connection, run_ids, owner=selection.owner, job_ids=job_ids))
    return Step(found[-1].run_id, len(able), len(found) - len(able))


async def take_back(
    connection: database.Connection,
    run_ids: Collection[uuid.UUID],
    *,
    owner: str,
    job_ids: Collection[uuid.UUID],
    actor: str,
    now: datetime,
) -> int:
    """Moves ended runs of the locked `job_ids` back, Blocked until they are admitted; returns how many."""
    texts = await redrives.specs(connection, run_ids, owner=owner, job_ids=job_ids)
    back = await redrives.redrive(connection, _plans(texts), owner=owner, now=now)
    for run in back:
        if run.kind == states.RunKind.BACKFILL:
            await backfills.reopen(connection, run_id=run.run_id, now=now)
    await redrives.audit(connection, back, owner=owner, actor=actor, now=now)
    return len(back)


def _plans(texts: Mapping[uuid.UUID, str]) -> Mapping[uuid.UUID, spec.JobSpec]:
    plans = {}
    for run_id, text in texts.items():
        try:
            plans[run_id] = decoded.of(text)
        except (errors.InvalidInput, msgspec.MsgspecError):
            continue
    return plans
