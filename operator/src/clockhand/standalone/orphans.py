"""What is left of a process tree whose parent was killed: ended before the next tree starts, where it is surely ours.

A process id says little, since ids are given again. So the record holds beside each when its process began.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from clockhand import errors
from clockhand.standalone import home as homes

_LOOKS, _LOOK_SECONDS = 1_500, 0.02
_PROC = Path("/proc")
log = structlog.get_logger(__name__)


class Record:
    """The processes of a tree, in a file: from a process id to when it began."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}

    def add(self, pid: int) -> None:
        """A process was started; those that have ended are forgotten."""
        self._known = {one: began for one, began in self._known.items() if beginning(int(one)) == began}
        self._known[f"{pid}"] = beginning(pid)
        homes.write(self._path, msgspec.json.encode(self._known).decode())

    async def end_all(self) -> None:
        """Kills what is still there of those that an earlier process recorded."""
        for pid, began in _read(self._path).items():
            await end(int(pid), began, signal.SIGKILL)


async def end(pid: int, began: str, number: signal.Signals) -> None:
    """Ends a process, if it is the one that began then. Raises Conflict where it stays."""
    if not began or beginning(pid) != began:
        return
    log.info("orphan_ended", process=pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    for _ in range(_LOOKS):
        if beginning(pid) != began:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise errors.Conflict(f"the process {pid} of an earlier start does not end")


def beginning(pid: int) -> str:
    """When the process began, by the kernel: unlike any other of that id. Empty where there is none, or no telling."""
    try:
        told = (_PROC / f"{pid}" / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    fields = told.rpartition(")")[2].split()  # the name before it may hold anything
    return "" if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def _read(path: Path) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
