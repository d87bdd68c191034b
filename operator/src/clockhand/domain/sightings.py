"""A ScheduledJob as the API server showed it, and what can be made of it.

Whatever a user wrote, reading it gives an answer: a job, or the sentence that its condition will show. One object that
cannot be read must not keep the others from being stored.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from clockhand import errors
from clockhand.domain import conditions, instants, times
from clockhand.domain import spec as specs

MAX_NAME = 63
TEMPLATE_INVALID = "TemplateInvalid"
NEVER = instants.EPOCH
SCHEDULED = "Scheduled"
_EMPTY = "{}"
_FIXED_ZONES = frozenset({"UTC", "Etc/UTC"})
_NO_SLOT = "no slot comes any more: for others set spec.at or spec.endAt to a later instant"
_TOO_LATE = (
    "spec.at lies before the time at which this spec was stored, and an edit is never retroactive: "
    "set a later instant to run again"
)


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
    """A sighting made sense of. Without `fault`, `job` is there; with one, nothing of the spec is stored.

    Every slot up to `counts_from` is none of its job's; `first_slot_at` is the first one after it, None where none comes.
    """

    sighting: Sighting
    job: specs.JobSpec | None
    fault: Fault | None
    counts_from: datetime
    spec_json: str = _EMPTY
    payload_json: str | None = None
    template_json: str | None = None
    template_hash: bytes | None = None
    first_slot_at: datetime | None = None

    @property
    def suspended(self) -> bool:
        return self.job is not None and self.job.suspend

    @property
    def finished(self) -> bool:
        return self.job is not None and self.first_slot_at is None

    @property
    def delay(self) -> timedelta:
        return timedelta() if self.job is None else self.job.delay(self.sighting.uid)

    @property
    def zone(self) -> str | None:
        """The zone whose rules the slots follow; None where no new zone data can move them."""
        fixed = self.job is None or self.job.time_zone in _FIXED_ZONES or self.job.every or self.job.at
        return None if self.job is None or fixed else self.job.time_zone

    @property
    def ttl_seconds(self) -> int | None:
        return self.job.ttl_seconds_after_finished if self.job is not None and self.job.one_shot else None


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


def read_new(sighting: Sighting, *, now: datetime) -> Reading:
    """What to store for an object that is seen for the first time.

    It counts from its creation, so that no slot between apply and sighting is lost, or from `now` where the clock that
    stamped the creation is ahead. A one-shot's instant may lie before its creation: it is due at once.
    """
    return _reading(sighting, min(sighting.created_at, now), new=True)


def read(sighting: Sighting, *, after: datetime) -> Reading:
    """What to store for an object that was edited: only slots after `after` are its own, however it is written."""
    return _reading(sighting, after, new=False)


def faulty(sighting: Sighting, fault: Fault, *, after: datetime) -> Reading:
    """What to store for an object that cannot be read or kept: that it is there, and why it does not fire."""
    return Reading(sighting, None, fault, after)


def ready(reading: Reading) -> conditions.Condition:
    """The Ready condition of a job that was just read."""
    if reading.fault is not None:
        return not_ready(reading.fault)
    if reading.suspended:
        message = "spec.suspend is true: no slot fires until it is false"
        return conditions.Condition(conditions.READY, conditions.TRUE, "Suspended", message)
    if not reading.finished:
        return scheduled()
    one_shot = reading.job is not None and reading.job.one_shot
    return finished(_TOO_LATE if one_shot else _NO_SLOT)


def scheduled() -> conditions.Condition:
    """The Ready condition of a job whose slots fire."""
    return conditions.Condition(conditions.READY, conditions.TRUE, SCHEDULED, "slots fire when they fall due")


def finished(message: str = _NO_SLOT) -> conditions.Condition:
    """The Ready condition of a job of which no slot comes any more."""
    return conditions.Condition(conditions.READY, conditions.TRUE, "Finished", message)


def not_ready(fault: Fault) -> conditions.Condition:
    """The Ready condition of a job that does not fire."""
    return conditions.Condition(conditions.READY, conditions.FALSE, fault.reason, fault.sentence)


def _reading(sighting: Sighting, after: datetime, *, new: bool) -> Reading:
    try:
        return _read(sighting, after, new=new)
    except errors.InvalidInput as error:
        return faulty(sighting, Fault(_reason(error), str(error)), after=after)
    except RecursionError:
        return faulty(sighting, Fault("InvalidSpec", "spec: is nested too deep: write it flatter"), after=after)


def _read(sighting: Sighting, after: datetime, *, new: bool) -> Reading:
    if len(sighting.name) > MAX_NAME:
        raise errors.InvalidInput("metadata.name", f"must be at most {MAX_NAME} characters")
    job = specs.parse(sighting.spec)
    template = None if job.template is None else msgspec.json.encode(job.template, order="deterministic")
    due = job.due(times.Origin(sighting.uid, sighting.created_at))
    first = due.next_after(after)
    if first is None and new:
        first = job.run_at
    return Reading(
        sighting,
        job,
        None,
        after if first is None else min(after, first - instants.MILLISECOND),
        spec_json=specs.encode(job).decode(),
        payload_json=msgspec.json.encode(job.payload).decode(),
        template_json=None if template is None else template.decode(),
        template_hash=None if template is None else hashlib.sha256(template).digest(),
        first_slot_at=first,
    )


_REASONS = {
    "schedule": "InvalidSchedule",
    "schedules": "InvalidSchedule",
    "every": "InvalidInterval",
    "at": "InvalidInstant",
    "startAt": "InvalidInstant",
    "endAt": "InvalidInstant",
    "timeZone": "InvalidTimeZone",
    "template": TEMPLATE_INVALID,
}


def _reason(error: errors.InvalidInput) -> str:
    if error.field == "spec.payload" and "bytes" in error.sentence:
        return "PayloadTooLarge"
    spec, _, field = error.field.partition(".")
    name = re.split(r"[.\[]", field, maxsplit=1)[0]
    return _REASONS.get(name, "InvalidSpec") if spec == "spec" else "InvalidSpec"
