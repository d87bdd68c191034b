"""What workers did, by their own record: each beginning, each effect and each answer to a report is a line of a file.

Lines are appended and never changed, so that one is there even where its worker was killed a moment later.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clockhand.worker import Run

BEGUN, EFFECT, TOLD = "begun", "effect", "told"


@dataclasses.dataclass(frozen=True)
class Line:
    """`what` at `at`, in seconds of the machine's clock; of an answer to a report its `outcome`, and whether it counted."""

    at: float
    what: str
    worker: str
    run_id: str
    token: str
    attempt: int = 0
    once: bool = False
    """Of a job that is to be made at most once."""
    outcome: str = ""
    accepted: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The attempt."""
        return self.run_id, self.token


class Witness:
    """The record of one worker."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(folder / worker, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def saw(self, what: str, run: Run) -> None:
        """A handler begins, or has its effect."""
        given = run._run  # its token is of no use to handlers, and so not shown to them
        once = bool(run.payload.get("once"))
        self.note(what, str(given.run_id), given.token, attempt=given.attempt, once=once)

    def note(self, what: str, run_id: str, token: str, **fields: Any) -> None:
        """A line about an attempt."""
        line = Line(time.time(), what, self._worker, run_id, token, **fields)
        os.write(self._file, f"{json.dumps(dataclasses.asdict(line))}\n".encode())

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> Sequence[Line]:
    """Everything that was seen, in the order of time."""
    texts = [text for file in folder.iterdir() for text in file.read_text().splitlines()]
    return sorted((Line(**json.loads(text)) for text in texts), key=lambda line: line.at)
