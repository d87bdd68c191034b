"""Reading an endless answer without being fooled by a connection that is open and dead.

The API server sends a bookmark on every watch about once a minute; more silence than that means that events
may be passing us by, though nothing has failed as far as TCP can tell.
"""

from __future__ import annotations

import asyncio
import collections.abc

import aiohttp

from clockhand.kube import failures


class Patience:
    """How long silence may last, and the way to cut a wait short from outside."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._wait: asyncio.Timeout | None = None
        self._interrupted = False

    def interrupt(self) -> None:
        """End the reading at once, with `Interrupted`; also when nobody is waiting at this moment."""
        self._interrupted = True
        if self._wait is not None:
            self._wait.reschedule(asyncio.get_running_loop().time())

    async def read(self, stream: aiohttp.StreamReader) -> bytes:
        if self._interrupted:
            raise self._verdict()
        try:
            async with asyncio.timeout(self.seconds) as self._wait:
                return await stream.readany()
        except TimeoutError as silence:
            raise self._verdict() from silence
        finally:
            self._wait = None

    def _verdict(self) -> Exception:
        if self._interrupted:
            self._interrupted = False
            return Interrupted()
        return failures.Stalled(f"the watch was silent for {self.seconds:g} s")


class Interrupted(Exception):
    """Someone asked the reader to stop and look again; no failure."""


async def lines(stream: aiohttp.StreamReader, patience: Patience) -> collections.abc.AsyncGenerator[bytes]:
    """Complete lines of any length; an unfinished last line is dropped, as its event will be sent again."""
    rest: list[bytes] = []
    while chunk := await patience.read(stream):
        *complete, tail = chunk.split(b"\n")
        for line in complete:
            if rest:
                line = b"".join((*rest, line))
                rest.clear()
            if line:
                yield line
        if tail:
            rest.append(tail)


async def tail(stream: aiohttp.StreamReader, limit: int) -> bytes:
    """The last bytes of a stream: somewhat more than `limit`, so that the cut can fall on a line."""
    kept = bytearray()
    while chunk := await stream.readany():
        kept += chunk
        if len(kept) > 4 * limit:
            del kept[: -2 * limit]
    return bytes(kept[-2 * limit :])
