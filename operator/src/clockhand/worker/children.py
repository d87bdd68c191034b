"""Processes for handlers that keep a processor busy: started when first needed, used again, killed where a run is ended.

A child imports the handler's module and is then given one run after the other, as lines on its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import protocol
from clockhand.worker import outcomes, sdk
from clockhand.worker.attempts import Attempt, Ending, nothing

_LEAVE_SECONDS = 5.0
_LINE_LIMIT = 1 << 20


def reference(name: str, function: Callable[..., Any]) -> str:
    """`module:function`, by which another process finds a handler; raises InvalidInput where it would not."""
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise errors.InvalidInput(name, "processes=True needs a function of a module: another process imports it")
    return f"{function.__module__}:{function.__qualname__}"


class Order(protocol.Message, frozen=True, kw_only=True):
    """A run for a function."""

    function: str
    run: protocol.Run
    mark: str = msgspec.field(default_factory=lambda: f"\0{uuid.uuid4().hex}")
    """What is written to standard error when it is over."""


class Answer(protocol.Message, frozen=True, kw_only=True):
    """How it went."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    failure: protocol.Failure | None = None


class Children:
    """The processes, as many as there were runs at the same time."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []

    async def call(self, function: str, attempt: Attempt, run: sdk.Run) -> object:
        """Has a child call `function`; the result as the JSON that it is."""
        process = await self._process()
        attempt.kill = lambda: kill(process)
        try:
            if attempt.ending is not None:
                raise asyncio.CancelledError
            answer = await self._converse(process, Order(function=function, run=attempt.run), attempt)
        except BaseException:
            await end(process, gently=attempt.ending is not Ending.LOST)
            raise
        finally:
            attempt.kill = nothing
        self._idle.append(process)
        if answer.failure is not None:
            raise outcomes.Failed(answer.failure)
        return answer.result

    async def close(self) -> None:
        """Ends the idle ones."""
        for process in self._idle:
            await end(process, gently=False)
        self._idle.clear()

    async def _process(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "clockhand.worker.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LINE_LIMIT,
        )

    async def _converse(self, process: asyncio.subprocess.Process, order: Order, attempt: Attempt) -> Answer:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        pump = asyncio.create_task(_until_mark(process.stderr, order.mark, attempt))
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                await process.stdin.drain()
            line = await process.stdout.readline()
            if line:
                await pump
                return msgspec.json.decode(line, type=Answer)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pump, 1)
        finally:
            pump.cancel()
        raise outcomes.Failed(ended_early(await process.wait()))


async def _until_mark(stream: asyncio.StreamReader, mark: str, attempt: Attempt) -> None:
    """Copies what a child writes, up to the mark with which it says that the run is over."""
    end_of_run = f"{mark}\n".encode()
    while line := await _line(stream):
        if line.endswith(end_of_run):
            line, end_of_run = line[: -len(end_of_run)], b""
        sys.stderr.write(text := line.decode(errors="replace"))
        attempt.tail.write(text)
        if not end_of_run:
            return


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(max(error.consumed, 1))


def ended_early(code: int) -> protocol.Failure:
    """The failure that the end of a process is: by an exit code, or by a signal as a shell counts it."""
    if code < 0:
        name = signal.Signals(-code).name if -code in {number.value for number in signal.Signals} else str(-code)
        return protocol.Failure(error=name, message=f"the process was ended by {name}", exit_code=min(128 - code, 255))
    return protocol.Failure(error="ExitCode", message=f"the process exited with code {code}", exit_code=code)


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
