"""Ports of loopback for what tests start: no two test processes of this machine get the same ones."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

_FIRST, _BLOCK, _BLOCKS = 20_000, 200, 60
"""Below the range from which the system takes those of outgoing connections: a client that keeps trying an ephemeral port
while its server restarts may get connected to itself, and then the server cannot have its port back.
"""


def free(count: int) -> list[int]:
    """Ports on which nothing listens."""
    return [free_row(1) for _ in range(count)]


def free_row(length: int) -> int:
    """The first of so many ports that follow each other."""
    block = _block()
    for _ in range(_BLOCK):
        row = block.next_row(length)
        if all(_is_free(port) for port in row):
            return row[0]
    raise RuntimeError(f"something listens on each of the ports {block.first} to {block.first + _BLOCK - 1}")


@dataclass
class _Block:
    """Ports of this process alone: they go round, so that what was just given out comes last."""

    first: int
    _next: int = 0

    def next_row(self, length: int) -> range:
        if self._next + length > _BLOCK:
            self._next = 0
        row = range(self.first + self._next, self.first + self._next + length)
        self._next += length
        return row


@functools.cache
def _block() -> _Block:
    folder = Path(tempfile.gettempdir()) / f"clockhand-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in range(_BLOCKS):
        lock = (folder / str(number)).open("w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
        else:
            atexit.register(lock.close)
            return _Block(_FIRST + number * _BLOCK)
    raise RuntimeError(f"all ports for tests are taken: see who holds the files of {folder}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
