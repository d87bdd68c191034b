"""A wrong spec is refused with the path of the field and one sentence; a right one loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
import yaml
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import jobclass, spec, times, workerpool

ROOT = Path(__file__).resolve().parents[2]
CONTAINERS = [{"name": "main", "image": "any"}]
Json = dict[str, Any]
TEMPLATE: Json = {"spec": {"containers": CONTAINERS}}


def job(**values: object) -> Json:
    return {"schedule": "0 2 * * *", "template": TEMPLATE, **values}


def without(name: str, **values: object) -> Json:
    return {key: value for key, value in job(**values).items() if key != name}


def when(**values: object) -> Json:
    return without("schedule", **values)


def pod(**values: object) -> Json:
    return job(template={"spec": {"containers": CONTAINERS, **values}})


def nested(levels: int) -> Json:
    document: Json = {}
    for _ in range(levels):
        document = {"a": document}
    return document


ONE_WHEN = "exactly one of spec.schedule, spec.schedules, spec.every and spec.at must be set"
ONE_WHAT = "exactly one of spec.template, spec.handler and spec.run must be set"
REFUSED: list[tuple[Json, str, str]] = [
    ({}, "spec", ONE_WHEN),
    (without("schedule"), "spec", ONE_WHEN),
    (without("template"), "spec", ONE_WHAT),
    (without("template", handler="e-mail:send"), "spec.handler", "is no name of a handler"),
    (without("template", handler="mail", pool="Mailers"), "spec.pool", "is no name of a pool"),
    (without("template", handler="mail", pool="a/b/c"), "spec.pool", "is no name of a pool"),
    (job(run={"class": "batch"}), "spec", ONE_WHAT),
    (without("template", run={}), "spec.run.class", "is missing"),
    (without("template", run={"class": "Batch"}), "spec.run.class", "is no name of a JobClass"),
    (without("template", run={"class": "batch", "image": "a b"}), "spec.run.image", "leave white space out"),
    (without("template", run={"class": "batch", "env": [{"name": "1"}]}), "spec.run.env[0].name", "is no name of an"),
    (
        without("template", run={"class": "batch", "resources": {"limits": {"cpu": "1e3"}}}),
        "spec.run.resources.limits.cpu",
        "is no quantity: write one such as 500m, 2 or 1Gi",
    ),
    (job(at="2027-01-01T00:00:00Z"), "spec", ONE_WHEN),
    (job(pool="mailers"), "spec.pool", "is only for a job with spec.handler"),
    (when(every="90"), "spec.every", "is not an interval: write whole days, hours, minutes and seconds"),
    (when(every="30m1h"), "spec.every", "in that order, such as 90m, 1h30m or 7d"),
    (when(every="0s"), "spec.every", "is no time at all: write 1s or more"),
    (when(every="9999d"), "spec.every", "is longer than 3650d"),
    (when(at="tomorrow"), "spec.at", "is not an instant from 1970 to 9998: write date"),
    (when(at="2027-01-01T00:00:00"), "spec.at", "is not an instant from 1970 to 9998: write date"),
    (when(at="2027-02-30T00:00:00Z"), "spec.at", "is not an instant from 1970 to 9998: write date"),
    (when(at="2027-01-01T00:00:00.0001Z"), "spec.at", "is not an instant from 1970 to 9998: write date"),
    (when(at="1969-12-31T23:59:59Z"), "spec.at", "is not an instant from 1970 to 9998"),
    (when(schedules=[]), "spec.schedules", "must not be empty"),
    (when(schedules=["@daily", "60 * * * *"]), "spec.schedules[1]", "write a number from 0 to 59"),
    (when(schedules=["@daily"] * 65), "spec.schedules", "must be at most 64 items"),
    (when(every="90m", timeZone="Europe/Berlin"), "spec.timeZone", "is for spec.schedule: leave it out"),
    (when(at="2027-01-01T00:00:00Z", dst={"gap": "Skip"}), "spec.dst", "is for spec.schedule: leave it out"),
    (when(at="2027-01-01T00:00:00Z", startAt="2027-01-01T00:00:00Z"), "spec.startAt", "leave it out"),
    (when(at="2027-01-01T00:00:00Z", endAt="2027-01-01T00:00:00Z"), "spec.endAt", "leave it out"),
    (job(startAt="soon"), "spec.startAt", "is not an instant"),
    (job(startAt="2027-01-02T00:00:00Z", endAt="2027-01-01T00:00:00Z"), "spec.endAt", "lies before spec.startAt"),
    (job(ttlSecondsAfterFinished=3), "spec.ttlSecondsAfterFinished", "is only for a job with spec.at"),
    (job(pauseAfterFailures=0), "spec.pauseAfterFailures", "must be at least 1"),
    (job(jitterSeconds=-1), "spec.jitterSeconds", "must be at least 0"),
    (job(schedule="0 0 30 2 *"), "spec.schedule", "names a date that never comes"),
    (job(schedule="0 0 12 * * *"), "spec.schedule", "has 6 fields where 5 are needed"),
    (job(schedule="0 22-2 * * *"), "spec.schedule", "write 22-23,0-2"),
    (job(schedule=""), "spec.schedule", "must not be empty"),
    (
        job(schedule="0 " * 150),
        "spec.schedule",
        "must be at most 256 characters, not 300: write several in spec.schedules",
    ),
    (
        job(schedule=",".join(["5"] * 20_000) + " * * * *"),
        "spec.schedule",
        "must be at most 256 characters, not 40007: write several in spec.schedules",
    ),
    (job(schedule=5), "spec.schedule", "must be a string, not a number"),
    (job(timeZone="Europe/Pari"), "spec.timeZone", "Europe/Paris"),
    (job(concurencyPolicy="Forbid"), "spec.concurencyPolicy", "did you mean concurrencyPolicy?"),
    (job(retry={"maxAttemps": 3}), "spec.retry.maxAttemps", "did you mean maxAttempts?"),
    (job(catchUp={"zzz": 3}), "spec.catchUp.zzz", "write policy, limit"),
    (job(concurrencyPolicy="forbid"), "spec.concurrencyPolicy", "did you mean Forbid?"),
    (job(concurrencyPolicy="never"), "spec.concurrencyPolicy", "is not a known value"),
    (job(onDelete="x"), "spec.onDelete", "write Finish, Cancel"),
    (job(attemptTimeoutSeconds=-5), "spec.attemptTimeoutSeconds", "must be at least 1, not -5"),
    (job(runTimeoutSeconds=0), "spec.runTimeoutSeconds", "must be at least 1, not 0"),
    (job(pendingTimeoutSeconds=-1), "spec.pendingTimeoutSeconds", "must be at least 1, not -1"),
    (job(startingDeadlineSeconds=-1), "spec.startingDeadlineSeconds", "must be at least 1, not -1"),
    (job(retry={"maxAttempts": 101}), "spec.retry.maxAttempts", "must be at most 100, not 101"),
    (job(retry={"maxAttempts": 2.5}), "spec.retry.maxAttempts", "must be a whole number"),
    (job(retry={"maxAttempts": True}), "spec.retry.maxAttempts", "must be a whole number, not a boolean"),
    (job(retry={"maxAttempts": "3"}), "spec.retry.maxAttempts", "must be a whole number, not a string"),
    (job(retry=[]), "spec.retry", "must be an object, not a list"),
    (job(retry={"backoff": {"factor": float("nan")}}), "spec.retry.backoff.factor", "is NaN or infinite"),
    (job(retry={"backoff": {"factor": "2"}}), "spec.retry.backoff.factor", "must be a number"),
    (
        job(retry={"backoff": {"initialSeconds": 700}}),
        "spec.retry.backoff.maxSeconds",
        "must not be less than initialSeconds",
    ),
    (job(retry={"rules": {}}), "spec.retry.rules", "must be a list, not an object"),
    (job(retry={"rules": [{"action": "Fail"}]}), "spec.retry.rules[0]", "must have onExitCodes or onErrors"),
    (job(retry={"rules": [{"onErrors": [""], "action": "Fail"}]}), "spec.retry.rules[0].onErrors[0]", "empty"),
    (job(retry={"rules": [{"onExitCodes": [], "action": "Fail"}]}), "spec.retry.rules[0].onExitCodes", "empty"),
    (
        job(retry={"rules": [{"onExitCodes": [1, 0], "action": "Fail"}]}),
        "spec.retry.rules[0].onExitCodes[1]",
        "must be at least 1, not 0",
    ),
    (job(retry={"rules": [{"onExitCodes": [1]}]}), "spec.retry.rules[0].action", "is missing"),
    (job(suspend="true"), "spec.suspend", "must be true or false, not a string"),
    (job(payload={"a": ["\0"]}), "spec.payload.a[0]", "holds a NUL character"),
    (job(payload={"a\0": 1}), "spec.payload", "holds a NUL character"),
    (job(payload={"a": "\ud800"}), "spec.payload.a", "half of a surrogate pair"),
    (job(payload=[float("inf")]), "spec.payload[0]", "is NaN or infinite"),
    (job(payload=float("nan")), "spec.payload", "is NaN or infinite"),
    (job(payload={"n": 2**64}), "spec.payload.n", "is an integer beyond 64 bits"),
    (job(payload={1: 2}), "spec.payload", "has a key that is not a string"),
    (job(payload={"a": b"x"}), "spec.payload.a", "is not JSON"),
    (job(payload=nested(100_000)), "spec.payload", "is nested deeper than 64 levels"),
    (job(payload="x" * 66_560), "spec.payload", "more than 65536"),
    (job(payload="ü" * 32_768), "spec.payload", "is 65538 bytes as compact JSON, more than 65536"),
    (job(template={}), "spec.template.spec", "is missing"),
    (job(template={"spec": {}}), "spec.template.spec.containers", "must list at least one container"),
    (pod(containers=[]), "spec.template.spec.containers", "must list at least one container"),
    (pod(containers=["a"]), "spec.template.spec.containers", "must be a list of objects"),
    (pod(restartPolicy="Always"), "spec.template.spec.restartPolicy", "must be Never"),
    (pod(restartPolicy="OnFailure"), "spec.template.spec.restartPolicy", "must be Never"),
    (pod(hostname="a\0"), "spec.template.spec.hostname", "holds a NUL character"),
    (
        job(template={**TEMPLATE, "metadata": {"labels": {"a": 1}}}),
        "spec.template.metadata.labels.a",
        "put it in quotes",
    ),
    (job(template={**TEMPLATE, "metadata": {"name": "x"}}), "spec.template.metadata.name", "not a known field"),
    (job(template={**TEMPLATE, "metadata": {"labels": {"a": "\0"}}}), "spec.template.metadata.labels.a", "NUL"),
]


@pytest.mark.parametrize(("document", "field", "sentence"), REFUSED, ids=[field for _, field, _ in REFUSED])
def test_wrong_spec_is_refused(document: Json, field: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        spec.parse(document)
    assert caught.value.field == field
    assert sentence in caught.value.sentence


def test_full_spec_is_read_whole() -> None:
    parsed = spec.parse(
        job(
            timeZone="Europe/Berlin",
            suspend=True,
            startingDeadlineSeconds=60,
            catchUp={"policy": "All", "limit": 7},
            concurrencyPolicy="Queue",
            queueLimit=5,
            maxConcurrentRuns=2,
            priority=-100,
            delivery="AtMostOnce",
            onDelete="Cancel",
            retry={
                "maxAttempts": 9,
                "backoff": {"initialSeconds": 1, "factor": 1.5, "maxSeconds": 30, "jitter": 0},
                "maxDisruptions": 0,
                "rules": [{"onExitCodes": [42, 43], "action": "Fail"}, {"onExitCodes": [75], "action": "Ignore"}],
            },
            attemptTimeoutSeconds=10,
            runTimeoutSeconds=100,
            pendingTimeoutSeconds=20,
            payload={"a": [1, None]},
            podRetention={"succeededSeconds": 0, "failedCount": 1},
        )
    )
    assert parsed == spec.JobSpec(
        schedule="0 2 * * *",
        time_zone="Europe/Berlin",
        suspend=True,
        starting_deadline_seconds=60,
        catch_up=spec.CatchUp(policy=spec.CatchUpPolicy.ALL, limit=7),
        concurrency_policy=spec.ConcurrencyPolicy.QUEUE,
        queue_limit=5,
        max_concurrent_runs=2,
        priority=-100,
        delivery=spec.Delivery.AT_MOST_ONCE,
        on_delete=spec.OnDelete.CANCEL,
        retry=spec.Retry(
            max_attempts=9,
            backoff=spec.Backoff(initial_seconds=1, factor=1.5, max_seconds=30, jitter=0.0),
            max_disruptions=0,
            rules=(
                spec.Rule(on_exit_codes=(42, 43), action=spec.RuleAction.FAIL),
                spec.Rule(on_exit_codes=(75,), action=spec.RuleAction.IGNORE),
            ),
        ),
        attempt_timeout_seconds=10,
        run_timeout_seconds=100,
        pending_timeout_seconds=20,
        payload={"a": [1, None]},
        pod_retention=spec.PodRetention(succeeded_seconds=0, failed_count=1),
        template=TEMPLATE,
    )


@pytest.mark.parametrize("payload", [None, 0, "text", [1, {"a": 2.5}], {"deep": nested(60)}, False])
def test_payload_is_any_json(payload: object) -> None:
    assert spec.parse(job(payload=payload)).payload == payload


def test_payload_limit_is_in_bytes_of_compact_json() -> None:
    assert spec.parse(job(payload="x" * 65_534)).payload == "x" * 65_534
    with pytest.raises(errors.InvalidInput, match="is 65537 bytes"):
        spec.parse(job(payload="x" * 65_535))


def test_null_means_absent_as_on_the_server() -> None:
    assert spec.parse(job(attemptTimeoutSeconds=None, retry=None, dst=None)) == spec.parse(job())


def test_whole_number_may_be_written_with_a_point() -> None:
    # YAML and JSON writers make 3.0 of a 3 that came through a float
    assert spec.parse(job(retry={"maxAttempts": 4.0})).retry.max_attempts == 4


def test_defaults_are_not_shared() -> None:
    first, second = spec.parse(job()), spec.parse(job())
    assert isinstance(first.payload, dict)
    first.payload["a"] = 1
    assert second.payload == {}


def test_stored_form_leaves_out_what_has_a_column_of_its_own() -> None:
    parsed = spec.parse(job(payload={"secret": 1}, retry={"rules": [{"onExitCodes": [3], "action": "Fail"}]}))
    stored = spec.encode(parsed)
    assert not {"payload", "template"} & set(msgspec.json.decode(stored))
    assert b'"maxAttempts":3' in stored
    again = spec.decode(stored)
    assert again == msgspec.structs.replace(parsed, payload={}, template=None)


def test_spec_stored_by_an_older_release_gets_the_defaults() -> None:
    assert spec.decode(b'{"schedule":"@daily"}') == spec.JobSpec(schedule="@daily")


JOB = times.Origin(uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8"), datetime(2026, 7, 1, 8, tzinfo=UTC))
NIGHT = datetime(2026, 10, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (job(timeZone="Europe/Berlin"), ["2026-10-25T00:00", "2026-10-26T01:00"]),
        (job(schedule="30 2 * * *", timeZone="Europe/Berlin"), ["2026-10-25T00:30", "2026-10-26T01:30"]),
        (
            job(schedule="30 2 * * *", timeZone="Europe/Berlin", dst={"overlap": "Both"}),
            ["2026-10-25T00:30", "2026-10-25T01:30"],
        ),
        (job(schedule="H H * * *"), ["2026-10-24T16:47", "2026-10-25T16:47"]),
        (when(schedules=["0 2 * * *", "0 */2 * * *"]), ["2026-10-24T14:00", "2026-10-24T16:00"]),
        (when(schedules=["H 2 * * *", "H(0-9) 3 * * *"]), ["2026-10-25T02:47", "2026-10-25T03:07"]),
        (when(every="36h"), ["2026-10-24T20:00", "2026-10-26T08:00"]),
        (when(every="36h", startAt="2027-01-01T00:00:00+01:00"), ["2026-12-31T23:00", "2027-01-02T11:00"]),
        (job(startAt="2026-12-24T03:00:00Z"), ["2026-12-25T02:00", "2026-12-26T02:00"]),
        (job(startAt="2026-12-24T02:00:00Z", endAt="2026-12-24T02:00:00Z"), ["2026-12-24T02:00"]),
        (job(endAt="2026-10-25T12:00:00Z"), ["2026-10-25T02:00"]),
        (when(at="2026-12-24T18:00:00+01:00"), ["2026-12-24T17:00"]),
        (when(at="2026-10-24T11:00:00Z"), []),
        (job(endAt="2026-10-24T11:00:00Z"), []),
    ],
)
def test_each_kind_of_when_is_due(document: Json, expected: list[str]) -> None:
    due = spec.decode(spec.encode(spec.parse(document))).due(JOB)
    slots: list[datetime] = []
    at: datetime | None = NIGHT
    while at is not None and len(slots) < 2:
        at = due.next_after(at)
        slots += [at] if at is not None else []
    assert slots == [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in expected]


def test_one_shot_knows_its_instant() -> None:
    once = spec.parse(when(at="2026-12-24T18:00:00+01:00", ttlSecondsAfterFinished=0, jitterSeconds=60))
    assert once.one_shot
    assert once.run_at == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert (spec.parse(job()).one_shot, spec.parse(job()).run_at) == (False, None)


def test_pool_of_a_job_is_its_owners_unless_it_says_another() -> None:
    names = {None: "k8s/team-a/default", "mailers": "k8s/team-a/mailers", "team-b/mailers": "k8s/team-b/mailers"}
    for pool, key in names.items():
        parsed = spec.parse(without("template", handler="email.send", **({"pool": pool} if pool else {})))
        assert parsed.pool_of("k8s/team-a") == key
    assert spec.parse(job()).pool_of("k8s/team-a") is None


def test_handlers_have_a_time_out_by_default() -> None:
    assert spec.parse(job()).attempt_timeout is None
    assert spec.parse(without("template", handler="email.send")).attempt_timeout == 300
    assert spec.parse(without("template", handler="email.send", attemptTimeoutSeconds=7)).attempt_timeout == 7


def test_default_zone_may_be_written_beside_any_kind() -> None:
    for kind in ({"every": "90m"}, {"at": "2026-12-24T18:00:00Z"}):
        written = spec.parse(when(timeZone="UTC", dst={"gap": "RunAfter"}, **kind))
        assert written == spec.parse(when(**kind))


def test_jitter_may_be_longer_than_the_interval() -> None:
    # the delay of a job is the same each time, so that its runs keep their order and distance
    parsed = spec.parse(when(every="1m", jitterSeconds=3_600))
    assert parsed.delay(JOB.job_id) == parsed.delay(JOB.job_id)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_parses(path: Path) -> None:
    *others, document = yaml.safe_load_all(path.read_text())
    assert document["metadata"]["name"] == path.stem
    parsed = spec.parse(document["spec"])
    pools = [workerpool.parse(other["spec"]) for other in others if other["kind"] == "WorkerPool"]
    assert [parsed.handler in pool.handlers for pool in pools] == ([True] if parsed.handler else [])
    classes = {other["metadata"]["name"]: other["spec"] for other in others if other["kind"] == "JobClass"}
    assert len(pools) + len(classes) == len(others)
    if parsed.run is not None:
        jobclass.template(jobclass.parse(classes[parsed.run.class_name]), parsed.run, namespace="any")


VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = strategies.sampled_from([*job(), "retry", "catchUp", "payload", "dst", "podRetention", "every", "priority"])


@hypothesis.given(strategies.dictionaries(NAMES | strategies.text(max_size=8), VALUES, max_size=4))
def test_any_document_is_read_or_refused(changes: Json) -> None:
    with contextlib.suppress(errors.InvalidInput):
        parsed = spec.parse(job(**changes))
        # what is accepted comes back from where it is stored, and Postgres takes it
        assert msgspec.json.decode(msgspec.json.encode(parsed.payload)) == parsed.payload
        assert all("\0" not in text for text in texts(parsed.payload))
        assert spec.decode(spec.encode(parsed)).due(times.ANYBODY) == parsed.due(times.ANYBODY)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain(value, *map(texts, value.values()))
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(texts, value))


@pytest.mark.parametrize(
    ("fields", "followed"),
    [
        ({}, False),
        ({"catchUp": {"policy": "Latest"}, "concurrencyPolicy": "Allow", "delivery": "AtMostOnce"}, False),
        ({"maxConcurrentRuns": 3}, True),
        ({"concurrencyPolicy": "Queue"}, True),
        ({"concurrencyPolicy": "Forbid"}, True),
        ({"catchUp": {"policy": "All"}}, True),
        ({"concurrencyGroup": "exports"}, True),
    ],
)
def test_who_has_runs_that_wait_for_others_is_followed(fields: dict[str, Any], followed: bool) -> None:
    assert spec.parse({"schedule": "* * * * *", "handler": "x", **fields}).followed is followed
