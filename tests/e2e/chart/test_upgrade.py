"""From the last release to this tree and back, under load, by Helm 4: for a while both work on one database."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.releases import kept
from tests.support import helm, objects, release, runs, steady
from tests.support.kubectl import Kubectl, wait_for

# one process of each part: a roll-out has the fewest steps, and one of either release in the middle of it
COMMON = {**helm.DATABASE, **{part: {"replicas": 1} for part in ("operator", "api", "runs")}}
OLD_VALUES = {
    **COMMON,
    "image": {"repository": "localhost:1/clockhand"},
    "workerImage": {"repository": "localhost:1/clockhand-worker"},
}
NEW_VALUES = {**COMMON, **release.IMAGES}
OLD, NEW = kept.VERSION, importlib.metadata.version("clockhand")
PARTS = ("operator", "api", "runs")
LONG = ("over-the-upgrade", "over-the-rollback", "over-both")
_BUILD = re.compile(r'^clockhand_build_info\{.*version="([^"]+)"', re.MULTILINE)
_HELD = re.compile(r"^clockhand_shards_held\{.*\} [1-9]", re.MULTILINE)


@pytest.fixture(scope="module")
def one(kubeconfig: Path, namespace: Callable[[str], Kubectl]) -> Iterator[release.Release]:
    """The last release, by its own chart and from its own images."""
    made = release.Release("helm4", kubeconfig)
    made.clear()
    made.make_namespace()
    made.give_secret(release.database_in(namespace("kept")))
    made.install(OLD_VALUES, chart=kept.CHART)
    yield made
    made.clear()


@pytest.fixture(scope="module")
def people(one: release.Release, namespace: Callable[[str], Kubectl]) -> Kubectl:
    """A namespace with workers, and with jobs whose pods run until they are told."""
    made = namespace("people")
    pool = objects.worker_pool("stock", handlers=["exec"], execCommands={"steady": ["true"]})
    made.apply(pool, *(objects.job(name, objects.until_told()) for name in LONG))
    wait_for("the workers", lambda: made.get("wpool", "stock").get("status", {}).get("readyReplicas"), seconds=180)
    return made


def test_upgraded_and_rolled_back_under_load(one: release.Release, people: Kubectl) -> None:
    steady.account_for_every_slot(people, lambda: there_and_back(one, people), pool="stock")


def there_and_back(one: release.Release, people: Kubectl) -> None:
    begin(people, "over-the-upgrade", "over-both")
    seen = ended(people)

    with half_way(one, people):
        one.upgrade(NEW_VALUES, wait=False)
    assert versions(one) == {NEW}
    finish(people, "over-the-upgrade")
    begin(people, "over-the-rollback")
    seen = still_there(people, seen)

    with half_way(one, people):
        one.roll_back(1)
    assert versions(one) == {OLD}
    finish(people, "over-the-rollback", "over-both")
    still_there(people, seen)


@contextlib.contextmanager
def half_way(one: release.Release, people: Kubectl) -> Iterator[None]:
    """What is rolled out in the block stays where both releases run until that was looked at, and is then done."""
    deployments = [f"deployment/clockhand-{part}" for part in PARTS]
    # a new pod is not counted before, so that none of the old ones goes
    hold(one, deployments, seconds=500)
    yield
    wait_for("both releases to hold shards", lambda: all(shard_holders(one, part) == {OLD, NEW} for part in PARTS[:2]))
    for pod in processes(one, "operator"):
        told = doctor(one, pod)
        assert told["schema"]["verdict"] == "ok"
        assert tells_of_both(told["replicas"]), told
    steady.wait_for_more(people)
    hold(one, deployments, seconds=0)
    for name in deployments:
        one.own.run("rollout", "status", name, "--timeout=240s", seconds=250)
    wait_for("the pods that were replaced to go", lambda: len(versions(one)) == 1)
    assert {doctor(one, pod)["schema"]["verdict"] for pod in processes(one, "operator")} == {"ok"}


def tells_of_both(replicas: Mapping[str, Any]) -> bool:
    """Or of what comes first: a process that did not end in time was killed, and is missed for an hour."""
    sentence = str(replicas["sentence"])
    different = f"replicas have different releases: {OLD}, {NEW}"
    return sentence == different or sentence.endswith("fell silent within the last hour")


def hold(one: release.Release, deployments: list[str], *, seconds: int) -> None:
    one.own.run("patch", *deployments, "--patch", json.dumps({"spec": {"minReadySeconds": seconds}}))


def versions(one: release.Release) -> set[str]:
    """Those of every process."""
    return {version_in(metrics(one, pod)) for part in PARTS for pod in processes(one, part)}


def shard_holders(one: release.Release, part: str) -> set[str]:
    """The versions of the processes that hold shards."""
    told = [metrics(one, pod) for pod in processes(one, part)]
    return {version_in(text) for text in told if _HELD.search(text)}


def version_in(told: str) -> str:
    (found,) = _BUILD.findall(told)
    return str(found)


def processes(one: release.Release, part: str) -> list[str]:
    """The names of those that are ready."""
    pods = one.own.items("pods", "-l", f"{release.OF_THE_RELEASE},app.kubernetes.io/component={part}")
    ready = {"type": "Ready", "status": "True"}
    return [
        pod["metadata"]["name"] for pod in pods if any(ready.items() <= c.items() for c in pod["status"]["conditions"])
    ]


def metrics(one: release.Release, pod: str) -> str:
    return one.own.run("get", "--raw", f"/api/v1/namespaces/{helm.NAMESPACE}/pods/{pod}:8081/proxy/metrics").out


def doctor(one: release.Release, pod: str) -> Mapping[str, Any]:
    """What the doctor of that process's release finds, by the names of its checks."""
    found = json.loads(one.own.call("exec", pod, "--", "clockhand", "doctor", "-o", "json").out)
    return {check["check"]: check for check in found["checks"]}


def begin(people: Kubectl, *jobs: str) -> None:
    for job in jobs:
        runs.start(people, job, job)
        runs.wait_state(people, job, "Running")


def finish(people: Kubectl, *jobs: str) -> None:
    """The runs end well, in the pods in which they began."""
    for job in jobs:
        people.run("exec", runs.running_pod(people, job)["metadata"]["name"], "--", "touch", objects.TOLD)
        run = runs.wait_state(people, job, "Succeeded")
        assert run["status"]["attempt"] == 1


def ended(people: Kubectl) -> Mapping[str, Any]:
    """The history, by the names of runs."""
    found = [run for run in people.items("runs") if runs.state(run) in runs.ENDED]
    return {run["metadata"]["name"]: {"spec": run["spec"], "status": run["status"]} for run in found}


def still_there(people: Kubectl, seen: Mapping[str, Any]) -> Mapping[str, Any]:
    """The history as it is now, in which nothing of what was seen before is missing or another."""
    now = ended(people)
    assert {name: now.get(name) for name in seen} == seen
    return now
