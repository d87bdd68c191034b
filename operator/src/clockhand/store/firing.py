"""Firing, as rows: lock what is due, insert its runs, move the high-water mark. All in the caller's one transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from clockhand.domain import admission, states, times
from clockhand.store import database, pools
from clockhand.store import shards as leases

_CLAIMED = states.RunState.CLAIMED.value


class DueJob(msgspec.Struct, frozen=True, gc=False):
    """A locked row of `jobs`, with its spec as stored."""

    job_id: uuid.UUID
    owner: str
    name: str
    created_at: datetime
    next_slot_at: datetime
    spec: str
    pool: str | None
    handler: str | None
    declared: bool
    """By an object of the cluster, which shows what becomes of it."""

    @property
    def origin(self) -> times.Origin:
        return times.Origin(self.job_id, self.created_at)


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to insert; owner, labels, shard and spec come from the job's row. Time-outs are in seconds."""

    run_id: uuid.UUID
    job_id: uuid.UUID
    name: str
    kind: states.RunKind
    key: str
    scheduled_at: datetime
    state: states.RunState
    reason: str | None
    serial: bool
    priority: int
    pending_timeout: int
    attempt_timeout: int | None
    run_timeout: int | None
    payload: object = msgspec.UNSET
    """Its own, null included; unset: the spec's holds."""


class Given(msgspec.Struct, frozen=True, gc=False):
    """The first attempt of a run that goes to a worker with its insertion. `lease` is in seconds."""

    token: int
    worker: str | None
    """None: whoever presents the token."""
    lease: int


class Made(msgspec.Struct, frozen=True, gc=False):
    """A run that was inserted; the last two are of one that was given to a worker. `payload` is JSON text."""

    state: states.RunState
    fencing: int | None
    payload: str | None


class NewSkip(msgspec.Struct, frozen=True):
    """Slots of one job that do not run."""

    job_id: uuid.UUID
    first: datetime
    last: datetime
    count: int
    reason: states.SkipReason


class Advance(msgspec.Struct, frozen=True, gc=False):
    """A job's new high-water mark and next slot (None: none comes), which may start `delay` later."""

    job_id: uuid.UUID
    last_slot_at: datetime
    next_slot_at: datetime | None
    delay: timedelta = timedelta()


class Shown(msgspec.Struct, frozen=True, gc=False):
    """What the object of a job is to show: the newest instant that has just become a run; None: none has.

    `missed` is how many slots had fallen due too long ago, `missed_at` the last of them.
    """

    job_id: uuid.UUID
    scheduled_at: datetime | None
    missed: int = 0
    missed_at: datetime | None = None


async def lock_due(
    connection: database.Connection,
    *,
    shards: Collection[int],
    before: datetime,
    batch: int,
    first: Sequence[uuid.UUID] = (),
) -> Sequence[DueJob]:
    """Locks up to `batch` jobs that are due at `before`, passing over rows that others hold: `first`, and beside them those
    of `shards` that are due for longest. They come in this order.
    """
    parameters = {"shards": leases.rotated(shards), "before": before, "batch": batch, "first": list(first)}
    found = [_due(row) for row in await database.fetch(connection, "firing.lock_due", parameters)]
    place = {job_id: number for number, job_id in enumerate(first)}
    return sorted(found, key=lambda job: place.get(job.job_id, len(place))) if place else found


async def due_by_owner(
    connection: database.Connection,
    *,
    shards: Collection[int],
    since: datetime,
    before: datetime,
    few: int,
    most: int,
) -> Sequence[tuple[str, Sequence[uuid.UUID]]]:
    """Jobs that became due after `since`, by owner, `few` of each at most. Of each shard `most` are looked at."""
    parameters = {"shards": list(shards), "since": since, "before": before, "few": few, "most": most}
    rows = await database.fetch(connection, "firing.due_by_owner", parameters)
    return [(row.owner, row.job_ids) for row in rows]


async def lock_jobs(
    connection: database.Connection, *, job_ids: Collection[uuid.UUID], before: datetime
) -> Sequence[DueJob]:
    """Locks those of `job_ids` with a slot at or before `before`, its jitter over or not; waits for whoever holds them."""
    parameters = {"job_ids": list(job_ids), "before": before}
    return [_due(row) for row in await database.fetch(connection, "firing.lock_jobs", parameters)]


async def live_of_jobs(
    connection: database.Connection, job_ids: Collection[uuid.UUID]
) -> Mapping[uuid.UUID, list[admission.LiveRun]]:
    """The live runs of each job; jobs without any are not in the mapping."""
    found: dict[uuid.UUID, list[admission.LiveRun]] = {}
    if job_ids:
        for row in await database.fetch(connection, "firing.live_of_jobs", {"job_ids": list(job_ids)}):
            job_id, run_id, state, *rest = row
            found.setdefault(job_id, []).append(admission.LiveRun(run_id, states.RunState(state), *rest))
    return found


async def hand_over(connection: database.Connection, spans: pools.Spans) -> tuple[int | None, Collection[pools.Pair]]:
    """The epoch under which runs may be given to workers at once (None: they may not), and for which pairs.

    Where runs are queued for a pair by the owners in its spans, none may be given past them.
    """
    parameters, pairs = pools.asked(spans)
    row = await database.fetch_one(connection, "firing.hand_over", parameters)
    assert row is not None
    return row.epoch, set(spans) - {pairs[number - 1] for number in row.queued}


async def insert_runs(
    connection: database.Connection,
    runs: Sequence[NewRun],
    *,
    now: datetime,
    given: Mapping[uuid.UUID, Given] | None = None,
    epoch: int | None = None,
) -> Mapping[uuid.UUID, Made]:
    """Inserts `runs`; returns those that are new. One that exists is left alone.

    Those in `given` are Claimed by their workers; their fencing tokens begin with `epoch`.
    """
    if not runs:
        return {}
    gifts = [given.get(run.run_id) for run in runs] if given else [None] * len(runs)
    parameters: dict[str, Any] = {
        "now": now,
        "run_ids": [run.run_id for run in runs],
        "job_ids": [run.job_id for run in runs],
        "names": [run.name for run in runs],
        "kinds": [run.kind.value for run in runs],
        "keys": [run.key for run in runs],
        "scheduled": [run.scheduled_at for run in runs],
        "payloads": [None if run.payload is msgspec.UNSET else Jsonb(run.payload, _dumps) for run in runs],
        "states": [run.state.value if gift is None else _CLAIMED for run, gift in zip(runs, gifts, strict=True)],
        "reasons": [run.reason for run in runs],
        "serials": [run.serial for run in runs],
        "priorities": [run.priority for run in runs],
        "run_timeouts": [run.run_timeout for run in runs],
        "pending_timeouts": [run.pending_timeout for run in runs],
        "attempt_timeouts": [run.attempt_timeout for run in runs],
        "tokens": [gift and gift.token for gift in gifts],
        "workers": [gift and gift.worker for gift in gifts],
        "leases": [gift and gift.lease for gift in gifts],
        "epoch": epoch,
    }
    rows = await database.fetch(connection, "firing.insert_runs", parameters)
    return {row.run_id: Made(states.RunState(row.state), row.fencing, row.payload) for row in rows}


async def insert_skips(connection: database.Connection, skips: Sequence[NewSkip], *, now: datetime) -> None:
    """Records slots that do not run."""
    if skips:
        parameters = {
            "now": now,
            "job_ids": [skip.job_id for skip in skips],
            "firsts": [skip.first for skip in skips],
            "lasts": [skip.last for skip in skips],
            "counts": [skip.count for skip in skips],
            "reasons": [skip.reason.value for skip in skips],
        }
        await database.execute(connection, "firing.insert_skips", parameters)


async def advance(connection: database.Connection, moves: Sequence[Advance]) -> None:
    """Moves high-water marks, forwards only."""
    if moves:
        parameters = {
            "job_ids": [move.job_id for move in moves],
            "last": [move.last_slot_at for move in moves],
            "next": [move.next_slot_at for move in moves],
            "delays": [move.delay for move in moves],
        }
        await database.execute(connection, "firing.advance", parameters)


async def show_fired(connection: database.Connection, shown: Sequence[Shown], *, now: datetime) -> None:
    """Marks the status of jobs that moved on to be written."""
    if shown:
        parameters = {
            "now": now,
            "job_ids": [one.job_id for one in shown],
            "scheduled": [one.scheduled_at for one in shown],
            "missed": [one.missed for one in shown],
            "missed_at": [one.missed_at for one in shown],
        }
        await database.execute(connection, "firing.show_fired", parameters)


async def park(connection: database.Connection, *, job_id: uuid.UUID, sentence: str, now: datetime) -> None:
    """Stops one job that cannot be evaluated; `sentence` says why and becomes its condition."""
    await database.execute(connection, "firing.park", {"job_id": job_id, "sentence": sentence, "now": now})


def _due(row: Any) -> DueJob:
    return DueJob(
        row.job_id,
        row.owner,
        row.name,
        row.created_at,
        row.next_slot_at,
        row.spec,
        row.pool,
        row.handler,
        row.declared,
    )


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
