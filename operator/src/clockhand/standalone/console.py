"""What a tree of processes writes, as one log: each line begins with who wrote it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import TextIO

_LONGEST = 65_536
_WIDTH = 8
_COLOURS = {"postgres": 34, "cluster": 36, "operator": 32, "api": 35, "worker": 33}


class Console:
    """Lines of many, one after the other."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._coloured = out.isatty()

    def tell(self, who: str, line: str) -> None:
        """One line of `who`. A reader that has gone away is no reason to stop."""
        mark = f"{who:<{_WIDTH}} |"
        if self._coloured and who in _COLOURS:
            mark = f"\x1b[{_COLOURS[who]}m{mark}\x1b[0m"
        with contextlib.suppress(OSError, ValueError):
            self._out.write(f"{mark} {line}\n")
            self._out.flush()

    async def copy(self, who: str, stream: asyncio.StreamReader) -> None:
        """Tells what comes out of `stream`, until its end."""
        async for line in _lines(stream):
            self.tell(who, line.decode("utf-8", "replace"))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    while chunk := await stream.read(_LONGEST):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest
