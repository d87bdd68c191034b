"""The one table of the fields of `ScheduledJob.spec`.

The schema of the custom resource, the parser, the defaults of the parsed values and the documentation come
from it, so that a field cannot mean one thing on apply and another in the engine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")

_TEN_YEARS = 315_360_000
_YEAR = 31_536_000
_MONTH = 2_592_000
_DAY = 86_400


class Kind(enum.StrEnum):
    """What a value is in JSON."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    LABELS = "labels"  # a map of strings
    ANY = "any"
    RAW = "raw"  # an object kept as it is


class ConcurrencyPolicy(enum.StrEnum):
    """What happens to a slot that falls due while a run of the job is live."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"
    QUEUE = "Queue"


class CatchUpPolicy(enum.StrEnum):
    """Which missed slots run."""

    LATEST = "Latest"
    ALL = "All"
    NONE = "None"


class Delivery(enum.StrEnum):
    """Whether an attempt whose outcome was not seen is tried again."""

    AT_LEAST_ONCE = "AtLeastOnce"
    AT_MOST_ONCE = "AtMostOnce"


class OnDelete(enum.StrEnum):
    """What a live attempt does when its job is deleted."""

    FINISH = "Finish"
    CANCEL = "Cancel"


class RuleAction(enum.StrEnum):
    """What a failed attempt leads to: dead at once, a counted retry, or one counted as a disruption."""

    FAIL = "Fail"
    RETRY = "Retry"
    IGNORE = "Ignore"


class Gap(enum.StrEnum):
    """What a slot does whose wall time is skipped by a clock change."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class Overlap(enum.StrEnum):
    """What a slot does whose wall time comes twice."""

    FIRST = "First"
    BOTH = "Both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One row. `low` and `high` bound a number, the length of a string or the number of items."""

    path: str
    kind: Kind
    text: str
    default: object = None
    low: float | None = None
    high: float | None = None
    enum: tuple[str, ...] = ()
    required: bool = False
    beyond: str = ""  # what to write instead of more than `high`

    @property
    def name(self) -> str:
        return self.path.removesuffix("[]").rpartition(".")[2]


def _string(path: str, text: str, *, high: int, default: str | None = None) -> Field:
    return Field(path=path, kind=Kind.STRING, text=text, low=1, high=high, default=default)


def _integer(path: str, text: str, *, low: int, high: int, default: int | None = None) -> Field:
    return Field(path=path, kind=Kind.INTEGER, text=text, low=low, high=high, default=default)


def _choice(path: str, text: str, *, values: type[enum.StrEnum], default: str | None) -> Field:
    names = tuple(value.value for value in values)
    return Field(path=path, kind=Kind.STRING, text=text, enum=names, default=default)


def _object(path: str, text: str) -> Field:
    return Field(path=path, kind=Kind.OBJECT, text=text, default=MappingProxyType({}))


_WHEN = (
    Field(
        path="schedule",
        kind=Kind.STRING,
        text="Five cron fields, or @hourly, @daily, @weekly, @monthly, @yearly; H is a value of the job's own.",
        low=1,
        high=256,
        beyond="write several in spec.schedules",
    ),
    Field(
        path="schedules",
        kind=Kind.ARRAY,
        text="Several schedules; an instant that more than one names counts once.",
        low=1,
        high=64,
    ),
    _string("schedules[]", "One of the schedules.", high=256),
    _string("every", "A fixed interval, such as 90m, counted from startAt or else from the job's creation.", high=32),
    _string("at", "The one instant to run at, with its offset, such as 2026-12-24T18:00:00Z.", high=40),
    _string("timeZone", "The IANA time zone of the schedule.", high=64, default="UTC"),
    _object("dst", "What a schedule bound to a time of day does when clocks change."),
    _choice(
        "dst.gap",
        "A skipped wall time: run straight after it, or not at all.",
        values=Gap,
        default=Gap.RUN_AFTER,
    ),
    _choice(
        "dst.overlap",
        "A wall time that comes twice: run the first time, or both.",
        values=Overlap,
        default=Overlap.FIRST,
    ),
    _string("startAt", "No slot before this instant; with every, the first slot.", high=40),
    _string("endAt", "No slot after this instant.", high=40),
    Field(
        path="jitterSeconds",
        kind=Kind.INTEGER,
        text="Start up to this much later than the slot, by an amount of the job's own that stays the same.",
        default=0,
        low=0,
        high=_DAY,
    ),
    Field(path="suspend", kind=Kind.BOOLEAN, text="No slot falls due while true.", default=False),
    _integer(
        "startingDeadlineSeconds",
        "A slot that cannot start within this time of its instant is skipped.",
        low=1,
        high=_TEN_YEARS,
    ),
    _object("catchUp", "What happens to slots missed while nothing could fire them."),
    _choice(
        "catchUp.policy",
        "Latest runs the newest missed slot, All the newest ones in order, None no missed slot.",
        values=CatchUpPolicy,
        default=CatchUpPolicy.LATEST,
    ),
    _integer("catchUp.limit", "With All, at most this many missed slots.", low=1, high=1_000, default=100),
)

_HOW = (
    _choice(
        "concurrencyPolicy",
        "When a run is still live: Allow another, Forbid it, Replace the live one, or Queue behind it.",
        values=ConcurrencyPolicy,
        default=ConcurrencyPolicy.ALLOW,
    ),
    _integer(
        "queueLimit",
        "Slots are skipped where this many runs of the job wait already, by Queue or by maxConcurrentRuns.",
        low=1,
        high=10_000,
        default=100,
    ),
    _integer("maxConcurrentRuns", "At most this many runs of the job at a time.", low=1, high=10_000),
    _string("concurrencyGroup", "A capacity shared with other jobs; the administrator sets it.", high=63),
    _integer("priority", "Runs of a higher one are taken first.", low=-100, high=100, default=0),
    _choice(
        "delivery",
        "AtMostOnce never starts a second attempt when the outcome of the first is unknown.",
        values=Delivery,
        default=Delivery.AT_LEAST_ONCE,
    ),
    _choice(
        "onDelete",
        "When the job is deleted, a live attempt may Finish or is cancelled.",
        values=OnDelete,
        default=OnDelete.FINISH,
    ),
    _object("retry", "What happens after an attempt that did not succeed."),
    _integer("retry.maxAttempts", "Attempts that may fail before the run is dead.", low=1, high=100, default=3),
    _object("retry.backoff", "The wait before the next attempt."),
    _integer("retry.backoff.initialSeconds", "The wait after the first failure.", low=0, high=_DAY, default=10),
    Field(
        path="retry.backoff.factor",
        kind=Kind.NUMBER,
        text="Each wait is this many times the one before.",
        default=2.0,
        low=1,
        high=10,
    ),
    _integer("retry.backoff.maxSeconds", "No wait is longer.", low=1, high=7 * _DAY, default=600),
    Field(
        path="retry.backoff.jitter",
        kind=Kind.NUMBER,
        text="The share of a wait that is left to chance.",
        default=0.1,
        low=0,
        high=1,
    ),
    _integer(
        "retry.maxDisruptions",
        "Attempts lost to evictions, lost nodes and the like before the run is dead.",
        low=0,
        high=1_000,
        default=5,
    ),
    Field(
        path="retry.rules",
        kind=Kind.ARRAY,
        text="Exit codes and errors that need another answer; the first match wins.",
        default=(),
        low=0,
        high=32,
    ),
    Field(path="retry.rules[]", kind=Kind.OBJECT, text="One rule."),
    Field(
        path="retry.rules[].onExitCodes",
        kind=Kind.ARRAY,
        text="Exit codes of the main container, or of a command that a worker ran.",
        low=1,
        high=64,
    ),
    _integer("retry.rules[].onExitCodes[]", "An exit code.", low=1, high=255),
    Field(
        path="retry.rules[].onErrors",
        kind=Kind.ARRAY,
        text="Names of errors that a handler ended with, such as TimeoutError or http.503.",
        low=1,
        high=64,
    ),
    _string("retry.rules[].onErrors[]", "The name of an error.", high=128),
    Field(
        path="retry.rules[].action",
        kind=Kind.STRING,
        text="Fail: dead at once. Retry: counted as a failure. Ignore: counted as a disruption.",
        enum=tuple(action.value for action in RuleAction),
        required=True,
    ),
    _integer(
        "attemptTimeoutSeconds",
        "An attempt is stopped after this time (handlers: 300).",
        low=1,
        high=_YEAR,
    ),
    _integer(
        "runTimeoutSeconds",
        "A run is dead this long after it was made, all attempts included.",
        low=1,
        high=_YEAR,
    ),
    _integer(
        "pendingTimeoutSeconds",
        "A pod that has not started by then has failed.",
        low=1,
        high=_MONTH,
        default=900,
    ),
    _integer("pauseAfterFailures", "Pause the job after this many dead runs in a row.", low=1, high=1_000),
    _integer(
        "ttlSecondsAfterFinished",
        "Delete a job with at this long after its run.",
        low=0,
        high=_YEAR,
    ),
)

_WHAT = (
    Field(
        path="payload",
        kind=Kind.ANY,
        text="Any JSON up to 64 KiB, handed to each run as CLOCKHAND_PAYLOAD.",
        default=MappingProxyType({}),
    ),
    _object("podRetention", "How long finished pods are kept; the history of runs does not depend on them."),
    _integer("podRetention.succeededSeconds", "Time to keep a pod that succeeded.", low=0, high=_MONTH, default=60),
    _integer("podRetention.failedCount", "How many failed pods to keep.", low=0, high=100, default=3),
    Field(path="template", kind=Kind.OBJECT, text="The pod of each attempt, as in a PodTemplateSpec."),
    Field(path="template.metadata", kind=Kind.OBJECT, text="Labels and annotations of the pod."),
    Field(path="template.metadata.labels", kind=Kind.LABELS, text="Labels of the pod.", high=64),
    Field(path="template.metadata.annotations", kind=Kind.LABELS, text="Annotations of the pod.", high=64),
    Field(
        path="template.spec",
        kind=Kind.RAW,
        text="A PodSpec; restartPolicy is Never, since Clockhand does the retries.",
        required=True,
    ),
    _string("handler", "The handler that takes each run, such as email.send, in place of a pod.", high=128),
    _string(
        "pool",
        "The pool whose workers have the handler: a name, or namespace/name where that pool allows it; default if absent.",
        high=127,
    ),
)

TABLE: tuple[Field, ...] = (*_WHEN, *_HOW, *_WHAT)
ONE_OF_WHEN = ("schedule", "schedules", "every", "at")
ONE_OF_WHAT = ("template", "handler")


@lru_cache(maxsize=1)
def by_path() -> Mapping[str, Field]:
    """The table, keyed by path."""
    return MappingProxyType({field.path: field for field in TABLE})


@lru_cache(maxsize=64)
def children(path: str) -> Mapping[str, Field]:
    """The fields directly under an object, keyed by name; the path "" is the spec itself."""
    prefix = f"{path}." if path else ""
    found = (field for field in TABLE if field.path.startswith(prefix) and not field.path.endswith("[]"))
    return MappingProxyType({f.name: f for f in found if "." not in f.path[len(prefix) :]})


def default(path: str, kind: type[T]) -> T:
    """The default of a field, as the type that its reader expects."""
    value = by_path()[path].default
    if not isinstance(value, kind):
        raise TypeError(f"the default of {path} is no {kind.__name__}")
    return value
