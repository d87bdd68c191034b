"""Processes of pods that an earlier node's process left behind: found by a mark in their environment, and killed.

The parent-death signal reaches the process of a container; what that one started itself is found here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

MARK = "_CLOCKHAND_POD"  # not CLOCKHAND_...: a worker keeps those from the commands that it runs
_PROCESSES = Path("/proc")


def mark(home: Path, uid: str) -> str:
    """What `MARK` says in the environment of a pod's processes: whose they are, and of which pod."""
    return f"{home.resolve()}/{uid}"


def kill(home: Path) -> int:
    """Kills every process of pods of `home`; how many there were. Where there is no /proc, nothing is found."""
    wanted = f"\0{MARK}={mark(home, '')}".encode()
    found = 0
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if wanted in b"\0" + (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)
                found += 1
    return found
