"""`clockhand` as somebody calls it at a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import tenants

FAR = "0 0 1 1 *"
SECONDS = 120


@dataclass(frozen=True)
class Shell:
    """A terminal with settings, in a folder."""

    environment: Mapping[str, str]
    folder: Path

    def __call__(self, *words: str, fails: int = 0, given: str = "", **settings: str) -> str:
        """What a command says: on stdout, or on stderr where it fails as it is meant to."""
        done = subprocess.run(
            [sys.executable, "-m", "clockhand", *words],
            env={**self.environment, "TMPDIR": str(self.folder), **settings},
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == fails, (words, done.stdout, done.stderr)
        return done.stderr if fails else done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))

    def job(self, *words: str) -> str:
        """The name of a new job that is never due."""
        name = f"job-{uuid.uuid4().hex[:12]}"
        self("jobs", "create", name, "--schedule", FAR, "--pool", tenants.POOL, *words)
        return name
