"""What `clockhand convert` prints goes into a real API server as it is, and comes out as it went in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import kubectl as kubectls
from tests.support import light

from clockhand.domain import crd, spec

ROOT = Path(__file__).resolve().parents[3]
CRONJOBS = sorted((ROOT / "tests/support/cronjobs").iterdir())
Json = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl() -> Iterator[kubectls.Kubectl]:
    with light.LightCluster() as cluster:
        running = kubectls.Kubectl(cluster.kubeconfig)
        running.run("apply", "-f", str(ROOT / "crds/scheduledjob.yaml"))
        running.run("wait", "--for=condition=Established", f"crd/{crd.PLURAL}.{crd.GROUP}", "--timeout=100s")
        schema = f"/openapi/v3/apis/{crd.GROUP}/{crd.VERSION}"
        kubectls.wait_for("the published schema", lambda: "fieldValidation" in running.call("get", "--raw", schema).out)
        for namespace in ("data", "shop"):
            running.run("create", "namespace", namespace)
        yield running


def convert(*arguments: str, stdin: str = "") -> str:
    """The command as people run it, without settings."""
    command = [sys.executable, "-m", "clockhand", "convert", *arguments]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("CLOCKHAND_")}
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, env=bare, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(kubectl: kubectls.Kubectl, document: Json) -> Json:
    metadata = document["metadata"]
    space = ("-n", metadata["namespace"]) if "namespace" in metadata else ()
    kept: Json = json.loads(kubectl.run("get", "sjob", metadata["name"], *space, "-o", "json").out)
    return kept


@pytest.mark.parametrize("output", ["yaml", "json"])
@pytest.mark.parametrize("path", CRONJOBS, ids=lambda path: path.stem)
def test_what_was_converted_applies_and_is_kept_whole(kubectl: kubectls.Kubectl, path: Path, output: str) -> None:
    text = convert(str(path), "-o", output)
    documents = list(yaml.safe_load_all(text)) if output == "yaml" else json.loads(text)["items"]
    named = [one for one in documents if "name" in one["metadata"]]
    assert kubectl.run("create", "--dry-run=server", "-f", "-", stdin=text).err == ""
    if named != documents:  # apply takes no generateName
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": named})
    assert kubectl.run("apply", "-f", "-", stdin=text).err == ""
    for document in named:
        kept = stored(kubectl, document)
        assert spec.parse(kept["spec"]) == spec.parse(document["spec"])
        assert kept["metadata"].get("labels") == document["metadata"].get("labels")
        kubectl.run("delete", "-f", "-", stdin=json.dumps(document))


def test_cronjobs_of_a_cluster_come_through_a_pipe(kubectl: kubectls.Kubectl) -> None:
    """As the help says: what the server filled in and set is no obstacle."""
    for stem in ("smallest", "database-backup", "failure-rules", "sidecar"):
        [document] = yaml.safe_load_all((ROOT / f"tests/support/cronjobs/{stem}.yaml").read_text())
        document["metadata"].pop("finalizers", None)
        document["spec"]["jobTemplate"]["spec"].pop("someFieldOfALaterKubernetes", None)
        document["spec"]["jobTemplate"]["spec"].pop("selector", None)
        document["spec"]["jobTemplate"]["spec"].pop("manualSelector", None)
        kubectl.run("apply", "-f", "-", stdin=json.dumps(document))
    fetched = kubectl.run("get", "cronjobs", "-A", "-o", "yaml").out
    text = convert("-", stdin=fetched)
    applied = kubectl.run("apply", "-f", "-", stdin=text)
    assert applied.err == ""
    assert applied.out.count(" created") == 4
    for document in yaml.safe_load_all(text):
        assert spec.parse(stored(kubectl, document)["spec"]) == spec.parse(document["spec"])
