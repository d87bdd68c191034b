"""The image of a kind node: kind's stock one where a registry answers, else one built here from Debian and
our binaries.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tests.e2e.cluster import archive, binaries, engine, steps

# what the pinned release of kind uses by default
STOCK = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
BASE = "localhost:1/clockhand-node-base"
BUILDER = "clockhand-node-builder"
RECIPE = ("node-rootfs", "node_image.py", "archive.py")
PROBE_SECONDS = 10
# containerd in the builder: started, waited for, and stopped cleanly so that its store is whole
START_CONTAINERD = """
nohup containerd >/tmp/containerd.log 2>&1 & echo $! >/tmp/containerd.pid
for _ in $(seq 100); do ctr version >/dev/null 2>&1 && exit 0; sleep 0.2; done
cat /tmp/containerd.log; exit 1
"""
STOP_CONTAINERD = """
pid=$(cat /tmp/containerd.pid); kill $pid
for _ in $(seq 100); do readlink /proc/$pid/exe >/dev/null 2>&1 || break; sleep 0.1; done
rm -f /tmp/containerd.*
"""


def registry_answers() -> bool:
    """Asked with a short deadline: a network without a registry costs seconds."""
    return steps.succeeds(["docker", "manifest", "inspect", STOCK], seconds=PROBE_SECONDS)


def pull_stock() -> str:
    if not steps.succeeds(["docker", "image", "inspect", STOCK]):
        with steps.step(f"pull {STOCK.partition('@')[0]}"):
            steps.run(["docker", "pull", "--quiet", STOCK])
    return STOCK


def built_tag() -> str:
    """Changes with the binaries and with the recipe."""
    digest = hashlib.sha256()
    for tool in binaries.NODE_TOOLS:
        digest.update(binaries.module_of(tool).key.encode())
    for name in RECIPE:
        digest.update((binaries.HERE / name).read_bytes())
    return f"localhost:1/clockhand-node:{binaries.kubernetes_version()}-{digest.hexdigest()[:10]}"


def build() -> str:
    """The image's tag; built unless it is there."""
    tag = built_tag()
    if steps.succeeds(["docker", "image", "inspect", tag]):
        return tag
    engine.ensure_programs({"debootstrap": "debootstrap"})
    binaries.ensure((*binaries.KIND_TOOLS, *binaries.NODE_TOOLS))
    work = binaries.cache_root() / "node-image"
    work.mkdir(parents=True, exist_ok=True)
    with steps.step(f"node image: file system from Debian packages ({work})"):
        _make_rootfs(work)
    with steps.step("node image: the control plane's images"):
        archive.write(work / "images.tar", _control_plane(work / "rootfs"))
    with steps.step(f"node image: {tag}"):
        _commit(work, tag)
    steps.run(["rm", "-rf", work])
    return tag


def _make_rootfs(work: Path) -> None:
    collected = work / "bin"
    collected.mkdir(exist_ok=True)
    for tool in binaries.NODE_TOOLS:
        link = collected / tool
        link.unlink(missing_ok=True)
        link.symlink_to(binaries.path(tool))
    kind = binaries.source_of("kind", "sigs.k8s.io/kind")
    recipe = binaries.HERE / "node-rootfs"
    log = binaries.cache_root() / "log" / "node-rootfs.log"
    steps.run([recipe, work / "rootfs", kind, collected, binaries.kubernetes_version()], log=log)


def _control_plane(rootfs: Path) -> list[archive.Image]:
    """Under the names that kubeadm of this version asks for; the sandbox also under the one in kind's
    containerd settings.
    """
    version = binaries.kubernetes_version()
    names = steps.run([binaries.path("kubeadm"), "config", "images", "list", "--kubernetes-version", version]).split()
    settings = (rootfs / "etc/containerd/config.toml").read_text()
    sandbox = re.search(r'sandbox_image = "([^"]+)"', settings)
    images = []
    for name in names:
        tool = name.rpartition("/")[2].partition(":")[0]
        tags = [name, sandbox.group(1)] if tool == "pause" and sandbox else [name]
        tree = rootfs.with_name("rootfs.kube-proxy") if tool == "kube-proxy" else None
        images.append(archive.Image(tags, _program(tool), _entrypoint(tool), tree))
    return images


def _program(tool: str) -> dict[str, Path]:
    folder = "" if _entrypoint(tool) else "usr/local/bin/"
    return {f"{folder}{tool}": binaries.path(tool)}


def _entrypoint(tool: str) -> tuple[str, ...]:
    """kubeadm's manifests name the program of the other images themselves."""
    return (f"/{tool}",) if tool in ("coredns", "pause") else ()


def _commit(work: Path, tag: str) -> None:
    steps.run(["bash", "-c", f"tar -C {work}/rootfs -c . | docker import --change 'ENV container=docker' - {BASE}"])
    steps.run(["bash", "-c", f"docker rm -f -v {BUILDER} >/dev/null 2>&1 || true"])
    options = ["--init", "--pull=never", "--network=none", "--entrypoint=sleep", "--security-opt=seccomp=unconfined"]
    steps.run(["docker", "run", "-d", *options, f"--name={BUILDER}", BASE, "infinity"])
    steps.run(["docker", "exec", BUILDER, "bash", "-c", START_CONTAINERD])
    load = ["ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--no-unpack", "--digests", "-"]
    with (work / "images.tar").open("rb") as images:
        steps.run(["docker", "exec", "-i", BUILDER, *load], stdin=images)
    steps.run(["docker", "exec", BUILDER, "bash", "-c", STOP_CONTAINERD])
    start = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
    steps.run(["docker", "commit", "--change", start, BUILDER, tag])
    steps.run(["docker", "rm", "-f", "-v", BUILDER])
    steps.run(["docker", "image", "rm", BASE])
