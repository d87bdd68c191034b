"""A tree of processes: started, read, started again when one ends by itself, and ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from clockhand import errors
from clockhand.standalone import console as consoles
from clockhand.standalone import leash, orphans
from clockhand.worker import processes

_TRIES = 6
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 0.05, 1.0
_LAST_WORDS_SECONDS = 1.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of the tree. `is_ready` is asked with its process id."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    is_ready: Callable[[int], Awaitable[bool]]
    user: tuple[int, int] | None = None
    held: Sequence[int] = ()
    """Open files that it inherits."""
    quiet_into: Path | None = None
    """Where what it writes goes, if it is not for people to read along."""
    drain: signal.Signals = signal.SIGTERM
    at_once: signal.Signals = signal.SIGKILL
    """Ends it without a moment's wait; it gets this as well when its parent is gone."""
    patience: float
    """Seconds for it to end by itself."""


class Tree:
    """The parts, each kept going until all are ended."""

    def __init__(self, console: consoles.Console, record: orphans.Record) -> None:
        self._console = console
        self._record = record
        self._kept: list[_Kept] = []
        self._failed: asyncio.Queue[BaseException] = asyncio.Queue()

    def unready(self) -> Sequence[str]:
        """The parts that are not, by their names."""
        return [one.part.name for one in self._kept if not one.ready]

    def start(self, part: Part) -> asyncio.Event:
        """Starts a part and keeps it going; what comes out is set once it has been ready."""
        kept = _Kept(part, self._console, self._record)
        self._kept.append(kept)
        kept.task.add_done_callback(self._note)
        return kept.was_ready

    async def failure(self) -> None:
        """Waits for a part that does not come up, and raises why."""
        raise await self._failed.get()

    async def end(self, hurry: asyncio.Event, *, order: Sequence[str]) -> None:
        """Ends the parts in the order of their names, one after the other; without waiting where `hurry` is set."""
        for kept in sorted(self._kept, key=lambda kept: order.index(kept.part.name)):
            await kept.end(hurry)

    def _note(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed.put_nowait(error)


class _Kept:
    """One part, kept going."""

    def __init__(self, part: Part, console: consoles.Console, record: orphans.Record) -> None:
        self.part = part
        self.ready = False
        self.was_ready = asyncio.Event()
        self._console = console
        self._record = record
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False
        self.task = asyncio.create_task(self._keep())

    async def end(self, hurry: asyncio.Event) -> None:
        """Asks it to end, and makes it where that takes too long or `hurry` is set."""
        self._ending = True
        if self._process is None or self._process.returncode is not None:
            self.task.cancel()  # it waits to be started, if it is there at all
        elif not hurry.is_set():
            self._send(self.part.drain)
            hurried = asyncio.create_task(hurry.wait())
            await asyncio.wait({self.task, hurried}, timeout=self.part.patience, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        if not self.task.done():
            self._send(self.part.at_once)
        await asyncio.wait({self.task})

    async def _keep(self) -> None:
        failed = 0
        while True:
            code = await self._run_once()
            if self._ending:
                return
            failed = 0 if self.ready else failed + 1
            self.ready = False
            if failed == _TRIES:
                raise errors.Unavailable(
                    f"{self.part.name} does not start: it ended with code {code}{self._last_words()}"
                )
            pause = min(_FIRST_PAUSE * 2.0 ** max(failed - 1, 0), _LONGEST_PAUSE)
            log.warning("part_ended", part=self.part.name, code=code, again_in=pause)
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        part = self.part
        command = leash.command(part.command, number=part.at_once, user=part.user)
        async with _output(part, self._console) as out:
            # a group of its own: Ctrl-C at the terminal is for the parent alone, which ends all in order
            self._process = process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                env=part.environment, cwd=part.folder, pass_fds=part.held,
                start_new_session=True,
            )  # fmt: skip
            self._record.add(process.pid)
            looks = asyncio.create_task(self._look(process.pid))
            try:
                return await process.wait()
            finally:
                looks.cancel()

    async def _look(self, pid: int) -> None:
        while True:
            self.ready = await self.part.is_ready(pid)
            if self.ready:
                self.was_ready.set()
            await asyncio.sleep(_LOOK_AGAIN_SECONDS if self.ready else _LOOK_SECONDS)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _last_words(self) -> str:
        if self.part.quiet_into is None:
            return ""
        with contextlib.suppress(OSError):
            return f": {self.part.quiet_into.read_text(encoding='utf-8', errors='replace').strip()[-1000:]}"
        return ""


@contextlib.asynccontextmanager
async def _output(part: Part, console: consoles.Console) -> AsyncIterator[int]:
    """Where a process is to write to."""
    if part.quiet_into is not None:
        with part.quiet_into.open("ab") as file:
            yield file.fileno()
        return
    output = await processes.Output.open()
    copy = asyncio.create_task(console.copy(part.name, output.reader))
    try:
        yield output.given
    finally:
        output.hand_over()
        await asyncio.wait({copy}, timeout=_LAST_WORDS_SECONDS)
        copy.cancel()
        output.close()
