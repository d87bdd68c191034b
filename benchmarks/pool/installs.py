"""What the peers need, outside the tree: a folder for each lock file, named by a hash over what goes into it.

Nothing of it comes near the product's own environment. The lock files hold versions and hashes, no addresses.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.e2e.cluster import binaries, engine, steps

PEERS = Path(__file__).parent / "peers"


def procrastinate() -> Sequence[str]:
    """The command of the peer, its environment made."""
    source = PEERS / "procrastinate"
    with _folder(source, "requirements.lock") as home:
        if home is not None:
            steps.run([sys.executable, "-m", "venv", home])
            steps.run([home / "bin/pip", "install", "-q", "--require-hashes", "-r", source / "requirements.lock"])
    return [str(_home(source, "requirements.lock") / "bin/python"), str(source / "peer.py")]


def river() -> Sequence[str]:
    source = PEERS / "river"
    files = ("go.mod", "go.sum", "main.go")
    with _folder(source, *files) as home:
        if home is not None:
            engine.ensure_programs({"go": "golang-go"})
            steps.run(["go", "build", "-mod=readonly", "-trimpath", "-o", home / "peer", "."], cwd=source)
    return [str(_home(source, *files) / "peer")]


def npm(name: str) -> Sequence[str]:
    """Node itself is one of the packages: the peers want a newer one than many machines have."""
    source = PEERS / "npm"
    files = ("package.json", "package-lock.json", *sorted(path.name for path in source.glob("*.mjs")))
    with _folder(source, *files) as home:
        if home is not None:
            engine.ensure_programs({"npm": "npm"})
            for file in files:
                shutil.copy(source / file, home)
            steps.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=home)
    home = _home(source, *files)
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return [str(home / f"node_modules/node-linux-{machine}/bin/node"), str(home / f"{name}.mjs")]


def _home(source: Path, *files: str) -> Path:
    digest = hashlib.sha256(f"{platform.machine()} {sys.version}".encode())
    for file in files:
        digest.update(file.encode() + b"\0" + (source / file).read_bytes())
    return binaries.cache_root().parent / "peers" / f"{source.name}-{digest.hexdigest()[:10]}"


@contextlib.contextmanager
def _folder(source: Path, *files: str) -> Iterator[Path | None]:
    """An empty folder to install into, which becomes the real one when all went well; None where that is there."""
    home = _home(source, *files)
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if (home / ".complete").exists():
            yield None
            return
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        with steps.step(f"install {source.name}"):
            yield home
        (home / ".complete").touch()
