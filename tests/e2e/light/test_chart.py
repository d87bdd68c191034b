"""The chart beside a real API server: each object by the server's own schemas, and what an uninstall leaves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import chart_cases, helm, installation, light, objects
from tests.support.kubectl import Kubectl, bundle, wait_for

# kinds of other projects, which a cluster need not know
OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kubectl]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        for name in (helm.NAMESPACE, "team-a", "team-b"):
            kubectl.create_namespace(name, labels=RESTRICTED)
        yield kubectl


@pytest.fixture(scope="module")
def known(cluster: Kubectl) -> Kubectl:
    """With what must be there before something else is accepted: definitions, and the account of a pod."""
    first = ("CustomResourceDefinition", "ServiceAccount")
    objects = [thing for thing in helm.Helm("helm4").template(chart_cases.MATRIX["secret"]) if thing["kind"] in first]
    cluster.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=bundle(objects))
    return cluster


def test_a_release_takes_the_place_of_the_plain_manifests(cluster: Kubectl) -> None:
    """As docs/operations.md says; a ScheduledJob is not touched by it."""
    cluster.run("apply", "-f", str(installation.ROOT / "crds"))
    cluster.run("wait", "--for=condition=Established", *installation.DEFINITIONS)
    cluster.run("apply", "-k", str(installation.ROOT / "deploy"))
    team = cluster.within("team-a")
    team.apply(objects.job("stays"))
    uid = team.get("sjob", "stays")["metadata"]["uid"]
    for command in commands_after("From plain manifests to the chart"):
        cluster.run(*command[1:])
    kinds = cluster.run("api-resources", "--namespaced=false", "--verbs=list", "--output=name").out.split()
    left = cluster.items(",".join(kinds), "-l", "app.kubernetes.io/part-of=clockhand")
    assert {thing["kind"] for thing in left} <= {"CustomResourceDefinition", "Namespace"}
    there = helm.Helm("helm4", cluster.kubeconfig)
    there.run(
        "install", "clockhand", str(helm.CHART), "--take-ownership", "--timeout=3m", values=chart_cases.MATRIX["secret"]
    )
    assert team.get("sjob", "stays")["metadata"]["uid"] == uid
    there.run("uninstall", "clockhand", "--timeout=3m")


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
def test_a_release_comes_is_upgraded_and_goes(cluster: Kubectl, major: helm.Helm) -> None:
    there = helm.Helm(major.program, cluster.kubeconfig)
    chart = str(helm.CHART)
    there.run("install", "clockhand", chart, "--timeout=3m", values=chart_cases.MATRIX["secret"])
    made = [
        thing for thing in major.template(chart_cases.MATRIX["secret"]) if "helm.sh/hook" not in annotations_of(thing)
    ]
    assert len(names_of(cluster, made)) == len(made)
    newer = {**chart_cases.MATRIX["secret"], "image": {"tag": "0.2.0"}, "runs": {"enabled": False}}
    there.run("upgrade", "clockhand", chart, "--timeout=3m", values=newer)
    assert cluster.find("apiservice", "v1alpha1.runs.clockhand.dev") is None
    there.run("rollback", "clockhand", "1", "--timeout=3m")
    there.run("uninstall", "clockhand", "--timeout=3m")
    assert names_of(cluster, made) == {
        helm.identity(thing) for thing in made if thing["kind"] == "CustomResourceDefinition"
    }


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
def test_pools_come_with_the_first_upgrade(cluster: Kubectl, major: helm.Helm) -> None:
    """An install that brings their definition makes nothing; then they are objects of the release like others."""
    there, team = helm.Helm(major.program, cluster.kubeconfig), cluster.within("team-a")
    # for the runs API nobody would answer here, and Helm waits for that too
    bare = {**chart_cases.MATRIX["secret"], "runs": {"enabled": False}}

    def handled_by(handler: str) -> dict[str, Any]:
        return {**bare, "workerPools": [{"name": "mailers", "namespace": "team-a", "spec": {"handlers": [handler]}}]}

    def release(verb: str, values: dict[str, Any]) -> None:
        there.run(verb, "clockhand", str(helm.CHART), "--wait", "--timeout=3m", values=values)

    cluster.run("delete", "-f", str(installation.ROOT / "crds"), "--ignore-not-found", "--timeout=60s")
    known = ("api-resources", "--api-group=clockhand.dev", "--output=name")
    wait_for("the kinds to be forgotten", lambda: "workerpools" not in cluster.call(*known).out)
    assert "WorkerPool" in there.refusal("install", "clockhand", str(helm.CHART), values=handled_by("email.send"))
    assert cluster.find("clusterrole", "clockhand-operator") is None
    release("install", bare)
    release("upgrade", handled_by("email.send"))
    made = team.get("wpool", "mailers")
    release("upgrade", handled_by("email.bounce"))
    changed = team.get("wpool", "mailers")
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["spec"]["handlers"] == ["email.bounce"]
    release("upgrade", bare)
    assert team.find("wpool", "mailers") is None
    there.run("uninstall", "clockhand", "--timeout=3m")


def test_without_an_uninstall_namespaces_wait_until_the_rest_is_deleted(cluster: Kubectl) -> None:
    """As docs/operations.md says, and with the lines that it gives."""
    there = helm.Helm("helm4", cluster.kubeconfig)
    there.run("install", "clockhand", str(helm.CHART), "--timeout=3m", values=chart_cases.MATRIX["secret"])
    cluster.create_namespace("bystander")
    cluster.run("delete", "namespace", helm.NAMESPACE, "bystander", "--wait=false")

    def waits() -> bool:
        found = cluster.get("namespace", "bystander")
        return objects.condition(found, "NamespaceDeletionDiscoveryFailure").get("status") == "True"

    wait_for("the namespace to say what it waits for", waits)
    page = (installation.ROOT / "docs/operations.md").read_text(encoding="utf-8")
    script = page.partition("The namespace was deleted without an uninstall")[2].partition("```sh\n")[2]
    for line in script.partition("```")[0].replace("\\\n", "").splitlines():
        cluster.run(*shlex.split(line)[1:])
    for name in ("bystander", helm.NAMESPACE):
        cluster.run("wait", "--for=delete", f"namespace/{name}", "--timeout=120s", seconds=130)
    made = list(helm.Helm("helm4").template(chart_cases.MATRIX["secret"]))
    cluster.create_namespace(helm.NAMESPACE, labels=RESTRICTED)
    assert {name.split()[0] for name in names_of(cluster, made)} == {"CustomResourceDefinition"}


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_every_object_is_valid(known: Kubectl, name: str) -> None:
    objects = [
        thing for thing in helm.Helm("helm4").template(chart_cases.MATRIX[name]) if thing["apiVersion"] not in OTHERS
    ]
    said = known.run(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=bundle(objects)
    )
    assert len(said.out.splitlines()) == len(objects)
    assert "Warning" not in said.err, "PodSecurity, or something deprecated"


def commands_after(words: str) -> list[list[str]]:
    """Those that docs/operations.md gives next."""
    page = (installation.ROOT / "docs/operations.md").read_text(encoding="utf-8")
    block = page.partition(words)[2].partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]


def annotations_of(thing: helm.Object) -> dict[str, str]:
    found: dict[str, str] = thing["metadata"].get("annotations", {})
    return found


def names_of(cluster: Kubectl, objects: list[helm.Object]) -> set[str]:
    """Those of the objects that are there."""
    said = cluster.run("get", "--ignore-not-found", "-o", "json", "-f", "-", stdin=bundle(objects)).out
    there = json.loads(said)
    return {helm.identity(thing) for thing in there.get("items", [there])}
