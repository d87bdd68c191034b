"""A real API server in seconds: the control plane alone, as processes on loopback, with fake nodes that run
nothing.

What most end-to-end cases ask of Kubernetes is its API: admission, watches, aggregation, quota, garbage
collection. All of it is here unabridged, and tests may stop, pause or restart it as they like. Only
kubelets are missing: kwok plays them, and an annotation on a pod says how it ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.e2e.cluster import binaries, steps
from tests.support import controlplane, guard, kubeapi, pki, ports

START_SECONDS = 180.0
PORT_ATTEMPTS = 3
KWOK_CONFIG = Path(binaries.__file__).with_name("kwok.yaml")
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
# the n-th attempt (the last part of a pod's name) has the n-th outcome of the list, the last outcome repeats
OUTCOME_OF_ATTEMPT = (
    '.metadata | ((.annotations["test.clockhand.dev/outcome"] // "succeed") | split(",")) as $list'
    ' | (.name | split("-") | last | (tonumber? // 1)) as $attempt'
    ' | $list[([[$attempt, 1] | max, ($list | length)] | min) - 1] | gsub(" "; "")'
)
# A fair baseline for CronJobs: the controller manager's default limits hold it back more than its work does.
RAISED_LIMITS = (
    "--kube-api-qps=2000",
    "--kube-api-burst=4000",
    "--concurrent-cron-job-syncs=50",
    "--concurrent-job-syncs=50",
)


@dataclass(frozen=True)
class LightSettings:
    """What may differ between two light clusters. Ports left at 0 are found; flags come after those of the
    cluster.
    """

    nodes: int = 2
    port: int = 0
    etcd_port: int = 0
    apiserver_flags: Sequence[str] = ()
    controller_manager_flags: Sequence[str] = ()
    scheduler_flags: Sequence[str] = ("--kube-api-qps=2000", "--kube-api-burst=4000")


class PortTakenError(steps.StepError):
    """Somebody else got a port between finding and using it: try again with others."""


class LightCluster:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok: started by `with`, gone after
    it.

    Everything blocks; from a coroutine use `async with`, and `asyncio.to_thread` for the methods. Without a
    directory the state is temporary and the processes end with this one, however it ends; with a directory
    both stay until `stop`.
    """

    def __init__(self, settings: LightSettings | None = None, directory: Path | None = None) -> None:
        self.settings = settings or LightSettings()
        self._kept = directory
        self._plane: controlplane.Plane | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guard: guard.Guard | None = None

    def start(self) -> LightCluster:
        """From nothing to nodes that are Ready."""
        binaries.ensure(binaries.LIGHT_TOOLS)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._start()
                return self
            except PortTakenError:
                self.stop()
                if attempt == PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError("the loop returns or raises")

    def stop(self) -> None:
        """Kills at once: there is nothing to save, and an API server without its etcd would not stop when
        asked.
        """
        for name in list(self._processes):
            self._kill(name)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self._plane = None

    @property
    def directory(self) -> Path:
        """Logs are in `log/`, certificates in `pki/`."""
        return self._running.directory

    @property
    def url(self) -> str:
        return self._running.url

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self._running.kubeconfig("admin")

    @property
    def ca(self) -> Path:
        return self._running.ca

    @property
    def api(self) -> kubeapi.KubeApi:
        return self._running.api

    def pid(self, name: str) -> int:
        """Of `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `kwok`."""
        return self._processes[name].pid

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of anybody: what they may do is then up to RBAC."""
        name = f"user-{user.replace(':', '-')}"
        pki.load_authority(self._running.pki, "ca").issue(name, common_name=user, groups=groups)
        return self._running.write_kubeconfig(name)

    def restart_apiserver(self) -> None:
        """kill -9, then up again on the same port with the same data."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """kill -9: connections are reset, new ones refused."""
        self._kill("kube-apiserver")

    def start_apiserver(self) -> None:
        """Returns when it is ready to serve."""
        plane = self._running
        self._run("kube-apiserver", [*controlplane.apiserver_flags(plane), *self.settings.apiserver_flags])
        self._wait("the API server", lambda: plane.api.answers("/readyz"))

    def restart_controller_manager(self, flags: Sequence[str]) -> None:
        """The built-in controllers again, with other flags of their own."""
        self._kill("kube-controller-manager")
        self._run("kube-controller-manager", [*controlplane.controller_manager_flags(self._running), *flags])

    def pause_apiserver(self) -> None:
        """Connections stay open and nothing comes back: the failure that hurts watches most."""
        process = self._processes["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def resume_apiserver(self) -> None:
        self._processes["kube-apiserver"].send_signal(signal.SIGCONT)

    def __enter__(self) -> LightCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> LightCluster:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def _running(self) -> controlplane.Plane:
        if self._plane is None:
            raise RuntimeError("the cluster is not started")
        return self._plane

    def _start(self) -> None:
        plane = self._prepare()
        self._run("etcd", controlplane.etcd_flags(plane))
        self.start_apiserver()
        settings = self.settings
        manager = [*controlplane.controller_manager_flags(plane), *settings.controller_manager_flags]
        self._run("kube-controller-manager", manager)
        self._run("kube-scheduler", [*controlplane.scheduler_flags(plane), *settings.scheduler_flags])
        self._run("kwok", controlplane.kwok_flags(plane))
        for number in range(1, settings.nodes + 1):
            plane.api.call("POST", "/api/v1/nodes", controlplane.fake_node(f"fake-{number}"))
        self._wait("the default service account", lambda: plane.api.answers(DEFAULT_ACCOUNT))
        self._wait("nodes that are Ready", self._nodes_ready)

    def _prepare(self) -> controlplane.Plane:
        directory = self._kept or Path(tempfile.mkdtemp(prefix="clockhand-light-"))
        if self._kept is None:
            self._guard = guard.Guard(directory)
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "log").mkdir(parents=True, mode=0o700)
        found = ports.free(3)
        plane = controlplane.Plane(
            directory, self.settings.port or found[0], self.settings.etcd_port or found[1], found[2]
        )
        self._plane = plane
        pki.control_plane(plane.pki)
        for user in ("admin", "controller-manager", "scheduler"):
            plane.write_kubeconfig(user)
        (directory / "kwok.yaml").write_text(KWOK_CONFIG.read_text().replace("@outcome@", OUTCOME_OF_ATTEMPT))
        return plane

    def _run(self, name: str, flags: Sequence[str]) -> None:
        with (self.directory / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [binaries.path(name), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        self._processes[name] = process
        if self._guard is not None:
            self._guard.started(process.pid)
        else:
            (self.directory / f"{name}.pid").write_text(str(process.pid))

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        if self._guard is not None:
            self._guard.gone(process.pid)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            self._check_alive()
            if time.monotonic() > deadline:
                raise steps.StepError(f"waited {START_SECONDS:.0f} s in vain for {what}\n{self._log_tails()}")
            time.sleep(0.05)

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                tail = self._log_tail(name)
                kind = PortTakenError if "address already in use" in tail else steps.StepError
                raise kind(f"{name} ended with {process.returncode}:\n{tail}")

    def _nodes_ready(self) -> bool:
        nodes = self.api.call("GET", "/api/v1/nodes")["items"]
        return len(nodes) >= self.settings.nodes and all(map(controlplane.is_ready, nodes))

    def _log_tails(self) -> str:
        return "\n".join(f"--- {name}\n{self._log_tail(name)}" for name in self._processes)

    def _log_tail(self, name: str) -> str:
        return (self.directory / "log" / f"{name}.log").read_text(errors="replace")[-2000:]


def start_detached(directory: Path, settings: LightSettings) -> Path:
    """A cluster that outlives this process, or the one that is there already; returns the kubeconfig."""
    address = directory / "url"
    if address.exists() and _plane_at(directory).api.answers("/readyz"):
        return _plane_at(directory).kubeconfig("admin")
    stop_detached(directory)
    cluster = LightCluster(settings, directory)
    cluster.start()
    address.write_text(cluster.url)
    return cluster.kubeconfig


def stop_detached(directory: Path) -> bool:
    """Ends what `start_detached` left in this directory, and the directory; whether there was anything."""
    pids = [path for path in directory.glob("*.pid") if _is_ours(int(path.read_text()), directory)]
    for path in pids:
        os.kill(int(path.read_text()), signal.SIGKILL)
    left = {int(path.read_text()) for path in pids}
    steps.wait_for("processes to end", lambda: not any(_is_ours(pid, directory) for pid in left), seconds=10)
    existed = directory.exists()
    shutil.rmtree(directory, ignore_errors=True)
    return existed


def _plane_at(directory: Path) -> controlplane.Plane:
    port = int((directory / "url").read_text().rpartition(":")[2])
    return controlplane.Plane(directory, port, 0, 0)


def _is_ours(pid: int, directory: Path) -> bool:
    """A number may have gone to a stranger since; every process of a cluster names its directory on its
    command line.
    """
    try:
        return f"{directory}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
