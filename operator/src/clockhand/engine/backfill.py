"""Past slots become runs, a few at a time, for as long as it takes.

The row holds how far a backfill is; a look at it is one transaction that makes the next runs and moves the row, so that a
process that dies at any instruction has done both or neither. The lock of the job's row makes sure of what no unique key
can: that a slot has one run, be it the slot's own or one of several backfills'. Firing holds the same lock.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from clockhand import errors, metrics
from clockhand.domain import admission, backfill, firing, ids, spec, states, times
from clockhand.domain import limits as domain
from clockhand.engine import admit, fire, limits, specs
from clockhand.store import backfills, database, partitions
from clockhand.store import firing as rows

log = structlog.get_logger(__name__)

BATCH = 500
"""Slots looked at in one transaction, at most."""
_AT_ONCE = 100
AGAIN = timedelta(seconds=10)
"""An end of one of its runs is noticed where it is stored; this is for ends that nobody noticed."""
PARKED = timedelta(seconds=30)
_NEVER_AHEAD = timedelta(minutes=1)
"""Nothing is put off for so long: what is to be looked at later than this was put off before the clock went back."""


def is_due(look_at: datetime, now: datetime) -> bool:
    """Whether a backfill that is to be looked at at `look_at` is so now."""
    return look_at <= now or look_at > now + _NEVER_AHEAD


class Backfill:
    """Looks at the backfills of the shards that this replica holds."""

    def __init__(self, db: database.Database, file: limits.LimitsFile | None = None) -> None:
        self._db = db
        self._file = file or limits.LimitsFile(None)

    async def run_once(self, shards: Collection[int]) -> int:
        """Looks once at each backfill whose time has come; returns in how many something is to be done at once."""
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            due = await backfills.due(connection, shards=shards, now=now, ahead=_NEVER_AHEAD, limit=_AT_ONCE)
        return sum([await self.look(backfill_id) for backfill_id in due])

    async def look(self, backfill_id: uuid.UUID) -> bool:
        """Looks at one; returns whether runs were made or slots passed. One that cannot be carried on waits, alone."""
        try:
            async with self._db.transaction() as connection:
                found = await backfills.lock(connection, backfill_id)
                if found is None:
                    return False
                now = await database.now(connection)
                return await advance(connection, found, caps=self._file.current, now=now)
        except errors.ClockhandError:
            raise
        except Exception:
            log.exception("backfill_failed", backfill=str(backfill_id))
            async with self._db.transaction() as connection:
                look_at = await database.now(connection) + PARKED
                await backfills.put_off(connection, backfill_id, look_at=look_at)
            return False


async def advance(
    connection: database.Connection, found: backfills.Found, *, caps: domain.Limits | None = None, now: datetime
) -> bool:
    """Counts what ended, makes what may be made, and ends a backfill that is through. The caller has locked its job."""
    if found.row.ended_at is not None:
        return False
    live = (await rows.live_of_jobs(connection, [found.row.job_id])).get(found.row.job_id, [])
    row = await _counted(connection, found.row, live)
    if found.job_is_gone and row.stop_reason is None:
        row = dataclasses.replace(row, stop_reason=states.Reason.JOB_DELETED.value)
    before, look_at = row, now + AGAIN
    if row.stop_reason is None and not row.complete:
        row, look_at = await _went_on(connection, dataclasses.replace(found, row=row), live, now=now)
        if row.made > before.made:
            await admit.promote_for(connection, [row.job_id], caps=caps, now=now)
    if not row.open_at and (row.complete or row.stop_reason is not None):
        row = dataclasses.replace(row, ended_at=now)
    await backfills.save(connection, row, look_at=look_at)
    return row.reached_at != before.reached_at


async def slots_of(span: backfill.Span, due: times.Times, *, reached: datetime | None = None) -> int:
    """How many slots are left, counted beside the loop: some rules have to be walked, and a year of minutes is long."""
    return await asyncio.to_thread(span.left, due, reached)


async def _counted(
    connection: database.Connection, row: backfills.Backfill, live: Sequence[admission.LiveRun]
) -> backfills.Backfill:
    alive = {run.run_id for run in live}
    gone = {row.run_id(slot): slot for slot in row.open_at if row.run_id(slot) not in alive}
    if not gone:
        return row
    ended = await backfills.ended(connection, gone)
    succeeded = sum(state is states.RunState.SUCCEEDED for state in ended.values())
    return dataclasses.replace(
        row,
        open_at=tuple(slot for slot in row.open_at if slot not in gone.values()),
        succeeded=row.succeeded + succeeded,
        failed=row.failed + len(gone) - succeeded,
    )


async def _went_on(
    connection: database.Connection, found: backfills.Found, live: Sequence[admission.LiveRun], *, now: datetime
) -> tuple[backfills.Backfill, datetime]:
    """The row after the next runs were made, and when to look again."""
    row = found.row
    if found.parked is not None or found.spec is None:
        return row, now + PARKED
    try:
        plan = specs.of(found.spec)
        room = backfill.room(plan, live, own=len(row.open_at), concurrency=row.concurrency)
        if room == 0:
            return row, now + AGAIN
        step = await _step(connection, row, plan.due(found.origin), room=room)
        moved = await _moved(found, step, plan)
    except (errors.InvalidInput, msgspec.MsgspecError) as error:
        log.warning("backfill_waits", backfill=str(row.backfill_id), job=row.job_name, error=str(error))
        return row, now + PARKED
    await _make(connection, row, plan, step.make, now=now)
    return moved, now if len(step.make) < room and not step.complete else now + AGAIN


async def _step(
    connection: database.Connection, row: backfills.Backfill, due: times.Times, *, room: int
) -> backfill.Step:
    step = backfill.Step((), 0, row.reached_at)
    # most often the next slots have no run yet: only where they do is it worth looking far
    for asked in (room + 1, BATCH):
        slots = row.span.ahead(due, step.reached, asked)
        taken = await backfills.taken(connection, job_id=row.job_id, instants=slots)
        step = step.on(slots, taken, room=room, asked=asked)
        if step.complete or len(step.make) == room:
            break
    return step


async def _moved(found: backfills.Found, step: backfill.Step, plan: spec.JobSpec) -> backfills.Backfill:
    """What is left follows the job as it is now, so slots are counted anew where its spec has changed."""
    row = found.row
    made, passed, slots = row.made + len(step.make), row.passed + step.passed, row.slots
    if step.complete:
        slots = made + passed
    elif found.spec_id != row.spec_id:
        slots = made + passed + await slots_of(row.span, plan.due(found.origin), reached=step.reached)
    return dataclasses.replace(
        row,
        reached_at=step.reached,
        open_at=(*row.open_at, *step.make),
        spec_id=found.spec_id,
        slots=slots,
        made=made,
        passed=passed,
        complete=step.complete,
    )


async def _make(
    connection: database.Connection,
    row: backfills.Backfill,
    plan: spec.JobSpec,
    slots: Sequence[datetime],
    *,
    now: datetime,
) -> None:
    if not slots:
        return
    await partitions.ensure_for(connection, slots, now=now)
    await rows.insert_runs(connection, [_run(row, plan, slot) for slot in slots], now=now)
    metrics.RUNS_BACKFILLED.inc(len(slots))


def _run(row: backfills.Backfill, plan: spec.JobSpec, at: datetime) -> rows.NewRun:
    kind = states.RunKind.BACKFILL
    return fire.new_run(
        job_id=row.job_id,
        name=ids.run_name(job_name=row.job_name, scheduled_at=at, kind=kind, key=row.key),
        plan=plan,
        slot=firing.Slot(at, states.RunState.BLOCKED, states.Reason.JOB_LIMIT),
        kind=kind,
        key=row.key,
    )
