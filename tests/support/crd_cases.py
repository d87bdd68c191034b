"""ScheduledJobs and JobClasses that the API server must take, and others that it must refuse with a sentence."""

from __future__ import annotations

from typing import Any

from clockhand.domain import crd, jobclass_crd

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
Json = dict[str, Any]


def job(name: str = "sample", **fields: object) -> Json:
    """A good object, but for the fields given; None takes one away."""
    body = {"schedule": "0 2 * * *", "template": TEMPLATE, **fields}
    return {
        "apiVersion": f"{crd.GROUP}/{crd.VERSION}",
        "kind": crd.KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in body.items() if value is not None},
    }


def when(**fields: object) -> Json:
    """An object that falls due by other fields than schedule."""
    return job("sample", schedule=None, **fields)


def of_class(**run: object) -> Json:
    """An object whose pods are of a JobClass."""
    return job(template=None, run=run)


def job_class(name: str = "batch", **fields: Any) -> Json:
    """A good class, but for the fields given; None takes one away."""
    spec = {"namespaces": ["team-a"], "template": TEMPLATE, "allow": ["Args"], **fields}
    return {
        "apiVersion": f"{crd.GROUP}/{crd.VERSION}",
        "kind": jobclass_crd.KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


NOON = "2026-12-24T12:00:00Z"
BAD_SCHEDULES = [
    ("0 0 12 * * *", "needs 5 fields: write minute, hour, day of month, month, day of week, without seconds"),
    ("0 2 * *", "needs 5 fields: write minute, hour"),
    ("TZ=UTC 0 2 * * *", "carries a time zone: leave the prefix out and set spec.timeZone"),
    ("CRON_TZ=UTC 0 2 * * *", "carries a time zone: leave the prefix out and set spec.timeZone"),
    ("@every 90m", "cannot be @every: leave it out and set spec.every, such as 90m"),
    ("@reboot", "cannot be @reboot, which means nothing in a cluster: write the time at which to run"),
    ("@fortnightly", "is not a known name: write 5 fields or one of @hourly"),
    ("*/0 * * * *", "has a step of 0: write a step of 1 or more"),
    ("60 * * * *", "is out of range in its minute: write a number from 0 to 59"),
    ("0 24 * * *", "is out of range in its hour: write a number from 0 to 23"),
    ("0 0 0 * *", "is out of range in its day of month: write a number from 1 to 31"),
    ("0 0 * 13 *", "is out of range in its month: write a number from 1 to 12"),
    ("0 0 * * 8", "is out of range in its day of week: write a number from 0 to 7"),
    (",5 * * * *", "has a comma with nothing beside it: leave that comma out"),
    ("+5 * * * *", "has a number with a sign: write plain numbers"),
    ("\u0663 * * * *", "holds a character that is not plain ASCII: write ASCII digits"),
    ("0 0 30 2 *", "names a date that never comes, such as 30 February: write a day"),
]
BAD_INTERVALS = [
    ("90", "is not an interval: write whole days, hours, minutes and seconds in that order"),
    ("1.5h", "is not an interval: write whole days"),
    ("30m1h", "is not an interval: write whole days"),
    ("0s", "is no time at all: write 1s or more"),
]
BAD_INSTANTS = [
    "tomorrow",
    "2026-12-24T18:00:00",
    "2026-02-30T18:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-01-01T00:00:00Z",
]
REFUSED: list[tuple[Json, str]] = [
    (
        job(at="2027-01-01T00:00:00Z"),
        "exactly one of spec.schedule, spec.schedules, spec.every and spec.at must be set",
    ),
    (job(schedule=None), "exactly one of spec.schedule, spec.schedules, spec.every and spec.at must be set"),
    (job(template=None), "exactly one of spec.template, spec.handler and spec.run must be set"),
    (job(handler="email.send"), "exactly one of spec.template, spec.handler and spec.run must be set"),
    (job(run={"class": "batch"}), "exactly one of spec.template, spec.handler and spec.run must be set"),
    (of_class(), "spec.run.class: Required value"),
    (of_class(**{"class": "Batch"}), "spec.run.class is no name of a JobClass: write small letters"),
    (of_class(**{"class": "batch"}, image="any image"), "spec.run.image is no name of an image: leave white space out"),
    (of_class(**{"class": "batch"}, env=[{"name": "A B"}]), "spec.run.env.name is no name of an environment variable"),
    (of_class(**{"class": "batch"}, env=[{"name": "A", "valueFrom": {}}]), 'unknown field "spec.run.env[0].valueFrom"'),
    (of_class(**{"class": "batch"}, volumes=[]), 'unknown field "spec.run.volumes"'),
    (
        of_class(**{"class": "batch"}, resources={"requests": {"cpu": "much"}}),
        "spec.run.resources.requests is no quantity: write one such as 500m, 2 or 1Gi",
    ),
    (
        of_class(**{"class": "batch"}, resources={"limits": {"memory": "-1Gi"}}),
        "spec.run.resources.limits is no quantity: write one such as 500m, 2 or 1Gi",
    ),
    (job(template=None, handler="e-mail:send"), "spec.handler is no name of a handler"),
    (job(template=None, handler="email.send", pool="Mailers"), "spec.pool is no name of a pool"),
    (job(pool="mailers"), "spec.pool is only for a job with spec.handler"),
    *((job(schedule=text), f"spec.schedule {sentence}") for text, sentence in BAD_SCHEDULES),
    *((job(schedule=None, schedules=["@daily", text]), f"spec.schedules {say}") for text, say in BAD_SCHEDULES),
    *((when(every=text), f"spec.every {sentence}") for text, sentence in BAD_INTERVALS),
    *((when(at=text), "spec.at is not an instant from 1970 to 9998: write date") for text in BAD_INSTANTS),
    *((job(startAt=text), "spec.startAt is not an instant from 1970 to 9998: write") for text in BAD_INSTANTS),
    *((job(endAt=text), "spec.endAt is not an instant from 1970 to 9998: write") for text in BAD_INSTANTS),
    (when(schedules=[]), "spec.schedules in body should have at least 1 items"),
    (when(every="90m", timeZone="Europe/Paris"), "spec.timeZone is for spec.schedule: leave it out"),
    (when(at=NOON, timeZone="Europe/Paris"), "spec.timeZone is for spec.schedule: leave it out"),
    (when(every="90m", dst={"gap": "Skip"}), "spec.dst is for spec.schedule: leave it out"),
    (when(at=NOON, dst={"overlap": "Both"}), "spec.dst is for spec.schedule: leave it out"),
    (when(at=NOON, startAt=NOON), "spec.startAt is not for spec.at, which is one instant"),
    (when(at=NOON, endAt=NOON), "spec.endAt is not for spec.at, which is one instant"),
    (job(startAt=NOON, endAt="2026-12-24T12:00:00+01:00"), "spec.endAt lies before spec.startAt"),
    (job(ttlSecondsAfterFinished=5), "spec.ttlSecondsAfterFinished is only for a job with spec.at: leave it out"),
    (job(pauseAfterFailures=0), "spec.pauseAfterFailures in body should be greater than or equal to 1"),
    (job(jitterSeconds=-1), "spec.jitterSeconds in body should be greater than or equal to 0"),
    (job("a" * 64), "metadata.name must be at most 63 characters"),
    (
        job(attemptTimeoutSeconds=-1),
        "spec.attemptTimeoutSeconds in body should be greater than or equal to 1",
    ),
    (job(runTimeoutSeconds=-1), "spec.runTimeoutSeconds in body should be greater than or equal to 1"),
    (
        job(pendingTimeoutSeconds=-1),
        "spec.pendingTimeoutSeconds in body should be greater than or equal to 1",
    ),
    (
        job(startingDeadlineSeconds=-1),
        "spec.startingDeadlineSeconds in body should be greater than or equal to 1",
    ),
    (job(retry={"maxAttempts": 0}), "spec.retry.maxAttempts in body should be greater than or equal to 1"),
    (job(retry={"maxAttempts": 101}), "spec.retry.maxAttempts in body should be less than or equal to 100"),
    (
        job(retry={"maxDisruptions": -1}),
        "spec.retry.maxDisruptions in body should be greater than or equal to 0",
    ),
    (
        job(retry={"backoff": {"initialSeconds": 601}}),
        "spec.retry.backoff.maxSeconds must not be less than initialSeconds",
    ),
    (
        job(retry={"backoff": {"factor": 0.5}}),
        "spec.retry.backoff.factor in body should be greater than or equal to 1",
    ),
    (job(retry={"rules": [{"action": "Fail"}]}), "spec.retry.rules must have onExitCodes or onErrors"),
    (job(retry={"rules": [{"onExitCodes": [0], "action": "Fail"}]}), "spec.retry.rules[0].onExitCodes[0]"),
    (job(priority=101), "spec.priority in body should be less than or equal to 100"),
    (job(concurrencyPolicy="Skip"), 'supported values: "Allow", "Forbid", "Replace", "Queue"'),
    (job(retry={"maxAttemps": 3}), 'unknown field "spec.retry.maxAttemps"'),
    (
        job(template={"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}),
        'spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "Never"',
    ),
    (job(template={"spec": {}}), "spec.template.spec.containers: Required value"),
    (
        job(template={"spec": {"containers": []}}),
        "spec.template.spec.containers in body should have at least 1 items",
    ),
    (
        job(template={"spec": {"containers": [{"name": "a"}]}}),
        "spec.template.spec.containers[0].image: Required value",
    ),
    (job(template={**TEMPLATE, "metadata": {"name": "x"}}), 'unknown field "spec.template.metadata.name"'),
    (job(schedule=""), "spec.schedule in body should be at least 1 chars long"),
    (job(schedule="0 " * 200), "spec.schedule: Too long: may not be more than 256"),
    (job(schedule=",".join(["0"] * 20_000) + " * * * *"), "spec.schedule: Too long: may not be more than 256"),
]


ACCEPTED = [
    *(
        job(schedule=text)
        for text in ("@Hourly", "H H(0-5) * * *", "H/15 * * * *", "*/90 * * * *", "0 0 LW * 5L,mon#2")
    ),
    job(startAt=NOON, endAt=NOON, jitterSeconds=30, dst={"gap": "Skip"}, timeZone="Europe/Paris", pauseAfterFailures=3),
    when(schedules=["0 9 * * 1-5"] * 64),
    when(schedules=[("0," * 123)[:-1] + " 0 1 1 *"] * 64),
    of_class(
        **{"class": "team.batch"},
        image="registry.example.org/reports:1",
        command=["report"],
        args=["--day", ""],
        env=[{"name": "DAY", "value": "$(DATE)"}, {"name": "EMPTY"}],
        resources={"requests": {"cpu": "0.5", "memory": "1Gi"}, "limits": {"cpu": "1500m"}},
    ),
    *(when(every=text, startAt=NOON) for text in ("90m", "1h30m", "36h", "7d", "1d2h3m4s")),
    *(when(at=text, ttlSecondsAfterFinished=0) for text in (NOON, "2026-12-24T18:00:00.123+01:00")),
]


REFUSED_CLASSES: list[tuple[Json, str]] = [
    (job_class(namespaces=None), "spec.namespaces: Required value"),
    (job_class(namespaces=[]), "spec.namespaces in body should have at least 1 items"),
    (job_class(namespaces=["Team"]), "spec.namespaces is no name of a namespace"),
    (job_class(template=None), "spec.template: Required value"),
    (job_class(template={"spec": {}}), "spec.template.spec.containers: Required value"),
    (job_class(template={"spec": {"containers": [{"name": "a"}]}}), "spec.template.spec.containers[0].image: Required"),
    (
        job_class(template={"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}),
        'spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "Never"',
    ),
    (job_class(allow=["Image"]), 'supported values: "Command", "Args", "Env"'),
    (job_class(images=["a b"]), "spec.images is no name of an image: leave white space out"),
    (job_class(maxResources={"cpu": "much"}), "spec.maxResources is no quantity: write one such as 500m, 2 or 1Gi"),
    (job_class(volumes=[]), 'unknown field "spec.volumes"'),
    (job_class("a" * 64), "metadata.name must be at most 63 characters"),
]
