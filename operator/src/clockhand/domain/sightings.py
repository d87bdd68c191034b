"""A ScheduledJob as the API server showed it, and what can be made of it.

Whatever a user wrote, reading it gives an answer: a job, or the sentence that its condition will show. One object that
cannot be read must not keep the others from being stored.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from clockhand import errors
from clockhand.domain import conditions, times
from clockhand.domain import spec as specs

MAX_NAME = 63
TEMPLATE_INVALID = "TemplateInvalid"
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY = "{}"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One object at one resource version; `deleted` where it was last seen going away."""

    uid: uuid.UUID
    namespace: str
    name: str
    generation: int
    resource_version: int
    created_at: datetime
    labels: dict[str, str] | None = None
    spec: Mapping[str, object] = msgspec.field(default_factory=dict)
    deleted: bool = False

    @property
    def owner(self) -> str:
        return f"k8s/{self.namespace}"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: uuid.UUID
    namespace: str
    name: str
    creation_timestamp: datetime
    resource_version: int
    generation: int = 1
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a job does not fire: the reason of its Ready condition, and the sentence."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A sighting made sense of. Without `fault`, `job` is there; with one, nothing of the spec is stored."""

    sighting: Sighting
    job: specs.JobSpec | None
    fault: Fault | None
    spec_json: str = _EMPTY
    payload_json: str | None = None
    template_json: str | None = None
    template_hash: bytes | None = None
    first_slot_at: datetime | None = None

    @property
    def suspended(self) -> bool:
        return self.job is not None and self.job.suspend


def from_object(raw: Mapping[str, object], *, deleted: bool = False) -> Sighting:
    """A sighting from the JSON of a ScheduledJob; raises InvalidInput where it is no Kubernetes object.

    An object that waits for somebody's finalizer is as good as deleted: its user asked that nothing fires any more.
    """
    try:
        metadata = msgspec.convert(raw.get("metadata"), _Metadata, strict=False)
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("metadata", str(error)) from error
    spec = raw.get("spec")
    deleted = deleted or metadata.deletion_timestamp is not None
    return Sighting(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        generation=metadata.generation,
        resource_version=metadata.resource_version,
        created_at=metadata.creation_timestamp,
        labels=metadata.labels or None,
        spec=spec if isinstance(spec, Mapping) and not deleted else {},
        deleted=deleted,
    )


def read(sighting: Sighting, *, after: datetime) -> Reading:
    """What to store for `sighting`, with its first slot after `after`."""
    try:
        return _read(sighting, after)
    except errors.InvalidInput as error:
        return faulty(sighting, Fault(_reason(error), str(error)))
    except RecursionError:
        return faulty(sighting, Fault("InvalidSpec", "spec: is nested too deep: write it flatter"))


def faulty(sighting: Sighting, fault: Fault) -> Reading:
    """What to store for an object that cannot be read or kept: that it is there, and why it does not fire."""
    return Reading(sighting, None, fault)


def ready(reading: Reading) -> conditions.Condition:
    """The Ready condition of a job that was just read."""
    if reading.fault is not None:
        return not_ready(reading.fault)
    if reading.suspended:
        message = "spec.suspend is true: no slot fires until it is false"
        return conditions.Condition(conditions.READY, conditions.TRUE, "Suspended", message)
    return conditions.Condition(conditions.READY, conditions.TRUE, "Scheduled", "slots fire when they fall due")


def not_ready(fault: Fault) -> conditions.Condition:
    """The Ready condition of a job that does not fire."""
    return conditions.Condition(conditions.READY, conditions.FALSE, fault.reason, fault.sentence)


def _read(sighting: Sighting, after: datetime) -> Reading:
    if len(sighting.name) > MAX_NAME:
        raise errors.InvalidInput("metadata.name", f"must be at most {MAX_NAME} characters")
    job = specs.parse(sighting.spec)
    template = None if job.template is None else msgspec.json.encode(job.template, order="deterministic")
    return Reading(
        sighting,
        job,
        None,
        spec_json=specs.encode(job).decode(),
        payload_json=msgspec.json.encode(job.payload).decode(),
        template_json=None if template is None else template.decode(),
        template_hash=None if template is None else hashlib.sha256(template).digest(),
        first_slot_at=job.due(times.Origin(sighting.uid, sighting.created_at)).next_after(after),
    )


_REASONS = (
    ("spec.schedule", "InvalidSchedule"),
    ("spec.timeZone", "InvalidTimeZone"),
    ("spec.template", TEMPLATE_INVALID),
)


def _reason(error: errors.InvalidInput) -> str:
    if error.field == "spec.payload" and "bytes" in error.sentence:
        return "PayloadTooLarge"
    return next((reason for field, reason in _REASONS if error.field.startswith(field)), "InvalidSpec")
