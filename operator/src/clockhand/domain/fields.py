"""The one table of the fields of `ScheduledJob.spec`."""

from __future__ import annotations

import enum
from types import MappingProxyType

from clockhand.domain.table import Field, Kind, Table, choice, integer, nested, string, template

_TEN_YEARS = 315_360_000
_YEAR = 31_536_000
_MONTH = 2_592_000
_DAY = 86_400


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
    string("schedules[]", "One of the schedules.", high=256),
    string("every", "A fixed interval, such as 90m, counted from startAt or else from the job's creation.", high=32),
    string("at", "The one instant to run at, with its offset, such as 2026-12-24T18:00:00Z.", high=40),
    string("timeZone", "The IANA time zone of the schedule.", high=64, default="UTC"),
    nested("dst", "What a schedule bound to a time of day does when clocks change."),
    choice(
        "dst.gap",
        "A skipped wall time: run straight after it, or not at all.",
        values=Gap,
        default=Gap.RUN_AFTER,
    ),
    choice(
        "dst.overlap",
        "A wall time that comes twice: run the first time, or both.",
        values=Overlap,
        default=Overlap.FIRST,
    ),
    string("startAt", "No slot before this instant; with every, the first slot.", high=40),
    string("endAt", "No slot after this instant.", high=40),
    Field(
        path="jitterSeconds",
        kind=Kind.INTEGER,
        text="Start up to this much later than the slot, by an amount of the job's own that stays the same.",
        default=0,
        low=0,
        high=_DAY,
    ),
    Field(path="suspend", kind=Kind.BOOLEAN, text="No slot falls due while true.", default=False),
    integer(
        "startingDeadlineSeconds",
        "A slot that cannot start within this time of its instant is skipped.",
        low=1,
        high=_TEN_YEARS,
    ),
    nested("catchUp", "What happens to slots missed while nothing could fire them."),
    choice(
        "catchUp.policy",
        "Latest runs the newest missed slot, All the newest ones in order, None no missed slot.",
        values=CatchUpPolicy,
        default=CatchUpPolicy.LATEST,
    ),
    integer("catchUp.limit", "With All, at most this many missed slots.", low=1, high=1_000, default=100),
)

_HOW = (
    choice(
        "concurrencyPolicy",
        "When a run is still live: Allow another, Forbid it, Replace the live one, or Queue behind it.",
        values=ConcurrencyPolicy,
        default=ConcurrencyPolicy.ALLOW,
    ),
    integer(
        "queueLimit",
        "Slots are skipped where this many runs of the job wait already, by Queue or by maxConcurrentRuns.",
        low=1,
        high=10_000,
        default=100,
    ),
    integer("maxConcurrentRuns", "At most this many runs of the job at a time.", low=1, high=10_000),
    string("concurrencyGroup", "A capacity shared with other jobs; the administrator sets it.", high=63),
    integer("priority", "Runs of a higher one are taken first.", low=-100, high=100, default=0),
    choice(
        "delivery",
        "AtMostOnce never starts a second attempt when the outcome of the first is unknown.",
        values=Delivery,
        default=Delivery.AT_LEAST_ONCE,
    ),
    choice(
        "onDelete",
        "When the job is deleted, a live attempt may Finish or is cancelled.",
        values=OnDelete,
        default=OnDelete.FINISH,
    ),
    nested("retry", "What happens after an attempt that did not succeed."),
    integer("retry.maxAttempts", "Attempts that may fail before the run is dead.", low=1, high=100, default=3),
    nested("retry.backoff", "The wait before the next attempt."),
    integer("retry.backoff.initialSeconds", "The wait after the first failure.", low=0, high=_DAY, default=10),
    Field(
        path="retry.backoff.factor",
        kind=Kind.NUMBER,
        text="Each wait is this many times the one before.",
        default=2.0,
        low=1,
        high=10,
    ),
    integer("retry.backoff.maxSeconds", "No wait is longer.", low=1, high=7 * _DAY, default=600),
    Field(
        path="retry.backoff.jitter",
        kind=Kind.NUMBER,
        text="The share of a wait that is left to chance.",
        default=0.1,
        low=0,
        high=1,
    ),
    integer(
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
    integer("retry.rules[].onExitCodes[]", "An exit code.", low=1, high=255),
    Field(
        path="retry.rules[].onErrors",
        kind=Kind.ARRAY,
        text="Names of errors that a handler ended with, such as TimeoutError or http.503.",
        low=1,
        high=64,
    ),
    string("retry.rules[].onErrors[]", "The name of an error.", high=128),
    Field(
        path="retry.rules[].action",
        kind=Kind.STRING,
        text="Fail: dead at once. Retry: counted as a failure. Ignore: counted as a disruption.",
        enum=tuple(action.value for action in RuleAction),
        required=True,
    ),
    integer(
        "attemptTimeoutSeconds",
        "An attempt is stopped after this time (handlers: 300).",
        low=1,
        high=_YEAR,
    ),
    integer(
        "runTimeoutSeconds",
        "A run is dead this long after it was made, all attempts included.",
        low=1,
        high=_YEAR,
    ),
    integer(
        "pendingTimeoutSeconds",
        "A pod that has not started by then has failed.",
        low=1,
        high=_MONTH,
        default=900,
    ),
    integer("pauseAfterFailures", "Pause the job after this many dead runs in a row.", low=1, high=1_000),
    integer(
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
    nested("podRetention", "How long finished pods are kept; the history of runs does not depend on them."),
    integer("podRetention.succeededSeconds", "Time to keep a pod that succeeded.", low=0, high=_MONTH, default=60),
    integer("podRetention.failedCount", "How many failed pods to keep.", low=0, high=100, default=3),
    *template(
        "The pod of each attempt, as in a PodTemplateSpec.",
        of="the pod",
        spec="A PodSpec; restartPolicy is Never, since Clockhand does the retries.",
    ),
    Field(
        path="run",
        kind=Kind.OBJECT,
        text="A pod as an administrator's JobClass has it, with what the class leaves to its users, in place of a template.",
    ),
    Field(path="run.class", kind=Kind.STRING, text="The JobClass.", low=1, high=63, required=True),
    string("run.image", "The image, where the class lets its users choose one.", high=1_024),
    Field(
        path="run.command",
        kind=Kind.ARRAY,
        text="The program in place of the image's own, where the class allows Command.",
        low=1,
        high=64,
    ),
    Field(path="run.command[]", kind=Kind.STRING, text="The program, or one of its first arguments.", high=4_096),
    Field(path="run.args", kind=Kind.ARRAY, text="The arguments, where the class allows Args.", low=0, high=256),
    Field(path="run.args[]", kind=Kind.STRING, text="An argument.", high=4_096),
    Field(
        path="run.env",
        kind=Kind.ARRAY,
        text="Environment variables beside those of the class, where it allows Env.",
        default=(),
        low=0,
        high=64,
    ),
    Field(path="run.env[]", kind=Kind.OBJECT, text="A variable."),
    Field(path="run.env[].name", kind=Kind.STRING, text="Its name.", low=1, high=128, required=True),
    Field(path="run.env[].value", kind=Kind.STRING, text="Its value.", default="", high=8_192),
    Field(path="run.resources", kind=Kind.OBJECT, text="What each pod needs, up to the maxResources of the class."),
    *(
        row
        for name, text in (("requests", "What is kept free for it."), ("limits", "What it gets at most."))
        for row in (
            Field(path=f"run.resources.{name}", kind=Kind.MAP, text=text, low=0, high=8),
            string(f"run.resources.{name}[]", "A quantity, such as 500m, 2 or 1Gi.", high=32),
        )
    ),
    string("handler", "The handler that takes each run, such as email.send, in place of a pod.", high=128),
    string(
        "pool",
        "The pool whose workers have the handler: a name, or namespace/name where that pool allows it; default if absent.",
        high=127,
    ),
)

TABLE = Table((*_WHEN, *_HOW, *_WHAT))
ONE_OF_WHEN = ("schedule", "schedules", "every", "at")
ONE_OF_WHAT = ("template", "handler", "run")
