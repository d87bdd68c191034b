"""The handler `exec`: runs a command that the pool's owner allows, one process group an attempt.

Its payload names the command: `{"command": "report"}`. The whole payload is on the command's standard input and in
`CLOCKHAND_PAYLOAD`; what it writes is the attempt's log, and its exit code decides.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from clockhand import errors, tracing
from clockhand.domain import instants, protocol
from clockhand.worker import outcomes, processes, sdk, tail
from clockhand.worker.attempts import Attempt, Ending, nothing

_CHUNK = 65_536

Argument = Annotated[str, msgspec.Meta(pattern="^[^\0]*$")]
Commands = Mapping[str, Annotated[Sequence[Argument], msgspec.Meta(min_length=1)]]


class _Payload(msgspec.Struct, frozen=True):
    command: str


def read(path: str) -> Commands:
    """The commands of a YAML file: names to argument lists. Raises InvalidInput where it is none."""
    try:
        return msgspec.convert(yaml.safe_load(Path(path).read_text(encoding="utf-8")), type=dict[str, list[Argument]])
    except (OSError, ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        sentence = f"{path} is no file of commands, as name: [program, argument]: {error}"
        raise errors.InvalidInput("CLOCKHAND_EXEC_COMMANDS", sentence) from error


class Exec:
    """Calls of allowed commands."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, attempt: Attempt, run: sdk.Run) -> None:
        """Runs the command that the payload names."""
        command = self._named(attempt.run)
        output = await processes.Output.open()
        try:
            process = await _started(command, attempt.run, output)
            code = await _attended(process, output, attempt)
        finally:
            output.close()
        if code != 0:
            raise outcomes.Failed(processes.failure_of(code))

    def _named(self, run: protocol.Run) -> Sequence[str]:
        try:
            name = msgspec.json.decode(run.payload, type=_Payload).command
        except msgspec.DecodeError as error:
            raise sdk.Fail(
                f'the payload names no command, as {{"command": "..."}}: {error}', error="exec.Payload"
            ) from error
        command = self._commands.get(name)
        if not command:
            raise sdk.Fail(f"the pool allows no command {name!r}", error="exec.NotAllowed")
        return command


async def _started(command: Sequence[str], run: protocol.Run, output: processes.Output) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output.given,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(run),
            start_new_session=True,
        )
    except OSError as error:
        raise outcomes.Failed(protocol.Failure(error="exec.NotStarted", message=str(error)[:1000])) from error
    finally:
        output.hand_over()


async def _attended(process: asyncio.subprocess.Process, output: processes.Output, attempt: Attempt) -> int:
    """Feeds it, copies what it writes, and waits for its end; what it left running is killed."""
    copy = asyncio.create_task(_copied(output.reader, attempt))
    attempt.kill = lambda: processes.kill(process)
    try:
        if attempt.ending is not None:
            raise asyncio.CancelledError
        await _fed(process, bytes(attempt.run.payload))
        code = await process.wait()
        processes.kill(process)
        await asyncio.wait({copy}, timeout=processes.LAST_WORDS_SECONDS)
        return code
    except BaseException:
        await processes.end(process, gently=attempt.ending is not Ending.LOST)
        raise
    finally:
        attempt.kill = nothing
        copy.cancel()


async def _fed(process: asyncio.subprocess.Process, text: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text)
        await process.stdin.drain()
    process.stdin.close()


async def _copied(stream: asyncio.StreamReader, attempt: Attempt) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await stream.read(_CHUNK):
        tail.keep(attempt.tail, decoder.decode(chunk))


def environment(run: protocol.Run) -> Mapping[str, str]:
    """The variables that a command finds: those of a run, as in a pod, and the worker's without what is its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("CLOCKHAND_")}
    trace = tracing.current() or run.traceparent
    return (
        others
        | ({} if trace is None else {"TRACEPARENT": trace})
        | {
            "CLOCKHAND_RUN_ID": str(run.run_id),
            "CLOCKHAND_RUN_NAME": run.name,
            "CLOCKHAND_JOB": run.job,
            "CLOCKHAND_NAMESPACE": run.owner.partition("/")[2],
            "CLOCKHAND_SCHEDULED_AT": instants.rfc3339_ms(run.scheduled_at),
            "CLOCKHAND_ATTEMPT": str(run.attempt),
            "CLOCKHAND_FENCING_TOKEN": str(run.fencing_token),
            "CLOCKHAND_PAYLOAD": bytes(run.payload).decode(),
        }
    )
