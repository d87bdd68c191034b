"""Processes for handlers that keep a processor busy: started when first needed, used again, killed where a run is ended.

A child imports the handler's module and is then given one run after the other, as lines on its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import uuid
from collections.abc import Callable
from typing import Any, Self

import msgspec

from clockhand import errors
from clockhand.domain import protocol
from clockhand.worker import outcomes, processes, sdk, tail
from clockhand.worker.attempts import Attempt, Ending, nothing


def reference(name: str, function: Callable[..., Any]) -> str:
    """`module:function` or `script.py:function`, as another process finds it; raises InvalidInput where it would not."""
    if "<" in function.__qualname__:
        raise errors.InvalidInput(name, "processes=True needs a function of a module: another process imports it")
    module = function.__module__ if function.__module__ != "__main__" else inspect.getfile(function)
    return f"{module}:{function.__qualname__}"


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


class Child:
    """One of them."""

    def __init__(self, process: asyncio.subprocess.Process, answers: processes.Output, log: processes.Output) -> None:
        self.process = process
        self._answers = answers
        self._log = log

    @classmethod
    async def start(cls) -> Self:
        """A new process, which has imported nothing of yours yet."""
        answers, log = await processes.Output.open(), await processes.Output.open()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "clockhand.worker.child",
                stdin=asyncio.subprocess.PIPE,
                stdout=answers.given,
                stderr=log.given,
                start_new_session=True,
            )
        finally:
            answers.hand_over()
            log.hand_over()
        return cls(process, answers, log)

    async def follow(self, order: Order, attempt: Attempt) -> Answer:
        """Its answer; raises Failed where it ends without one."""
        stdin = self.process.stdin
        assert stdin is not None
        pump = asyncio.create_task(_until_mark(self._log.reader, order.mark, attempt))
        try:
            with contextlib.suppress(ConnectionError):
                stdin.write(msgspec.json.encode(order) + b"\n")
                await stdin.drain()
            if line := await self._answers.reader.readline():
                await pump
                return msgspec.json.decode(line, type=Answer)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), processes.LAST_WORDS_SECONDS)
            processes.kill(self.process)  # what it started may hold its output
            await asyncio.wait({pump}, timeout=processes.LAST_WORDS_SECONDS)
        finally:
            pump.cancel()
        raise outcomes.Failed(processes.failure_of(await self.process.wait()))

    async def end(self, *, gently: bool) -> None:
        """Ends it, and what it started."""
        await processes.end(self.process, gently=gently)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._answers.close()
        self._log.close()


class Children:
    """The processes, as many as there were runs at the same time."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    async def call(self, function: str, attempt: Attempt, run: sdk.Run) -> object:
        """Has a child call `function`; the result as the JSON that it is."""
        child = self._idle.pop() if self._idle else await Child.start()
        attempt.kill = lambda: processes.kill(child.process)
        try:
            if attempt.ending is not None:
                raise asyncio.CancelledError
            answer = await child.follow(Order(function=function, run=attempt.run), attempt)
        except BaseException:
            await child.end(gently=attempt.ending is not Ending.LOST)
            raise
        finally:
            attempt.kill = nothing
        self._idle.append(child)
        if answer.failure is not None:
            raise outcomes.Failed(answer.failure)
        return answer.result

    async def close(self) -> None:
        """Ends the idle ones."""
        while self._idle:
            await self._idle.pop().end(gently=False)


async def _until_mark(stream: asyncio.StreamReader, mark: str, attempt: Attempt) -> None:
    """Copies what a child writes, up to the mark with which it says that the run is over."""
    end_of_run = f"{mark}\n".encode()
    while line := await _line(stream):
        if line.endswith(end_of_run):
            line, end_of_run = line[: -len(end_of_run)], b""
        tail.keep(attempt.tail, line.decode(errors="replace"))
        if not end_of_run:
            return


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(max(error.consumed, 1))
