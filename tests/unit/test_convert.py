"""`clockhand convert`: what comes out does what the CronJob did, and says where it does not."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from clockhand import cli, errors
from clockhand.commands import manifests
from clockhand.domain import conversion, crd, cronjob, definition, dialect, documents, forms, schedule, spec, times

ROOT = Path(__file__).resolve().parents[2]
CRONJOBS = sorted((ROOT / "tests/support/cronjobs").iterdir())
Json = dict[str, Any]


def run(*arguments: str, stdin: str | bytes = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.clockhand, ["convert", *arguments], input=stdin)


def manifest(
    schedule: str | None = "0 2 * * *", *, job: Json | None = None, pod: Json | None = None, **there: object
) -> Json:
    containers = [{"name": "main", "image": "any"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **(pod or {})}}
    fields = {"schedule": schedule, "timeZone": "UTC", "jobTemplate": {"spec": {"template": template, **(job or {})}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "sample"}, "spec": {**fields, **there}}


def converted(document: Json) -> tuple[Json, list[str]]:
    """The new spec and the sentences, without the one that nearly every job has."""
    found = conversion.convert(document)
    here = found.document["spec"]
    assert isinstance(here, dict)
    return here, [note for note in found.notes if not note.startswith("successfulJobsHistoryLimit")]


def kept_by_schema(value: object, schema: Mapping[str, Any], *, at: str = "") -> None:
    """Nothing that the API server would refuse by structure, or drop."""
    within_bounds(value, schema, at=at)
    if isinstance(value, dict) and "properties" in schema:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            assert set(value) <= set(schema["properties"]), at
        assert set(schema.get("required", ())) <= set(value), at
        for name, part in value.items():
            kept_by_schema(part, schema["properties"].get(name, {}), at=f"{at}.{name}")
    if isinstance(value, list):
        for part in value:
            kept_by_schema(part, schema.get("items", {}), at=f"{at}[]")


def within_bounds(value: object, schema: Mapping[str, Any], *, at: str) -> None:
    if "enum" in schema:
        assert value in schema["enum"], at
    if isinstance(value, int | float):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), at
    if isinstance(value, str):
        assert schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)), at
    if isinstance(value, list):
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), at


def passes_on_apply(fields: Json) -> None:
    """By the patterns of the rules with which the API server looks at it."""
    for name, listed in (("schedule", forms.CRON), ("every", forms.INTERVAL), ("startAt", (forms.INSTANT,))):
        for form in listed if name in fields else ():
            assert (re.search(form.pattern, fields[name]) is not None) == form.wanted, form


@pytest.mark.parametrize("path", CRONJOBS, ids=lambda path: path.stem)
def test_what_comes_out_is_a_scheduled_job(path: Path) -> None:
    result = run(str(path))
    assert result.exit_code == 0
    found = list(yaml.safe_load_all(result.stdout))
    assert found
    schema = yaml.safe_load(definition.text(crd.RESOURCE))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for document in found:
        assert (document["apiVersion"], document["kind"]) == ("clockhand.dev/v1alpha1", "ScheduledJob")
        assert set(document["metadata"]) <= {"name", "generateName", "namespace", "labels", "annotations"}
        parsed = spec.parse(document["spec"])
        assert parsed.due(times.ANYBODY).next_after(datetime(2026, 11, 30, tzinfo=UTC)) is not None
        kept_by_schema(document["spec"], schema["properties"]["spec"])
        documents.check(document["spec"])
        passes_on_apply(document["spec"])


@pytest.mark.parametrize("path", CRONJOBS, ids=lambda path: path.stem)
def test_yaml_and_json_say_the_same(path: Path) -> None:
    listed = json.loads(run(str(path), "-o", "json").stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == list(yaml.safe_load_all(run(str(path)).stdout))


@pytest.mark.parametrize("path", CRONJOBS, ids=lambda path: path.stem)
def test_each_sentence_stands_on_stderr_and_above_its_object(path: Path) -> None:
    result = run(str(path))
    head = f"{path}: cronjob/"
    said = [line.partition(": cronjob/")[2].partition(": ")[2] for line in result.stderr.splitlines() if head in line]
    comments = [line.removeprefix("# ") for line in result.stdout.splitlines() if line.startswith("# ")]
    assert said == comments
    assert all(line.startswith(f"{path}: ") for line in result.stderr.splitlines())


def test_pods_come_through_whole() -> None:
    path = ROOT / "tests/support/cronjobs/database-backup.yaml"
    before = yaml.safe_load(path.read_text())["spec"]["jobTemplate"]["spec"]["template"]
    [after] = yaml.safe_load_all(run(str(path)).stdout)
    assert after["spec"]["template"] == before
    assert after["metadata"]["annotations"] == {"owner": "data@example.com"}


def test_fields_of_a_full_cronjob() -> None:
    [document] = yaml.safe_load_all(run(str(ROOT / "tests/support/cronjobs/database-backup.yaml")).stdout)
    del document["spec"]["template"]
    assert document == {
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "ScheduledJob",
        "metadata": {
            "name": "postgres-backup",
            "namespace": "data",
            "labels": {"app.kubernetes.io/name": "backup", "tier": "1"},
            "annotations": {"owner": "data@example.com"},
        },
        "spec": {
            "schedule": "30 2 * * *",
            "timeZone": "Europe/Berlin",
            "dst": {"gap": "Skip", "overlap": "Both"},
            "startingDeadlineSeconds": 3600,
            "concurrencyPolicy": "Forbid",
            "onDelete": "Cancel",
            "retry": {
                "maxAttempts": 3,
                "backoff": {"initialSeconds": 10, "factor": 2, "maxSeconds": 360, "jitter": 0},
                "maxDisruptions": 2,
            },
            "runTimeoutSeconds": 7200,
            "pendingTimeoutSeconds": 2_592_000,
            "podRetention": {"succeededSeconds": 86_400, "failedCount": 5},
        },
    }


def test_defaults_of_cronjob_are_written_out() -> None:
    here, notes = converted(manifest())
    del here["template"]
    assert notes == []
    assert here == {
        "schedule": "0 2 * * *",
        "timeZone": "UTC",
        "dst": {"gap": "Skip", "overlap": "Both"},
        "concurrencyPolicy": "Allow",
        "onDelete": "Cancel",
        "retry": {
            "maxAttempts": 7,
            "backoff": {"initialSeconds": 10, "factor": 2, "maxSeconds": 360, "jitter": 0},
            "maxDisruptions": 6,
        },
        "pendingTimeoutSeconds": 2_592_000,
        "podRetention": {"failedCount": 1},
    }


WHEN = [
    ("0 0 ? * *", "UTC", {"schedule": "0 0 * * *", "timeZone": "UTC"}, []),
    ("@midnight", "UTC", {"schedule": "@midnight", "timeZone": "UTC"}, []),
    ("TZ=Asia/Tokyo */5 * * * *", None, {"schedule": "*/5 * * * *", "timeZone": "Asia/Tokyo"}, ["the prefix of"]),
    ("CRON_TZ=UTC   @daily", None, {"schedule": "@daily", "timeZone": "UTC"}, ["the prefix of spec.schedule"]),
    ("0 0 */1 * 1", "UTC", {"schedule": "0 0 * * 1", "timeZone": "UTC"}, ['"0 0 */1 * 1" is written "0 0 * * 1"']),
    (",+5 *-3 * * *", "UTC", {"schedule": "5 * * * *", "timeZone": "UTC"}, ["is written"]),
    ("0 9 * * *", None, {"schedule": "0 9 * * *", "timeZone": "UTC"}, ["zone of kube-controller-manager"]),
    ("0 9 * * *", "Asia/Tokyo", {"schedule": "0 9 * * *", "timeZone": "Asia/Tokyo"}, ["when clocks change"]),
    ("@every 1h30m", "UTC", {"every": "1h30m"}, ["counts from the creation"]),
    ("@every 90m", None, {"every": "1h30m"}, ["counts from the creation"]),
    ("@every 1.5h", None, {"every": "1h30m"}, ["counts from the creation"]),
    ("@every 36h0m1500ms", None, {"every": "1d12h1s"}, ["counts from the creation"]),
    ("@every 10ms", None, {"every": "1s"}, ["counts from the creation"]),
]


@pytest.mark.parametrize(("expression", "zone", "expected", "told"), WHEN)
def test_dialect(expression: str, zone: str | None, expected: Json, told: list[str]) -> None:
    here, notes = converted(manifest(expression, timeZone=zone))
    found = {name: here[name] for name in ("schedule", "timeZone", "every", "startAt") if name in here}
    assert found == expected
    assert ("dst" in here) == ("schedule" in expected)
    assert len(notes) == len(told)
    for note, part in zip(notes, told, strict=True):
        assert part in note


def test_an_interval_keeps_its_phase_where_the_creation_is_known() -> None:
    document = manifest("@every 2h")
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:30:00Z"
    here, notes = converted(document)
    assert (here["every"], here["startAt"]) == ("2h", "2026-01-01T00:30:00Z")
    assert notes == [dialect._FROM_CREATION]


def test_rewritten_schedules_fire_when_cronjob_does() -> None:
    """Whatever CronJob accepts either fires at the same times here or is refused, in a zone whose clocks never change."""
    chance = random.Random(4)
    start = datetime(2026, 1, 15, 10, 7, tzinfo=UTC)
    compared = 0
    while compared < 400:
        expression = random_expression(chance)
        try:
            plain = dialect.rewritten(expression)
            here = schedule.parse(plain, gap="Skip", overlap="Both")
        except errors.InvalidInput:
            continue
        passes_on_apply({"schedule": plain})
        there = cronjob.parse(expression)
        ours = theirs = start
        for _ in range(4):
            following = there.next_after(theirs)
            if following is None:  # CronJob looks no further than five years ahead
                break
            theirs, ours = following, here.next_after(ours)
            assert ours == theirs, expression
        compared += 1


def random_expression(chance: random.Random) -> str:
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    return " ".join(",".join(random_item(chance, *ends) for _ in range(chance.choice([1, 1, 1, 2]))) for ends in bounds)


def random_item(chance: random.Random, low: int, high: int) -> str:
    first = chance.randint(low, high)
    last = chance.randint(first, high)
    forms = ["*", "*", "*", "?", "*/1", "*/7", f"*-{last}", f"*-{last}/1", "", f"+{first}", f"{first}", f"0{first}"]
    return chance.choice([*forms, f"{first}-{last}", f"{first}-{last}/3", f"{first}/4", f"{first}/1", "?/2", "*/+2"])


TOLD: list[tuple[Json, str]] = [
    (manifest(job={"parallelism": 2}), "parallelism 2 has no equal: a run is one pod"),
    (manifest(job={"completions": 5}), "completions 5 has no equal"),
    (manifest(job={"completionMode": "Indexed"}), "completionMode Indexed has no equal"),
    (manifest(job={"suspend": True}), "suspend true has no equal"),
    (
        manifest(job={"podReplacementPolicy": "TerminatingOrFailed"}),
        "podReplacementPolicy TerminatingOrFailed has no equal",
    ),
    (manifest(job={"backoffLimitPerIndex": 1}), "backoffLimitPerIndex 1 has no equal"),
    (manifest(job={"managedBy": "example.com/other"}), "managedBy example.com/other has no equal"),
    (manifest(job={"successPolicy": {"rules": []}}), "successPolicy has no equal"),
    (manifest(job={"newField": 1}), "spec.jobTemplate.spec.newField is not a field that is known here"),
    (manifest(job={"backoffLimit": 200}), "is beyond the bounds of spec.retry.maxAttempts: 100 is written"),
    (manifest(newField=1), "spec.newField is not a field that is known here"),
    (manifest(suspend=True), "CronJob starts the newest time that it missed"),
    (manifest(concurrencyPolicy="Forbid"), "here it is Skipped(Forbid)"),
    (manifest(pod={"restartPolicy": "OnFailure"}), "restartPolicy is OnFailure, and Never is written"),
    (manifest(failedJobsHistoryLimit=101), "failedJobsHistoryLimit 101 is beyond the bounds"),
    (
        manifest(pod={"containers": [{"name": "main", "image": "a"}, {"name": "log", "image": "b"}]}),
        "of 2 containers only main decides",
    ),
]


@pytest.mark.parametrize(("document", "sentence"), TOLD, ids=[sentence[:40] for _, sentence in TOLD])
def test_what_has_no_equal_is_told(document: Json, sentence: str) -> None:
    _, notes = converted(document)
    assert len(notes) == 1
    assert sentence in notes[0]


SILENT = [
    manifest(job={"parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "suspend": False}),
    manifest(job={"podReplacementPolicy": "Failed", "manualSelector": False, "parallelism": None}),
    manifest(suspend=False, concurrencyPolicy="Allow", startingDeadlineSeconds=None),
]


@pytest.mark.parametrize("document", SILENT)
def test_defaults_that_are_written_out_are_not_worth_a_sentence(document: Json) -> None:
    assert converted(document) == converted(manifest())


def rules(*listed: Json) -> Json:
    return manifest(job={"podFailurePolicy": {"rules": list(listed)}})


def on_codes(action: str, operator: str, *values: int, **more: str) -> Json:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


def test_rules_by_exit_code() -> None:
    here, notes = converted(rules(on_codes("FailJob", "In", 42), on_codes("Count", "In", 3, 4, containerName="main")))
    assert here["retry"]["rules"] == [
        {"onExitCodes": [42], "action": "Fail"},
        {"onExitCodes": [3, 4], "action": "Retry"},
    ]
    assert (here["retry"]["maxDisruptions"], notes) == (6, [])


def test_a_rule_for_all_but_some_codes_is_written_in_parts() -> None:
    here, notes = converted(rules(on_codes("FailJob", "NotIn", 1, 2)))
    codes = [code for rule in here["retry"]["rules"] for code in rule["onExitCodes"]]
    assert codes == list(range(3, 256))
    assert max(len(rule["onExitCodes"]) for rule in here["retry"]["rules"]) <= 64
    assert notes == []


def test_failures_that_a_job_ignores_are_no_longer_limited() -> None:
    here, notes = converted(rules({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}))
    assert "rules" not in here["retry"]
    assert (here["retry"]["maxDisruptions"], notes) == (1000, [])
    ignored, _ = converted(rules(on_codes("Ignore", "In", 75)))
    assert ignored["retry"]["rules"] == [{"onExitCodes": [75], "action": "Ignore"}]
    assert ignored["retry"]["maxDisruptions"] == 1000


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (on_codes("FailIndex", "In", 1), "has the action FailIndex, which has no equal"),
        (on_codes("FailJob", "In", 1, containerName="proxy"), "looks at the container proxy"),
        ({"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]}, "only exit codes have rules here"),
        (
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}, {"type": "X"}]},
            "other conditions than DisruptionTarget",
        ),
    ],
)
def test_rules_without_an_equal_are_told(rule: Json, sentence: str) -> None:
    here, notes = converted(rules(rule))
    assert "rules" not in here["retry"]
    assert len(notes) == 1
    assert sentence in notes[0]


def test_a_job_that_is_never_tried_again_stays_one() -> None:
    here, _ = converted(manifest(job={"backoffLimit": 0}))
    assert (here["retry"]["maxAttempts"], here["retry"]["maxDisruptions"]) == (1, 0)


CANNOT: list[tuple[Json, str]] = [
    (manifest("0 0 30 2 *"), "spec.schedule: names a date that never comes"),
    (manifest(", * * * *"), 'has a field "," that names nothing, so CronJob never fires'),
    (manifest("0 0 * * 7"), "is refused by CronJob itself: end of range (7) above maximum (6): 7"),
    (manifest("@every soon"), '"@every soon" is refused by CronJob itself'),
    (manifest("@every 100000h"), "spec.every: is longer than 3650d"),
    (manifest("TZ=Asia/Tokyo 0 0 * * *"), "names a time zone beside spec.timeZone"),
    (manifest(timeZone="Europe/Pari"), "write a name such as Europe/Paris"),
    (manifest(schedule=None), "spec.schedule: is not a string"),
    (manifest(concurrencyPolicy="Queue"), "spec.concurrencyPolicy: is none that CronJob has"),
    (manifest(startingDeadlineSeconds=-1), "spec.startingDeadlineSeconds: is not a whole number"),
    (manifest(suspend="yes"), "spec.suspend: must be true or false"),
    (manifest(jobTemplate=None), "spec.template.spec.containers: must list at least one container"),
    (manifest(jobTemplate=[]), "spec.jobTemplate: is not an object"),
    (manifest(pod={"containers": []}), "spec.template.spec.containers: must list at least one container"),
    (manifest(pod={"containers": "x"}), "spec.jobTemplate.spec.template.spec.containers: is not a list of objects"),
    ({**manifest(), "metadata": {}}, "metadata.name: is missing"),
    ({**manifest(), "metadata": {"name": "a" * 64}}, "metadata.name: is no name of at most 63 characters"),
    (rules(*[on_codes("FailJob", "NotIn", 9)] * 9), "needs more than the 32 rules"),
]


@pytest.mark.parametrize(("document", "sentence"), CANNOT, ids=[sentence[:40] for _, sentence in CANNOT])
def test_a_cronjob_without_an_equal_is_left_out_and_the_others_are_not(document: Json, sentence: str) -> None:
    result = run("-", stdin=yaml.safe_dump_all([document, manifest()]))
    assert result.exit_code == 2
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(result.stdout)] == ["sample"]
    [line] = [line for line in result.stderr.splitlines() if "cannot be converted" in line]
    assert line.startswith("stdin: cronjob/")
    assert sentence in line


UNREADABLE: list[tuple[str | bytes, str]] = [
    ("{", "is not YAML"),
    ("a: b: c", "is not YAML: mapping values are not allowed here in line 1"),
    (b"\xff\xfe\x00", "is not UTF-8 text"),
    ("just words", "holds no Kubernetes object as document 1"),
    ("---\nkind: Service\n---\n- a\n", "holds no Kubernetes object as document 2"),
    ("spec: {schedule: '* * * * *'}", "holds no Kubernetes object as document 1"),
    ("[" * 5_000, "is nested too deeply"),
    ("a: &a [*a]", "holds more than 200000 values"),
    ("kind: !!python/object/apply:os.system ['true']", "is not YAML: could not determine a constructor"),
    (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{c}: &{c} [{','.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdef", "bcdefg", strict=True)),
        "references counted each time",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), UNREADABLE, ids=[sentence[:40] for _, sentence in UNREADABLE])
def test_what_cannot_be_read_is_one_sentence_and_nothing_else(text: str | bytes, sentence: str, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump(manifest()))
    result = run(str(good), "-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("clockhand: stdin: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no-such-file.yaml",), "no-such-file.yaml: cannot be read: No such file or directory"),
        (("a\0b",), "cannot be read: "),
        ((), "Missing argument 'FILE...'"),
        (("-", "-o", "xml"), "'--output'"),
    ],
)
def test_files_that_are_not_there(arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_is_read_as_kubectl_does(tmp_path: Path) -> None:
    empty = run(str(tmp_path))
    assert (empty.exit_code, empty.stdout) == (2, "")
    for name, suffix in (("b", "yaml"), ("a", "yml"), ("c", "json")):
        document = {**manifest(), "metadata": {"name": name}}
        (tmp_path / f"{name}.{suffix}").write_text(json.dumps(document))
    (tmp_path / "README.md").write_text("{")
    result = run(str(tmp_path))
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(result.stdout)] == ["a", "b", "c"]


def test_other_objects_are_passed_over_with_a_sentence() -> None:
    foreign = {**manifest(), "apiVersion": "example.com/v1"}
    result = run("-", stdin=yaml.safe_dump_all([{"kind": "Service", "metadata": {"name": "web"}}, foreign, None]))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "stdin: service/web: is no CronJob of batch/v1: passed over",
        "stdin: cronjob/sample: is no CronJob of batch/v1: passed over",
    ]


@pytest.mark.parametrize(
    "text",
    ["1e3", "y", "N", "02:30", "10:30:00", "0x1F", "0o17", "1_000", ".5", "2026-01-01", "no", "~", "=", "250m", ""],
)
def test_texts_stay_texts_for_readers_in_any_language(text: str) -> None:
    written = manifests.write({"kind": "X", "a": text}, [])
    assert manifests.read(written.encode())[0]["a"] == text
    if text not in ("250m", "="):  # plain for every reader
        assert f'"{text}"' in written or f"'{text}'" in written


@pytest.mark.parametrize(
    ("plain", "value"),
    [
        ("10:30", "10:30"),
        ("2026-01-01", "2026-01-01"),
        ("0644", 420),
        ("0x10", 16),
        ("12", 12),
        ("1.5", 1.5),
        ("=", "="),
    ],
)
def test_plain_values_are_what_kubectl_takes_them_for(plain: str, value: object) -> None:
    assert manifests.read(f"kind: X\na: {plain}\n".encode())[0]["a"] == value


def test_control_characters_do_not_reach_the_terminal() -> None:
    document = manifest()
    document["metadata"]["name"] = "a\x1b[2J\nb"
    result = run("-", stdin=json.dumps({**document, "apiVersion": "x/v1"}))
    assert result.stderr == "stdin: cronjob/a\\x1b[2J\\nb: is no CronJob of batch/v1: passed over\n"
