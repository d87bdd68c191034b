"""What the rows say that the events of a job have not told yet.

Read with the status of the same object, and only where there is something new: most jobs cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from clockhand.domain import conditions, news
from clockhand.store import database, status

_RUN_FIELDS = ("name", "state", "reason", "message", "attempts", "attempt", "ended_by", "exit_code")


def told(one: status.Dirty) -> news.Told:
    """How far the events of this job have told of it."""
    return msgspec.convert(one.told, news.Told)


async def of_jobs(
    connection: database.Connection, due: Sequence[status.Dirty], shown: Mapping[UUID, conditions.Stored]
) -> Mapping[UUID, news.Facts]:
    """The facts of each job in `due`, whose object shows these conditions."""
    wanted: set[tuple[UUID, int | None]] = set()
    for one in due:
        before = told(one)
        if one.failed_run and _attempt(one) != before.failed:
            wanted.add((one.failed_run, one.failed_attempt))
        if one.stuck_run and str(one.stuck_run) != before.stuck:
            wanted.add((one.stuck_run, None))
        if one.ill_run and one.ill_runs > before.ill:
            wanted.add((one.ill_run, None))
    rows = await status.facts_of_runs(connection, wanted)
    runs = {key: news.Run(**{field: getattr(row, field) for field in _RUN_FIELDS}) for key, row in rows.items()}
    return {one.job_id: _facts(one, shown[one.job_id], runs) for one in due}


def _facts(
    one: status.Dirty,
    shown: conditions.Stored,
    runs: Mapping[tuple[UUID, int | None], news.Run],
) -> news.Facts:
    now = msgspec.structs.replace(
        news.standing(shown),
        failed=_attempt(one),
        stuck=str(one.stuck_run or ""),
        ill=one.ill_runs,
        missed=one.missed_slots,
    )
    before = told(one)
    return news.Facts(
        conditions=shown,
        now=now,
        failed=runs.get((one.failed_run, one.failed_attempt))
        if one.failed_run and now.failed != before.failed
        else None,
        stuck=runs.get((one.stuck_run, None)) if one.stuck_run and now.stuck != before.stuck else None,
        ill=runs.get((one.ill_run, None)) if one.ill_run else None,
        missed_at=one.missed_at,
    )


def _attempt(one: status.Dirty) -> str:
    return f"{one.failed_run}/{one.failed_attempt}" if one.failed_run else ""
