"""Releases beside each other: each is a folder whose code goes before what is installed, and runs as processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.releases import kept
from tests.support import generated, ports
from tests.support.kubectl import wait_for

_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an API process is to be found, of whatever release."""

    port: int
    health: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclasses.dataclass(frozen=True)
class Release:
    """The code in `folder`, at work on a database. Logs go to `logs`."""

    folder: Path
    database_url: str
    logs: Path

    def on(self, database_url: str) -> Release:
        return dataclasses.replace(self, database_url=database_url)

    def call(self, *arguments: str, **settings: str) -> str:
        """What a command printed that must succeed."""
        done = self._call(arguments, settings)
        assert done.returncode == 0, f"clockhand {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def refusal(self, *arguments: str) -> str:
        """What a command said that must fail."""
        done = self._call(arguments, {})
        assert done.returncode == 1, f"expected a refusal of clockhand {' '.join(arguments)}\n{done.stdout}"
        return done.stderr

    @contextlib.contextmanager
    def serving(self, place: Place) -> Iterator[None]:
        """The API at that place, ready, for the length of the block."""
        settings = {"CLOCKHAND_API_PORT": f"{place.port}", "CLOCKHAND_HEALTH_PORT": f"{place.health}"}
        with self.process("api", **settings):
            wait_for(f"the API to be ready; its log is {self.logs / 'api'}", lambda: is_ready(place))
            yield

    @contextlib.contextmanager
    def working(self, place: Place, folder: Path, *, pool: str, token: str) -> Iterator[None]:
        """A worker with the handlers of `mail_worker`, which write to `folder`, for the length of the block."""
        folder.mkdir()
        settings = {"API_URL": place.url, "POOL": pool, "TOKEN": token, "HANDLERS": "tests.support.mail_worker:worker"}
        named = {f"CLOCKHAND_{key}": value for key, value in settings.items()}
        with self.process("worker", EFFECTS=str(folder), CLOCKHAND_HEALTH_PORT="0", **named):
            yield

    @contextlib.contextmanager
    def process(self, what: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that is ended as a cluster ends it."""
        command, environment = [sys.executable, "-m", "clockhand", what], self._environment(settings)
        with (self.logs / what).open("ab") as log:
            process = subprocess.Popen(command, env=environment, cwd=self.logs, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=_SECONDS)

    def log(self, what: str) -> str:
        return (self.logs / what).read_text(encoding="utf-8")

    def _call(self, arguments: tuple[str, ...], settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "clockhand", *arguments],
            env=self._environment(settings),
            cwd=self.logs,
            timeout=_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )

    def _environment(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.logs),
            "PYTHONPATH": f"{self.folder}:{generated.ROOT}",
            "PYTHONPYCACHEPREFIX": str(self.logs / "compiled"),
            "CLOCKHAND_DATABASE_URL": self.database_url,
            **settings,
        }


def place() -> Place:
    return Place(*ports.free(2))


def unpack_the_last(folder: Path) -> None:
    """The code of the last release, as people install it."""
    with zipfile.ZipFile(kept.WHEEL) as wheel:
        wheel.extractall(folder)


def copy_of_this(folder: Path, **migrations: str) -> None:
    """This tree with further migrations, as the release after it may have them."""
    shutil.copytree(generated.ROOT / "operator/src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, statements in migrations.items():
        (folder / "clockhand/store/migrations" / f"{name}.sql").write_text(statements, encoding="utf-8")


def is_ready(place: Place) -> bool:
    """Whether the process there says that it is."""
    with contextlib.suppress(OSError):  # a slow answer too
        urllib.request.urlopen(f"http://127.0.0.1:{place.health}/readyz", timeout=5).close()
        return True
    return False
