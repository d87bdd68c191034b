"""Stock kubectl as people use it: tests see what people would see, and a failure shows what it said."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Object = Mapping[str, Any]

CALL_SECONDS = 120.0
WAIT_SECONDS = 120.0
_PAUSE_SECONDS = 0.25


class KubectlError(AssertionError):
    """kubectl ended otherwise than the test expected."""


class NotYet(Exception):
    """Raised by a condition that can say what it saw instead."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one call said. `seconds` is how long it took."""

    command: str
    code: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"$ {self.command}\n(exit code {self.code} after {self.seconds:.1f} s)\n{self.out}{self.err}"


@dataclasses.dataclass(frozen=True)
class Kubectl:
    """One cluster, seen as one user (empty: whom the kubeconfig names) from one namespace (empty: its own)."""

    kubeconfig: Path
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()

    def within(self, namespace: str) -> Kubectl:
        return dataclasses.replace(self, namespace=namespace)

    def acting_as(self, user: str, *groups: str) -> Kubectl:
        return dataclasses.replace(self, user=user, groups=groups)

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = CALL_SECONDS) -> Answer:
        """The answer of a call that must succeed."""
        answer = self.call(*arguments, stdin=stdin, seconds=seconds)
        if answer.code != 0:
            raise KubectlError(str(answer))
        return answer

    def refusal(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl said on a call that must fail."""
        answer = self.call(*arguments, stdin=stdin)
        if answer.code == 0:
            raise KubectlError(f"expected a refusal of\n{answer}")
        return answer.err

    def call(self, *arguments: str, stdin: str | None = None, seconds: float = CALL_SECONDS) -> Answer:
        """The answer, whatever it is."""
        command = self.command(*arguments)
        started = time.monotonic()
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env=_environment(),
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"$ {' '.join(command)}\ndid not end within {seconds:.0f} s") from error
        words = " ".join(["kubectl", *command[1:]])
        return Answer(words, done.returncode, done.stdout, done.stderr, time.monotonic() - started)

    def command(self, *arguments: str) -> list[str]:
        options = {"kubeconfig": str(self.kubeconfig), "namespace": self.namespace, "as": self.user}
        common = [f"--{option}={value}" for option, value in options.items() if value]
        common += [f"--as-group={group}" for group in self.groups]
        return [program(), *common, *arguments]

    def get(self, *arguments: str) -> Any:
        """The object or list of `kubectl get`, decoded."""
        return json.loads(self.run("get", *arguments, "-o", "json").out)

    def items(self, *arguments: str) -> list[Any]:
        listed: list[Any] = self.get(*arguments)["items"]
        return listed

    def find(self, *arguments: str) -> Any | None:
        """As `get`, None where there is no such object."""
        answer = self.call("get", *arguments, "--ignore-not-found", "-o", "json")
        if answer.code != 0:
            raise KubectlError(str(answer))
        return json.loads(answer.out) if answer.out.strip() else None

    def apply(self, *objects: Object) -> Answer:
        return self.run("apply", "-f", "-", stdin=bundle(objects))

    def apply_refusal(self, *objects: Object) -> str:
        return self.refusal("apply", "-f", "-", stdin=bundle(objects))

    def create(self, *objects: Object) -> Answer:
        return self.run("create", "-f", "-", stdin=bundle(objects))

    def create_namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> Kubectl:
        """A namespace in which pods may be made at once."""
        metadata = {"name": name, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        inside = self.within(name)
        wait_for(f"the service account of {name}", lambda: inside.find("serviceaccount", "default"))
        return inside

    @contextlib.contextmanager
    def follow(self, *arguments: str) -> Iterator[Follower]:
        """A call that goes on until the block ends, such as `get --watch`."""
        command = self.command(*arguments)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
        ) as process:
            try:
                yield Follower(process)
            finally:
                process.kill()


class Follower:
    """Lines of a call that goes on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, condition: Callable[[str], bool], *, seconds: float = WAIT_SECONDS) -> list[str]:
        """Every line so far, up to the first for which `condition` holds."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                seen = "\n".join(self.lines)
                raise KubectlError(f"no such line within {seconds:.0f} s; seen:\n{seen}") from None
            self.lines.append(line)
            if condition(line):
                return self.lines

    def _read(self) -> None:
        assert self._process.stdout
        with contextlib.suppress(ValueError):  # closed under us at the end of the block
            for line in self._process.stdout:
                self._queue.put(line.rstrip("\n"))


def wait_for(
    what: str,
    condition: Callable[[], T | None],
    *,
    seconds: float = WAIT_SECONDS,
    pause: float = _PAUSE_SECONDS,
) -> T:
    """The first truthy value of `condition`; the bound only ends a failing test, it measures nothing."""
    deadline = time.monotonic() + seconds
    while True:
        seen: object = None
        try:
            value = condition()
            if value:
                return value
            seen = value
        except (KubectlError, NotYet) as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}; seen last: {seen}")
        time.sleep(pause)


def bundle(objects: Sequence[Object]) -> str:
    """Objects for `-f -`, each a document of its own."""
    return "\n---\n".join(map(json.dumps, objects))


def program() -> str:
    """kubectl beside this Python, else the one on the path."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        raise KubectlError("kubectl is neither beside Python nor on the path")
    return found


def _environment() -> dict[str, str]:
    # a person's aliases and preferences change what kubectl prints
    return {**os.environ, "KUBERC": "off", "KUBECTL_KUBERC": "false"}
