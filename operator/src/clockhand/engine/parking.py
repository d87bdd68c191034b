"""A job that cannot be evaluated stops alone, with a sentence that says why: whatever a spec raises, others go on.

In one place, since it is met wherever slots are worked out: in firing, at the end of a pause, under new zone data.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Protocol

import structlog

from clockhand import errors
from clockhand.store import database, firing

log = structlog.get_logger(__name__)

RESOURCE_GONE = "the ScheduledJob resource is not served by the cluster any more"
"""What jobs are parked for until their objects are seen again."""


class Job(Protocol):
    """A locked job, by what people call it."""

    @property
    def job_id(self) -> uuid.UUID: ...
    @property
    def owner(self) -> str: ...
    @property
    def name(self) -> str: ...


async def park(connection: database.Connection, job: Job, error: Exception, *, now: datetime) -> None:
    """Stops `job` until its next edit; what `error` says becomes its condition."""
    why = sentence(error)
    log.warning("job_parked", owner=job.owner, job=job.name, sentence=why)
    await firing.park(connection, job_id=job.job_id, sentence=why, now=now)


def sentence(error: Exception) -> str:
    """What is said of a job whose slots cannot be worked out."""
    return str(error) if isinstance(error, errors.InvalidInput) else f"cannot be evaluated: {error}"
