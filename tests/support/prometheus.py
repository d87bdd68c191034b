"""A real Prometheus, Debian's, in a folder of its own: started by hand, so that no service is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster import binaries, steps
from tests.support import guard, ports

START_SECONDS = 60.0
SCRAPE_SECONDS = 1
HURRY = 30
"""How many times faster than meant the rules go: a second of scraping stands for half a minute."""
_PACKAGE = "prometheus"
_SPAN = re.compile(r"(?<![\w.])(?P<count>\d+)(?P<unit>[smhd])(?![\w.])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SLOWER = 15
"""The same of the age of watches, which a machine that has much to do must not reach by itself."""
_THRESHOLD = re.compile(
    r"(?P<what>clockhand_(?:watch_age|oldest_queued|database_oldest_transaction)_seconds\) > )(?P<seconds>\d+)"
)


def hurried(rules: str) -> str:
    """The same rules, with every span of time shorter, and with the ages that take longest to come."""

    def span(found: re.Match[str]) -> str:
        return f"{int(found['count']) * _UNITS[found['unit']] * 1000 // HURRY}ms"

    def threshold(found: re.Match[str]) -> str:
        times = SLOWER if "watch_age" in found["what"] else HURRY
        return f"{found['what']}{int(found['seconds']) // times}"

    return _THRESHOLD.sub(threshold, _SPAN.sub(span, rules))


def programs() -> Path:
    """The folder of `prometheus` and `promtool`: those of this machine, or else out of Debian's package."""
    found = shutil.which("prometheus")
    if found and shutil.which("promtool"):
        return Path(found).parent
    home = binaries.cache_root() / "prometheus"
    if not (home / "usr/bin/promtool").is_file():
        with steps.step("fetch prometheus"):
            _fetch(home)
    return home / "usr/bin"


def _fetch(home: Path) -> None:
    folder = home.with_name(f"prometheus.{os.getpid()}")
    folder.mkdir(parents=True)
    try:
        log = binaries.cache_root() / "log" / "apt.log"
        if os.geteuid() == 0:
            steps.run(["apt-get", "update", "-q"], log=log)
        steps.run(["apt-get", "download", "-q", _PACKAGE], log=log, cwd=folder)
        [package] = folder.glob("*.deb")
        steps.run(["dpkg-deb", "-x", package, folder / "root"])
        shutil.rmtree(home, ignore_errors=True)
        (folder / "root").rename(home)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def promtool(*arguments: str | Path) -> str:
    """What `promtool` says; raises where it finds fault."""
    return steps.run([programs() / "promtool", *arguments])


class Prometheus:
    """Scrapes whom it is told of, and judges by the rules given."""

    def __init__(self, folder: Path, rules: str) -> None:
        self._folder = folder
        self._port = ports.free_row(1)
        self._targets: list[dict[str, Any]] = []
        (folder / "rules.yaml").write_text(rules, encoding="utf-8")
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "clockhand", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
            ],
        }
        (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        self._tell()

    @property
    def command(self) -> Sequence[str | Path]:
        return [
            programs() / "prometheus",
            f"--config.file={self._folder / 'config.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    def watch(self, namespace: str, port: int) -> None:
        """Scrapes one more process, as one of that namespace."""
        self._targets.append({"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": namespace}})
        self._tell()

    def query(self, expression: str) -> Sequence[dict[str, Any]]:
        """The samples that an expression has now."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{question}", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def fired(self, namespace: str = ".*") -> set[str]:
        """Every alert that has fired for a namespace since the start."""
        which = f'ALERTS{{alertstate="firing", namespace=~"{namespace}"}}'
        return {one["metric"]["alertname"] for one in self.query(f"last_over_time({which}[1h])")}

    def _tell(self) -> None:
        new = self._folder / "targets.json.new"
        new.write_text(json.dumps(self._targets), encoding="utf-8")
        new.rename(self._folder / "targets.json")

    def wait(self) -> None:
        """Until it answers."""
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                self.query("vector(1)")
                return
            time.sleep(0.1)
        raise TimeoutError((self._folder / "log").read_text(encoding="utf-8"))


@contextlib.contextmanager
def running(folder: Path, rules: str) -> Iterator[Prometheus]:
    """One for the length of the block."""
    one = Prometheus(folder, rules)
    watcher = guard.Guard(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(word) for word in one.command], stdout=log, stderr=log, start_new_session=True)
    watcher.started(process.pid)
    try:
        one.wait()
        yield one
    finally:
        process.kill()
        process.wait()
        watcher.gone(process.pid)
        watcher.close()
