"""Due slots become runs, each exactly once.

One transaction locks the due jobs, inserts their runs and moves their high-water marks, so that a process that dies
at any instruction has fired completely or not at all. Three guards stand behind each other, and any one suffices: the
job's row lock with its high-water mark, the check against that mark in the insert, and the unique key of the run.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from clockhand import metrics, tracing
from clockhand.domain import admission, firing, ids, spec, states
from clockhand.domain import limits as domain
from clockhand.engine import admit, beside, groups, limits, parking, pauses, skips, specs
from clockhand.engine.pools import desk as desks
from clockhand.engine.pools import handover
from clockhand.store import database, partitions
from clockhand.store import firing as rows
from clockhand.store import runs as run_rows

BATCH = 500
SHARED_BATCH = 150
"""While others' jobs become due beside a backlog: they wait for the batch under way, and for their own."""
MOST_RUNS = 5_000
"""Made in one go, and those of one job more: what a crowd of jobs catches up after days would outlast every time-out."""
ANYBODYS_AFTER = timedelta(seconds=3)
"""A slot overdue by this much may be fired by any replica of its role: a dead one delays nobody for long."""


class Fire:
    """Fires the due slots of the shards that this replica holds, and long overdue ones of any shard of its role.

    Where workers wait at the `desk` they have the runs at once; `file` says what places concurrency groups have.
    """

    def __init__(
        self, db: database.Database, desk: desks.Desk | None = None, file: limits.LimitsFile | None = None
    ) -> None:
        self._db = db
        self._desk = desk or desks.Desk()
        self._file = file or limits.LimitsFile(None)
        self._beside: beside.Beside | None = None
        """While there is a backlog."""

    @property
    def size(self) -> int:
        """How many jobs the next batch is to take, for `most`."""
        return SHARED_BATCH if self._beside is not None and self._beside.shared else BATCH

    async def run_once(self, shards: Collection[int], *, most: int = BATCH, anybodys: bool = False) -> int:
        """Fires one batch; returns how many jobs had a due slot. Less than `most` means that little is left: what one
        shard has more of than others, and what would have been more than `MOST_RUNS` runs, is as due as before.

        With `anybodys` only slots that are overdue by more than 3 s are looked for.
        """
        if not shards:
            return 0
        aside = None
        if not anybodys:  # after an error it begins anew: what it named may have to be named again
            aside, self._beside = self._beside, None
        began = tracing.now()
        with self._desk.handing() as handing:
            over = handover.HandOver(self._desk, handing)
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                before = now - ANYBODYS_AFTER if anybodys else now
                first = await aside.first(connection, shards=shards, before=before, most=most // 2) if aside else ()
                due = await rows.lock_due(connection, shards=shards, before=before, batch=most, first=first)
                stopped = await pauses.at_limit(connection, due)
                going = [job for job in due if job.job_id not in stopped]
                await _fire(connection, going, now=now, over=over, caps=self._file.current)
        if not anybodys and len(due) >= most:
            self._beside = aside or beside.Beside()
            self._beside.saw({job.owner for job in due}, now=now)
        if due:
            tracing.batch_over("fire", began=began, attributes={"clockhand.jobs": len(due)})
        self._desk.queued(over.queued)
        await pauses.pause(self._db, stopped)
        return len(due)


async def settle_due(connection: database.Connection, job_ids: Collection[uuid.UUID], *, now: datetime) -> int:
    """Fires or skips every slot of `job_ids` whose instant has come at `now`, under the spec stored now.

    For the transaction that is about to change or delete those jobs, so that an edit is never retroactive. A slot whose
    jitter is not over fires early: later there is no spec to fire it under. Returns how many jobs had such a slot.
    """
    due = await rows.lock_jobs(connection, job_ids=job_ids, before=now)
    stopped = await pauses.at_limit(connection, due)
    await pauses.pass_over(connection, [job for job in due if job.job_id in stopped], now=now)
    left: Sequence[rows.DueJob] = [job for job in due if job.job_id not in stopped]
    while left:
        left = await _fire(connection, left, now=now, early=True)
    return len(due)


@dataclasses.dataclass(slots=True)
class _Batch:
    """What one transaction stores of many jobs."""

    runs: list[rows.NewRun] = dataclasses.field(default_factory=list)
    skipped: list[rows.NewSkip] = dataclasses.field(default_factory=list)
    moves: list[rows.Advance] = dataclasses.field(default_factory=list)
    replaced: list[uuid.UUID] = dataclasses.field(default_factory=list)
    pooled: dict[uuid.UUID, rows.DueJob] = dataclasses.field(default_factory=dict)
    shown: list[rows.Shown] = dataclasses.field(default_factory=list)
    grouped: dict[uuid.UUID, str] = dataclasses.field(default_factory=dict)
    """The concurrency group of each run that has one."""
    _decided: dict[tuple[str, datetime], firing.Firing] = dataclasses.field(default_factory=dict)
    """What holds for every job of a spec and a next slot: most jobs of an installation share few of either."""

    def add(self, job: rows.DueJob, live: Sequence[admission.LiveRun], *, now: datetime, early: bool) -> None:
        """Decides over the due slots of one more job. What its spec raises leaves the batch as it was."""
        plan = specs.of(job.spec)
        decided = self._decided.get((job.spec, job.next_slot_at))
        if decided is None:
            decided = firing.fire(
                plan, origin=job.origin, next_slot_at=job.next_slot_at, live=live, now=now, early=early
            )
            if admission.places(plan) is None and not plan.spreads:
                self._decided[job.spec, job.next_slot_at] = decided
        new = [_run(job, plan, slot) for slot in decided.slots]
        self.runs += new
        if plan.concurrency_group is not None:
            self.grouped |= dict.fromkeys((run.run_id for run in new), plan.concurrency_group)
        if job.declared:
            newest = max((slot.scheduled_at for slot in decided.slots), default=None)
            missed = [skip for skip in decided.skips if firing.is_missed(skip, now=now)]
            last = max((skip.last for skip in missed), default=None)
            self.shown.append(rows.Shown(job.job_id, newest, sum(skip.count for skip in missed), last))
        if job.pool is not None:
            self.pooled[job.job_id] = job
        self.skipped += [
            rows.NewSkip(job.job_id, skip.first, skip.last, skip.count, skip.reason) for skip in decided.skips
        ]
        self.moves.append(rows.Advance(job.job_id, decided.last_slot_at, decided.next_slot_at, decided.delay))
        if decided.replaces:
            self.replaced.append(job.job_id)


async def _fire(
    connection: database.Connection,
    due: Sequence[rows.DueJob],
    *,
    now: datetime,
    early: bool = False,
    over: handover.HandOver | None = None,
    caps: domain.Limits | None = None,
) -> Sequence[rows.DueJob]:
    """Fires the slots of `due`, one job after the other; returns the jobs that would be too many for one statement."""
    live = await rows.live_of_jobs(connection, [job.job_id for job in due if _looks_at_live(job)])
    batch, done = _Batch(), 0
    for job in due:
        if len(batch.runs) >= MOST_RUNS:
            break
        try:
            batch.add(job, live.get(job.job_id, ()), now=now, early=early)
        except Exception as error:  # whatever a spec raises, it stops its own job alone
            await parking.park(connection, job, error, now=now)
        done += 1
    await _store(connection, batch, now=now, over=over, caps=caps)
    return due[done:]


async def _store(
    connection: database.Connection,
    batch: _Batch,
    *,
    now: datetime,
    over: handover.HandOver | None,
    caps: domain.Limits | None,
) -> None:
    if batch.replaced:
        if caps is not None:  # the keys of limits come before runs in the order of locks
            await limits.room(connection, caps, groups=set(batch.grouped.values()))
        await run_rows.cancel_waiting(connection, job_ids=batch.replaced, reason=states.Reason.REPLACED, now=now)
        await run_rows.stop_open(connection, job_ids=batch.replaced, reason=states.Reason.REPLACED)
    await partitions.ensure_for(connection, [run.scheduled_at for run in batch.runs], now=now)
    new = await groups.placed(connection, caps, batch.runs, batch.grouped)
    if over is None:
        inserted = await rows.insert_runs(connection, new, now=now)
    else:
        inserted = await over.insert(connection, new, batch.pooled, now=now)
    await groups.explain(connection, caps, new, batch.grouped, now=now)
    await skips.record(connection, batch.skipped, now=now)
    await rows.advance(connection, batch.moves)
    await rows.show_fired(connection, batch.shown, now=now)
    # under the job's lock, and after what was to stop has been told so: a claim in between cannot be overlooked
    await admit.promote_for(connection, batch.replaced, caps=caps, now=now)
    metrics.RUNS_FIRED.inc(len(inserted))


def _looks_at_live(job: rows.DueJob) -> bool:
    try:
        plan = specs.of(job.spec)
    except Exception:  # met again, and reported, where the job is decided
        return False
    return admission.places(plan) is not None


def _run(job: rows.DueJob, plan: spec.JobSpec, slot: firing.Slot) -> rows.NewRun:
    return new_run(
        job_id=job.job_id,
        name=ids.run_name(job_name=job.name, scheduled_at=slot.scheduled_at, kind=states.RunKind.SLOT, key=""),
        plan=plan,
        slot=slot,
    )


def new_run(
    *,
    job_id: uuid.UUID,
    name: str,
    plan: spec.JobSpec,
    slot: firing.Slot,
    kind: states.RunKind = states.RunKind.SLOT,
    key: str = "",
    payload: object = msgspec.UNSET,
) -> rows.NewRun:
    """The row of a run of `job_id`, its limits taken from `plan`."""
    return rows.NewRun(
        run_id=ids.run_id(job_id=job_id, scheduled_at=slot.scheduled_at, kind=kind, key=key),
        job_id=job_id,
        name=name,
        kind=kind,
        key=key,
        scheduled_at=slot.scheduled_at,
        state=slot.state,
        reason=slot.reason,
        serial=slot.serial,
        priority=plan.priority,
        pending_timeout=plan.pending_timeout_seconds,
        attempt_timeout=plan.attempt_timeout,
        run_timeout=plan.run_timeout_seconds,
        payload=payload,
    )
