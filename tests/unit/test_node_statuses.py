"""The status of a pod is that of a kubelet, and reads as what happened to those who decide about runs by it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from clockhand.domain import observed, outcome
from clockhand.standalone.nodes import manifest, statuses

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
T1, T2 = T0 + timedelta(seconds=1), T0 + timedelta(seconds=9)
WAITING = statuses.Waiting()
RUNNING = statuses.Running(T1, 42)
GOOD = statuses.ended(0, started_at=T1, finished_at=T2, pid=42)
BAD = statuses.ended(3, started_at=T1, finished_at=T2, pid=42)


def a_pod(
    policy: str = "Never", *, names: tuple[str, ...] = ("main",), init: tuple[str, ...] = (), **more: Any
) -> manifest.Pod:
    return manifest.read(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "restartPolicy": policy,
                "containers": [{"name": name, "image": "busybox"} for name in names],
                "initContainers": [{"name": name} for name in init],
            },
            **more,
        }
    )


def a_life(*states: Any, init: tuple[Any, ...] = (), reason: str = "") -> statuses.Life:
    records = [statuses.Record(name, "busybox", state) for name, state in zip(("main", "side"), states, strict=False)]
    first = [statuses.Record(name, "", state) for name, state in zip(("one", "two"), init, strict=False)]
    return statuses.Life(T0, records, first, reason)


def seen(pod: manifest.Pod, life: statuses.Life) -> outcome.Observation:
    """What Clockhand makes of the status."""
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": one.name} for one in pod.spec.containers]},
        "status": statuses.status(pod, life, before={}, now=T2),
    }
    return outcome.classify(msgspec.convert(body, type=observed.Pod, strict=False))


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Never", (WAITING,), "Pending"),
        ("Never", (RUNNING,), "Running"),
        ("Never", (GOOD,), "Succeeded"),
        ("Never", (BAD,), "Failed"),
        ("OnFailure", (BAD,), "Running"),
        ("OnFailure", (GOOD,), "Succeeded"),
        ("Always", (GOOD,), "Running"),
        ("Never", (RUNNING, WAITING), "Pending"),
        ("Never", (GOOD, RUNNING), "Running"),
        ("Never", (GOOD, BAD), "Failed"),
        ("Never", (GOOD, GOOD), "Succeeded"),
    ],
)
def test_phases(policy: str, states: tuple[Any, ...], expected: str) -> None:
    pod = a_pod(policy, names=("main", "side")[: len(states)])

    assert statuses.phase(pod, a_life(*states)) == expected


@pytest.mark.parametrize(
    ("policy", "init", "expected"),
    [
        ("Never", (RUNNING, WAITING), "Pending"),
        ("Never", (BAD, WAITING), "Failed"),
        ("OnFailure", (BAD, WAITING), "Pending"),
        ("Never", (GOOD, RUNNING), "Pending"),
    ],
)
def test_phases_before_the_first_containers_are_done(policy: str, init: tuple[Any, ...], expected: str) -> None:
    assert statuses.phase(a_pod(policy, init=("one", "two")), a_life(WAITING, init=init)) == expected


def test_a_container_that_waits_to_be_started_again_leaves_the_pod_running() -> None:
    waiting = statuses.Record("main", "", statuses.Waiting(statuses.CRASH_LOOP), last=BAD, restarts=1)

    assert statuses.phase(a_pod("Always"), statuses.Life(T0, [waiting])) == "Running"


def test_a_signal_is_counted_as_a_shell_does() -> None:
    end = statuses.ended(-9, started_at=T1, finished_at=T2, pid=1)

    assert (end.code, end.reason) == (137, "Error")


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        (a_life(WAITING), outcome.Pending()),
        (a_life(RUNNING), outcome.Running(T1)),
        (a_life(GOOD), outcome.Succeeded(T1, T2)),
        (a_life(BAD), outcome.Failed("Error", 3, "", T1, T2)),
        (a_life(BAD, reason="DeadlineExceeded"), outcome.Failed("DeadlineExceeded", 3, "", T1, T2)),
        (a_life(BAD, reason="Terminated"), outcome.Disrupted("Terminated", "", 3, T1, T2)),
        (
            a_life(statuses.not_started("no such file", reason="StartError", now=T1)),
            outcome.Failed("StartError", 128, "no such file", T1, T1),
        ),
    ],
)
def test_what_clockhand_reads_in_it(life: statuses.Life, expected: outcome.Observation) -> None:
    assert seen(a_pod(), life) == expected


def test_a_pod_of_an_earlier_process_was_disrupted() -> None:
    before = {"startTime": "2026-03-01T12:00:00Z", "containerStatuses": [{"name": "main", "restartCount": 2}]}
    pod = a_pod(status={"phase": "Running", **before})

    life = statuses.lost_life(pod, T0, "gone", now=T2)

    assert isinstance(found := seen(pod, life), outcome.Disrupted)
    assert (found.reason, found.message) == (statuses.NODE_LOST, "gone")
    assert life.containers[0].restarts == 2
    assert statuses.phase(pod, life) == "Failed"


def test_a_pod_that_goes_on_counts_its_earlier_starts() -> None:
    before = {"startTime": "2026-03-01T12:00:00Z", "containerStatuses": [{"name": "main", "restartCount": 2}]}

    (record,) = statuses.at_first(a_pod("Always", status={"phase": "Running", **before}), now=T2)

    assert record.restarts == 3
    assert record.last is not None
    assert record.last.reason == "ContainerStatusUnknown"


def test_conditions_keep_the_time_of_their_change() -> None:
    pod = a_pod()
    first = statuses.status(pod, a_life(RUNNING), before={}, now=T1)

    second = statuses.status(pod, a_life(GOOD), before=first, now=T2)

    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert times["PodScheduled"] == "2026-03-01T12:00:01Z"
    assert times["PodReadyToStartContainers"] == "2026-03-01T12:00:09Z"


def test_the_status_says_that_the_image_is_not_used() -> None:
    found = statuses.status(a_pod(), a_life(RUNNING), before={}, now=T1)

    (said,) = [one for one in found["conditions"] if one["type"] == statuses.IMAGE_IGNORED]
    assert said["message"].startswith("busybox: not used")


def test_readiness_is_that_of_all_containers() -> None:
    pod = a_pod(names=("main", "side"))
    life = a_life(RUNNING, RUNNING)
    one_ready = statuses.Life(T0, [replace(life.containers[0], ready=True), life.containers[1]])

    found = {one["type"]: one for one in statuses.status(pod, one_ready, before={}, now=T1)["conditions"]}

    assert found["Ready"]["status"] == "False"
    assert found["Ready"]["message"] == "containers with unready status: [side]"


def test_the_wait_before_another_start_grows_and_is_forgiven() -> None:
    def wait(restarts: int, *, ran: timedelta = timedelta(seconds=1)) -> float:
        end = statuses.ended(1, started_at=T0, finished_at=T0 + ran, pid=1)
        return statuses.backoff(statuses.Record("main", state=end, restarts=restarts))

    assert [wait(number) for number in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert wait(5, ran=timedelta(minutes=10)) == 0
