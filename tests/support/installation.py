"""Clockhand on a cluster: by its manifests where there is a kubelet, else the same processes on this machine.

Both are the real product under the rights of `deploy/`; the second has no containers, so it needs no
kubelet, and its parts can be stopped one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from tests.support import dev, guard, light, manifests, objects, ports, postgres
from tests.support.kubectl import Kubectl, wait_for

ROOT = Path(__file__).parents[2]
OWN = "clockhand-system"
OPERATOR = "clockhand-operator"
API_SERVICE = "v1alpha1.runs.clockhand.dev"
DEFINITIONS = tuple(f"crd/{plural}.clockhand.dev" for plural in ("scheduledjobs", "workerpools", "jobclasses"))
MIGRATION = "--selector=app.kubernetes.io/component=migrate"
WRONG_URL = "postgresql://clockhand:wrong-password@{host}/clockhand"


class Installation(Protocol):
    """What tests do to the parts of the product. Everything blocks until it is done."""

    @property
    def kubectl(self) -> Kubectl: ...

    def let_finish(self, kubectl: Kubectl, pod: Mapping[str, Any]) -> None:
        """Ends a pod of `objects.until_told`."""

    def stop_operators(self) -> None: ...

    def start_operators(self) -> None: ...

    def stop_postgres(self) -> None: ...

    def start_postgres(self) -> None: ...

    def give_runs_api_a_wrong_password(self) -> None: ...

    def give_runs_api_its_password(self) -> None: ...


class Manifests:
    """Installed as the README says, with the demonstration database."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubectl = Kubectl(kubeconfig)
        self._own = self.kubectl.within(OWN)
        self._url = ""

    @property
    def exists(self) -> bool:
        """Whether somebody has installed Clockhand here."""
        return self.kubectl.find("namespace", OWN) is not None

    def remove(self) -> None:
        """With its database: whatever was installed may be of another build."""
        self.kubectl.run("delete", "apiservice", API_SERVICE, "--ignore-not-found")
        self.kubectl.run("delete", "namespace", OWN, "--timeout=240s", seconds=250)

    def install(self) -> None:
        self.kubectl.run("apply", "-f", str(ROOT / "crds"))
        self.kubectl.run("wait", "--for=condition=Established", *DEFINITIONS, "--timeout=100s")
        self.kubectl.run("apply", "-f", str(manifests.FOLDER / "namespace.yaml"))
        self.kubectl.run("apply", "-k", str(manifests.FOLDER / "demo-postgres"))
        self.kubectl.run("apply", "-k", str(manifests.WITH_IMAGES))
        self._wait_until_it_stands()
        self._url = self._own.get("secret", "clockhand-database")["data"]["url"]

    def let_finish(self, kubectl: Kubectl, pod: Mapping[str, Any]) -> None:
        kubectl.run("exec", pod["metadata"]["name"], "--", "touch", objects.TOLD)

    def stop_operators(self) -> None:
        self._own.run("scale", f"deployment/{OPERATOR}", "--replicas=0")
        mine = ("pods", "--selector=app.kubernetes.io/component=operator")
        wait_for("the operators to be gone", lambda: not self._own.items(*mine))

    def start_operators(self) -> None:
        self._own.run("scale", f"deployment/{OPERATOR}", "--replicas=2")
        self._rolled_out(OPERATOR)

    def stop_postgres(self) -> None:
        self._own.run("scale", "statefulset/clockhand-postgres", "--replicas=0")
        wait_for("Postgres to be gone", lambda: self._own.find("pod", "clockhand-postgres-0") is None)

    def start_postgres(self) -> None:
        self._own.run("scale", "statefulset/clockhand-postgres", "--replicas=1")
        self._own.run("rollout", "status", "statefulset/clockhand-postgres", "--timeout=180s", seconds=190)
        self._wait_until_it_stands()

    def give_runs_api_a_wrong_password(self) -> None:
        url = WRONG_URL.format(host="clockhand-postgres")
        self._patch_secret({"stringData": {"url": url}})
        self._restart_runs()

    def give_runs_api_its_password(self) -> None:
        self._patch_secret({"data": {"url": self._url}})
        self._restart_runs()

    def _patch_secret(self, patch: Mapping[str, Any]) -> None:
        self._own.run("patch", "secret", "clockhand-database", "--type=merge", "-p", yaml.safe_dump(patch))

    def _restart_runs(self) -> None:
        self._own.run("rollout", "restart", "deployment/clockhand-runs")
        self._rolled_out("clockhand-runs")

    def _wait_until_it_stands(self) -> None:
        if self._own.items("jobs", MIGRATION):
            done = self._own.call("wait", "--for=condition=Complete", "job", MIGRATION, "--timeout=240s", seconds=250)
            assert done.code == 0, f"{done}\n{self._own.call('logs', MIGRATION, '--tail=30')}"
        for name in (OPERATOR, "clockhand-api", "clockhand-runs"):
            self._rolled_out(name)
        wait_until_served(self.kubectl)

    def _rolled_out(self, name: str) -> None:
        done = self._own.call("rollout", "status", f"deployment/{name}", "--timeout=240s", seconds=250)
        assert done.code == 0, f"{done}\n{self._trouble(name)}"

    def _trouble(self, name: str) -> str:
        pods = self._own.call("get", "pods", "-o", "wide")
        logs = self._own.call("logs", f"deployment/{name}", "--all-pods", "--tail=30", "--prefix")
        return f"{pods}\n{logs}"


class Processes:
    """The product's processes on this machine, each with the rights of its service account."""

    def __init__(self, cluster: light.LightCluster, database: postgres.PostgresServer) -> None:
        self.kubectl = Kubectl(cluster.kubeconfig)
        self._cluster = cluster
        self._database = database
        self._directory = Path(tempfile.mkdtemp(prefix="clockhand-e2e-"))
        self._guard = guard.Guard(self._directory)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._health: dict[str, int] = {}
        self._stopped: list[str] = []
        self._runs_port = ports.free_row(1)
        database.execute("CREATE ROLE clockhand LOGIN PASSWORD 'right'")
        database.execute("CREATE DATABASE clockhand OWNER clockhand")
        self._url = f"postgresql://clockhand:right@127.0.0.1:{database.port}/clockhand"

    def install(self, *, operators: int = 2) -> None:
        self._apply()
        self._migrate()
        for number in range(operators):
            self.start_part(f"operator-{number}")
        self.start_part("runs")
        self.wait_until_ready()

    def close(self) -> None:
        for name in list(self._running):
            self.stop_part(name)
        self._guard.close()

    def start_part(self, name: str, *, url: str | None = None) -> None:
        """`operator-<n>` or `runs`."""
        account = "clockhand-runs" if name == "runs" else "clockhand-operator"
        arguments = ["api", "--runs"] if name == "runs" else ["operator"]
        self._health[name] = ports.free_row(1)
        self._start(name, arguments, self._environment(account, url or self._url, self._health[name]))

    def stop_part(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._guard.gone(process.pid)

    def let_finish(self, kubectl: Kubectl, pod: Mapping[str, Any]) -> None:
        kubectl.run("annotate", "pod", pod["metadata"]["name"], "--overwrite", f"{objects.OUTCOME}=succeed")

    def stop_operators(self) -> None:
        self._stopped = [name for name in self._running if name != "runs"]
        for name in self._stopped:
            self.stop_part(name)

    def start_operators(self) -> None:
        for name in self._stopped:
            self.start_part(name)
        self.wait_until_ready()

    def stop_postgres(self) -> None:
        self._database.kill()

    def start_postgres(self) -> None:
        self._database.start()
        self.wait_until_ready()

    def give_runs_api_a_wrong_password(self) -> None:
        self._restart_runs(WRONG_URL.format(host=f"127.0.0.1:{self._database.port}"))

    def give_runs_api_its_password(self) -> None:
        self._restart_runs(self._url)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def health_port(self, name: str) -> int:
        """Where a part that was started serves its probes and its metrics."""
        return self._health[name]

    @property
    def url(self) -> str:
        """The API server's."""
        return self._cluster.url

    @property
    def ca(self) -> Path:
        """The authority of its certificate."""
        return self._cluster.ca

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def wait_until_ready(self) -> None:
        for name in self._running:
            wait_for(f"{name} to be ready", lambda name=name: self._is_ready(name))  # type: ignore[misc]
        wait_until_served(self.kubectl)

    def _migrate(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "clockhand", "migrate"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=self._environment("clockhand-operator", self._url, 0),
        )

    def _start(self, name: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        environment["CLOCKHAND_REPLICA"] = f"{name}-{secrets.token_hex(3)}"
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "clockhand", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._running[name] = process
        self._guard.started(process.pid)

    def _restart_runs(self, url: str) -> None:
        self.stop_part("runs")
        self.start_part("runs", url=url)
        wait_for("the runs API to be ready", lambda: self._is_ready("runs"))

    def _is_ready(self, name: str) -> bool:
        process = self._running[name]
        tail = self.log(name).read_text(errors="replace")[-3000:]
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n{tail}"
        with contextlib.suppress(OSError, urllib.error.URLError):
            address = f"http://127.0.0.1:{self._health[name]}/readyz"
            with urllib.request.urlopen(address, timeout=5) as answer:
                return bool(answer.status == 200)
        return False

    def _apply(self) -> None:
        self.kubectl.run("apply", "-f", str(ROOT / "crds"))
        self.kubectl.run("wait", "--for=condition=Established", *DEFINITIONS, "--timeout=100s")
        self.kubectl.apply(manifests.namespace())
        self.kubectl.apply(*manifests.objects(*manifests.RIGHTS, *manifests.POLICIES, "Secret"))
        [api_service] = manifests.objects("APIService")
        service = {**api_service["spec"]["service"], "port": self._runs_port}
        self.kubectl.apply(self._runs_service(), {**api_service, "spec": {**api_service["spec"], "service": service}})

    def _runs_service(self) -> dict[str, Any]:
        """One by which the API server finds a process of this machine."""
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._runs_port}]}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "clockhand-runs", "namespace": OWN},
            "spec": spec,
        }

    def _environment(self, account: str, url: str, health_port: int) -> dict[str, str]:
        kubeconfig = self._directory / f"{account}.kubeconfig"
        if not kubeconfig.exists():
            kubeconfig.write_text(yaml.safe_dump(self._kubeconfig(account)))
            kubeconfig.chmod(0o600)
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("CLOCKHAND_", "KUBE"))},
            "CLOCKHAND_DATABASE_URL": url,
            "CLOCKHAND_KUBECONFIG": str(kubeconfig),
            "CLOCKHAND_HEALTH_PORT": str(health_port),
            "CLOCKHAND_RUNS_PORT": str(self._runs_port),
        }

    def _kubeconfig(self, account: str) -> dict[str, Any]:
        token = self.kubectl.within(OWN).run("create", "token", account, "--duration=12h").out.strip()
        server = {"server": self._cluster.url, "certificate-authority": str(self._cluster.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "light", "cluster": server}],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "light", "user": account, "namespace": OWN}}],
            "current-context": "it",
        }


class Standalone:
    """`clockhand dev`: pods are processes, and its parts stay."""

    def __init__(self, kubeconfig: Path, data: Path) -> None:
        self.kubectl = Kubectl(kubeconfig)
        self._data = data

    def let_finish(self, kubectl: Kubectl, pod: Mapping[str, Any]) -> None:
        volume = self._data / "cluster/node/pods" / pod["metadata"]["uid"] / "volumes" / objects.TOLD_VOLUME
        (volume / Path(objects.TOLD).name).touch()

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"{name}: the parts of a standalone installation are not taken away one by one")


@contextlib.contextmanager
def standalone() -> Iterator[Standalone]:
    """From nothing, and nothing afterwards."""
    with tempfile.TemporaryDirectory(prefix="clockhand-e2e-") as folder, asyncio.Runner() as runner:
        kubeconfig, data = Path(folder) / "kubeconfig", Path(folder) / "data"
        stack = contextlib.AsyncExitStack()
        started = dev.started(Path(folder), "--data-dir", str(data), "--kubeconfig", str(kubeconfig))
        one = runner.run(stack.enter_async_context(started))
        try:
            runner.run(one.until_ready())
            yield Standalone(kubeconfig, data)
        finally:
            runner.run(stack.aclose())


@contextlib.contextmanager
def on_light_cluster() -> Iterator[Processes]:
    """Everything from nothing, and nothing afterwards."""
    with light.LightCluster() as cluster, postgres.server() as database:
        # with the stock rules a local connection needs no password, and a wrong one would not matter
        rules = database.data / "pg_hba.conf"
        rules.write_text("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        database.shut_down()
        database.start()
        installed = Processes(cluster, database)
        try:
            installed.install()
            yield installed
        finally:
            installed.close()


def wait_until_served(kubectl: Kubectl) -> None:
    """Until the API server says that the runs API answers."""
    kubectl.run("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=120s", seconds=130)
    # kubectl learns of resources from discovery, which the API server reads again once a minute
    wait_for("runs in discovery", lambda: kubectl.call("get", "runs").code == 0)
