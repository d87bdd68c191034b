"""One shot at one point of the code: kill, stop, or lose an answer. Armed from outside, reported before it acts."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from clockhand.kube import failures


@dataclass(frozen=True)
class Shot:
    """What to do (`kill`, `stop` or `lose`) when `point` is passed for the `nth` time; `then` is armed after it."""

    point: str
    action: str = "kill"
    nth: int = 1
    then: Shot | None = None

    @classmethod
    def read(cls, line: str) -> Shot:
        given = json.loads(line)
        then = given.pop("then")
        return cls(**given, then=cls(**then) if then else None)

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class Trigger:
    """Holds at most one shot. Each shot that goes off is a line in `report`, written before it acts."""

    def __init__(self, report: Path) -> None:
        self._report = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._shot: Shot | None = None
        self._left = 0

    def arm(self, shot: Shot) -> None:
        self._left = shot.nth
        self._shot = shot

    def aims_at(self, point: str) -> bool:
        return self._shot is not None and self._shot.point == point

    def passed(self, point: str) -> None:
        """The code is at `point`, with work in its hands."""
        shot = self._shot
        if shot is None or shot.point != point:
            return
        self._left -= 1
        if self._left == 0:
            self._shot = None
            if shot.then is not None:
                self.arm(shot.then)
            os.write(self._report, f"{shot}\n".encode())
            _act(shot.action)


def armed_from_outside(trigger: Trigger) -> bool:
    """Waits for `go` on standard input, with settings for the environment; every further line arms one shot.

    False where the harness ended before.
    """
    word, _, settings = sys.stdin.readline().strip().partition(" ")
    if word != "go":
        return False
    os.environ.update(json.loads(settings))
    threading.Thread(target=_listen, args=(trigger,), daemon=True).start()
    return True


def _listen(trigger: Trigger) -> None:
    for line in sys.stdin:
        trigger.arm(Shot.read(line))
    os._exit(0)  # the harness is gone


def _act(action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal may be taken by another thread a moment later: nothing more happens in this one
    if action == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    if action == "lose":
        raise failures.Unsettled("the answer was lost on purpose")
