"""Kubernetes without a registry: every program of a cluster, built from Go modules pinned by
`modules/*/go.mod` and `go.sum`.

The module files are the only place where a version is written. A build is kept outside the tree in a folder
named after the module, its version and a hash over everything that goes into it, so that a changed pin
rebuilds that module and no other, and working trees with different pins share one cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster import steps

HERE = Path(__file__).resolve().parent
BUILD_FLAGS = ("-mod=readonly", "-trimpath")


def cache_root() -> Path:
    """Where builds and the state of engines live; never inside the tree."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("CLOCKHAND_CACHE") or f"{base}/clockhand") / "cluster"


@dataclass(frozen=True)
class Module:
    """A folder below `modules/`: its requirement pins the version, `tools` maps a program to its package."""

    name: str
    requirement: str
    tools: dict[str, str]

    @property
    def folder(self) -> Path:
        return HERE / "modules" / self.name

    @property
    def version(self) -> str:
        pin = re.search(rf"^\s*(?:require )?{re.escape(self.requirement)} (v\S+)", self._read("go.mod"), re.MULTILINE)
        return pin.group(1) if pin else "v0"

    @property
    def link_flags(self) -> str:
        return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in self._told().items())])

    @property
    def key(self) -> str:
        """Changes with anything that could change the outcome of a build."""
        digest = hashlib.sha256(f"{self.link_flags} {BUILD_FLAGS}".encode())
        for path in sorted(self.folder.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:10]

    @property
    def home(self) -> Path:
        return cache_root() / "tools" / f"{self.name}-{self.version}-{self.key}"

    def _told(self) -> dict[str, str]:
        """What a program is told about versions that it cannot find out by itself."""
        home = self.requirement
        if self.name == "kube":
            major, minor = self.version.removeprefix("v").split(".")[:2]
            base = "k8s.io/component-base/version"
            return {
                f"{base}.gitVersion": self.version,
                f"{base}.gitMajor": major,
                f"{base}.gitMinor": minor,
                "k8s.io/client-go/pkg/version.gitVersion": self.version,
            }
        if self.name == "helm3":
            client = re.search(r"^\s*k8s\.io/client-go v0\.(\d+)", self._read("go.mod"), re.MULTILINE)
            minor = client.group(1) if client else "0"
            return {
                f"{home}/internal/version.version": self.version,
                f"{home}/pkg/chartutil.k8sVersionMinor": minor,
                f"{home}/pkg/lint/rules.k8sVersionMinor": minor,
            }
        return {f"{home}/internal/version.version": self.version} if self.name == "helm4" else {}

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()


_KUBE = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "kube-proxy",
    "kubeadm",
)
MODULES = (
    Module("kube", "k8s.io/kubernetes", {tool: f"k8s.io/kubernetes/cmd/{tool}" for tool in _KUBE}),
    Module("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module("coredns", "github.com/coredns/coredns", {"coredns": "."}),
    Module("helm3", "helm.sh/helm/v3", {"helm3": "helm.sh/helm/v3/cmd/helm"}),
    Module("helm4", "helm.sh/helm/v4", {"helm4": "helm.sh/helm/v4/cmd/helm"}),
    Module("crictl", "sigs.k8s.io/cri-tools", {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}),
    Module("kind", "sigs.k8s.io/kind", {"kind": "sigs.k8s.io/kind"}),
    Module("kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module("pause", "", {"pause": "."}),
)
_OWNER = {tool: module for module in MODULES for tool in module.tools}

LIGHT_TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
KIND_TOOLS = ("kind", "kubectl")
HELMS = ("helm3", "helm4")
NODE_TOOLS = (*_KUBE, "etcd", "coredns", "crictl", "pause")


def module_of(tool: str) -> Module:
    return _OWNER[tool]


def kubernetes_version() -> str:
    return module_of("kubelet").version


def path(tool: str) -> Path:
    """Where a tool is once it is built."""
    return module_of(tool).home / tool


def ensure(tools: Iterable[str]) -> None:
    """Builds what is missing; two callers at a time do not build the same thing twice."""
    if all(path(tool).exists() for tool in tools):
        return
    with locked("build"):
        for tool in tools:
            if not path(tool).exists():
                _build(tool)


def _build(tool: str) -> None:
    if shutil.which("go") is None:
        raise steps.StepError("Go 1.26 or newer is needed to build the programs of a cluster")
    module = module_of(tool)
    unfinished = module.home / f".{tool}.unfinished"
    module.home.mkdir(parents=True, exist_ok=True)
    with steps.step(f"build {tool} {module.version}"):
        command: list[str | Path] = [
            "go",
            "build",
            *BUILD_FLAGS,
            "-ldflags",
            module.link_flags,
            "-o",
            unfinished,
            module.tools[tool],
        ]
        steps.run(command, cwd=module.folder, env={**os.environ, "CGO_ENABLED": "0"})
        unfinished.rename(path(tool))


def source_of(module: str, requirement: str) -> Path:
    """The unpacked source of a pinned requirement (kind's carries the base files of its node image)."""
    folder = HERE / "modules" / module
    steps.run(["go", "mod", "download", requirement], cwd=folder)
    return Path(steps.run(["go", "list", "-m", "-f", "{{.Dir}}", requirement], cwd=folder).strip())


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time, for as long as it lives."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
