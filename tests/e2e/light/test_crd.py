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
from tests.support.crd_cases import ACCEPTED, REFUSED, job

from clockhand.domain import crd, documents, spec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
Json = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl() -> Iterator[kubectls.Kubectl]:
    with light.LightCluster() as cluster:
        running = kubectls.Kubectl(cluster.kubeconfig)
        running.run("apply", "-f", str(ROOT / "crds"))
        running.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=100s")
        kubectls.wait_for("the published schema", lambda: "fieldValidation" in published(running))
        yield running


def published(kubectl: kubectls.Kubectl) -> str:
    """What kubectl asks for before it leaves the checks to the server."""
    return kubectl.call("get", "--raw", f"/openapi/v3/apis/{crd.GROUP}/{crd.VERSION}").out


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
    *_, document = yaml.safe_load_all(path.read_text())
    kept, written = stored(kubectl, path.stem), spec.parse(document["spec"])
    assert spec.encode(spec.parse(kept)) == spec.encode(written)
    assert spec.parse(kept).payload == written.payload
    if "template" in kept:
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


@pytest.mark.parametrize("body", ACCEPTED, ids=lambda body: str(body["spec"])[:60])
def test_every_kind_of_when_is_accepted(kubectl: kubectls.Kubectl, body: Json) -> None:
    kubectl.apply(body)
    kept = stored(kubectl, "sample")
    assert spec.encode(spec.parse(kept)) == spec.encode(spec.parse(body["spec"]))
    kubectl.run("delete", "sjob", "sample")


@pytest.mark.parametrize(("body", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_bad_object_is_refused_with_a_sentence(kubectl: kubectls.Kubectl, body: Json, sentence: str) -> None:
    # as one object, since kubectl checks lists by itself and says less
    assert sentence in kubectl.refusal("apply", "-f", "-", stdin=json.dumps(body))
