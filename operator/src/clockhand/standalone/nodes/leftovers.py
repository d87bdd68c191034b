"""Processes of pods that nobody has in hand any more: found by a mark in their environment, and killed.

The process of a container ends with the node's, by the kernel's signal, and its group ends with it. What left the group, and
what a killed node's processes had started, is found here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

MARK = "_CLOCKHAND_POD"  # not CLOCKHAND_...: a worker keeps those from the commands that it runs
_PROCESSES = Path("/proc")


def mark(home: Path, uid: str, container: str) -> str:
    """What `MARK` says in the environment of a container's processes: whose they are, of which pod, and which of its own."""
    return f"{home.resolve()}/{uid}/{container}"


def kill(home: Path) -> int:
    """Kills every process of pods of `home`; how many there were. Where there is no /proc, nothing is found."""
    return _kill(f"{MARK}={home.resolve()}/")


def kill_of(home: Path, uid: str, container: str) -> int:
    """Kills every process of one container."""
    return _kill(f"{MARK}={mark(home, uid, container)}\0")


def _kill(beginning: str) -> int:
    wanted = f"\0{beginning}".encode()
    found = 0
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if wanted in b"\0" + (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)
                found += 1
    return found
