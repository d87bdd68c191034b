"""What the REST API takes and shows: JSON over HTTP, the same types for the server and for its Python client.

A job is flat: the fields of a ScheduledJob's spec, and beside them its name, its labels and what is known of it. What was
read may be sent back: the fields that are the server's are passed over.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from clockhand.domain import backfill, spec

MAX_BODY_BYTES = 1_048_576
"""Of a request."""
MAX_BATCH_BODY_BYTES = 16_777_216
"""Of a request with many jobs."""
MAX_BATCH = 1_000
MAX_PAGE = 1_000
PAGE = 100
KEY_SECONDS = 86_400
"""How long an Idempotency-Key stands for its answer."""
TTL_SECONDS = 86_400
"""How long a one-shot that was made over REST stays after its run, where its maker does not say."""
OWN_FIELDS = frozenset({"name", "labels"})
"""Of a job, beside those of its spec."""
SERVER_FIELDS = frozenset({"id", "owner", "origin", "generation", "createdAt", "status"})
"""Of a job as it is read; they are passed over where they are sent."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""As it is sent: with its offset from UTC."""


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of what is shown. It may gain fields: whoever reads one passes over those that it does not know."""


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of what is sent, but for jobs. A field that nobody knows is refused by its name."""


class Mistake(Resource, frozen=True, kw_only=True):
    """What is wrong at one place of a request: of its body by a JSON pointer (RFC 6901), or a parameter by its name."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An answer other than success (RFC 9457). `detail` is for people; `status` is what programs go by."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: Sequence[Mistake] | msgspec.UnsetType = msgspec.UNSET


class Origin(enum.StrEnum):
    """Where a job is declared, which is where alone it can be changed."""

    REST = "REST"
    KUBERNETES = "Kubernetes"


class Standing(enum.StrEnum):
    """Whether a job fires."""

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    """By `suspend`, as `:pause` sets it."""
    PAUSED = "Paused"
    """After too many dead runs in a row."""
    FINISHED = "Finished"
    """No slot comes any more."""
    INVALID = "Invalid"
    """It cannot be evaluated; `message` says why."""


class JobStatus(Resource, frozen=True, kw_only=True):
    """What is known of a job. `active` counts runs that are not over."""

    standing: Standing
    message: str | None = None
    next_run_at: Instant | None = None
    last_scheduled_at: Instant | None = None
    last_success_at: Instant | None = None
    consecutive_failures: int | None = None
    active: int | None = None
    """None in lists."""


class Job(spec.JobSpec, frozen=True, kw_only=True, rename="camel"):
    """A job as it is read. In lists payload and template are at their defaults."""

    id: uuid.UUID
    name: str
    owner: str
    """`rest/<tenant>` or `k8s/<namespace>`."""
    origin: Origin
    generation: int
    created_at: Instant
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    status: JobStatus


class JobPage(Resource, frozen=True, kw_only=True):
    """Some of the jobs, by name. `next` is the cursor of the page after it."""

    items: Sequence[Job]
    next: str | None = None


class ItemError(Resource, frozen=True, kw_only=True):
    """Why one of many was refused: status and sentence as it would have got them alone."""

    status: int
    detail: str
    pointer: str | None = None


class BatchItem(Resource, frozen=True, kw_only=True):
    """What became of one of many; `id` where it is stored, else `error`."""

    id: uuid.UUID | None = None
    name: str | None = None
    error: ItemError | None = None


class BatchAnswer(Resource, frozen=True, kw_only=True):
    """In the order in which they came."""

    items: Sequence[BatchItem]
    created: int
    refused: int


class Slot(Resource, frozen=True, kw_only=True):
    """A time at which a job will fall due. `note` marks what a clock change does to it.

    Where `runs` is false it is none: the times that the note names are left out by the clock, and nothing runs for them.
    """

    at: Instant
    local: str
    """On a clock in the job's time zone, with its offset."""
    note: str | None = None
    runs: bool = True


class Upcoming(Resource, frozen=True, kw_only=True):
    """The next fire times: none while a job is suspended, paused or invalid."""

    items: Sequence[Slot]


class RunRequest(Request, frozen=True, kw_only=True):
    """Asks for a run now, under `name` if one is given."""

    name: str | None = None
    payload: Any = msgspec.UNSET


class BackfillRequest(Request, frozen=True, kw_only=True):
    """Asks for runs of past slots that have none, from `from` to `to`, both included."""

    from_at: Instant = msgspec.field(name="from")
    to_at: Instant = msgspec.field(name="to")
    name: str | None = None
    order: backfill.Order = backfill.Order.OLDEST_FIRST
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=backfill.MOST_AT_ONCE)] = 1


class RetryManyRequest(Request, frozen=True, kw_only=True):
    """Asks for ended runs of a state to be tried again: those of one job, of a time, `limit` at most.

    `cursor` goes on where an answer ended, with all else as it was.
    """

    job: uuid.UUID | None = None
    state: Literal["Dead", "Unknown", "Cancelled"] = "Dead"
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = MAX_PAGE
    cursor: str | None = None
    dry_run: bool = False


class RetriedMany(Resource, frozen=True, kw_only=True):
    """How many runs were taken back, and how many could not be. `next`: there may be more, and this cursor leads to them."""

    retried: int
    passed: int
    next: str | None = None


class Run(Resource, frozen=True, kw_only=True):
    """A run, or slots that did not run (state Skipped), or a backfill (kind Backfill, with `backfill`)."""

    id: uuid.UUID
    name: str
    job: str
    """Its name."""
    job_id: uuid.UUID
    owner: str
    kind: str
    state: str
    scheduled_at: Instant
    created_at: Instant
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    reason: str | None = None
    message: str | None = None
    attempt: int = 0
    failures: int = 0
    disruptions: int = 0
    claimed_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    lateness_seconds: float | None = None
    worker: str | None = None
    pod: str | None = None
    node: str | None = None
    first_skipped_at: Instant | None = None
    count: int | None = None
    result: Any = msgspec.UNSET
    """What the handler returned; in a single GET only."""
    backfill: Mapping[str, Any] | None = None


class RunPage(Resource, frozen=True, kw_only=True):
    """Some of the runs, newest first. `next` is the cursor of the page after it."""

    items: Sequence[Run]
    next: str | None = None


class Attempt(Resource, frozen=True, kw_only=True):
    """An attempt that did not end well."""

    attempt: int
    outcome: str
    reason: str
    claimed_at: Instant
    started_at: Instant | None = None
    ended_at: Instant
    exit_code: int | None = None
    message: str | None = None
    pod: str | None = None
    node: str | None = None
    worker: str | None = None
    logged: bool = False
    """The end of its log is kept."""


class Attempts(Resource, frozen=True, kw_only=True):
    """Newest first."""

    items: Sequence[Attempt]


class AuditEntry(Resource, frozen=True, kw_only=True):
    """Who asked for what."""

    id: int
    at: Instant
    actor: str
    action: str
    job: uuid.UUID | None = None
    job_name: str | None = None
    """Told for as long as anything is kept of the job."""
    run: uuid.UUID | None = None
    detail: Any = msgspec.UNSET


class AuditPage(Resource, frozen=True, kw_only=True):
    """Newest first. `next` is the cursor of the page after it."""

    items: Sequence[AuditEntry]
    next: str | None = None
