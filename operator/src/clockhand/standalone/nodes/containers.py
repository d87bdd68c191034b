"""The process of a container: started, watched, and made to end with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from clockhand import errors
from clockhand.standalone import leash
from clockhand.standalone.nodes import logs, rendering, statuses
from clockhand.worker import processes

_CHUNK = 65_536
_BYTES_A_SECOND = 8 << 20
"""More than that is written by nobody whom somebody reads, and the API server has to go on beside it."""
_OWN = "clockhand"


class Process:
    """One that runs, or has run."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: processes.Output,
        log: logs.Log,
        clock: Callable[[], datetime],
    ) -> None:
        self.log = log
        self.started_at = clock()
        self._process = process
        self._output = output
        self._clock = clock
        self._copy = asyncio.create_task(self._copied())

    @classmethod
    async def start(cls, command: rendering.Command, log: logs.Log, *, clock: Callable[[], datetime]) -> Self:
        """Starts it; raises InvalidInput where that cannot be done, with the sentence of a container runtime."""
        output = await processes.Output.open()
        try:
            process = await _launched(command, command.arguments, output.given)
        except errors.InvalidInput:
            output.close()
            raise
        except OSError as error:
            output.close()
            raise errors.InvalidInput("command", f'exec: "{command.arguments[0]}": {error.strerror}') from error
        finally:
            output.hand_over()
        return cls(process, output, log, clock)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """To it and to what it started."""
        if self._process.returncode is None:
            processes.kill(self._process, number)

    async def wait(self) -> statuses.Ended:
        """Its end. What it started ends with it, and what was written until then is in the log."""
        code = await self._process.wait()
        finished_at = self._clock()
        processes.kill(self._process, signal.SIGKILL)
        await asyncio.wait({self._copy}, timeout=processes.LAST_WORDS_SECONDS)
        self._copy.cancel()
        self._output.close()
        self.log.close()
        return statuses.ended(code, started_at=self.started_at, finished_at=finished_at, pid=self.pid)

    async def _copied(self) -> None:
        while chunk := await self._output.reader.read(_CHUNK):
            with contextlib.suppress(OSError):  # a full disk costs the log, and must not hold up the process
                self.log.write(chunk, self._clock())
            if len(chunk) == _CHUNK:
                await asyncio.sleep(_CHUNK / _BYTES_A_SECOND)


async def succeeds(command: rendering.Command, arguments: Sequence[str], seconds: float) -> bool:
    """Runs another command where a container's process runs; False where that fails or takes longer."""
    process = await _launched(command, arguments, asyncio.subprocess.DEVNULL)
    try:
        return await asyncio.wait_for(process.wait(), seconds) == 0
    finally:
        await processes.end(process, gently=False)


async def _launched(command: rendering.Command, arguments: Sequence[str], output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *leash.command(_resolved(command, arguments)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(command.environment),
        cwd=command.directory,
        start_new_session=True,
    )


def _resolved(command: rendering.Command, arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with the path of the program."""
    name, others = arguments[0], arguments[1:]
    if not Path(command.directory).is_dir():
        raise errors.InvalidInput("workingDir", f'chdir to cwd ("{command.directory}"): no such directory')
    if name == _OWN:
        return [sys.executable, "-m", _OWN, *others]
    place = str(Path(command.directory, name)) if "/" in name else name
    program = shutil.which(place, path=command.environment.get("PATH"))
    if program is None:
        where = "no such executable file" if "/" in name else "executable file not found in $PATH"
        raise errors.InvalidInput("command", f'exec: "{name}": {where}')
    return [program, *others]
