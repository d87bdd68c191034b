"""A job that keeps failing stops by itself, and goes on once somebody has looked after it.

Level-triggered throughout. What was stored of runs (how many in a row ended Dead, when one by hand last succeeded) decides,
and it is looked at in three places: right after outcomes were stored, when the job next falls due, and in a sweep. A
process that dies between the outcome and the pause therefore changes nothing but the moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from clockhand import errors, metrics
from clockhand.domain import conditions, declared, sightings, spec, states, times
from clockhand.engine import parking, skips, specs
from clockhand.store import database, firing, mirroring
from clockhand.store import pauses as rows

log = structlog.get_logger(__name__)

BATCH = 500
REASON = "Failures"
_TICK = timedelta(milliseconds=1)
_HOW_TO_RESUME = (
    "no slot fires until the spec is edited, spec.suspend is set to true and then to false, or a manual run succeeds"
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Jobs that may begin or end a pause, by what became of their runs."""

    limited: set[uuid.UUID] = field(default_factory=set)
    dead: set[uuid.UUID] = field(default_factory=set)
    succeeded_by_hand: set[uuid.UUID] = field(default_factory=set)

    def expect(self, job_id: uuid.UUID, plan: spec.JobSpec) -> None:
        """Takes note of what a run that may be over was made under: most jobs have no limit and cost nothing here."""
        if plan.pause_after_failures is not None:
            self.limited.add(job_id)

    def note(self, job_id: uuid.UUID, *, kind: str, state: str) -> None:
        """Takes note of a run that is over. Whoever reports a success need not know what it was made under."""
        if state == states.RunState.SUCCEEDED and kind == states.RunKind.MANUAL:
            self.succeeded_by_hand.add(job_id)
        elif state == states.RunState.DEAD and job_id in self.limited:
            self.dead.add(job_id)

    def join(self, other: Candidates) -> None:
        """Takes over the candidates of `other`."""
        self.dead.update(other.dead)
        self.succeeded_by_hand.update(other.succeeded_by_hand)


async def follow(db: database.Database, candidates: Candidates) -> None:
    """Begins and ends pauses, once the outcomes that call for it are stored."""
    await pause(db, candidates.dead)
    await resume(db, candidates.succeeded_by_hand)


async def sweep(db: database.Database, shards: Collection[int]) -> int:
    """Ends the pauses that a dead process left; returns how many."""
    async with db.transaction() as connection:
        found = await rows.resumable(connection, shards=shards, limit=BATCH)
    return await resume(db, found)


async def pause(db: database.Database, job_ids: Collection[uuid.UUID]) -> int:
    """Pauses those of the jobs that have reached their limit; returns how many."""
    if not job_ids:
        return 0
    async with db.transaction() as connection:
        now = await database.now(connection)
        locked = await rows.lock_firing(connection, sorted(job_ids))
        status = await rows.lock_status(connection, [job.job_id for job in locked])
        reached = [job for job in locked if _reached(job.spec, status[job.job_id].failures)]
        if not reached:
            return 0
        wanted = [job.job_id for job in reached]
        last = await rows.last_dead(connection, wanted)
        await rows.pause(connection, wanted, now=now)
        await rows.forget_success(connection, wanted)
        shown = [_shown_paused(job, status[job.job_id], last.get(job.job_id), now=now) for job in reached]
        await mirroring.set_conditions(connection, shown, now=now)
    metrics.JOBS_PAUSED.inc(len(reached))
    log.info("jobs_paused", count=len(reached), jobs=[job.name for job in reached[:10]])
    return len(reached)


async def resume(db: database.Database, job_ids: Collection[uuid.UUID]) -> int:
    """Ends the pause of those of the jobs of which a manual run has succeeded since; returns how many."""
    if not job_ids:
        return 0
    async with db.transaction() as connection:
        now = await database.now(connection)
        return await _resume(connection, job_ids, when=lambda status: status.succeeded_by_hand, now=now)


async def end(connection: database.Connection, job_ids: Collection[uuid.UUID], *, now: datetime) -> None:
    """Ends the pause of those of the jobs that are paused, since somebody asks for it."""
    await _resume(connection, job_ids, when=lambda _: True, now=now)


async def _resume(
    connection: database.Connection,
    job_ids: Collection[uuid.UUID],
    *,
    when: Callable[[rows.Status], bool],
    now: datetime,
) -> int:
    locked = await rows.lock_paused(connection, sorted(job_ids))
    status = await rows.lock_status(connection, [job.job_id for job in locked])
    ending = [job for job in locked if when(status[job.job_id])]
    following: list[rows.Next] = []
    for job in ending:
        try:
            following.append(await _end(connection, job, now=now))
        except Exception as error:  # whatever a spec raises, it stops its own job alone
            await parking.park(connection, job, error, now=now)
    resumed = {one.job_id for one in following}
    await rows.resume(connection, following, now=now)
    await rows.forget_failures(connection, resumed)
    shown = [_shown_resumed(job, status[job.job_id], now=now) for job in ending if job.job_id in resumed]
    await mirroring.set_conditions(connection, shown, now=now)
    return len(resumed)


async def at_limit(connection: database.Connection, due: Sequence[firing.DueJob]) -> frozenset[uuid.UUID]:
    """Those of the locked jobs that are at their limit, and not paused yet: their slots must not run."""
    limits = {job.job_id: limit for job in due if (limit := _limit(job.spec)) is not None}
    if not limits:
        return frozenset()
    failures = await rows.failures(connection, limits)
    return frozenset(job_id for job_id, count in failures.items() if count >= limits[job_id])


async def pass_over(connection: database.Connection, due: Iterable[firing.DueJob], *, now: datetime) -> None:
    """Records the slots of jobs at their limit up to `now` as skipped, for a transaction that changes or deletes them."""
    skipped: list[firing.NewSkip] = []
    moves: list[firing.Advance] = []
    for job in due:
        try:
            skip, move = _passed(job, now)
        except Exception as error:
            await parking.park(connection, job, error, now=now)
            continue
        skipped.append(skip)
        moves.append(move)
    await skips.record(connection, skipped, now=now)
    await firing.advance(connection, moves)


async def start_anew(
    connection: database.Connection,
    readings: Iterable[declared.Reading],
    locked: Mapping[uuid.UUID, mirroring.Locked],
) -> None:
    """An edit starts a fresh count of failures, where there is a limit to them or was one. The caller has the locks."""
    fresh = [
        reading.declared.uid
        for reading in readings
        if _limit(locked[reading.declared.uid].spec) is not None
        or (reading.job is not None and reading.job.pause_after_failures is not None)
    ]
    await rows.forget_failures(connection, fresh)


def _limit(stored: str) -> int | None:
    try:
        return specs.of(stored).pause_after_failures
    except (errors.InvalidInput, msgspec.MsgspecError):  # met again, and reported, where the job is decided
        return None


def _reached(stored: str, failures: int) -> bool:
    limit = _limit(stored)
    return limit is not None and failures >= limit


def _passed(job: firing.DueJob, now: datetime) -> tuple[firing.NewSkip, firing.Advance]:
    plan = specs.of(job.spec)
    due = plan.due(job.origin)
    first = job.next_slot_at
    passed = times.span(due, after=first - _TICK, until=now) or times.Span(first, first, 1)
    move = firing.Advance(job.job_id, passed.last, due.next_after(passed.last), plan.delay(job.job_id))
    return skips.over(job.job_id, passed, states.SkipReason.PAUSED), move


async def _end(connection: database.Connection, job: rows.Paused, *, now: datetime) -> rows.Next:
    """One row of skips for all slots of the pause, and what comes after it."""
    plan = specs.of(job.spec)
    due = plan.due(job.origin)
    passed = times.span(due, after=job.last_slot_at, until=now)
    if passed is not None:
        skip = skips.over(job.job_id, passed, states.SkipReason.PAUSED)
        await skips.record(connection, [skip], now=now)
    slot = due.next_after(max(now, job.last_slot_at))
    return rows.Next(job.job_id, slot, None if slot is None else slot + plan.delay(job.job_id))


def _shown_paused(job: rows.Firing, status: rows.Status, last: Any | None, *, now: datetime) -> mirroring.Shown:
    sentence = _sentence(status.failures, last)
    paused = conditions.Condition(conditions.PAUSED, conditions.TRUE, REASON, sentence)
    ready = conditions.Condition(conditions.READY, conditions.TRUE, conditions.PAUSED, sentence)
    return _shown(job, status, [paused, *_ready(status.conditions, ready)], now=now)


def _shown_resumed(job: rows.Paused, status: rows.Status, *, now: datetime) -> mirroring.Shown:
    ready = _ready(status.conditions, sightings.scheduled())
    return _shown(job, status, ready, dropped=(conditions.PAUSED,), now=now)


def _shown(
    job: rows.Firing | rows.Paused,
    status: rows.Status,
    new: Iterable[conditions.Condition],
    *,
    dropped: Iterable[str] = (),
    now: datetime,
) -> mirroring.Shown:
    merged = conditions.merge(status.conditions, new, now=now, generation=job.generation, dropped=dropped)
    return mirroring.Shown(job.job_id, merged, urgent=True)


def _ready(stored: conditions.Stored, shown: conditions.Condition) -> list[conditions.Condition]:
    """The job is as well as before: only why it fires, or does not, is another."""
    return [shown] if conditions.status_of(stored, conditions.READY) == conditions.TRUE else []


def _sentence(failures: int, last: Any | None) -> str:
    count = "1 run" if failures == 1 else f"{failures} runs in a row"
    which = "" if last is None else f", last {last.name} ({last.reason or 'Dead'})"
    return f"{count} ended Dead{which}: {_HOW_TO_RESUME}"
