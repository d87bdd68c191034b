"""Label and field selectors: parsed once, sifted by SQL where it can, and decided here for lists and watches alike."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta

from clockhand.api.runs import group, status
from clockhand.domain import instants, pods, states
from clockhand.store import listing

FIELDS = ("metadata.name", "metadata.namespace", "spec.job", "status.state", "spec.day")
ALL_STATES = frozenset(map(str, states.RunState)) | {listing.SKIPPED}
_FIELD = re.compile(r"(?P<key>[^=!]+?)\s*(?P<operator>==|=|!=)\s*(?P<value>.*)", re.DOTALL)
_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_SET = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<value>{_VALUE})")
_EXISTS = re.compile(rf"(?P<not>!?)\s*(?P<key>{_KEY})")
_COMMA_OUTSIDE = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector. Values None: the key alone decides."""

    key: str
    negated: bool
    values: frozenset[str] | None

    def holds(self, value: str | None) -> bool:
        met = value is not None if self.values is None else value in self.values
        return met != self.negated


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch is about. None and empty mean: no such term."""

    namespace: str | None = None
    name: str | None = None
    job: str | None = None
    day: date | None = None
    states: frozenset[str] = ALL_STATES
    unwanted: frozenset[tuple[str, str]] = frozenset()
    labels: tuple[Requirement, ...] = ()
    impossible: bool = False
    text: str = field(default="", compare=False)

    @property
    def is_bounded(self) -> bool:
        """Whether the list keeps to the last day: nothing in the selectors says how much is wanted."""
        is_found_by_name = self.name is not None and self.namespace is not None
        return not is_found_by_name and self.job is None and self.day is None and self.states == ALL_STATES

    @property
    def by_state(self) -> bool:
        """Whether a run can come to match, or no longer match, in its life."""
        return self.states != ALL_STATES

    @property
    def fingerprint(self) -> str:
        """What a page token is bound to."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def matches(self, run: listing.Run) -> bool:
        """Whether `run` belongs to the list as it is now."""
        return not self.impossible and run.state in self.states and self.concerns(run)

    def concerns(self, run: listing.Run) -> bool:
        """Whether it belongs by what does not change in its life."""
        return (
            run.owner.startswith(group.OWNER_PREFIX)
            and self.namespace in (None, group.namespace_of(run.owner))
            and self.name in (None, run.name)
            and self.job in (None, run.job_name)
            and self.day in (None, run.scheduled_at.astimezone(UTC).date())
            and not (self.unwanted and self.unwanted & _values(run))
            and self._holds(run)
        )

    def sift(self) -> listing.Filter:
        """What SQL can do of it."""
        several = [term for term in self.labels if term.values is not None and not term.negated]
        single = {term.key: next(iter(term.values)) for term in several if term.values and len(term.values) == 1}
        return listing.Filter(
            owner=None if self.namespace is None else group.owner_of(self.namespace),
            job=self.job,
            states=self.states,
            equal=single,
            present=[term.key for term in self.labels if term.values is None and not term.negated],
            absent=[term.key for term in self.labels if term.values is None and term.negated],
            within={term.key: sorted(term.values or ()) for term in several if len(term.values or ()) != 1},
            outside={term.key: sorted(term.values) for term in self.labels if term.values is not None and term.negated},
        )

    def _holds(self, run: listing.Run) -> bool:
        if not self.labels:
            return True
        held = shown_labels(run)
        return all(term.holds(held.get(term.key)) for term in self.labels)


def shown_labels(run: listing.Run) -> dict[str, str]:
    """The job's labels and the one that names the job."""
    return {**run.labels, pods.JOB_LABEL: run.job_name}


def parse(*, namespace: str | None, fields: str | None, labels: str | None) -> Selection:
    """The selection of a request; 400 with the reason where a selector cannot be read."""
    terms = _labels(labels or "")
    job = next((term for term in terms if term.key == pods.JOB_LABEL and not term.negated and term.values), None)
    chosen = Selection(namespace=namespace, labels=terms, text=f"{namespace}\0{fields}\0{labels}")
    if job is not None and job.values is not None and len(job.values) == 1:
        chosen = replace(chosen, job=next(iter(job.values)))
    for part in (fields or "").split(","):
        if part.strip():
            chosen = _field(chosen, part.strip())
    return chosen


def span_of_day(day: date) -> tuple[datetime, datetime]:
    """The first and the last millisecond of a UTC day."""
    start = datetime.combine(day, time(), UTC)
    return start, start + timedelta(days=1) - instants.MILLISECOND


def _field(chosen: Selection, text: str) -> Selection:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise status.bad_request(f"invalid field selector {text!r}: write <field>=<value> or <field>!=<value>")
    key, value = match["key"].strip(), match["value"].strip()
    if key not in FIELDS:
        raise status.bad_request(f"field label not supported: {key}; supported are {', '.join(FIELDS)}")
    if key == "spec.day":
        _day(value)
    if match["operator"] != "!=":
        return _wanted(chosen, key, value)
    if key == "status.state":
        return replace(chosen, states=chosen.states - {value})
    return replace(chosen, unwanted=chosen.unwanted | {(key, value)})


def _wanted(chosen: Selection, key: str, value: str) -> Selection:
    if key == "status.state":
        if value not in ALL_STATES:
            raise status.bad_request(f"status.state: {value!r} is none of {', '.join(sorted(ALL_STATES))}")
        return replace(chosen, states=chosen.states & {value})
    match key:
        case "metadata.name":
            return replace(chosen, name=value, impossible=_clash(chosen, chosen.name, value))
        case "metadata.namespace":
            return replace(chosen, namespace=value, impossible=_clash(chosen, chosen.namespace, value))
        case "spec.job":
            return replace(chosen, job=value, impossible=_clash(chosen, chosen.job, value))
    day = _day(value)
    return replace(chosen, day=day, impossible=_clash(chosen, chosen.day, day))


def _clash(chosen: Selection, before: object, value: object) -> bool:
    return chosen.impossible or before not in (None, value)


def _day(value: str) -> date:
    try:
        day = datetime.strptime(value, "%Y-%m-%d").date()
    except ValueError:
        raise status.bad_request(f"spec.day: {value!r} is not a UTC day; write YYYY-MM-DD") from None
    if not 1970 <= day.year <= 9998:
        raise status.bad_request(f"spec.day: {value!r} is out of range")
    return day


def _values(run: listing.Run) -> frozenset[tuple[str, str]]:
    return frozenset(
        {
            ("metadata.name", run.name),
            ("metadata.namespace", group.namespace_of(run.owner)),
            ("spec.job", run.job_name),
            ("spec.day", run.scheduled_at.astimezone(UTC).date().isoformat()),
        }
    )


def _labels(text: str) -> tuple[Requirement, ...]:
    parts: Sequence[str] = [part.strip() for part in _COMMA_OUTSIDE.split(text)] if text.strip() else ()
    return tuple(_requirement(part) for part in parts)


def _requirement(text: str) -> Requirement:
    if match := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(match["key"], match["operator"] == "notin", values)
    elif match := _EQUALITY.fullmatch(text):
        return Requirement(match["key"], match["operator"] == "!=", frozenset({match["value"]}))
    elif match := _EXISTS.fullmatch(text):
        return Requirement(match["key"], bool(match["not"]), None)
    raise status.bad_request(f"unable to parse requirement {text!r} of the label selector")
