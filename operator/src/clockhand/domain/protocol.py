"""What workers and the API say to each other: JSON over HTTP, the same types on both sides.

A worker claims runs and gets a token with each; whatever it says of a run later names run and token, and a token that is
not the run's any more changes nothing. Every call may be repeated: a claim by its request id, a report by its token.
Tokens are strings, since not every language has integers of 64 bits.
"""

from __future__ import annotations

import enum
import uuid
from datetime import datetime
from typing import Annotated

import msgspec

AUDIENCE = "clockhand"
"""For whom tokens of service accounts are made with which workers come."""
MAX_RUNS = 1_000
"""Of one call."""
MAX_WAIT_SECONDS = 60.0
MAX_RESULT_BYTES = 16_384
MAX_LOG_BYTES = 65_536
MAX_BODY_BYTES = 1_048_576
"""Of a request: whoever has more to report sends it in several."""

_NO_PAYLOAD, _NO_RESULT = msgspec.Raw(b"{}"), msgspec.Raw(b"null")
# made by functions below, since a schema cannot show them as values
Token = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$(?!\\n)")]
WorkerName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$(?!\\n)")]
HandlerName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\\n)", max_length=128)]


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all messages. An answer may gain fields: whoever reads one passes over those that it does not know."""


class Request(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all requests. A field that nobody knows is a mistake, and is refused by its name."""


class Held(Request, frozen=True, kw_only=True):
    """An attempt that a worker has or had."""

    run_id: uuid.UUID
    token: Token


HeldRuns = Annotated[tuple[Held, ...], msgspec.Meta(max_length=MAX_RUNS)]


class Run(Message, frozen=True, kw_only=True):
    """An attempt to be made, as its worker gets it."""

    run_id: uuid.UUID
    token: Token
    name: str
    job: str
    owner: str
    """`k8s/<namespace>` or `rest/<tenant>`."""
    handler: str
    kind: str
    scheduled_at: datetime
    attempt: int
    fencing_token: int
    """Grows with each claim, for the user's own writes; no credential."""
    timeout_seconds: int | None = None
    """From its claim; None: no limit."""
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: _NO_PAYLOAD)
    traceparent: str | None = None
    """W3C's header for what the attempt traces; None where the installation traces nothing."""


class ClaimRequest(Request, frozen=True, kw_only=True):
    """Asks for up to `max` runs for `handlers`, and waits for the first of them.

    `request_id` is new for each claim, and the same where a claim is repeated since its answer was lost. `held` lists every
    attempt that the worker has: one which it was given and does not list is given to it again.
    """

    request_id: uuid.UUID
    worker: WorkerName
    handlers: Annotated[tuple[HandlerName, ...], msgspec.Meta(min_length=1, max_length=256)]
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)] = 1
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 20.0
    repeated: bool = False
    """It was sent before, and not answered: whoever gets it now may be another process than the one that did."""
    held: HeldRuns = ()


class ClaimAnswer(Message, frozen=True, kw_only=True):
    """Runs, or none where nothing came up in time. The lease of each counts from when the claim was sent."""

    runs: tuple[Run, ...]
    lease_seconds: int
    heartbeat_seconds: int


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """Renews the leases of every attempt that the worker has."""

    worker: WorkerName
    held: HeldRuns = ()


class Standing(enum.StrEnum):
    """What has become of an attempt that a worker has."""

    HELD = "Held"  # the lease was renewed
    STOP = "Stop"  # it was asked to stop: end it, then report; the lease was renewed for that
    LOST = "Lost"  # it is somebody else's or over: end it, and report nothing


class Renewed(Message, frozen=True, kw_only=True):
    """An attempt's standing."""

    run_id: uuid.UUID
    token: Token
    standing: Standing
    reason: str | None = None


class HeartbeatAnswer(Message, frozen=True, kw_only=True):
    """The standing of each attempt that was listed, and `runs` that the worker was given and did not list."""

    held: tuple[Renewed, ...]
    runs: tuple[Run, ...] = ()
    lease_seconds: int
    heartbeat_seconds: int


class Outcome(enum.StrEnum):
    """How an attempt ended, as its worker saw it."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DISRUPTED = "Disrupted"  # ended from outside, such as by the worker's stop: not the handler's fault
    RELEASED = "Released"  # never begun: somebody else may


class Failure(Request, frozen=True, kw_only=True):
    """What went wrong. `fatal`: no further attempt, whatever the job allows. Texts are cut by whoever stores them."""

    error: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] = "Error"
    """The name by which `retry.rules` know it, such as `TimeoutError` or `http.503`."""
    message: Annotated[str, msgspec.Meta(max_length=16_384)] | None = None
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    fatal: bool = False
    retry_after_seconds: Annotated[float, msgspec.Meta(ge=0, le=604_800)] | None = None
    """Not before then; None: as `retry.backoff` says."""


class Report(Request, frozen=True, kw_only=True):
    """The end of an attempt. `result` and `failure` go with their outcomes alone."""

    run_id: uuid.UUID
    token: Token
    outcome: Outcome
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """How long the handler ran."""
    result: msgspec.Raw = msgspec.field(default_factory=lambda: _NO_RESULT)
    failure: Failure | None = None
    log: str | None = None
    """The last 64 KiB of what the attempt wrote."""


class ReportRequest(Request, frozen=True, kw_only=True):
    """Ends attempts, each by itself: one that is refused does not touch the others."""

    worker: WorkerName
    reports: Annotated[tuple[Report, ...], msgspec.Meta(min_length=1, max_length=MAX_RUNS)]


class Reported(Message, frozen=True, kw_only=True):
    """Whether a report was taken, now or when it was sent before; `state` is the run's, None where the run is not there."""

    run_id: uuid.UUID
    token: Token
    accepted: bool
    state: str | None = None


class ReportAnswer(Message, frozen=True, kw_only=True):
    """One answer a report, in their order."""

    reports: tuple[Reported, ...]


class StartRequest(Request, frozen=True, kw_only=True):
    """Presents tokens that came by another way than a claim, such as a message: the first worker to do so has the run."""

    worker: WorkerName
    held: Annotated[tuple[Held, ...], msgspec.Meta(min_length=1, max_length=MAX_RUNS)]


class StartAnswer(Message, frozen=True, kw_only=True):
    """The runs that are this worker's now; what is `refused` was started by another one or is over: drop the message."""

    runs: tuple[Run, ...]
    refused: tuple[Held, ...] = ()
    lease_seconds: int
    heartbeat_seconds: int


class Dispatched(Message, frozen=True, kw_only=True):
    """The message on a Kafka topic: who has it may present the token."""

    run_id: uuid.UUID
    token: Token
    pool: str
    handler: str


def topic_of(handler: str) -> str:
    """The topic on which runs for `handler` are published."""
    return f"clockhand.{handler}"
