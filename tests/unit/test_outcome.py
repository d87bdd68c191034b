"""What the states of a pod mean for its attempt, state by state as kubelets and controllers write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from clockhand.domain import observed, outcome

START = "2026-11-01T05:30:00Z"
END = "2026-11-01T05:31:00Z"
STARTED = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
ENDED = datetime(2026, 11, 1, 5, 31, tzinfo=UTC)


def ended(code: int, reason: str = "", message: str = "", finished: str = END) -> dict[str, Any]:
    reason = reason or ("Completed" if code == 0 else "Error")
    end = {"exitCode": code, "reason": reason, "startedAt": START, "finishedAt": finished}
    return {"terminated": end | ({"message": message} if message else {})}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


RUNNING = {"running": {"startedAt": START}}
CREATING = waiting("ContainerCreating")
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
TARGET = {"type": "DisruptionTarget", "status": "True", "message": "because"}


def pod(
    phase: str,
    main: dict[str, Any] | None = None,
    *,
    status: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    others: dict[str, dict[str, Any]] | None = None,
) -> observed.Pod:
    states = {"main": main, **(others or {})}
    value = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u"} | (metadata or {}),
        "spec": {"containers": [{"name": name, "image": "busybox"} for name in states]} | (spec or {}),
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": name, "state": state, "ready": False, "image": "busybox", "restartCount": 0}
                for name, state in states.items()
                if state is not None
            ],
        }
        | (status or {}),
    }
    return msgspec.json.decode(json.dumps(value), type=observed.Pod)


def unscheduled(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"conditions": [condition]}


def target(reason: str) -> dict[str, Any]:
    return {"conditions": [TARGET | {"reason": reason}]}


def init(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": name, "state": state}]}


def deleted(at: str, grace: int) -> dict[str, Any]:
    return {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}


CASES: list[tuple[str, observed.Pod, outcome.Observation]] = [
    ("just created", pod("Pending"), outcome.Pending()),
    ("no status yet", pod(""), outcome.Pending()),
    ("container being created", pod("Pending", CREATING), outcome.Pending()),
    (
        "held by a gate",
        pod("Pending", spec={"schedulingGates": [{"name": "example.com/queue"}]}),
        outcome.Pending(True, "SchedulingGated", "held by example.com/queue"),
    ),
    (
        "no node fits",
        pod("Pending", status=unscheduled("Unschedulable", "0/2 nodes are available")),
        outcome.Pending(False, "Unschedulable", "0/2 nodes are available"),
    ),
    (
        "image cannot be pulled",
        pod("Pending", waiting("ImagePullBackOff", "Back-off pulling image")),
        outcome.Pending(False, "ImagePullBackOff", "Back-off pulling image"),
    ),
    (
        "a secret is missing",
        pod("Pending", waiting("CreateContainerConfigError", 'secret "x" not found')),
        outcome.Pending(False, "CreateContainerConfigError", 'secret "x" not found'),
    ),
    (
        "image of an init container cannot be pulled",
        pod("Pending", waiting("PodInitializing"), status=init("prepare", waiting("ErrImagePull", "no"))),
        outcome.Pending(False, "ErrImagePull", "no"),
    ),
    ("running", pod("Running", RUNNING), outcome.Running(STARTED)),
    (
        "a sidecar runs, the main container is not there yet",
        pod("Running", CREATING, others={"proxy": RUNNING}),
        outcome.Pending(),
    ),
    ("ended well", pod("Succeeded", ended(0)), outcome.Succeeded(STARTED, ENDED)),
    (
        "ended well while a sidecar runs on",
        pod("Running", ended(0), others={"proxy": RUNNING}),
        outcome.Succeeded(STARTED, ENDED),
    ),
    (
        "ended well though a sidecar failed",
        pod("Failed", ended(0), others={"proxy": ended(1)}),
        outcome.Succeeded(STARTED, ENDED),
    ),
    (
        "failed though a sidecar ended well",
        pod("Failed", ended(3), others={"proxy": ended(0)}),
        outcome.Failed("Error", 3, "", STARTED, ENDED),
    ),
    (
        "failed while a sidecar runs on",
        pod("Running", ended(3, message="boom"), others={"proxy": RUNNING}),
        outcome.Failed("Error", 3, "boom", STARTED, ENDED),
    ),
    ("exit code 255", pod("Failed", ended(255)), outcome.Failed("Error", 255, "", STARTED, ENDED)),
    ("killed by a signal", pod("Failed", ended(137)), outcome.Failed("Error", 137, "", STARTED, ENDED)),
    (
        "out of memory",
        pod("Failed", ended(137, "OOMKilled")),
        outcome.Failed("OOMKilled", 137, "", STARTED, ENDED),
    ),
    (
        "out of memory on a node that is being drained",
        pod("Failed", ended(137, "OOMKilled"), status=target("EvictionByEvictionAPI")),
        outcome.Failed("OOMKilled", 137, "", STARTED, ENDED),
    ),
    (
        "no such command",
        pod("Failed", ended(128, "StartError", "exec: no such file")),
        outcome.Failed("StartError", 128, "exec: no such file", STARTED, ENDED),
    ),
    (
        "over its active deadline",
        pod("Failed", ended(143), status={"reason": "DeadlineExceeded", "message": "too long"}),
        outcome.Failed("DeadlineExceeded", 143, "too long", STARTED, ENDED),
    ),
    (
        "over its active deadline before it started",
        pod("Failed", status={"reason": "DeadlineExceeded", "message": "too long"}),
        outcome.Failed("DeadlineExceeded", None, "too long"),
    ),
    (
        "an init container failed",
        pod("Failed", waiting("PodInitializing"), status=init("prepare", ended(2, message="no disk"))),
        outcome.Failed(
            "InitContainerFailed",
            2,
            "init container prepare: Error, exit code 2. no disk",
            STARTED,
            ENDED,
        ),
    ),
    (
        "evicted before it ran",
        pod("Failed", status=EVICTED),
        outcome.Disrupted("Evicted", "The node was low on resource: memory."),
    ),
    (
        "evicted while it ran",
        pod("Failed", ended(137), status=EVICTED),
        outcome.Disrupted("Evicted", "The node was low on resource: memory.", 137, STARTED, ENDED),
    ),
    (
        "evicted after it had ended well",
        pod("Failed", ended(0), status=EVICTED),
        outcome.Succeeded(STARTED, ENDED),
    ),
    (
        "preempted",
        pod("Failed", ended(143), status=target("PreemptionByScheduler")),
        outcome.Disrupted("PreemptionByScheduler", "because", 143, STARTED, ENDED),
    ),
    (
        "to be disrupted, still running",
        pod("Running", RUNNING, status=target("DeletionByTaintManager")),
        outcome.Running(STARTED),
    ),
    (
        "node shut down",
        pod("Failed", ended(137), status={"reason": "Terminated", "message": "node shutdown"}),
        outcome.Disrupted("Terminated", "node shutdown", 137, STARTED, ENDED),
    ),
    (
        "collected after its node was lost",
        pod("Failed", RUNNING, status=target("DeletionByPodGC")),
        outcome.Disrupted("DeletionByPodGC", "because"),
    ),
    (
        "node full when the pod arrived",
        pod("Failed", status={"reason": "OutOfcpu", "message": "Node didn't have enough resource"}),
        outcome.Disrupted("OutOfcpu", "Node didn't have enough resource"),
    ),
    (
        "container unknown after the node restarted",
        pod("Failed", ended(137, "ContainerStatusUnknown", "could not be located")),
        outcome.Disrupted("ContainerStatusUnknown", "could not be located", 137, STARTED, ENDED),
    ),
    (
        "deleted while it ran",
        pod("Failed", ended(143), metadata=deleted("2026-11-01T05:31:25Z", 30)),
        outcome.Disrupted("Deleted", "the pod was deleted while it ran", 143, STARTED, ENDED),
    ),
    (
        "deleted after it had failed",
        pod("Failed", ended(1), metadata=deleted("2026-11-01T05:32:00Z", 30)),
        outcome.Failed("Error", 1, "", STARTED, ENDED),
    ),
    (
        "deleted and ended well all the same",
        pod("Succeeded", ended(0), metadata=deleted("2026-11-01T05:31:25Z", 30)),
        outcome.Succeeded(STARTED, ENDED),
    ),
    (
        "deleted before it started",
        pod("Failed", metadata=deleted("2026-11-01T05:31:25Z", 0)),
        outcome.Disrupted("Deleted", "the pod was deleted before its main container started"),
    ),
    (
        "deleted, still running",
        pod("Running", RUNNING, metadata=deleted("2026-11-01T05:31:25Z", 30)),
        outcome.Running(STARTED),
    ),
    ("node silent", pod("Unknown", RUNNING), outcome.Running(STARTED)),
    (
        "failed and nobody says why",
        pod("Failed", status={"message": "?"}),
        outcome.Failed("PodFailed", None, "?"),
    ),
    (
        "refused by the kubelet for a fault of its own",
        pod("Failed", status={"reason": "SysctlForbidden", "message": "forbidden sysctl"}),
        outcome.Failed("SysctlForbidden", None, "forbidden sysctl"),
    ),
    ("succeeded, container statuses gone", pod("Succeeded"), outcome.Succeeded()),
]


@pytest.mark.parametrize(("seen", "meaning"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_state_means(seen: observed.Pod, meaning: outcome.Observation) -> None:
    assert outcome.classify(seen) == meaning


def test_the_annotation_names_the_main_container() -> None:
    annotations = {"annotations": {observed.DEFAULT_CONTAINER: "work"}}
    seen = pod("Running", RUNNING, others={"work": ended(4)}, metadata=annotations)
    assert outcome.main_container_of(seen) == "work"
    assert outcome.classify(seen) == outcome.Failed("Error", 4, "", STARTED, ENDED)
    assert outcome.classify(seen, "main") == outcome.Running(STARTED)


def test_an_annotation_that_names_no_container_is_ignored() -> None:
    annotations = {"annotations": {observed.DEFAULT_CONTAINER: "gone"}}
    assert outcome.main_container_of(pod("Running", RUNNING, metadata=annotations)) == "main"


def test_a_broken_sidecar_is_no_failed_init_container() -> None:
    seen = pod(
        "Failed",
        waiting("PodInitializing"),
        spec={"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
        status=init("proxy", ended(137)) | {"reason": "NodeLost", "message": "gone"},
    )
    assert outcome.classify(seen) == outcome.Disrupted("NodeLost", "gone")
    seen = pod(
        "Failed",
        waiting("PodInitializing"),
        spec={"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
        status=init("proxy", ended(137)),
    )
    assert outcome.classify(seen) == outcome.Failed("PodFailed", None)


def test_long_messages_are_cut() -> None:
    found = outcome.classify(pod("Failed", ended(1, message="x" * 5000)))
    assert isinstance(found, outcome.Failed)
    assert len(found.message) == 1024
