"""Processes that a worker starts: each a group of its own, whose output is read and whose end is made sure of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Self

from clockhand.domain import protocol

LAST_WORDS_SECONDS = 1.0
"""For what a process wrote to arrive, once it has ended: something that it left behind may hold its output."""
_LEAVE_SECONDS = 2.0
_LINE_LIMIT = 1 << 20


class Output:
    """A pipe that a process writes to.

    One of our own: a pipe of asyncio's keeps `wait` from seeing that a process has ended, while a child of it holds it.
    """

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport, given: int) -> None:
        self.reader = reader
        self.given = given
        self._transport = transport

    @classmethod
    async def open(cls) -> Self:
        """`given` is the end for the process: closed here by `hand_over`."""
        mine, given = os.pipe()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(mine, "rb", 0)
        )
        return cls(reader, transport, given)

    def hand_over(self) -> None:
        """The process has its end, or there is no process."""
        os.close(self.given)

    def close(self) -> None:
        """Nobody reads any more."""
        self._transport.close()


def kill(process: asyncio.subprocess.Process, number: int = signal.SIGKILL) -> None:
    """Sends a signal to a process and all that it started and did not set apart."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def end(process: asyncio.subprocess.Process, *, gently: bool) -> None:
    """Ends a process and what it started: asked first, if `gently`, and killed some seconds after that."""
    if gently and process.returncode is None:
        kill(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _LEAVE_SECONDS)
    kill(process)
    await process.wait()


def failure_of(code: int) -> protocol.Failure:
    """The failure that the end of a process is: by an exit code, or by a signal as a shell counts it."""
    if code < 0:
        name = signal.Signals(-code).name if -code in {number.value for number in signal.Signals} else str(-code)
        return protocol.Failure(error=name, message=f"the process was ended by {name}", exit_code=min(128 - code, 255))
    return protocol.Failure(error="ExitCode", message=f"the process exited with code {code}", exit_code=code)
