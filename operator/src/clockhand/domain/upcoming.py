"""The next times at which a job falls due, with what clock changes do to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from clockhand import errors
from clockhand.domain import instants, preview, spec, times
from clockhand.domain import schedule as schedules


@dataclass(frozen=True, slots=True)
class Slot:
    """An instant with its offset in the job's time zone. `runs` is False for the end of a gap whose times do not run."""

    instant: datetime
    offset: timedelta
    mark: str = ""
    runs: bool = True


def after(job: spec.JobSpec, origin: times.Origin, *, start: datetime, count: int) -> Sequence[Slot]:
    """The next `count` slots later than `start`, or fewer where they end, and the gaps between them that swallowed some."""
    slots = _next(job.due(origin), start=start, count=count)
    # an interval or one instant follows no clock on the wall: its slots stay as they are here
    rows = {(slot, True): Slot(slot, timedelta()) for slot in slots}
    for schedule in _schedules(job, origin):
        own = [slot for slot in slots if schedule.count_between(slot - instants.MILLISECOND, slot)]
        for row in preview.rows(schedule, after=start, slots=own):
            known = rows.get((row.instant, row.runs))
            if known is None or not known.mark:
                rows[row.instant, row.runs] = Slot(row.instant, row.offset, row.mark, row.runs)
    return [rows[key] for key in sorted(rows)]


def _next(due: times.Times, *, start: datetime, count: int) -> Sequence[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        try:
            slot = due.next_after(found[-1] if found else start)
        except errors.InvalidInput:
            break  # the calendar ends
        if slot is None:
            break
        found.append(slot)
    return found


def _schedules(job: spec.JobSpec, origin: times.Origin) -> Iterator[schedules.Schedule]:
    for expression in (job.schedule,) if job.schedule is not None else job.schedules:
        yield schedules.parse(
            expression, zone=job.time_zone, gap=job.dst.gap, overlap=job.dst.overlap, job_id=origin.job_id
        )
