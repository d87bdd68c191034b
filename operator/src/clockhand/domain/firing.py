"""What becomes of the due slots of one job: which of them run, which do not and why, and what is due next.

Pure, so that every policy can be tested without a database, and so that the transaction that fires has one decision to
store. Source of the rules: the catch-up and concurrency sections of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from clockhand.domain import admission, instants, spec, states
from clockhand.domain import times as due_times

MISSED_AFTER = timedelta(seconds=60)


class Slot(msgspec.Struct, frozen=True):
    """A due instant that becomes a run."""

    scheduled_at: datetime
    state: states.RunState
    reason: str | None = None
    serial: bool = False


class Skip(msgspec.Struct, frozen=True):
    """Due instants that do not run: `count` of them from `first` to `last`."""

    first: datetime
    last: datetime
    count: int
    reason: states.SkipReason


def is_missed(skip: Skip, *, now: datetime) -> bool:
    """Whether the job's owner must know: slots too late to run, or of some time ago.

    That a job of every second passes over a slot where the next one is due already is nothing out of the common.
    """
    if skip.reason is states.SkipReason.CATCH_UP:
        return now - skip.first > MISSED_AFTER
    return skip.reason is states.SkipReason.DEADLINE


class Firing(msgspec.Struct, frozen=True):
    """What one transaction stores for one job."""

    slots: tuple[Slot, ...]
    skips: tuple[Skip, ...]
    last_slot_at: datetime
    next_slot_at: datetime | None
    """None: no slot comes any more."""
    delay: timedelta
    """The job's jitter: from each of its slots to the instant from which it may start."""
    replaces: bool
    """Every live run is to be cancelled or stopped first."""


def fire(
    job: spec.JobSpec,
    *,
    origin: due_times.Origin,
    next_slot_at: datetime,
    live: Sequence[admission.LiveRun],
    now: datetime,
    early: bool = False,
) -> Firing:
    """Decides over every slot of `job` from `next_slot_at`, the oldest due one, that is due at `now`.

    A slot is due, and its lateness counts, from the end of the job's jitter; with `early` it is due at its instant, as
    the spec that it belongs to is about to go. `live` are the job's live runs. Raises InvalidInput where the schedule
    cannot be evaluated.
    """
    times = job.due(origin)
    delay = job.delay(origin.job_id)
    until = now if early else now - delay
    following = times.next_after(next_slot_at)
    if following is None or following > until:
        newest, due = next_slot_at, 1
    else:
        just_before = next_slot_at - instants.MILLISECOND
        last = times.last_before_or_at(until, after=just_before)
        newest, due = last or next_slot_at, times.count_between(just_before, until)
        following = times.next_after(newest)
    chosen = _caught_up(job, times, oldest=next_slot_at, newest=newest, due=due, now=now - delay)
    skips = _not_chosen(times, oldest=next_slot_at, newest=newest, due=due, chosen=chosen)
    chosen, late = _within_deadline(job, chosen, now - delay)
    slots, refused, replaces = _placed(job, chosen, live)
    return Firing(
        slots=tuple(slots),
        skips=(*skips, *late, *refused),
        last_slot_at=newest,
        next_slot_at=following,
        delay=delay,
        replaces=replaces,
    )


def _caught_up(
    job: spec.JobSpec,
    times: due_times.Times,
    *,
    oldest: datetime,
    newest: datetime,
    due: int,
    now: datetime,
) -> tuple[datetime, ...]:
    if job.catch_up.policy is spec.CatchUpPolicy.NONE:
        return (newest,) if now - newest <= MISSED_AFTER else ()
    if job.catch_up.policy is spec.CatchUpPolicy.LATEST or due == 1:
        return (newest,)
    return times.newest(job.catch_up.limit, after=oldest - instants.MILLISECOND, until=newest)


def _not_chosen(
    times: due_times.Times, *, oldest: datetime, newest: datetime, due: int, chosen: tuple[datetime, ...]
) -> tuple[Skip, ...]:
    left = due - len(chosen)
    if left == 0:
        return ()
    last = newest
    if chosen:
        before = times.last_before_or_at(chosen[0] - instants.MILLISECOND, after=oldest - instants.MILLISECOND)
        last = before or oldest
    return (Skip(oldest, last, left, states.SkipReason.CATCH_UP),)


def _within_deadline(
    job: spec.JobSpec, chosen: tuple[datetime, ...], now: datetime
) -> tuple[tuple[datetime, ...], tuple[Skip, ...]]:
    if job.starting_deadline_seconds is None:
        return chosen, ()
    oldest_allowed = now - timedelta(seconds=job.starting_deadline_seconds)
    late = [slot for slot in chosen if slot < oldest_allowed]
    in_time = tuple(slot for slot in chosen if slot >= oldest_allowed)
    return in_time, tuple(_summary(late, states.SkipReason.DEADLINE))


def _placed(
    job: spec.JobSpec, chosen: tuple[datetime, ...], live: Sequence[admission.LiveRun]
) -> tuple[list[Slot], list[Skip], bool]:
    policy = job.concurrency_policy
    if not chosen:
        return [], [], False
    if policy is spec.ConcurrencyPolicy.FORBID:
        return *_forbidding(chosen, live), False
    if policy is spec.ConcurrencyPolicy.REPLACE:
        return _replacing(chosen, live)
    return *_waiting(job, chosen, live), False


def _forbidding(chosen: tuple[datetime, ...], live: Sequence[admission.LiveRun]) -> tuple[list[Slot], list[Skip]]:
    # what somebody asked of the past is no reason to skip the present: its first slot waits for the place, and comes next
    if all(run.backfill for run in live):
        reason = states.Reason.JOB_LIMIT if live else None
        first = [Slot(chosen[0], states.RunState.BLOCKED if live else states.RunState.QUEUED, reason)]
    else:
        first = []
    return first, _summary(chosen[len(first) :], states.SkipReason.FORBID)


def _replacing(chosen: tuple[datetime, ...], live: Sequence[admission.LiveRun]) -> tuple[list[Slot], list[Skip], bool]:
    superseded = _summary(chosen[:-1], states.SkipReason.CATCH_UP)
    # a Queued one may be claimed at this moment: only rows that hold no place are certain to be gone at once
    if any(run.state in states.HOLDS_PLACE for run in live):
        successor = Slot(chosen[-1], states.RunState.BLOCKED, states.Reason.WAITS_FOR_STOP)
    else:
        successor = Slot(chosen[-1], states.RunState.QUEUED)
    return [successor], superseded, bool(live)


def _waiting(
    job: spec.JobSpec, chosen: tuple[datetime, ...], live: Sequence[admission.LiveRun]
) -> tuple[list[Slot], list[Skip]]:
    places = admission.places(job)
    if places is None and len(chosen) == 1:  # most often
        return [Slot(chosen[0], states.RunState.QUEUED)], []
    taken = admission.taken(job, live)
    waiting = sum(run.state is states.RunState.BLOCKED for run in live)
    in_order = len(chosen) > 1
    slots: list[Slot] = []
    full: list[datetime] = []
    for slot in chosen:
        behind = in_order and bool(slots)
        if not behind and (places is None or (taken < places and not waiting)):
            taken += 1
            slots.append(Slot(slot, states.RunState.QUEUED, serial=in_order))
        elif places is None or waiting < job.queue_limit:
            waiting += 1
            reason = states.Reason.IN_ORDER if behind else states.Reason.JOB_LIMIT
            slots.append(Slot(slot, states.RunState.BLOCKED, reason, serial=in_order))
        else:
            full.append(slot)
    return slots, _summary(full, states.SkipReason.QUEUE_FULL)


def _summary(slots: Sequence[datetime], reason: states.SkipReason) -> list[Skip]:
    return [Skip(slots[0], slots[-1], len(slots), reason)] if slots else []
