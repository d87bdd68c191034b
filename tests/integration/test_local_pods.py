"""Pods that run as processes of this machine: started, watched, logged, ended, and never started a second time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from clockhand import errors
from clockhand.standalone.kube import settings as wanted
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import deployments, ground, kubelet, leftovers, lifecycle

PATIENCE = 30.0
Json = dict[str, Any]
IGNORED: Json = {"clockhand.dev/job": "hello"}


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 (files and processes are waited for, too)
            await asyncio.sleep(0.01)


class Node:
    """A store and a kubelet over it, in a folder that stays."""

    def __init__(self, home: Path, *, capacity: int = 8) -> None:
        self.home = home
        self._capacity = capacity
        self._number = 0
        home.mkdir(exist_ok=True)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the length of the block; its end is the end of the process, asked for kindly."""
        self.store = stores.Store(self.home / "objects.sqlite", durable=False)
        self.kubelet = kubelet.Kubelet(
            self.store,
            home=self.home / "node",
            issue=self._issue,
            environment={"PATH": os.environ["PATH"], "CLOCKHAND_SECRET": "x"},
            capacity=self._capacity,
        )
        task = asyncio.create_task(self.kubelet.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.store.close()

    def _issue(self, namespace: str, account: str, *, audience: str, seconds: int) -> str:
        return f"token of {namespace}/{account} for {audience}"

    async def create(self, *script: str, spec: Json | None = None, metadata: Json | None = None, **main: Any) -> str:
        """A pod whose container runs a shell script; its name."""
        self._number += 1
        name = f"pod-{self._number}-{os.urandom(3).hex()}"
        container = {
            "name": "main",
            "image": "busybox",
            **({"command": ["sh", "-c", *script]} if script else {}),
            **main,
        }
        key = stores.Key("pods", "team-a", name)
        await self.store.create(
            key,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**ground.metadata(key, now="2026-03-01T12:00:00Z"), **(metadata or {})},
                "spec": {"restartPolicy": "Never", "containers": [container], **(spec or {})},
                "status": {"phase": "Pending"},
            },
        )
        return name

    async def until(self, name: str, holds: Callable[[Json], bool]) -> Json:
        """The pod, once it is so."""
        version = self.store.version
        pod = self.store.get(stores.Key("pods", "team-a", name))
        assert pod is not None
        if holds(pod):
            return pod
        async with asyncio.timeout(PATIENCE):
            async for event in self.store.watch("pods", since=version):
                if event.key.name == name and holds(event.body):
                    return event.body
        raise AssertionError("a watch does not end")

    async def over(self, name: str) -> Json:
        return await self.until(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))

    async def runs(self, name: str) -> Json:
        return await self.until(name, lambda pod: pod["status"]["phase"] == "Running")

    async def gone(self, name: str) -> None:
        await eventually(lambda: self.store.get(stores.Key("pods", "team-a", name)) is None)

    async def delete(self, name: str, *, grace: int) -> None:
        """As the API server does it: the object says so and stays."""

        def going(pod: Json) -> Json:
            told = {"deletionTimestamp": "2026-03-01T12:00:00Z", "deletionGracePeriodSeconds": grace}
            return {**pod, "metadata": {**pod["metadata"], **told}}

        await self.store.change(stores.Key("pods", "team-a", name), going)

    async def log(self, pod: Json, **told: Any) -> str:
        pieces = [piece async for piece in self.kubelet.log(pod, wanted.LogRequest(**told))]
        return b"".join(pieces).decode()


def state_of(pod: Json, container: str = "main", *, key: str = "containerStatuses") -> Json:
    found: list[Json] = [one["state"] for one in pod["status"].get(key, ()) if one["name"] == container]
    return found[0] if found else {}


def end_of(pod: Json, container: str = "main") -> Json:
    end: Json = state_of(pod, container)["terminated"]
    return end


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    one = Node(tmp_path / "node")
    async with one.running():
        yield one


async def test_a_pod_runs_and_what_it_wrote_can_be_read(node: Node) -> None:
    name = await node.create("echo to $WHO; echo err >&2; pwd; env", env=[{"name": "WHO", "value": "you"}])

    pod = await node.over(name)

    assert pod["status"]["phase"] == "Succeeded"
    assert (end_of(pod)["exitCode"], end_of(pod)["reason"]) == (0, "Completed")
    assert pod["spec"]["nodeName"] == "local"
    written = await node.log(pod)
    assert written.startswith("to you\nerr\n")
    assert "CLOCKHAND_SECRET" not in written
    assert f"HOSTNAME={name}" in written


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -KILL $$$$", 137), ("kill -TERM $$$$", 143)])
async def test_exit_codes_are_those_of_a_shell(node: Node, script: str, code: int) -> None:
    """Of two dollar signs Kubernetes makes one."""
    pod = await node.over(await node.create(script))

    assert pod["status"]["phase"] == "Failed"
    assert (end_of(pod)["exitCode"], end_of(pod)["reason"]) == (code, "Error")


async def test_a_pipe_that_nobody_reads_ends_its_writer(node: Node) -> None:
    """As in every shell: Python, which starts the process, would have that signal ignored."""
    pod = await node.over(await node.create("(yes; echo $? >&2) | head -n 1"))

    log = await node.log(pod)
    assert sorted(log.split()) == ["141", "y"], "of two pipes, each in its order"


async def test_a_container_that_cannot_be_started_says_why(node: Node) -> None:
    nothing, unknown, nowhere = [
        await node.over(name)
        for name in (
            await node.create(),
            await node.create(command=["no-such-program"]),
            await node.create("true", workingDir="/no/such/folder"),
        )
    ]

    assert (end_of(nothing)["exitCode"], end_of(nothing)["reason"]) == (128, "NoCommand")
    assert "there is no image to ask" in end_of(nothing)["message"]
    assert end_of(unknown)["reason"] == "StartError"
    assert 'exec: "no-such-program": executable file not found in $PATH' in end_of(unknown)["message"]
    assert "/no/such/folder" in end_of(nowhere)["message"]


async def test_the_pod_says_that_its_image_is_not_used_and_so_does_its_job(node: Node) -> None:
    marks = {"labels": IGNORED, "annotations": {"clockhand.dev/job-uid": "u-1"}}
    first, second = await node.create("true", metadata=marks), await node.create("true", metadata=marks)
    pod = await node.over(first)
    await node.over(second)

    (condition,) = [one for one in pod["status"]["conditions"] if one["type"] == "clockhand.dev/ImageIgnored"]
    assert condition["message"].startswith("busybox: not used")
    (event,) = node.store.listed("events")
    assert (event["involvedObject"]["name"], event["reason"]) == ("hello", "ImageIgnored")


async def test_first_containers_run_in_order_and_share_volumes(node: Node) -> None:
    mounts = [{"name": "shared", "mountPath": "/data"}]
    pod = await node.over(
        await node.create(
            "cat /data/log; test -w $TMPDIR",
            volumeMounts=[*mounts, {"name": "shared", "mountPath": "/tmp", "subPath": "tmp"}],
            spec={
                "volumes": [{"name": "shared", "emptyDir": {}}],
                "initContainers": [
                    {"name": one, "command": ["sh", "-c", f"echo {one} >> /data/log"], "volumeMounts": mounts}
                    for one in ("one", "two")
                ],
            },
        )
    )

    assert pod["status"]["phase"] == "Succeeded"
    assert await node.log(pod) == "one\ntwo\n"
    volumes = node.home / "node/pods" / pod["metadata"]["uid"] / "volumes"
    await eventually(lambda: not volumes.exists())


async def test_a_first_container_that_fails_ends_the_pod(node: Node) -> None:
    pod = await node.over(await node.create("true", spec={"initContainers": [{"name": "bad", "command": ["false"]}]}))

    assert pod["status"]["phase"] == "Failed"
    assert "waiting" in state_of(pod)


async def test_a_sidecar_runs_beside_and_is_ended_after(node: Node) -> None:
    sidecar = {"name": "side", "command": ["sleep", "100"], "restartPolicy": "Always"}
    pod = await node.until(
        await node.create("true", spec={"initContainers": [sidecar]}),
        lambda one: "terminated" in (one["status"].get("initContainerStatuses") or [{"state": {}}])[0]["state"],
    )

    assert state_of(pod, "side", key="initContainerStatuses")["terminated"]["exitCode"] == 143
    assert (await node.over(pod["metadata"]["name"]))["status"]["phase"] == "Succeeded"


async def test_objects_of_the_namespace_become_variables_and_files(node: Node) -> None:
    name = await node.create(
        "cat /etc/settings/colour /run/token; echo $PASSWORD",
        env=[{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}],
        volumeMounts=[{"name": "settings", "mountPath": "/etc/settings"}, {"name": "token", "mountPath": "/run"}],
        spec={
            "serviceAccountName": "robot",
            "volumes": [
                {"name": "settings", "configMap": {"name": "settings"}},
                {
                    "name": "token",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "us"}}]},
                },
            ],
        },
    )
    waiting = await node.until(
        name, lambda pod: state_of(pod).get("waiting", {}).get("reason") == "CreateContainerConfigError"
    )
    assert "not found" in state_of(waiting)["waiting"]["message"]

    for resource, one, data in (
        ("configmaps", "settings", {"colour": "blue "}),
        ("secrets", "login", {"password": "aGk="}),
    ):
        key = stores.Key(resource, "team-a", one)
        await node.store.create(key, {"metadata": ground.metadata(key, now="2026-03-01T12:00:00Z"), "data": data})

    assert await node.log(await node.over(name)) == "blue token of team-a/robot for ushi\n"


async def test_a_deletion_asks_first_and_the_object_goes_after_the_processes(node: Node) -> None:
    name = await node.create("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    pod = await node.runs(name)
    await _written(node, pod, "up")

    await node.delete(name, grace=20)

    ended = await node.until(name, lambda one: "terminated" in state_of(one))
    assert end_of(ended)["exitCode"] == 7
    await node.gone(name)


async def test_a_process_that_does_not_listen_is_killed_with_all_that_it_started(node: Node) -> None:
    name = await node.create("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 0.05; done")
    pod = await node.runs(name)
    child = int(await _written(node, pod, "\n"))

    await node.delete(name, grace=0)

    await node.gone(name)
    await _no_process(child)


async def test_what_left_its_group_is_gone_before_the_pod_is_over(node: Node) -> None:
    pod = await node.over(await node.create("setsid sleep 1000 & echo $!"))

    assert not _is_alive(int(await node.log(pod)))


async def test_a_pod_that_the_node_cannot_run_has_failed(node: Node) -> None:
    (node.home / "node").mkdir(exist_ok=True)
    (node.home / "node/pods").write_text("no folder")

    pod = await node.over(await node.create("true"))

    assert pod["status"]["phase"] == "Failed"


async def test_a_deletion_by_force_leaves_no_process_and_no_folder(node: Node) -> None:
    pod = await node.runs(await node.create("trap '' TERM; echo $$$$; while :; do sleep 0.05; done"))
    process = int(await _written(node, pod, "\n"))
    uid = pod["metadata"]["uid"]

    await node.store.delete(stores.Key("pods", "team-a", pod["metadata"]["name"]), uid=uid)

    await _no_process(process)
    await eventually(lambda: not (node.home / "node/pods" / uid).exists())


async def test_a_deletion_by_force_at_the_end_of_the_node_ends_the_others_kindly(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    async with node.running():
        doomed, other = (
            await node.create("sleep 1000"),
            await node.create("trap 'exit 0' TERM; echo up; sleep 1000 & wait"),
        )
        pod = await node.runs(doomed)
        await _written(node, await node.runs(other), "up")
        await node.store.delete(stores.Key("pods", "team-a", doomed), uid=pod["metadata"]["uid"])
        await asyncio.sleep(0)  # the node has heard of it, and its process is not gone yet
    async with node.running():
        assert (await node.over(other))["status"]["phase"] == "Succeeded"


async def test_a_place_is_free_again_though_the_end_of_its_pod_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "node", capacity=1)
    failed = False

    async def fails(_: lifecycle.LocalPod) -> None:
        nonlocal failed
        failed = True
        monkeypatch.undo()
        monkeypatch.setattr(stores.Store, "update_status", full)
        raise RuntimeError("unexpected")

    async def full(*_: object, **__: object) -> Json:
        monkeypatch.undo()
        raise errors.Unavailable("the disk is full")

    async with node.running():
        monkeypatch.setattr(lifecycle.LocalPod, "run", fails)
        await node.create("true")
        await eventually(lambda: failed)
        assert (await node.over(await node.create("true")))["status"]["phase"] == "Succeeded"


async def test_what_somebody_made_of_a_pod_does_not_end_the_node(node: Node) -> None:
    nonsense = {"phase": "Running", "startTime": "yesterday", "conditions": ["x"]}
    key = stores.Key("pods", "team-a", "strange")
    body = {"metadata": ground.metadata(key, now="2026-03-01T12:00:00Z"), "spec": {"containers": [{"name": "main"}]}}
    await node.store.create(key, {**body, "spec": {**body["spec"], "restartPolicy": "Never"}, "status": nonsense})
    deployment = stores.Key(deployments.RESOURCE, "team-a", "strange")
    metadata = ground.metadata(deployment, now="2026-03-01T12:00:00Z")
    await node.store.create(deployment, {"metadata": metadata, "spec": {"replicas": "many", "template": {}}})

    assert (await node.over(await node.create("true")))["status"]["phase"] == "Succeeded"


async def test_somebody_who_writes_without_end_holds_nobody_up(node: Node) -> None:
    noisy = await node.create("yes")
    await node.runs(noisy)

    assert (await node.over(await node.create("true")))["status"]["phase"] == "Succeeded"
    await node.delete(noisy, grace=5)
    await node.gone(noisy)


async def test_a_deadline_ends_a_pod_for_good(node: Node) -> None:
    pod = await node.over(await node.create("sleep 1000", spec={"activeDeadlineSeconds": 1}))

    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert end_of(pod)["exitCode"] == 143


async def test_a_container_is_started_again_where_its_pod_says_so(node: Node, tmp_path: Path) -> None:
    mark = shlex.quote(str(tmp_path / "mark"))
    name = await node.create(
        f"echo try; test -e {mark} && exit 0; touch {mark}; exit 1", spec={"restartPolicy": "OnFailure"}
    )

    pod = await node.over(name)

    assert pod["status"]["phase"] == "Succeeded"
    (status,) = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert await node.log(pod) == await node.log(pod, previous=True) == "try\n"


async def test_logs_are_followed_cut_and_dated(node: Node) -> None:
    name = await node.create("for i in 1 2 3; do echo line $i; sleep 0.05; done; printf end")
    pod = await node.runs(name)

    followed = await node.log(pod, follow=True)

    assert followed == "line 1\nline 2\nline 3\nend"
    assert await node.log(pod, tail_lines=2) == "line 3\nend"
    assert await node.log(pod, tail_lines=0) == ""
    assert await node.log(pod, limit_bytes=4) == "line"
    assert (await node.log(pod, timestamps=True)).splitlines()[0].endswith("Z line 1")
    with pytest.raises(errors.InvalidInput, match="previous terminated container"):
        await node.log(pod, previous=True)
    with pytest.raises(errors.InvalidInput, match="container other is not valid"):
        await node.log(pod, container="other")


async def test_logs_are_removed_with_the_object(node: Node) -> None:
    pod = await node.over(await node.create("echo hi"))
    folder = node.home / "node/pods" / pod["metadata"]["uid"]
    assert folder.is_dir()

    await node.delete(pod["metadata"]["name"], grace=0)

    await node.gone(pod["metadata"]["name"])
    await eventually(lambda: not folder.exists())


async def test_a_last_message_is_kept(node: Node) -> None:
    written = await node.over(await node.create("echo why > /dev/termination-log; exit 1"))
    fallback = await node.over(
        await node.create("echo last words; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
    )

    assert end_of(written)["message"] == "why\n"
    assert end_of(fallback)["message"] == "last words\n"


async def test_pods_wait_for_a_place(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", capacity=1)
    async with node.running():
        first = await node.create("sleep 1000")
        await node.runs(first)
        second = await node.create("true")
        waiting = await node.until(second, lambda pod: bool(pod["status"].get("conditions")))
        (condition,) = waiting["status"]["conditions"]
        assert (condition["reason"], condition["message"]) == (
            "Unschedulable",
            "0/1 nodes are available: 1 Too many pods.",
        )

        await node.delete(first, grace=0)

        assert (await node.over(second))["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "Unschedulable"),
        ({"schedulingGates": [{"name": "hold"}]}, "SchedulingGated"),
    ],
)
async def test_pods_that_have_no_place_here_say_so(node: Node, spec: Json, reason: str) -> None:
    name = await node.create("true", spec=spec)

    pod = await node.until(name, lambda one: bool(one["status"].get("conditions")))

    assert [one["reason"] for one in pod["status"]["conditions"]] == [reason]


async def test_a_gate_that_is_taken_away_lets_the_pod_run(node: Node) -> None:
    name = await node.create("true", spec={"schedulingGates": [{"name": "hold"}]})
    await node.until(name, lambda one: bool(one["status"].get("conditions")))

    def opened(pod: Json) -> Json:
        return {**pod, "spec": {**pod["spec"], "schedulingGates": []}}

    await node.store.change(stores.Key("pods", "team-a", name), opened)

    assert (await node.over(name))["status"]["phase"] == "Succeeded"


async def test_a_pod_that_cannot_be_read_has_failed(node: Node) -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}

    pod = await node.over(await node.create("true", spec={"volumes": [claim]}))

    assert pod["status"]["reason"] == "InvalidPod"
    assert "persistentVolumeClaim" in pod["status"]["message"]


async def test_a_kind_end_asks_processes_and_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    async with node.running():
        slow, quick = (
            await node.create("sleep 1000"),
            await node.create("trap 'exit 0' TERM; echo up; sleep 1000 & wait"),
        )
        await node.runs(slow)
        await _written(node, await node.runs(quick), "up")
    async with node.running():
        ended, finished = await node.over(slow), await node.over(quick)

    assert (ended["status"]["phase"], ended["status"]["reason"]) == ("Failed", "Terminated")
    assert finished["status"]["phase"] == "Succeeded"


async def test_a_service_goes_on_in_its_pod_after_a_kind_end(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    async with node.running():
        name = await node.create("sleep 1000", spec={"restartPolicy": "Always"})
        await node.runs(name)
    async with node.running():
        pod = await node.until(name, lambda one: "running" in state_of(one))

    assert _restarts(pod) == 1


async def test_after_a_kill_pods_are_lost_and_none_runs_twice(tmp_path: Path) -> None:
    home, ran = tmp_path / "node", tmp_path / "ran"
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.local_node", str(home), f"echo x >> {ran}; sleep 1000 & echo $!; wait",
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert victim.stdout is not None
    once, service, *processes = (await asyncio.wait_for(victim.stdout.readline(), PATIENCE)).decode().split()
    victim.send_signal(signal.SIGKILL)
    await victim.wait()

    node = Node(home)
    async with node.running():
        lost = await node.over(once)
        again = await node.until(service, lambda pod: "running" in state_of(pod) and _restarts(pod) == 1)
        await _written(node, again, "\n")
        for process in processes:
            await _no_process(int(process))

    assert (lost["status"]["phase"], lost["status"]["reason"]) == ("Failed", "NodeLost")
    assert end_of(lost)["reason"] == "ContainerStatusUnknown"
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    assert len(ran.read_text().split()) == 3


async def test_only_processes_of_this_home_are_killed(tmp_path: Path) -> None:
    ours, others = [
        await asyncio.create_subprocess_exec(
            "sleep", "1000", env={leftovers.MARK: leftovers.mark(tmp_path / home, "u", "main")}
        )
        for home in ("a", "ab")
    ]
    try:
        assert await asyncio.to_thread(leftovers.kill, tmp_path / "a") == 1
        assert await asyncio.wait_for(ours.wait(), PATIENCE) == -signal.SIGKILL
        assert others.returncode is None
    finally:
        others.kill()
        await others.wait()


async def test_a_deployment_keeps_its_pods_and_rolls_them_over(node: Node) -> None:
    key = stores.Key(deployments.RESOURCE, "team-a", "web")
    container = {"name": "main", "command": ["sleep", "1000"]}
    template: Json = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    metadata = {**ground.metadata(key, now="2026-03-01T12:00:00Z"), "generation": 1}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    await node.store.create(
        key, {"metadata": metadata, "spec": {"replicas": 2, "strategy": strategy, "template": template}}
    )
    first = await _ready(node, key, 2)

    changed = {
        **template,
        "spec": {**template["spec"], "containers": [{**container, "env": [{"name": "A", "value": "1"}]}]},
    }
    await node.store.change(key, lambda one: _edited(one, replicas=2, strategy=strategy, template=changed))
    second = await _ready(node, key, 2)
    assert not first & second

    await node.store.change(key, lambda one: _edited(one, replicas=1, strategy=strategy, template=changed))
    (last,) = await _ready(node, key, 1)
    assert last in second


def _edited(deployment: Json, **spec: Any) -> Json:
    metadata = deployment["metadata"]
    return {**deployment, "metadata": {**metadata, "generation": metadata["generation"] + 1}, "spec": spec}


async def _ready(node: Node, key: stores.Key, count: int) -> set[str]:
    """The names of the Deployment's pods, once it says that it has come to rest."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = node.store.get(key) or {}
            status = found.get("status", {})
            names = {pod["metadata"]["name"] for pod in node.store.listed("pods")}
            counts = [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")]
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            if current and counts == [count] * 3 and len(names) == count:
                return names
            await asyncio.sleep(0.01)


async def _written(node: Node, pod: Json, text: str) -> str:
    """What the pod has written, once `text` is there."""
    found = ""
    async with asyncio.timeout(PATIENCE):
        async for piece in node.kubelet.log(pod, wanted.LogRequest(follow=True)):
            found += piece.decode()
            if text in found:
                return found
    raise AssertionError(f"its log ended without {text!r}: {found}")


async def _no_process(pid: int) -> None:
    await eventually(lambda: not _is_alive(pid))


def _restarts(pod: Json) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
