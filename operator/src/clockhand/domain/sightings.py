"""A ScheduledJob as the API server showed it, and what can be made of it.

Whatever a user wrote, reading it gives an answer: a job, or the sentence that its condition will show. One object that
cannot be read must not keep the others from being stored.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from datetime import datetime

import msgspec

from clockhand import errors
from clockhand.domain import conditions, declared, instants
from clockhand.domain import spec as specs

MAX_NAME = 63
TEMPLATE_INVALID = "TemplateInvalid"
CLASS_NOT_FOUND = "ClassNotFound"
CLASS_INVALID = "ClassInvalid"
CLASS_FORBIDS = "ClassForbids"
NEVER = instants.EPOCH
SCHEDULED = "Scheduled"
_NO_SLOT = "no slot comes any more: for others set spec.at or spec.endAt to a later instant"
_TOO_LATE = (
    "spec.at lies before the time at which this spec was stored, and an edit is never retroactive: "
    "set a later instant to run again"
)


class Sighting(declared.Declared, frozen=True, kw_only=True):
    """One object at one resource version; `deleted` where it was last seen going away."""

    spec: Mapping[str, object] = msgspec.field(default_factory=dict)
    deleted: bool = False

    @property
    def namespace(self) -> str:
        return self.owner.removeprefix("k8s/")

    @property
    def class_name(self) -> str | None:
        """The JobClass that it names, whatever else it says."""
        run = self.spec.get("run")
        name = run.get("class") if isinstance(run, Mapping) else None
        return name if isinstance(name, str) else None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: uuid.UUID
    namespace: str
    name: str
    creation_timestamp: datetime
    resource_version: int
    generation: int = 1
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


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
        owner=f"k8s/{metadata.namespace}",
        name=metadata.name,
        generation=metadata.generation,
        resource_version=metadata.resource_version,
        created_at=metadata.creation_timestamp,
        labels=metadata.labels or None,
        spec=spec if isinstance(spec, Mapping) and not deleted else {},
        deleted=deleted,
    )


def read_new(sighting: Sighting, *, now: datetime) -> declared.Reading:
    """What to store for an object that is seen for the first time.

    It counts from its creation, so that no slot between apply and sighting is lost, or from `now` where the clock that
    stamped the creation is ahead. A one-shot's instant may lie before its creation: it is due at once.
    """
    return _reading(sighting, min(sighting.created_at, now), new=True)


def read(sighting: Sighting, *, after: datetime) -> declared.Reading:
    """What to store for an object that was edited: only slots after `after` are its own, however it is written."""
    return _reading(sighting, after, new=False)


def ready(reading: declared.Reading) -> conditions.Condition:
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


def not_ready(fault: declared.Fault) -> conditions.Condition:
    """The Ready condition of a job that does not fire."""
    return conditions.Condition(conditions.READY, conditions.FALSE, fault.reason, fault.sentence)


def _reading(sighting: Sighting, after: datetime, *, new: bool) -> declared.Reading:
    try:
        return _read(sighting, after, new=new)
    except errors.InvalidInput as error:
        return declared.faulty(sighting, declared.Fault(_reason(error), str(error)), after=after)
    except RecursionError:
        fault = declared.Fault("InvalidSpec", "spec: is nested too deep: write it flatter")
        return declared.faulty(sighting, fault, after=after)


def _read(sighting: Sighting, after: datetime, *, new: bool) -> declared.Reading:
    if len(sighting.name) > MAX_NAME:
        raise errors.InvalidInput("metadata.name", f"must be at most {MAX_NAME} characters")
    spec = declared.written(specs.parse(sighting.spec))
    return declared.read(sighting, spec, declared.begin(spec.job, sighting.origin, after=after, new=new))


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
