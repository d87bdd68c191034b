"""People meet the schema when they apply: a real API server must take the good and explain the bad."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import kubectl as kubectls
from tests.support import light

from clockhand.domain import crd, documents, spec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl() -> Iterator[kubectls.Kubectl]:
    with light.LightCluster() as cluster:
        running = kubectls.Kubectl(cluster.kubeconfig)
        running.run("apply", "-f", str(ROOT / "crds/scheduledjob.yaml"))
        running.run("wait", "--for=condition=Established", f"crd/{crd.PLURAL}.{crd.GROUP}")
        kubectls.wait_for("the published schema", lambda: "fieldValidation" in published(running))
        yield running


def published(kubectl: kubectls.Kubectl) -> str:
    """What kubectl asks for before it leaves the checks to the server."""
    return kubectl.call("get", "--raw", f"/openapi/v3/apis/{crd.GROUP}/{crd.VERSION}").out


def job(name: str = "sample", **fields: object) -> Json:
    """A good object, but for the fields given; None takes one away."""
    body = {"schedule": "0 2 * * *", "template": TEMPLATE, **fields}
    return {
        "apiVersion": f"{crd.GROUP}/{crd.VERSION}",
        "kind": crd.KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in body.items() if value is not None},
    }


def stored(kubectl: kubectls.Kubectl, name: str) -> Json:
    document: Json = kubectl.get("sjob", name)["spec"]
    return document


def test_definition_has_no_complaints(kubectl: kubectls.Kubectl) -> None:
    conditions = kubectl.get("crd", f"{crd.PLURAL}.{crd.GROUP}")["status"]["conditions"]
    states = {one["type"]: one["status"] for one in conditions}
    assert states["Established"] == "True"
    assert "NonStructuralSchema" not in states


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_applies_and_parses_as_stored(kubectl: kubectls.Kubectl, path: Path) -> None:
    assert "Warning" not in kubectl.run("apply", "-f", str(path)).err
    kept, written = stored(kubectl, path.stem), spec.parse(yaml.safe_load(path.read_text())["spec"])
    assert spec.encode(spec.parse(kept)) == spec.encode(written)
    assert spec.parse(kept).payload == written.payload
    assert kept["template"]["spec"]["restartPolicy"] == "Never"


def test_defaults_of_the_server_are_those_of_the_parser(kubectl: kubectls.Kubectl) -> None:
    kubectl.apply(job("plain"))
    kept = stored(kubectl, "plain")
    filled: Json = documents.check(job()["spec"])
    filled["template"]["spec"]["restartPolicy"] = "Never"  # of the pod, which the parser leaves as it is
    assert kept == filled


def test_pod_spec_and_payload_are_kept_whole(kubectl: kubectls.Kubectl) -> None:
    main = {"name": "a", "image": "b", "env": [{"name": "X", "value": "1"}], "resources": {"limits": {"cpu": 1}}}
    side = {"name": "side", "image": "c", "restartPolicy": "Always"}
    pod = {"containers": [main], "initContainers": [side], "nodeSelector": {"disk": "ssd"}}
    payload = {"list": [1, 2.5, None, {"deep": True}], "text": "ü"}
    kubectl.apply(job("whole", template={"spec": pod}, payload=payload))
    kept = stored(kubectl, "whole")
    assert kept["template"]["spec"] == {**pod, "restartPolicy": "Never"}
    assert kept["payload"] == payload


@pytest.mark.parametrize("payload", [[1, 2], "text", 3, True])
def test_payload_may_be_any_json(kubectl: kubectls.Kubectl, payload: object) -> None:
    kubectl.apply(job("any-payload", payload=payload))
    assert stored(kubectl, "any-payload")["payload"] == payload


def test_printer_columns(kubectl: kubectls.Kubectl) -> None:
    kubectl.apply(job("columns", timeZone="Europe/Berlin"))
    times = {"nextRunTime": "2099-01-01T02:00:00Z", "lastScheduledTime": "2020-01-01T02:00:00Z"}
    status = json.dumps({"status": {"active": 2, **times}})
    kubectl.run("patch", "sjob", "columns", "--subresource=status", "--type=merge", "-p", status)
    head, row = kubectl.run("get", "sjob", "columns").out.splitlines()
    columns = head.replace("TIME ZONE", "TIME_ZONE").split()
    assert columns == ["NAME", "SCHEDULE", "TIME_ZONE", "SUSPEND", "ACTIVE", "LAST", "NEXT", "AGE"]
    assert "Europe/Berlin" in row
    assert " 2099-01-01T02:00:00Z " in row
    assert "<invalid>" not in row


def test_explain_tells_of_fields(kubectl: kubectls.Kubectl) -> None:
    assert "No wait is longer." in kubectl.run("explain", "sjob.spec.retry.backoff.maxSeconds").out


RELEASE = "is not supported by this release yet"
REFUSED: list[tuple[Json, str]] = [
    (
        job(at="2027-01-01T00:00:00Z"),
        "exactly one of spec.schedule, spec.schedules, spec.every and spec.at must be set",
    ),
    (job(schedule=None), "exactly one of spec.schedule, spec.schedules, spec.every and spec.at must be set"),
    (job(template=None), "exactly one of spec.template and spec.handler must be set"),
    (job(handler="email.send"), "exactly one of spec.template and spec.handler must be set"),
    (job(schedule=None, every="90m"), f"spec.every {RELEASE}: use spec.schedule"),
    (job(schedule=None, at="2027-01-01T00:00:00Z"), f"spec.at {RELEASE}: use spec.schedule"),
    (job(schedule=None, schedules=["@daily"]), f"spec.schedules {RELEASE}: use spec.schedule"),
    (job(template=None, handler="email.send"), f"spec.handler {RELEASE}: use spec.template"),
    (job(pool="mailers"), f"spec.pool {RELEASE}: use spec.template"),
    (job(startAt="2027-01-01T00:00:00Z"), f"spec.startAt {RELEASE}"),
    (job(endAt="2027-01-01T00:00:00Z"), f"spec.endAt {RELEASE}"),
    (job(concurrencyGroup="exports"), f"spec.concurrencyGroup {RELEASE}: leave it out"),
    (job(pauseAfterFailures=5), f"spec.pauseAfterFailures {RELEASE}: leave it out"),
    (job(ttlSecondsAfterFinished=5), f"spec.ttlSecondsAfterFinished {RELEASE}: leave it out"),
    (job(jitterSeconds=30), f"spec.jitterSeconds {RELEASE}: leave it at 0"),
    (job(dst={"gap": "Skip"}), f"spec.dst.gap {RELEASE}: leave it at RunAfter"),
    (job(dst={"overlap": "Both"}), f"spec.dst.overlap {RELEASE}: leave it at First"),
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
    (job(retry={"rules": [{"action": "Fail"}]}), "spec.retry.rules[0].onExitCodes: Required value"),
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
]


@pytest.mark.parametrize(("body", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_bad_object_is_refused_with_a_sentence(kubectl: kubectls.Kubectl, body: Json, sentence: str) -> None:
    # as one object, since kubectl checks lists by itself and says less
    assert sentence in kubectl.refusal("apply", "-f", "-", stdin=json.dumps(body))
