"""Every move of a live run, as one statement each: the guard is in the `WHERE`, the change log in the same statement.

A write about an open attempt names the attempt's token and the generation of its shard's lease. A caller that lost either
finds that nothing matched: it gets fewer rows back than it asked for, which is counted, and stops.
"""

from __future__ import annotations

import collections
import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from clockhand import metrics
from clockhand.domain import clock as clocks
from clockhand.domain import sharding, states
from clockhand.store import database, pools

NO_RUN = uuid.UUID(int=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """Who writes: a replica, and the generations of the shard leases it holds."""

    replica: str
    generations: Mapping[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """An open attempt: what its pod is made from and recognised by."""

    run_id: uuid.UUID
    job_id: uuid.UUID
    owner: str
    job_name: str
    name: str
    scheduled_at: datetime
    shard: int
    spec_id: int
    attempt: int
    token: int
    fencing: int
    payload: object
    own_payload: bool
    state: states.RunState
    pod_uid: uuid.UUID | None
    claimed_at: datetime
    stop_reason: str | None

    @property
    def namespace(self) -> str:
        return self.owner.partition("/")[2]


@dataclasses.dataclass(frozen=True, slots=True)
class Launched:
    """The API server has the pod of this attempt."""

    run_id: uuid.UUID
    token: int
    shard: int
    pod_uid: uuid.UUID
    launched_at: datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """The attempt was seen to run."""

    run_id: uuid.UUID
    token: int
    shard: int
    pod_uid: uuid.UUID
    node: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Waits:
    """Why a claimed attempt has not started. `refused`: the API server would not take its pod."""

    run_id: uuid.UUID
    token: int
    reason: str
    message: str | None
    refused: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """An attempt about which something is to be written."""

    run_id: uuid.UUID
    token: int
    shard: int


class Outcome(msgspec.Struct, frozen=True):
    """Where a run goes after its attempt ended. `ready_at` belongs to Retrying alone; counters that are None stay.

    The four from `pod_uid` on are what its pod says of itself, for a pod that was over before anything of it was stored.
    `reported`: a worker said so, and may say it again. `result` is JSON text.
    """

    run_id: uuid.UUID
    token: int
    state: states.RunState
    reason: str | None = None
    message: str | None = None
    failures: int | None = None
    disruptions: int | None = None
    ready_at: datetime | None = None
    pod_uid: uuid.UUID | None = None
    node: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    pool: str | None = None
    worker: str | None = None
    reported: bool = False
    result: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt that did not end well: of a pod, or of a worker, whose token is kept where it has reported the end."""

    run_id: uuid.UUID
    scheduled_at: datetime
    attempt: int
    claimed_at: datetime
    started_at: datetime | None
    outcome: str
    reason: str
    exit_code: int | None
    message: str | None
    pod_name: str | None
    node: str | None
    log_tail: str | None
    worker: str | None = None
    token: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Wake:
    """What is due now and when something will be, for the held shards."""

    now: datetime
    clock: datetime
    """What the database's clock shows: `now`, unless it has jumped and nobody has confirmed that."""
    clock_is: clocks.Stored
    next_due: datetime | None
    queued: bool
    next_retry: datetime | None
    blocked: bool
    next_deadline: datetime | None
    next_run_deadline: datetime | None
    stopping: bool
    open: bool
    """Some attempt is Claimed, Running or Stopping."""
    news: bool
    """Some object's status is out of date."""
    unnumbered: bool
    oldest_anywhere: datetime | None
    next_backfill: datetime | None
    """When a backfill is to be looked at."""
    leased: bool
    """Some worker has an attempt."""
    queued_for: Collection[tuple[str, str]]
    """Those of the given pools and handlers for which something is Queued."""
    pools: Sequence[Mapping[str, Any]]
    """The rows of the given pools that exist."""


async def open_of_shards(
    connection: database.Connection, *, shards: Collection[int], after: uuid.UUID, limit: int
) -> Sequence[Claim]:
    """Open attempts of `shards` in run id order, from after `after`."""
    parameters = {"shards": sorted(shards), "after": after, "limit": limit}
    return [claim_of(row) for row in await database.fetch(connection, "runs.open_of_shards", parameters)]


async def templates(connection: database.Connection, spec_ids: Collection[int]) -> Sequence[Any]:
    """Rows (spec_id, generation, template, payload, spec) of the named specs."""
    return await database.fetch(connection, "runs.templates", {"spec_ids": list(spec_ids)})


async def launched(connection: database.Connection, *, holder: Holder, items: Sequence[Launched]) -> Sequence[Any]:
    """Stores which pods exist; rows (run_id, lateness in seconds, first) of those that were still ours."""
    parameters = {
        **_columns(items, "run_id", "token", "pod_uid"),
        "launched": [item.launched_at for item in items],
        **_generations(items, holder),
    }
    return await database.fetch(connection, "runs.launched", parameters)


async def running(connection: database.Connection, *, holder: Holder, items: Sequence[Started], now: datetime) -> int:
    """Claimed to Running; returns how many moved."""
    parameters = {**_columns(items, "run_id", "token", "pod_uid", "node"), **_generations(items, holder), "now": now}
    return len(await database.fetch(connection, "runs.running", parameters))


async def waiting_for_pod(connection: database.Connection, items: Sequence[Waits]) -> None:
    """Shows why Claimed attempts have not started."""
    await database.execute(connection, "runs.waiting_for_pod", _columns(items, "run_id", "token", "reason", "message"))


async def extend_pending(connection: database.Connection, items: Sequence[Key], *, now: datetime) -> None:
    """Starts the pending time-out of gated attempts anew."""
    await database.execute(connection, "runs.extend_pending", {**_columns(items, "run_id", "token"), "now": now})


async def lock_open(connection: database.Connection, *, holder: Holder, items: Sequence[Key]) -> Sequence[Any]:
    """Locks the runs whose attempts ended; those with another token or another holder are not among the rows."""
    parameters = {**_columns(items, "run_id", "token"), **_generations(items, holder)}
    return await database.fetch(connection, "runs.lock_open", parameters)


async def finish(
    connection: database.Connection, outcomes: Sequence[Outcome], *, now: datetime, named: bool = False
) -> Sequence[Any]:
    """Ends runs: rows (run_id, token, job_id, kind, key, state, reason, attempt, claimed_at, name, job_name, owner, seconds,
    kept, followed).

    `kept` is false where history had the run already, `followed` true where another run may have waited for this end.
    Names are those of runs that did not end well, or of all that are to be `named`.
    """
    if not outcomes:
        return ()
    fields = ("run_id", "token", "reason", "message", "failures", "disruptions", "pod_uid", "node")
    parameters = {
        **_columns(outcomes, *fields, "pool", "worker", "result"),
        "states": [outcome.state.value for outcome in outcomes],
        "reported": [outcome.reported for outcome in outcomes],
        "created": [outcome.created_at for outcome in outcomes],
        "started": [outcome.started_at for outcome in outcomes],
        "now": now,
        "named": named,
    }
    rows = await database.fetch(connection, "runs.finish", parameters)
    for (state, reason), count in collections.Counter((row.state, row.reason) for row in rows).items():
        metrics.count_end(state, reason, count)
    for row in rows:
        metrics.run_seconds(row.state).observe(row.seconds)
    return rows


async def retry(connection: database.Connection, outcomes: Sequence[Outcome]) -> int:
    """Open attempts to Retrying; returns how many moved."""
    if not outcomes:
        return 0
    fields = ("run_id", "token", "reason", "message", "failures", "disruptions")
    parameters = {
        **_columns(outcomes, *fields),
        "ready": [outcome.ready_at for outcome in outcomes],
        "created": [outcome.created_at for outcome in outcomes],
    }
    return len(await database.fetch(connection, "runs.retry", parameters))


async def hand_back(connection: database.Connection, *, holder: Holder, items: Sequence[Key]) -> int:
    """Claimed and never launched back to Queued; returns how many moved."""
    if not items:
        return 0
    parameters = {**_columns(items, "run_id", "token"), **_generations(items, holder)}
    return len(await database.fetch(connection, "runs.hand_back", parameters))


async def record_attempts(connection: database.Connection, records: Sequence[AttemptRecord], *, now: datetime) -> None:
    """Keeps what is known of attempts that did not end well."""
    if records:
        fields = ("run_id", "attempt", "outcome", "reason", "exit_code", "message", "pod_name", "node", "log_tail")
        parameters = {
            **_columns(records, *fields, "worker", "token"),
            "scheduled": [record.scheduled_at for record in records],
            "claimed": [record.claimed_at for record in records],
            "started": [record.started_at for record in records],
            "now": now,
        }
        await database.execute(connection, "runs.record_attempts", parameters)


async def cancel_waiting(
    connection: database.Connection,
    *,
    job_ids: Collection[uuid.UUID] = (),
    run_ids: Collection[uuid.UUID] = (),
    reason: str,
    now: datetime,
    state: states.RunState = states.RunState.CANCELLED,
) -> Sequence[Any]:
    """Ends runs that hold no token, as Cancelled or Dead: rows (run_id, job_id, kept)."""
    parameters = {
        "job_ids": list(job_ids),
        "run_ids": list(run_ids),
        "reason": str(reason),
        "state": state.value,
        "now": now,
    }
    rows = await database.fetch(connection, "runs.cancel_waiting", parameters)
    if rows:
        metrics.count_end(state.value, str(reason), len(rows))
    return rows


async def stop_open(
    connection: database.Connection,
    *,
    job_ids: Collection[uuid.UUID] = (),
    run_ids: Collection[uuid.UUID] = (),
    reason: str,
) -> int:
    """Claimed and Running to Stopping; returns how many moved. Whoever holds the shard stops the pods."""
    parameters = {"job_ids": list(job_ids), "run_ids": list(run_ids), "reason": str(reason)}
    return len(await database.fetch(connection, "runs.stop_open", parameters))


async def overdue(
    connection: database.Connection, *, shards: Collection[int], now: datetime, limit: int
) -> Sequence[Any]:
    """Rows (run_id, state, reason) of runs past a deadline."""
    parameters = {"shards": sorted(shards), "now": now, "limit": limit}
    return await database.fetch(connection, "runs.overdue", parameters)


async def jobs_waiting(
    connection: database.Connection, *, shards: Collection[int], after: uuid.UUID, now: datetime, limit: int
) -> Sequence[uuid.UUID]:
    """Jobs with a run that may be promotable, in order, from after `after`."""
    parameters = {"shards": sorted(shards), "after": after, "now": now, "limit": limit}
    return [row.job_id for row in await database.fetch(connection, "runs.jobs_waiting", parameters)]


async def lock_specs_of_jobs(
    connection: database.Connection, job_ids: Collection[uuid.UUID]
) -> Mapping[uuid.UUID, str]:
    """Locks the jobs' rows; returns their specs as stored."""
    rows = await database.fetch(connection, "runs.lock_specs_of_jobs", {"job_ids": list(job_ids)})
    return {row.job_id: row.spec for row in rows}


async def promote(connection: database.Connection, run_ids: Collection[uuid.UUID], *, now: datetime) -> int:
    """Blocked and Retrying to Queued; returns how many moved."""
    if not run_ids:
        return 0
    return len(await database.fetch(connection, "runs.promote", {"run_ids": list(run_ids), "now": now}))


async def wake(
    connection: database.Connection,
    *,
    shards: Collection[int],
    role: sharding.Role = sharding.Role.OPERATOR,
    spans: pools.Spans | None = None,
    known: Collection[str] = (),
) -> Wake:
    """One look for all loops, at `shards` and at what is overdue in any shard of the role.

    `spans` has the pools and handlers for which somebody waits, and whose runs they take; `known` are pools in use.
    """
    asked, pairs = pools.asked(spans or {})
    parameters = {
        "shards": sorted(shards),
        "first": role.shards.start,
        "last": role.shards.stop - 1,
        **asked,
        "known": list(known),
    }
    row = await database.fetch_one(connection, "runs.wake", parameters)
    assert row is not None
    now = database.time_in(connection, row)
    clock, step, noticed_at, *rest, numbers, found = row
    rest += [{pairs[number - 1] for number in numbers}, found]
    return Wake(now, clock, clocks.Stored(step, noticed_at), *rest)


async def still_open(
    connection: database.Connection, attempts: Collection[tuple[uuid.UUID, int]]
) -> frozenset[tuple[uuid.UUID, int]]:
    """Those of `attempts` whose outcome is not stored yet."""
    parameters = {"run_ids": [run for run, _ in attempts], "attempts": [attempt for _, attempt in attempts]}
    rows = await database.fetch(connection, "runs.still_open", parameters)
    return frozenset((row.run_id, row.attempt) for row in rows)


def claim_of(row: Any) -> Claim:
    """From a row with a Claim's columns."""
    return Claim(**{**row._asdict(), "state": states.RunState(row.state)})


def _generations(items: Sequence[Any], holder: Holder) -> dict[str, Any]:
    """Minus one, which no lease has, stands for a shard that is not held any more."""
    return {
        "replica": holder.replica,
        "generations": [holder.generations.get(item.shard, -1) for item in items],
    }


_PLURALS = {"run_id": "run_ids", "pod_uid": "pod_uids", "failures": "failures", "disruptions": "disruptions"}


def _columns(items: Sequence[Any], *fields: str) -> dict[str, Any]:
    """One array a field, under the field's plural."""
    return {_PLURALS.get(field, f"{field}s"): [getattr(item, field) for item in items] for field in fields}
