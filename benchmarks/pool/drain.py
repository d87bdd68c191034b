"""One round: runs that are due at one instant, from the first tenth handled to the last one stored as complete.

The same for every contender: a fresh database on the same server, everything filled in and analysed beforehand, workers of
their own processes. Workers tell how many runs they have handled; that all are complete is asked of the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import psycopg
from benchmarks import stage, statements, usage
from tests.support import postgres

_WARM_SHARE = 0.1
_PAUSE = 0.05
PATIENCE_SECONDS = 600.0
_LEAD_SECONDS = 10.0
_FILLED_A_SECOND = 4_000
_START_SECONDS = 0.2
_LONGEST_LINE = 1 << 20
_SHOWN_OF_LOG = 3_000


class Mode(enum.StrEnum):
    """What is done for a run."""

    SAME = "same"  # it has a due instant, is handed to a worker process, and its row is kept
    RECURRING = "recurring"  # the same, and the run after it is stored with its due instant
    RAW = "raw"  # whatever the queue does fastest


class Told(msgspec.Struct, frozen=True):
    """What a worker prints: by then, so many runs were handled, the first of them at `first`."""

    at: float
    first: float
    handled: int
    late: tuple[float, ...] = ()
    """Seconds from due to handled, of the runs since the last line; for what knows its due instants."""
    guests: tuple[float, ...] = ()
    """The same of those among them that are a second owner's."""


class Telling:
    """What the worker of a round has told."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.late: list[float] = []
        self.guests: list[float] = []

    def add(self, told: Told) -> None:
        self.told.append(told)
        self.late += told.late
        self.guests += told.guests

    @property
    def handled(self) -> int:
        return self.told[-1].handled if self.told else 0

    def reached(self, count: float) -> Told:
        """The first line that tells of at least `count` runs."""
        return next(one for one in self.told if one.handled >= count)


class Working:
    """Processes at work, by part."""

    def __init__(self, telling: Telling, parts: Mapping[str, Sequence[int]]) -> None:
        self.telling = telling
        self.parts = parts

    @property
    def pids(self) -> Sequence[int]:
        return [pid for pids in self.parts.values() for pid in pids]


class Contender(Protocol):
    """A queue under measurement."""

    @property
    def name(self) -> str: ...

    async def prepare(self, url: str, mode: Mode) -> None: ...

    async def fill(self, url: str, mode: Mode, *, runs: int, due: float) -> None: ...

    def working(self, url: str, mode: Mode) -> contextlib.AbstractAsyncContextManager[Working]: ...

    def complete(self, mode: Mode, *, runs: int) -> str:
        """A query for how many runs are complete."""
        ...


@dataclasses.dataclass(frozen=True)
class Drained:
    """What a round gave; CPU in microseconds a run, by part."""

    name: str
    runs: int
    per_second: float
    first_after: float
    all_after: float
    cpu: Mapping[str, float]
    statements: float
    late: Sequence[float]
    guests: Sequence[float]


async def drain(server: postgres.PostgresServer, contender: Contender, *, runs: int, mode: Mode) -> Drained:
    """One round on a fresh database. Fails unless every run is complete exactly once."""
    name = await asyncio.to_thread(server.new_database)
    url = server.url(name)
    try:
        await contender.prepare(url, mode)
        counter = statements.Counter(url)
        async with contextlib.AsyncExitStack() as stack:
            working = None if mode is Mode.RAW else await stack.enter_async_context(contender.working(url, mode))
            due: float = math.ceil(time.time() + _LEAD_SECONDS + runs / _FILLED_A_SECOND)
            await contender.fill(url, mode, runs=runs, due=due)
            await asyncio.to_thread(server.execute, "VACUUM ANALYZE", database=name)
            if working is None:
                due = time.time() + _START_SECONDS
                working = await stack.enter_async_context(contender.working(url, mode))
            assert time.time() < due, f"{contender.name} took too long to take in {runs} runs"
            meter = usage.Meter({"postgres": (server.pid,), **working.parts})
            await asyncio.sleep(due - time.time() - _START_SECONDS)
            meter.start()
            own = time.process_time()
            counter.reset()
            ended = await _complete(url, contender.complete(mode, runs=runs), working.telling, runs)
            spent, counted = {**meter.spent(), "generator": time.process_time() - own}, counter.read()
        warm = working.telling.reached(_WARM_SHARE * runs)
        assert working.telling.handled == runs, f"{working.telling.handled} of {runs} runs handled"
        return Drained(
            name=contender.name,
            runs=runs,
            per_second=(runs - warm.handled) / (ended - warm.at),
            first_after=warm.first - due,
            all_after=ended - due,
            cpu={part: 1e6 * seconds / runs for part, seconds in spent.items()},
            statements=statements.calls(counted) / runs,
            late=working.telling.late,
            guests=working.telling.guests,
        )
    finally:
        await asyncio.to_thread(server.drop_database, name)


async def _complete(url: str, query: str, telling: Telling, runs: int) -> float:
    """When every run was complete. The database is not asked before the workers have handled them all."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while telling.handled < runs:  # noqa: ASYNC110 (it changes elsewhere)
            await asyncio.sleep(_PAUSE)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            while True:
                cursor = await connection.execute(f"/* benchmarks/ */ {query}".encode())
                row: Any = await cursor.fetchone()
                if row[0] == runs:
                    return time.time()
                await asyncio.sleep(_PAUSE / 5)


@contextlib.asynccontextmanager
async def at_work(command: Sequence[str], environment: Mapping[str, str] | None = None) -> AsyncIterator[Working]:
    """A process, listened to until the block ends; then it is told to end. What it logged is shown if the block fails."""
    telling = Telling()
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment, limit=_LONGEST_LINE
        )
        listening = asyncio.create_task(_listen(process, telling))
        try:
            yield Working(telling, {"worker": [process.pid]})
            assert process.returncode is None, f"it ended with {process.returncode}"
        except BaseException:
            log.seek(0)
            print(f"--- {command[:3]}\n{log.read().decode(errors='replace')[-_SHOWN_OF_LOG:]}", file=sys.stderr)
            raise
        finally:
            await _end(process)
            await listening


async def _listen(process: asyncio.subprocess.Process, telling: Telling) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        if b'"handled"' in line:
            telling.add(msgspec.json.decode(line, type=Told))


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def server() -> contextlib.AbstractContextManager[postgres.PostgresServer]:
    """The same settings for all."""
    return postgres.server(**stage.POSTGRES, max_wal_size="8GB")
