"""What a change of a job does to its rows, wherever the job is declared: in the cluster, or over REST.

A change is never retroactive. Every slot that is due fires first under the spec that it was due under, in the transaction
of the change, and those that could not fire are recorded.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from clockhand import errors
from clockhand.domain import declared, ids, spec, states, times
from clockhand.engine import fire, skips, specs
from clockhand.store import database, firing, mirroring, runs

JOBS_A_SHARD = 64
_NO_SPEC = "{}"


async def settle(
    connection: database.Connection, job_ids: Collection[UUID], *, now: datetime
) -> Mapping[UUID, mirroring.Locked]:
    """Locks jobs that are to be changed or deleted, and decides over each slot that has come; the rows after it."""
    locked = await mirroring.lock(connection, job_ids)
    if await fire.settle_due(connection, job_ids, now=now):
        locked = await mirroring.lock(connection, job_ids)
    await skips.record(connection, _unfired(locked.values(), now=now), now=now)
    return locked


async def delete(
    connection: database.Connection, versions: Mapping[UUID, int], *, stopped: Collection[UUID], now: datetime
) -> None:
    """Deletes settled jobs as of these versions. Their waiting runs end here; an open attempt finishes, but for those of
    `stopped`.
    """
    reason = states.Reason.JOB_DELETED
    await runs.cancel_waiting(connection, job_ids=list(versions), reason=reason, now=now)
    if stopped:
        await runs.stop_open(connection, job_ids=list(stopped), reason=reason)
    await mirroring.delete_jobs(connection, versions, now=now)
    await mirroring.clean_status(connection, versions)


def stops_on_delete(row: mirroring.Locked) -> bool:
    """Whether the job says that its open attempts are to be cancelled with it."""
    try:
        return specs.of(row.spec).on_delete is spec.OnDelete.CANCEL
    except (errors.InvalidInput, msgspec.MsgspecError):
        return False


async def place(connection: database.Connection, owners: Mapping[UUID, str]) -> Mapping[UUID, int]:
    """The shard of each new job, given its owner. Widens an owner by a shard for every 64 jobs that it ever made.

    From here on nobody else makes a job of these owners before the transaction ends.
    """
    made = collections.Counter(owners.values())
    after = await mirroring.count_owners(connection, made)
    numbers = {owner: itertools.count(after[owner] - count) for owner, count in made.items()}
    return {
        job_id: ids.shard_of(owner, job_id=job_id, width=min(ids.SHARDS, 1 + next(numbers[owner]) // JOBS_A_SHARD))
        for job_id, owner in owners.items()
    }


def row(reading: declared.Reading, fault: declared.Fault | None, *, shard: int) -> mirroring.Row:
    """The row of a job that was just read; with a `fault` it does not fire."""
    seen = reading.declared
    fires = fault is None and not reading.suspended
    job = reading.job
    return mirroring.Row(
        job_id=seen.uid,
        owner=seen.owner,
        name=seen.name,
        shard=ids.twin(shard, pooled=job is not None and job.handler is not None),
        pool=None if job is None else job.pool_of(seen.owner),
        handler=None if job is None else job.handler,
        concurrency_group=None if job is None else job.concurrency_group,
        created_at=seen.created_at,
        counts_from=reading.counts_from,
        generation=seen.generation,
        resource_version=seen.resource_version,
        labels=seen.labels,
        next_slot_at=reading.first_slot_at if fires else None,
        delay=reading.delay,
        zone=reading.zone,
        ttl_seconds=reading.ttl_seconds,
        suspended=reading.suspended,
        parked=None if fault is None else fault.sentence,
    )


def stored_spec(reading: declared.Reading) -> mirroring.Spec:
    """The spec of a job that was just read."""
    return mirroring.Spec(
        job_id=reading.declared.uid,
        generation=reading.declared.generation,
        spec=reading.spec_json,
        payload=reading.payload_json,
        template=reading.template_json,
        template_hash=reading.template_hash,
        class_name=None if reading.run is None else reading.run.class_name,
        class_hash=reading.class_hash,
        followed=reading.job is not None and reading.job.followed,
    )


def _unfired(rows: Iterable[mirroring.Locked], *, now: datetime) -> Sequence[firing.NewSkip]:
    """The slots of jobs that were suspended, paused or parked: one summary each, as the spec changes or goes."""
    spans = (_span(row, now) for row in rows)
    return [span for span in spans if span is not None]


def _span(row: mirroring.Locked, now: datetime) -> firing.NewSkip | None:
    if row.next_slot_at is not None or row.deleted or row.spec == _NO_SPEC or row.last_slot_at >= now:
        return None
    try:
        due = specs.of(row.spec).due(row.origin)
        span = times.span(due, after=row.last_slot_at, until=now)
        if span is None:
            return None
        return skips.over(row.job_id, span, _why_unfired(row))
    except Exception:  # parked for it, whatever it is: no slot can be named of what cannot be evaluated
        return None


def _why_unfired(row: mirroring.Locked) -> states.SkipReason:
    if row.suspended:
        return states.SkipReason.SUSPENDED
    return states.SkipReason.PAUSED if row.paused else states.SkipReason.EDITED
