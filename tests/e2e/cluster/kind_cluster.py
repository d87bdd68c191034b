"""The kind cluster of the end-to-end tests: one node, one name, one kubeconfig."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster import binaries, steps

NAME = "clockhand"
NETWORK = "kind"
READY_SECONDS = 180
ACCOUNT_SECONDS = 60
# kubelets of this version refuse cgroup v1 unless told otherwise
KUBELET = json.dumps({"kind": "KubeletConfiguration", "failCgroupV1": False})


def kubeconfig() -> Path:
    return binaries.cache_root() / "kind.kubeconfig"


def exists() -> bool:
    """Whether the cluster is there and its API server answers; a broken one is removed."""
    if NAME not in _kind("get", "clusters").split():
        return False
    _kind("export", "kubeconfig", "--name", NAME)
    if steps.succeeds([*_kubectl(), "get", "--raw", "/readyz"], seconds=30):
        return True
    delete()
    return False


def create(image: str, *, stock: bool) -> None:
    """A Ready cluster. The stock image brings its own CNI, the built one has its fixed range."""
    settings = binaries.cache_root() / "kind.json"
    settings.write_text(json.dumps(_settings(stock=stock)))
    with steps.step(f"cluster {NAME} on {image.partition('@')[0]}"):
        wait = ["--wait", f"{READY_SECONDS}s"]
        _kind("create", "cluster", "--name", NAME, "--image", image, "--config", str(settings), *wait)
        account = [*_kubectl(), "get", "serviceaccount", "default"]
        steps.wait_for("the default service account", lambda: steps.succeeds(account), seconds=ACCOUNT_SECONDS)
    _forget_other_versions(image)


def load(tags: Sequence[str]) -> None:
    """All at once: layers that images share travel once, and what a node has already does not travel at
    all.
    """
    with steps.step(f"load {len(tags)} images into the cluster"):
        _kind("load", "docker-image", "--name", NAME, *tags)


def delete() -> None:
    """The cluster, and the network that kind leaves behind when no other cluster uses it."""
    if NAME in _kind("get", "clusters").split():
        with steps.step(f"delete cluster {NAME}"):
            _kind("delete", "cluster", "--name", NAME)
    kubeconfig().unlink(missing_ok=True)
    if not _kind("get", "clusters").split():
        steps.succeeds(["docker", "network", "rm", NETWORK])


def _forget_other_versions(image: str) -> None:
    """A node image of ours weighs a gigabyte; one of other pins is built again when it is wanted."""
    repository = image.rpartition(":")[0]
    if repository.startswith("localhost"):
        listing = ["docker", "image", "ls", "--format={{.Repository}}:{{.Tag}}", repository]
        for other in steps.run(listing).split():
            if other != image:
                steps.succeeds(["docker", "image", "rm", other])


def _settings(*, stock: bool) -> dict[str, Any]:
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": not stock, "ipFamily": "ipv4"},
        "kubeadmConfigPatches": [KUBELET],
        "nodes": [{"role": "control-plane"}],
    }


def _kind(*arguments: str) -> str:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig())}
    return steps.run([binaries.path("kind"), *arguments], env=env)


def _kubectl() -> list[str | Path]:
    return [binaries.path("kubectl"), "--kubeconfig", kubeconfig()]
