"""Ends the servers of a test process that was itself killed.

No teardown runs after `kill -9`, and a parent-death signal would follow the thread that started a server
rather than the process. This program holds one end of a pipe: each line names a child (`+pid` started,
`-pid` gone), and the end of the input means that the parent is no more. Process descriptors keep it from
ever hitting a stranger that got an old number.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def keep_watch(lines: Iterable[str], directory: str) -> None:
    """Reads until the parent is gone, then kills and removes what it left."""
    children: dict[int, int] = {}
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            with contextlib.suppress(ProcessLookupError):
                children[pid] = os.pidfd_open(pid)
        elif pid in children:
            os.close(children.pop(pid))
    for descriptor in children.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], 10)
    shutil.rmtree(directory, ignore_errors=True)


class Guard:
    """The parent's side: start it once for a directory, tell it about each child; closing it ends both."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(directory)],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def started(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def gone(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the guard has no pipe")
        self._process.stdin.write(line + "\n")


if __name__ == "__main__":
    keep_watch(sys.stdin, sys.argv[1])
