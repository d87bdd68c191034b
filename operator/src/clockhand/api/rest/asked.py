"""What requests about runs name: ids in their paths, instants, states and jobs in their queries."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from clockhand import errors
from clockhand.api import problems
from clockhand.api.rest import routes
from clockhand.domain import ids, instants, resources
from clockhand.store import listing

State = Literal[
    "Blocked",
    "Queued",
    "Claimed",
    "Running",
    "Stopping",
    "Retrying",
    "Succeeded",
    "Dead",
    "Cancelled",
    "Unknown",
    "Skipped",
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
NAME = routes.Parameter(
    "name", Name | None, "What has this name: a run or a backfill; of several runs the newest first."
)
JOB = routes.Parameter("job", str | None, "Of this job alone: its id, or its name.")
STATE = routes.Parameter("state", tuple[State, ...], "In one of these states alone. May be repeated.", default=())
SINCE = routes.Parameter("since", resources.Instant | None, "From this instant on.")
UNTIL = routes.Parameter("until", resources.Instant | None, "Up to this instant, which is included.")
LIMIT = routes.Parameter("limit", resources.Limit, "How many at most.", default=resources.PAGE)
CURSOR = routes.Parameter("cursor", str | None, "Goes on behind a page: its `next`, with all else as it was.")


def run_in(call: routes.Call) -> uuid.UUID:
    """The run that the path names; NotFound for what cannot be one."""
    found = routes.id_of(call, "run")
    if not ids.names_instant(found):
        raise errors.NotFound("no such run")
    return found


def instant(value: datetime, field: str) -> datetime:
    """An instant in UTC; InvalidInput for one that no run can have."""
    if not instants.EPOCH <= value < instants.END:
        raise errors.InvalidInput(field, instants.SENTENCE)
    return value.astimezone(UTC)


def concerns(query: Mapping[str, Any], run: listing.Run) -> bool:
    """Whether a run is of the job and in a state that a query names, if it names any."""
    job, wanted = query["job"], query["state"]
    return (job is None or run.job_name == job or run.job_id == ids.of_text(job)) and (
        not wanted or run.state in wanted
    )


def span_in(query: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """`since` and `until` of a query; 422 where they cannot be."""
    since, until = query["since"], query["until"]
    try:
        return since and instant(since, "since"), until and instant(until, "until")
    except errors.InvalidInput as error:
        raise problems.wrong_parameter(error.field, error.sentence) from None
