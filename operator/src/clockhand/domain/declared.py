"""A job at one version, and what can be made of what was written of it: the same wherever it is declared."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from clockhand.domain import classrun, instants, times
from clockhand.domain import spec as specs

_EMPTY = "{}"
_FIXED_ZONES = frozenset({"UTC", "Etc/UTC"})


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """Which job it is, and which version of it; `owner` is `k8s/<namespace>` or `rest/<tenant>`."""

    uid: uuid.UUID
    owner: str
    name: str
    generation: int
    resource_version: int
    created_at: datetime
    labels: dict[str, str] | None = None

    @property
    def origin(self) -> times.Origin:
        return times.Origin(self.uid, self.created_at)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a job does not fire: the reason of its Ready condition, and the sentence."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Written:
    """A spec in the form in which it is stored: payload and template apart from the rest."""

    job: specs.JobSpec
    spec_json: str
    payload_json: str
    template_json: str | None
    template_hash: bytes | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Slots up to `counts_from` are none of the job's; `first_slot_at` is the first one after it, None where none comes."""

    counts_from: datetime
    first_slot_at: datetime | None

    def later(self, after: datetime) -> Begin | None:
        """The same for an instant that is no earlier; None where it has to be worked out anew."""
        if self.first_slot_at is None or self.first_slot_at <= after:
            return None
        return Begin(min(after, self.first_slot_at - instants.MILLISECOND), self.first_slot_at)


@dataclass(frozen=True, slots=True)
class Reading:
    """A declaration made sense of. Without `fault`, `job` is there; with one, nothing of the spec is stored."""

    declared: Declared
    job: specs.JobSpec | None
    fault: Fault | None
    counts_from: datetime
    spec_json: str = _EMPTY
    payload_json: str | None = None
    template_json: str | None = None
    template_hash: bytes | None = None
    first_slot_at: datetime | None = None
    class_hash: bytes | None = None
    """Of the JobClass by which the template was made; None: there was none."""
    barred: Fault | None = None
    """Why its JobClass keeps a job that could be read from firing."""

    @property
    def suspended(self) -> bool:
        return self.job is not None and self.job.suspend

    @property
    def finished(self) -> bool:
        return self.job is not None and self.first_slot_at is None

    @property
    def run(self) -> classrun.Run | None:
        """What it says of its pods, where they are of a JobClass."""
        return None if self.job is None else self.job.run

    @property
    def delay(self) -> timedelta:
        return timedelta() if self.job is None else self.job.delay(self.declared.uid)

    @property
    def zone(self) -> str | None:
        """The zone whose rules the slots follow; None where no new zone data can move them."""
        fixed = self.job is None or self.job.time_zone in _FIXED_ZONES or self.job.every or self.job.at
        return None if self.job is None or fixed else self.job.time_zone

    @property
    def ttl_seconds(self) -> int | None:
        return self.job.ttl_seconds_after_finished if self.job is not None and self.job.one_shot else None


def written(job: specs.JobSpec) -> Written:
    """What is stored of a spec."""
    template, digest = (None, None) if job.template is None else stored_template(job.template)
    return Written(
        job=job,
        spec_json=specs.encode(job).decode(),
        payload_json=msgspec.json.encode(job.payload).decode(),
        template_json=template,
        template_hash=digest,
    )


def stored_template(template: Mapping[str, object]) -> tuple[str, bytes]:
    """A template as text of JSON, and its hash."""
    text = msgspec.json.encode(template, order="deterministic")
    return text.decode(), hashlib.sha256(text).digest()


def begin(job: specs.JobSpec, origin: times.Origin, *, after: datetime, new: bool) -> Begin:
    """Where the slots of a job begin of which only those after `after` are its own.

    That of a `new` one-shot may lie before: it is due at once.
    """
    first = job.due(origin).next_after(after)
    if first is None and new:
        first = job.run_at
    return Begin(after if first is None else min(after, first - instants.MILLISECOND), first)


def read(declared: Declared, spec: Written, begins: Begin) -> Reading:
    """What to store for a job."""
    return Reading(
        declared,
        spec.job,
        None,
        begins.counts_from,
        spec_json=spec.spec_json,
        payload_json=spec.payload_json,
        template_json=spec.template_json,
        template_hash=spec.template_hash,
        first_slot_at=begins.first_slot_at,
    )


def faulty(declared: Declared, fault: Fault, *, after: datetime) -> Reading:
    """What to store for a job that cannot be read or kept: that it is there, and why it does not fire."""
    return Reading(declared, None, fault, after)
