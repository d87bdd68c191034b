"""What processes cost, read from the kernel: CPU seconds of a whole tree, and memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, of what it waited for, and of its living children."""
    return sum(_own(one) for one in (pid, *_descendants(pid)))


def rss_mib(pid: int) -> float:
    """Memory held now."""
    return _status(pid, "VmRSS") / _MIB


def peak_rss_mib(pid: int) -> float:
    """The most memory ever held."""
    return _status(pid, "VmHWM") / _MIB


class Meter:
    """CPU seconds by part since `start`; a part is one or more processes."""

    def __init__(self, parts: Mapping[str, Iterable[int]]) -> None:
        self._parts = {name: tuple(pids) for name, pids in parts.items()}
        self._before: dict[str, float] = {}

    def start(self) -> None:
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """By part, since the start."""
        return {name: seconds - self._before[name] for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._parts.items()}


def _own(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no {field}")
