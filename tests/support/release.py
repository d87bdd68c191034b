"""Clockhand by its chart on a cluster with a kubelet, and nothing of it by the plain manifests."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster import kind_cluster
from tests.support import helm, installation
from tests.support.kubectl import Kubectl

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
IMAGES: Mapping[str, Any] = {
    "image": {"repository": "localhost:1/clockhand", "tag": "dev"},
    "workerImage": {"repository": "localhost:1/clockhand-worker", "tag": "dev"},
}
DEMO: Mapping[str, Any] = {
    **IMAGES,
    "demoDatabase": {"enabled": True, "image": {"repository": "localhost:1/clockhand-postgres", "tag": "dev"}},
}
OF_THE_RELEASE = f"app.kubernetes.io/instance={helm.RELEASE}"
CLUSTER_KINDS = (
    "apiservices,clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)
_MINUTES = "--timeout=5m"


def find_kubeconfig() -> Path:
    """That of KUBECONFIG, or of `make cluster-up`."""
    return Path(os.environ.get("KUBECONFIG") or kind_cluster.kubeconfig())


class Release:
    """One release, by one major of Helm."""

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self.kubectl = Kubectl(kubeconfig)
        self.own = self.kubectl.within(helm.NAMESPACE)
        self.helm = helm.Helm(program, kubeconfig)

    @property
    def exists(self) -> bool:
        """Whether Clockhand is there, however it came."""
        return self.kubectl.find("namespace", helm.NAMESPACE) is not None

    @property
    def holds_objects(self) -> bool:
        """Whether there are jobs, pools or classes, which go with their definitions."""
        kinds = ("sjob", "wpool", "jobclass")
        return any(self.kubectl.call("get", kind, "--all-namespaces", "--output=name").out.strip() for kind in kinds)

    def clear(self) -> None:
        """Takes away whatever there is of Clockhand: by manifests, by a chart, or by half of one."""
        self.kubectl.run("delete", CLUSTER_KINDS, "-l", "app.kubernetes.io/part-of=clockhand", "--ignore-not-found")
        self.kubectl.run("delete", "namespace", helm.NAMESPACE, "--ignore-not-found", "--timeout=240s", seconds=250)
        left = self.kubectl.within("kube-system")
        left.run("delete", "rolebindings", "-l", "app.kubernetes.io/part-of=clockhand", "--ignore-not-found")
        crds = str(installation.ROOT / "crds")
        self.kubectl.run("delete", "-f", crds, "--ignore-not-found", "--timeout=120s", seconds=130)

    def make_namespace(self) -> None:
        self.kubectl.create_namespace(helm.NAMESPACE, labels=RESTRICTED)

    def give_secret(self, url: str) -> None:
        self.own.run("create", "secret", "generic", "clockhand-database", f"--from-literal=url={url}")

    def install(self, values: Mapping[str, Any], *, chart: Path = helm.CHART) -> None:
        """Returns when everything is ready."""
        self._put("install", str(chart), "--wait", values=values)

    def upgrade(self, values: Mapping[str, Any], *, wait: bool = True) -> None:
        """Without `wait` it returns when everything has been told to the cluster."""
        self._put("upgrade", str(helm.CHART), *(["--wait"] if wait else []), values=values)

    def roll_back(self, revision: int) -> None:
        """Returns when everything has been told to the cluster."""
        self._put("rollback", str(revision))

    def test(self) -> str:
        """`helm test`: what it printed."""
        try:
            return self.helm.run("test", helm.RELEASE, _MINUTES)
        except helm.HelmError as error:
            raise helm.HelmError(f"{error}\n{self.trouble()}") from error

    def uninstall(self) -> None:
        self.helm.run("uninstall", helm.RELEASE, "--wait", _MINUTES)

    def pods(self) -> list[str]:
        """The uids of those that run its processes."""
        processes = f"{OF_THE_RELEASE},app.kubernetes.io/component in (operator, api, runs)"
        return [pod["metadata"]["uid"] for pod in self.own.items("pods", "-l", processes)]

    def left(self) -> list[Any]:
        """What there is of it outside of its namespace, but for definitions."""
        everywhere = self.kubectl.items(CLUSTER_KINDS, "-l", OF_THE_RELEASE)
        return everywhere + self.kubectl.within("kube-system").items("rolebindings", "-l", OF_THE_RELEASE)

    def trouble(self) -> str:
        """What one looks at first."""
        pods = self.own.call("get", "pods,jobs", "-o", "wide")
        events = self.own.call("get", "events", "--sort-by=.lastTimestamp")
        logs = self.own.call("logs", "--selector", OF_THE_RELEASE, "--all-containers", "--tail=15", "--prefix")
        return f"{pods}\n{events.out[-3000:]}\n{logs.out[-6000:]}"

    def _put(self, verb: str, *arguments: str, values: Mapping[str, Any] | None = None) -> None:
        try:
            self.helm.run(verb, helm.RELEASE, *arguments, _MINUTES, values=values)
        except helm.HelmError as error:
            raise helm.HelmError(f"{error}\n{self.trouble()}") from error
        if values is None or values.get("runs", {}).get("enabled", True):
            installation.wait_until_served(self.kubectl)


def database_in(there: Kubectl) -> str:
    """The URL of a server that is no part of the release: the chart's own one, elsewhere."""
    made = helm.Helm("helm4", namespace=there.namespace).template(DEMO)
    part = "app.kubernetes.io/component"
    there.apply(*(thing for thing in made if thing["metadata"]["labels"].get(part) == "postgres"))
    there.run("rollout", "status", "statefulset/clockhand-postgres", "--timeout=180s", seconds=190)
    password = base64.b64decode(there.get("secret", "clockhand-database")["data"]["password"]).decode()
    return f"postgresql://clockhand:{password}@clockhand-postgres.{there.namespace}/clockhand"


def require_a_cluster() -> Path:
    """The kubeconfig of a cluster on which a test may install; the test fails without one."""
    kubeconfig = find_kubeconfig()
    if not kubeconfig.is_file():
        pytest.fail(f"there is no {kubeconfig}: set KUBECONFIG, or let `make cluster-up` bring up a cluster")
    there = Release("helm4", kubeconfig)
    if kubeconfig != kind_cluster.kubeconfig() and (there.exists or there.holds_objects):
        pytest.fail(
            f"Clockhand or objects of its kinds are there already, and the suite would delete them: {kubeconfig}"
        )
    return kubeconfig
