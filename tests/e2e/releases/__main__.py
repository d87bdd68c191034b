"""`python -m tests.e2e.releases`: makes the folder of `kept.VERSION` out of its tag."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.e2e.cluster import binaries
from tests.e2e.releases import kept
from tests.support import helm

ROOT = binaries.HERE.parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        archive = _git("archive", "--format=tar", f"v{kept.VERSION}")
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            members.extractall(tree, filter="data")
        shutil.rmtree(kept.FOLDER, ignore_errors=True)
        for name in kept.LOCKS:
            (kept.FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name, kept.FOLDER / name)
        _build_wheel(tree)
        helm.Helm("helm4").run("package", str(tree / "charts/scheduler"), f"--destination={kept.FOLDER}")


def _build_wheel(tree: Path) -> None:
    """With the time of the tag's commit, so that it is the same one each time."""
    committed = _git("log", "-1", "--format=%ct", f"v{kept.VERSION}").decode().strip()
    options = ["--quiet", "--no-index", "--no-build-isolation", "--no-deps", f"--wheel-dir={kept.FOLDER}"]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(tree)]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": committed})


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
