"""The same faults on a cluster whose kubelets run real containers, beside the replicas that are installed there.

The installed replicas are the steady ones. Those that are killed are processes of the harness, which join them: they reach
the API server by the kubeconfig and PostgreSQL through a forwarded port. Installed replicas hold their shards for 10 s, so
many points are hit in one volley, each by a replica of its own.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import yaml
from tests.e2e.cluster import kind_cluster, steps
from tests.faults.arena import Plan, Stage, prepare
from tests.faults.catalogue import Fault
from tests.faults.recorder import Recorder
from tests.faults.replicas import Crew, Replica, wait_for
from tests.faults.scene import Scene
from tests.faults.trigger import Shot
from tests.support import kubeapi, ports
from tests.support.installation import OWN, Manifests

POSTGRES = "pod/clockhand-postgres-0"
VOLLEYS: Sequence[Sequence[Shot]] = (
    (Shot("due-read"), Shot("inserted"), Shot("unadvanced"), Shot("fired"), Shot("claimed"), Shot("posted")),
    (Shot("answered"), Shot("started-unstored"), Shot("started-stored"), Shot("ended-unstored"), Shot("finish-open")),
    (Shot("retry-open"), Shot("retry-stored"), Shot("death-open"), Shot("death-stored"), Shot("promoted")),
    (Shot("unposted", "stop"), Shot("posting", "stop"), Shot("ended-unstored", "stop"), Shot("answered", "lose")),
)
_TAKEN = "SELECT count(*) FROM shard_leases WHERE shard < 256 AND expires_at > now() AND NOT holder = ANY(%s)"


class KindStage(Stage):
    """An installed cluster. Enter it to have its database and the record of its pods."""

    settle_seconds = 300.0

    def __init__(self, installed: Manifests, directory: Path) -> None:
        recorder = Recorder()
        super().__init__(
            _access(installed.kubectl.kubeconfig, directory), installed.kubectl.kubeconfig, recorder, directory
        )
        self.namespace = f"faults-{secrets.token_hex(2)}"
        self._installed = installed
        self._port = ports.free_row(1)
        self._forward: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KindStage:
        prepare(self)
        secret = self._own.get("secret", "clockhand-database")["data"]["url"]
        where = urlsplit(base64.b64decode(secret).decode())
        self.url = where._replace(netloc=f"{where.username}:{where.password}@127.0.0.1:{self._port}").geturl()
        self._connect()
        self.crew = Crew(self.environment(), self.directory)
        threading.Thread(target=self._record, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.close()
        self._disconnect()
        self.delete(f"/api/v1/namespaces/{self.namespace}")

    @property
    def _own(self) -> Any:
        return self._installed.kubectl.within(OWN)

    def sync(self) -> None:
        """The record is a watch: a listing closes its gaps but for pods that came and went within one."""
        self._take_listing()

    def restart_postgres(self) -> None:
        """Its process is killed; the kubelet starts it again in the same pod."""
        self._disconnect()
        self._own.call("exec", "clockhand-postgres-0", "--", "sh", "-c", "kill -QUIT 1 || kill -KILL -1")
        self._own.run("delete", POSTGRES, "--grace-period=0", "--force", "--ignore-not-found")
        self._own.run("rollout", "status", "statefulset/clockhand-postgres", "--timeout=180s", seconds=190)
        self._connect()

    def restart_apiserver(self) -> None:
        node = f"{kind_cluster.NAME}-control-plane"
        steps.run(["docker", "exec", node, "sh", "-c", "kill -9 $(pidof kube-apiserver)"])
        wait_for("the API server to be back", lambda: self.api.answers("/readyz"), seconds=180)

    def kill_installed_replica(self) -> None:
        """One of the installed operators goes without a word; its Deployment replaces it."""
        pods = self._own.items("pods", "--selector=app.kubernetes.io/component=operator")
        name = pods[0]["metadata"]["name"]
        self._own.run("delete", f"pod/{name}", "--grace-period=0", "--force")

    def _connect(self) -> None:
        command = self._own.command("port-forward", "--address=127.0.0.1", POSTGRES, f"{self._port}:5432")
        self._forward = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the database to be reached", self._answers)

    def _disconnect(self) -> None:
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()

    def _answers(self) -> bool:
        assert self._forward is not None
        if self._forward.poll() is not None:
            self._disconnect()
            command = self._forward.args
            self._forward = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=2):
            return True
        return False

    def _record(self) -> None:
        while True:
            with contextlib.suppress(OSError, kubeapi.ApiError, ValueError):
                version = self._take_listing()
                for event in self.api.lines(f"{self.pods_path}?watch=1&resourceVersion={version}"):
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self.recorder.note_object(event["object"], gone=event["type"] == "DELETED")
            time.sleep(0.2)

    def _take_listing(self) -> str:
        listing = self.api.call("GET", self.pods_path)
        for pod in listing["items"]:
            self.recorder.note_object(pod, gone=False)
        self.recorder.note_absent(self.namespace, {pod["metadata"]["uid"] for pod in listing["items"]})
        return str(listing["metadata"]["resourceVersion"])


def volley(shots: Sequence[Shot]) -> Fault:
    """One replica for each shot, all at once, with jobs of its own for each."""

    def strike(scene: Scene, number: int) -> bool:
        del number
        victims = [scene.arena.crew.join() for _ in shots]
        names = [victim.name for victim in victims]
        for name in names:
            wait_for(f"{name} to hold shards", lambda name=name: scene.arena.held_by(name) > 0)  # type: ignore[misc]
        for victim, shot in zip(victims, shots, strict=True):
            victim.arm(shot)
        scene.arena.deal(scene.fleet, names)
        scene.make_due()
        hits = [_wait_shot(victim) for victim in victims]
        _thaw(scene, victims)
        for victim, shot in zip(victims, shots, strict=True):
            if shot.action != "lose":
                scene.arena.crew.leave(victim)
        return all(hits)

    points = ", ".join(f"{shot.action} at {shot.point}" for shot in shots)
    flaky = [Plan(f"flaky-{n}", "exit:1,succeed") for n in range(len(shots))]
    other = [Plan(f"good-{n}") for n in range(len(shots))]
    if any(shot.point.startswith("death") for shot in shots):
        other = [Plan(f"doomed-{n}", "exit:3", attempts=2) for n in range(len(shots))]
    return Fault("volley", points, strike, [*flaky, *other])


def _wait_shot(victim: Replica) -> bool:
    with contextlib.suppress(TimeoutError):
        wait_for(f"the shot at {victim.name}", lambda: victim.shots() > 0, seconds=60)
    return victim.shots() > 0


def _thaw(scene: Scene, victims: Sequence[Replica]) -> None:
    frozen = [victim for victim in victims if victim.alive() and victim.stopped()]
    names = [victim.name for victim in frozen]
    if frozen:
        wait_for("others to take over", lambda: scene.arena.query(_TAKEN, names)[0].count == 256)
    for victim in frozen:
        victim.thaw()
    for name in names:
        wait_for(f"{name} to be back", lambda name=name: scene.arena.held_by(name) > 0)  # type: ignore[misc]


@contextlib.contextmanager
def stage(installed: Manifests) -> Iterator[KindStage]:
    """The installed cluster, with a namespace of its own for the faults."""
    with (
        tempfile.TemporaryDirectory(prefix="clockhand-faults-") as directory,
        KindStage(installed, Path(directory)) as made,
    ):
        yield made


def _access(kubeconfig: Path, directory: Path) -> kubeapi.KubeApi:
    config: Any = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    files = {}
    for name, text in (
        ("ca", cluster["certificate-authority-data"]),
        ("certificate", user["client-certificate-data"]),
        ("key", user["client-key-data"]),
    ):
        files[name] = directory / f"{name}.pem"
        files[name].touch(mode=0o600)
        files[name].write_bytes(base64.b64decode(text))
    return kubeapi.KubeApi(cluster["server"], **files)
