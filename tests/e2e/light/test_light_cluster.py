"""The light cluster decides how pods end and which servers fail: it must keep its word to other tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support import kubeapi, light

PODS = "/api/v1/namespaces/default/pods"
ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        yield running


def pod(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "clockhand"},
            "annotations": {f"test.clockhand.dev/{key}": value for key, value in annotations.items()},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "any"}]},
    }


def eventually(ask: Callable[[], T], accept: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + 60
    while not accept(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def ended(api: kubeapi.KubeApi, name: str) -> dict[str, Any]:
    """The status of a pod that is over."""
    status: dict[str, Any] = eventually(
        lambda: api.call("GET", f"{PODS}/{name}")["status"],
        lambda status: status.get("phase") in ("Succeeded", "Failed"),
    )
    return status


def terminated(status: dict[str, Any]) -> tuple[str, int, str]:
    state = status["containerStatuses"][0]["state"]["terminated"]
    return status["phase"], state["exitCode"], state["reason"]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("succeed", ("Succeeded", 0, "Completed")),
        ("fail", ("Failed", 1, "Error")),
        ("exit:42", ("Failed", 42, "Error")),
        ("oom", ("Failed", 137, "OOMKilled")),
        ("evict", ("Failed", 137, "Error")),
    ],
)
def test_pod_ends_as_annotated(cluster: light.LightCluster, outcome: str, expected: tuple[str, int, str]) -> None:
    name = f"one-{outcome.replace(':', '-')}-1"
    cluster.api.call("POST", PODS, pod(name, outcome=outcome))
    assert terminated(ended(cluster.api, name)) == expected


def test_eviction_is_told_apart_from_failure(cluster: light.LightCluster) -> None:
    cluster.api.call("POST", PODS, pod("evicted-1", outcome="evict"))
    status = ended(cluster.api, "evicted-1")
    assert status["reason"] == "Evicted"
    assert any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in status["conditions"])


def test_each_attempt_has_its_outcome_and_the_last_one_repeats(cluster: light.LightCluster) -> None:
    for attempt in (1, 2, 3, 4):
        cluster.api.call("POST", PODS, pod(f"listed-{attempt}", outcome="fail, exit:7, succeed"))
    codes = [terminated(ended(cluster.api, f"listed-{attempt}"))[1] for attempt in (1, 2, 3, 4)]
    assert codes == [1, 7, 0, 0]


def test_hanging_pod_runs_until_deleted(cluster: light.LightCluster) -> None:
    cluster.api.call("POST", PODS, pod("hanging-1", outcome="hang"))
    cluster.api.call("POST", PODS, pod("later-1", duration="1500ms"))
    state = ended(cluster.api, "later-1")["containerStatuses"][0]["state"]["terminated"]
    assert state["startedAt"] < state["finishedAt"]
    assert cluster.api.call("GET", f"{PODS}/hanging-1")["status"]["phase"] == "Running"
    cluster.api.call("DELETE", f"{PODS}/hanging-1")
    eventually(lambda: cluster.api.answers(f"{PODS}/hanging-1"), lambda there: not there)


def test_stuck_pod_says_what_it_waits_for(cluster: light.LightCluster) -> None:
    cluster.api.call("POST", PODS, pod("stuck-1", outcome="stuck"))
    status = eventually(
        lambda: cluster.api.call("GET", f"{PODS}/stuck-1")["status"],
        lambda status: "containerStatuses" in status,
    )
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"


def test_apiserver_keeps_its_data_over_kill_and_pause(cluster: light.LightCluster) -> None:
    cluster.api.call("POST", PODS, pod("kept-1", outcome="hang"))
    before = cluster.pid("kube-apiserver")
    cluster.stop_apiserver()
    with pytest.raises(OSError, match="refused"):
        cluster.api.call("GET", "/readyz")
    cluster.start_apiserver()
    assert cluster.pid("kube-apiserver") != before
    assert cluster.api.answers(f"{PODS}/kept-1")
    cluster.pause_apiserver()
    try:
        with socket.create_connection(("127.0.0.1", int(cluster.url.rpartition(":")[2])), timeout=5) as silent:
            silent.settimeout(0.5)
            silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(TimeoutError):
                silent.recv(1)
    finally:
        cluster.resume_apiserver()
    assert cluster.api.answers("/readyz")


def test_rbac_decides_about_others(cluster: light.LightCluster) -> None:
    cluster.kubeconfig_for("mallory", ["nobodies"])
    keys = cluster.directory / "pki"
    mallory = kubeapi.KubeApi(cluster.url, cluster.ca, keys / "user-mallory.crt", keys / "user-mallory.key")
    with pytest.raises(kubeapi.ApiError, match="forbidden"):
        mallory.call("GET", PODS)


def test_servers_end_with_a_killed_test_process() -> None:
    script = (
        "from tests.support import light\n"
        "cluster = light.LightCluster().start()\n"
        "names = ('etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kwok')\n"
        "print(*[cluster.pid(name) for name in names], flush=True)\n"
        "import signal\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        os.kill(process.pid, signal.SIGKILL)
    assert len(pids) == 5
    eventually(lambda: [pid for pid in pids if _runs(pid)], lambda left: not left)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
