"""What a job is, as one frozen value: the parsed `ScheduledJob.spec`.

Parsing is strict and complete, so that nothing behind it checks again. Payload and template stay raw JSON:
they are stored in columns of their own and are rendered, not interpreted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from clockhand import errors
from clockhand.domain import bounds, classrun, documents, fields, forms, hashing, instants, intervals, times
from clockhand.domain import schedule as schedules
from clockhand.domain.fields import CatchUpPolicy as CatchUpPolicy
from clockhand.domain.fields import ConcurrencyPolicy as ConcurrencyPolicy
from clockhand.domain.fields import Delivery as Delivery
from clockhand.domain.fields import Gap as Gap
from clockhand.domain.fields import OnDelete as OnDelete
from clockhand.domain.fields import Overlap as Overlap
from clockhand.domain.fields import RuleAction as RuleAction

MAX_PAYLOAD_BYTES = 65_536
HANDLER_TIMEOUT_SECONDS = 300
DEFAULT_POOL = "default"
MEANINGLESS = {
    "every": "is for spec.schedule: leave it out, since spec.every counts real time",
    "at": "is for spec.schedule: leave it out, since spec.at names its offset",
}
NOT_FOR_AT = "is not for spec.at, which is one instant: leave it out"
ONLY_FOR_AT = "is only for a job with spec.at: leave it out"
LESS_THAN_INITIAL = "must not be less than initialSeconds"
ENDS_BEFORE_START = "lies before spec.startAt: write a later instant"
ONLY_FOR_HANDLER = "is only for a job with spec.handler: leave it out"
NEEDS_MATCH = "must have onExitCodes or onErrors"


class Dst(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule bound to a time of day does when clocks change."""

    gap: Gap = fields.TABLE.default("dst.gap", Gap)
    overlap: Overlap = fields.TABLE.default("dst.overlap", Overlap)


class CatchUp(msgspec.Struct, frozen=True, kw_only=True):
    """Which missed slots run."""

    policy: CatchUpPolicy = fields.TABLE.default("catchUp.policy", CatchUpPolicy)
    limit: int = fields.TABLE.default("catchUp.limit", int)


class Backoff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The wait before the next attempt."""

    initial_seconds: int = fields.TABLE.default("retry.backoff.initialSeconds", int)
    factor: float = fields.TABLE.default("retry.backoff.factor", float)
    max_seconds: int = fields.TABLE.default("retry.backoff.maxSeconds", int)
    jitter: float = fields.TABLE.default("retry.backoff.jitter", float)


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Exit codes and errors that need another answer."""

    on_exit_codes: tuple[int, ...] = ()
    on_errors: tuple[str, ...] = ()
    action: RuleAction


class Retry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens after an attempt that did not succeed."""

    max_attempts: int = fields.TABLE.default("retry.maxAttempts", int)
    backoff: Backoff = Backoff()
    max_disruptions: int = fields.TABLE.default("retry.maxDisruptions", int)
    rules: tuple[Rule, ...] = ()


class PodRetention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long finished pods are kept."""

    succeeded_seconds: int = fields.TABLE.default("podRetention.succeededSeconds", int)
    failed_count: int = fields.TABLE.default("podRetention.failedCount", int)


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One job. None stands for "no such limit"."""

    schedule: str | None = None
    schedules: tuple[str, ...] = ()
    every: str | None = None
    at: str | None = None
    time_zone: str = fields.TABLE.default("timeZone", str)
    dst: Dst = Dst()
    start_at: str | None = None
    end_at: str | None = None
    jitter_seconds: int = fields.TABLE.default("jitterSeconds", int)
    suspend: bool = fields.TABLE.default("suspend", bool)
    starting_deadline_seconds: int | None = None
    catch_up: CatchUp = CatchUp()
    concurrency_policy: ConcurrencyPolicy = fields.TABLE.default("concurrencyPolicy", ConcurrencyPolicy)
    queue_limit: int = fields.TABLE.default("queueLimit", int)
    max_concurrent_runs: int | None = None
    concurrency_group: str | None = None
    priority: int = fields.TABLE.default("priority", int)
    delivery: Delivery = fields.TABLE.default("delivery", Delivery)
    on_delete: OnDelete = fields.TABLE.default("onDelete", OnDelete)
    retry: Retry = Retry()
    attempt_timeout_seconds: int | None = None
    run_timeout_seconds: int | None = None
    pending_timeout_seconds: int = fields.TABLE.default("pendingTimeoutSeconds", int)
    pause_after_failures: int | None = None
    ttl_seconds_after_finished: int | None = None
    payload: object = msgspec.field(default_factory=dict)
    pod_retention: PodRetention = PodRetention()
    template: dict[str, object] | None = None
    run: classrun.Run | None = None
    handler: str | None = None
    pool: str | None = None

    @property
    def attempt_timeout(self) -> int | None:
        """Seconds until an attempt is stopped; None: never."""
        if self.attempt_timeout_seconds is None and self.handler is not None:
            return HANDLER_TIMEOUT_SECONDS
        return self.attempt_timeout_seconds

    def pool_of(self, owner: str) -> str | None:
        """The pool, as `k8s/<namespace>/<name>` or `rest/<tenant>/<name>`, of a job of `owner`; None with a template."""
        if self.handler is None:
            return None
        name = self.pool or DEFAULT_POOL
        return f"{owner.partition('/')[0]}/{name}" if "/" in name else f"{owner}/{name}"

    @property
    def one_shot(self) -> bool:
        """Whether the job has one slot only, that of `at`."""
        return self.at is not None

    @property
    def spreads(self) -> bool:
        """Whether jobs of this spec may fall due at different instants, by their ids or by when they were created."""
        hashed = any("H" in schedule for schedule in (self.schedule or "", *self.schedules))
        return hashed or self.every is not None or self.jitter_seconds > 0

    @property
    def followed(self) -> bool:
        """Whether another run, of this job or of its group, may wait for one of this spec to end."""
        limited = self.max_concurrent_runs is not None or self.concurrency_policy is not ConcurrencyPolicy.ALLOW
        return limited or self.concurrency_group is not None or self.catch_up.policy is CatchUpPolicy.ALL

    @property
    def run_at(self) -> datetime | None:
        """The slot of a one-shot."""
        return _instant(self.at, "spec.at")

    def due(self, origin: times.Origin) -> times.Times:
        """When the job falls due."""
        start, end = _instant(self.start_at, "spec.startAt"), _instant(self.end_at, "spec.endAt")
        if (once := self.run_at) is not None:
            return instants.Once(once)
        if self.every is not None:
            inner: times.Times = intervals.anchored(self.every, start=start, created_at=origin.created_at)
        else:
            inner = self._scheduled(origin)
        return bounds.within(inner, start=start, end=end)

    def delay(self, job_id: uuid.UUID) -> timedelta:
        """How much later than its slots the job starts: always the same, in [0, jitterSeconds)."""
        return hashing.delay(job_id, jitter_seconds=self.jitter_seconds)

    def _scheduled(self, origin: times.Origin) -> times.Times:
        gap, overlap = self.dst.gap.value, self.dst.overlap.value
        if self.schedule is not None:
            return schedules.parse(self.schedule, zone=self.time_zone, gap=gap, overlap=overlap, job_id=origin.job_id)
        return schedules.union(self.schedules, zone=self.time_zone, gap=gap, overlap=overlap, job_id=origin.job_id)


def _instant(text: str | None, field: str) -> datetime | None:
    return None if text is None else instants.read(text, field)


def parse(spec: Mapping[str, object]) -> JobSpec:
    """Read a spec, or raise `InvalidInput` with the path of the field and one sentence."""
    document = documents.check(spec)
    _exactly_one(document, fields.ONE_OF_WHEN)
    _exactly_one(document, fields.ONE_OF_WHAT)
    check_payload(document["payload"])
    if "template" in document:
        check_template(document["template"])
    job = msgspec.convert(document, JobSpec)
    _check_what(job)
    if job.retry.backoff.max_seconds < job.retry.backoff.initial_seconds:
        raise errors.InvalidInput("spec.retry.backoff.maxSeconds", LESS_THAN_INITIAL)
    _check_when(job)
    job.due(times.ANYBODY)
    return job


def _check_when(job: JobSpec) -> None:
    """What makes no sense together, so that nobody waits for an effect that never comes."""
    kind = next((name for name in ("every", "at") if getattr(job, name) is not None), None)
    if kind is not None and job.time_zone != fields.TABLE.default("timeZone", str):
        raise errors.InvalidInput("spec.timeZone", MEANINGLESS[kind])
    if kind is not None and job.dst != Dst():
        raise errors.InvalidInput("spec.dst", MEANINGLESS[kind])
    if job.one_shot and (job.start_at or job.end_at):
        raise errors.InvalidInput("spec.startAt" if job.start_at else "spec.endAt", NOT_FOR_AT)
    if job.ttl_seconds_after_finished is not None and not job.one_shot:
        raise errors.InvalidInput("spec.ttlSecondsAfterFinished", ONLY_FOR_AT)
    start, end = _instant(job.start_at, "spec.startAt"), _instant(job.end_at, "spec.endAt")
    if start is not None and end is not None and end < start:
        raise errors.InvalidInput("spec.endAt", ENDS_BEFORE_START)


def _check_what(job: JobSpec) -> None:
    if job.pool is not None and job.handler is None:
        raise errors.InvalidInput("spec.pool", ONLY_FOR_HANDLER)
    forms.check((("handler", job.handler, forms.HANDLER), ("pool", job.pool, forms.POOL)))
    if job.run is not None:
        forms.check(job.run.texts())
    for index, rule in enumerate(job.retry.rules):
        if not (rule.on_exit_codes or rule.on_errors):
            raise errors.InvalidInput(f"spec.retry.rules[{index}]", NEEDS_MATCH)


def encode(spec: JobSpec) -> bytes:
    """Compact JSON without payload and template, which are stored apart."""
    document = msgspec.to_builtins(spec)
    del document["payload"], document["template"]
    return msgspec.json.encode(document)


def decode(data: bytes | str) -> JobSpec:
    """The inverse of `encode`; payload and template are at their defaults."""
    return msgspec.json.decode(data, type=JobSpec)


def _exactly_one(document: Mapping[str, object], names: tuple[str, ...]) -> None:
    if sum(name in document for name in names) != 1:
        raise errors.InvalidInput("spec", one_of(names))


def one_of(names: tuple[str, ...]) -> str:
    """The sentence for alternatives of which one is needed; the schema of the custom resource says it too."""
    listed = [f"spec.{name}" for name in names]
    return f"exactly one of {', '.join(listed[:-1])} and {listed[-1]} must be set"


def check_payload(payload: object) -> bytes:
    """The payload as compact JSON, if it is not too large to store; what is in it was checked where it was read."""
    encoded = msgspec.json.encode(payload)
    if (size := len(encoded)) > MAX_PAYLOAD_BYTES:
        sentence = f"is {size} bytes as compact JSON, more than {MAX_PAYLOAD_BYTES}: pass a reference to the data"
        raise errors.InvalidInput("spec.payload", sentence)
    return encoded


def check_template(template: object) -> None:
    """As far as a pod is made of it; the rest is the API server's."""
    assert isinstance(template, dict)
    pod = template["spec"]
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        raise errors.InvalidInput("spec.template.spec.containers", "must list at least one container")
    if not all(isinstance(container, Mapping) for container in containers):
        raise errors.InvalidInput("spec.template.spec.containers", "must be a list of objects")
    if pod.get("restartPolicy", "Never") != "Never":
        sentence = "must be Never: Clockhand does the retries, see spec.retry"
        raise errors.InvalidInput("spec.template.spec.restartPolicy", sentence)
