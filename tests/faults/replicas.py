"""Operator replicas, API processes and workers as processes that the harness starts, arms, freezes and kills."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.faults.trigger import Shot
from tests.support import guard

T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], *, seconds: float = 60.0) -> T:
    """The first true value of `condition`; TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.05)
    return value


class Replica:
    """One process. It imports everything and then waits until `go`."""

    def __init__(
        self, name: str, program: str, *, environment: dict[str, str], directory: Path, mutations: Sequence[str]
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._report = directory / f"{name}.shots"
        self._report.touch()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program, str(self._report), *mutations],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environment, "CLOCKHAND_REPLICA": name},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def go(self, settings: Mapping[str, str]) -> None:
        """Lets it begin, with `settings` in its environment."""
        self._tell(f"go {json.dumps(dict(settings))}")

    def arm(self, shot: Shot) -> None:
        self._tell(str(shot))

    def shots(self) -> int:
        """How many shots have gone off."""
        return len(self._report.read_text().splitlines())

    def killed(self) -> bool:
        """Whether a signal ended it."""
        return self._process.poll() == -signal.SIGKILL

    def alive(self) -> bool:
        return self._process.poll() is None

    def stopped(self) -> bool:
        """Whether it is stopped by SIGSTOP."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.terminate()

    def ended_well(self, seconds: float) -> bool:
        """Whether it ends by itself within `seconds`, with exit code 0."""
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        if self.alive():
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def crashes(self) -> list[str]:
        """Lines of its log that speak of a mistake in the code, with the trace."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [number for number, line in enumerate(lines) if _is_crash(line)]
        return ["\n".join(lines[number : number + 30]) for number in found]

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()


class Crew:
    """All replicas of an arena; a spare one is always warming up, as half of a replica's start is its imports."""

    def __init__(
        self,
        environment: dict[str, str],
        directory: Path,
        *,
        program: str = "tests.faults.faulty_operator",
        kind: str = "replica",
        mutations: Sequence[str] = (),
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._program = program
        self._kind = kind
        self._mutations = mutations
        self._guard = guard.Guard(directory / f"guarded-{kind}")  # which removes it at the end, and the logs shall stay
        self._number = 0
        self._spare: Replica | None = None
        self.all: list[Replica] = []

    def join(self, **environment: str) -> Replica:
        """A replica that begins its work now, with `environment` besides."""
        replica = self._spare or self._start()
        self._spare = self._start()
        replica.go(environment)
        return replica

    def leave(self, replica: Replica) -> None:
        """Ends a replica at once."""
        replica.kill()
        self._guard.gone(replica.pid)

    def close(self) -> None:
        for replica in self.all:
            self.leave(replica)  # also those that died: their pipes are still open here
        self._guard.close()

    def crashes(self) -> list[str]:
        return [f"{replica.name}: {line}" for replica in self.all for line in replica.crashes()]

    def _start(self) -> Replica:
        self._number += 1
        replica = Replica(
            f"{self._kind}-{self._number}",
            self._program,
            environment=self._environment,
            directory=self._directory,
            mutations=self._mutations,
        )
        self.all.append(replica)
        self._guard.started(replica.pid)
        return replica


def clean_environment() -> dict[str, str]:
    """This process's environment without settings that would leak into a replica."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("CLOCKHAND_", "KUBE"))}


def _is_crash(line: str) -> bool:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return line.startswith("Traceback")
    return isinstance(entry, dict) and ("exception" in entry or entry.get("level") in ("error", "critical"))
