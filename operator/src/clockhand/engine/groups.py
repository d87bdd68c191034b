"""Places of concurrency groups: given to the first in the queue, under the lock of the group, counted from the rows.

A run comes into the queue of its group when its job lets it go. The job's row is locked before its group's, so whoever
frees a place cannot always give it to the next: it may be another job's. Then it looks who that is, and begins with that
job.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from clockhand.domain import admission, states
from clockhand.domain import limits as domain
from clockhand.engine import limits
from clockhand.store import database, firing
from clockhand.store import groups as rows
from clockhand.store import limits as limit_rows

MOST = 500
"""Runs that come out of the queue of one group in one statement."""


async def let_go(
    connection: database.Connection,
    caps: domain.Limits,
    admitted: Sequence[admission.Admitted],
    *,
    job_ids: Collection[uuid.UUID],
    now: datetime,
) -> int:
    """Puts runs of the locked `job_ids` into the queues of their groups, and gives them what is free if they come first.

    Returns how many became Queued.
    """
    grouped = {run: group for one in admitted for run, group in one.to_groups.items()}
    groups = set(grouped.values())
    room = await limits.room(connection, caps, groups=groups)
    await rows.leave(connection, [run for one in admitted for run in one.back])
    await rows.wait(connection, {run: caps.why_no_place(group) for run, group in grouped.items()}, now=now)
    free = {group: min(room.groups.get(group, MOST), MOST) for group in groups}
    return await rows.promote(connection, _positive(free), job_ids=job_ids, now=now)


async def next_jobs(
    connection: database.Connection, caps: domain.Limits, waiting: Sequence[str]
) -> Sequence[uuid.UUID]:
    """Jobs of runs that are first in the queue of one of these groups, where it has free places.

    As it looks: nothing is locked.
    """
    limited = {group: cap for group in waiting if (cap := caps.group_cap(group)) is not None}
    held = await limit_rows.places_of_groups(connection, limited) if limited else {}
    free = {group: min(limited[group] - held[group], MOST) if group in limited else MOST for group in waiting}
    return await rows.heads(connection, _positive(free))


async def tell(connection: database.Connection, caps: domain.Limits, waiting: Sequence[str]) -> None:
    """Lets the first runs of each queue say why they wait, where nothing that ends can help."""
    if waiting:
        await rows.tell(connection, {group: caps.why_no_place(group) for group in waiting})


async def placed(
    connection: database.Connection,
    caps: domain.Limits | None,
    new: Sequence[firing.NewRun],
    groups: Mapping[uuid.UUID, str],
) -> Sequence[firing.NewRun]:
    """New runs of locked jobs, those Blocked that would be Queued but find no place in their group of `groups`.

    Nobody overtakes those that wait for the group already. Without `caps` none has a place: whoever has them gives it.
    """
    wanted = {groups[run.run_id] for run in new if run.run_id in groups and run.state is states.RunState.QUEUED}
    if not wanted:
        return new
    full = set(wanted)
    left: dict[str, int] = {}
    if caps is not None:
        left = dict((await limits.room(connection, caps, groups=wanted)).groups)
        full = set(await rows.waiting(connection))
    found = []
    for run in new:
        group = groups.get(run.run_id)
        if group is not None and run.state is states.RunState.QUEUED:
            if group in full or left.get(group) == 0:
                run = msgspec.structs.replace(run, state=states.RunState.BLOCKED, reason=states.Reason.GROUP_LIMIT)
            elif group in left:
                left[group] -= 1
        found.append(run)
    return found


async def explain(
    connection: database.Connection,
    caps: domain.Limits | None,
    new: Sequence[firing.NewRun],
    groups: Mapping[uuid.UUID, str],
    *,
    now: datetime,
) -> None:
    """Lets runs that were just inserted say why they wait for their group, where nothing that ends can help."""
    if caps is not None:
        waiting = (run.run_id for run in new if run.reason is states.Reason.GROUP_LIMIT)
        reasons = {run: caps.why_no_place(groups[run]) for run in waiting}
        await rows.wait(connection, {run: reason for run, reason in reasons.items() if reason}, now=now)


def _positive(free: Mapping[str, int]) -> Mapping[str, int]:
    return {group: places for group, places in free.items() if places > 0}
