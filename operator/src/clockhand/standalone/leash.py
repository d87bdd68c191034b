"""Processes that end with the one that started them, whatever ends it: where Linux is there to see to it.

This file is also a program: it ties itself to its parent, takes the user that it is told to take, and becomes another
program, which stays tied. It needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_NOBODY_ELSE = "-"


def command(
    program: Sequence[str], *, number: signal.Signals = signal.SIGKILL, user: tuple[int, int] | None = None
) -> Sequence[str]:
    """How to start `program` so that it gets `number` when this process ends; as the user and group of `user`.

    The process keeps its id. It is for the thread that starts it to last as long as this process.
    """
    ids = [_NOBODY_ELSE, _NOBODY_ELSE] if user is None else [f"{user[0]}", f"{user[1]}"]
    return [sys.executable, "-I", "-S", __file__, f"{number.value}", f"{os.getpid()}", *ids, *program]


def main(number: str, parent: str, uid: str, gid: str, *program: str) -> None:
    """Becomes `program`."""
    if uid != _NOBODY_ELSE:
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        # after the change of user, which would undo it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(f"the process {parent} that started {program[0]} is gone")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by whatever it becomes
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(*sys.argv[1:])
