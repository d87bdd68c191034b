"""How the processes of a control plane on loopback find and trust each other: flags, kubeconfigs and fake
nodes.

Apart from `light.py`, which runs the processes, so that the long lists of flags do not hide the life cycle.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import kubeapi

FAKE_NODE = "kwok.x-k8s.io/node"


@dataclass(frozen=True)
class Plane:
    """One control plane: a folder and three ports."""

    directory: Path
    port: int
    etcd_port: int
    peer_port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def ca(self) -> Path:
        return self.pki / "ca.crt"

    @property
    def api(self) -> kubeapi.KubeApi:
        """The administrator's access."""
        return kubeapi.KubeApi(self.url, self.ca, self.pki / "admin.crt", self.pki / "admin.key")

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def write_kubeconfig(self, user: str) -> Path:
        """For the user with this name of a certificate; self-contained, so that it may be moved."""
        cluster = {"server": self.url, "certificate-authority-data": _encoded(self.ca)}
        access = {
            "client-certificate-data": _encoded(self.pki / f"{user}.crt"),
            "client-key-data": _encoded(self.pki / f"{user}.key"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "light", "cluster": cluster}],
            "users": [{"name": user, "user": access}],
            "contexts": [{"name": user, "context": {"cluster": "light", "user": user}}],
            "current-context": user,
        }
        path = self.kubeconfig(user)
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path


def etcd_flags(plane: Plane) -> list[str]:
    client, peer = f"http://127.0.0.1:{plane.etcd_port}", f"http://127.0.0.1:{plane.peer_port}"
    return [
        f"--data-dir={plane.directory}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={8 << 30}",
    ]


def apiserver_flags(plane: Plane) -> list[str]:
    """Aggregation reaches an APIService whose Service is an ExternalName `localhost`: the aggregator
    resolves Services itself as long as it is not told to route to endpoints.
    """
    return [
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}",
        f"--secure-port={plane.port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        f"--client-ca-file={plane.ca}",
        f"--tls-cert-file={plane.pki}/apiserver.crt",
        f"--tls-private-key-file={plane.pki}/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={plane.pki}/service-account.pub",
        f"--service-account-signing-key-file={plane.pki}/service-account.key",
        f"--requestheader-client-ca-file={plane.pki}/front-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={plane.pki}/front-proxy.crt",
        f"--proxy-client-key-file={plane.pki}/front-proxy.key",
    ]


def controller_manager_flags(plane: Plane) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig('controller-manager')}",
        f"--service-account-private-key-file={plane.pki}/service-account.key",
        f"--root-ca-file={plane.ca}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def scheduler_flags(plane: Plane) -> list[str]:
    return [f"--kubeconfig={plane.kubeconfig('scheduler')}", "--leader-elect=false", "--secure-port=0"]


def kwok_flags(plane: Plane) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig('admin')}",
        f"--config={plane.directory}/kwok.yaml",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE}=fake",
        "--node-lease-duration-seconds=40",
    ]


def fake_node(name: str) -> dict[str, Any]:
    """A node with room for everything; kwok finds it by its annotation and makes it Ready."""
    room = {"cpu": "1000", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "100000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {FAKE_NODE: "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"allocatable": room, "capacity": room},
    }


def is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
