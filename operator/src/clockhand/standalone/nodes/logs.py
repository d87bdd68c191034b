"""Logs of containers in files: as long as they are of use, and no longer than a bound.

A log is a row of segments of which the last two are kept. A segment has the lines of CRI: the time, `F` for the end of a
line or `P` for a part of one, and what was written.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

SEGMENT_BYTES = 5 << 20
_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a log."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: timedelta | None = None
    timestamps: bool = False
    follow: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What was written in one piece."""

    at: str
    ends_line: bool
    text: bytes

    def shown(self, *, timestamps: bool) -> bytes:
        return (f"{self.at} ".encode() if timestamps else b"") + self.text + (b"\n" if self.ends_line else b"")


class Log:
    """The log of one start of a container, for its writer."""

    def __init__(self, folder: Path, start: int, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._start = start
        self._limit = segment_bytes
        self._segment = 0
        self._file = _path(folder, start, 0).open("wb", buffering=0)
        self._size = 0
        self.is_open = True
        self.news = asyncio.Event()

    def write(self, chunk: bytes, now: datetime) -> None:
        """Adds `chunk`; what is far back is forgotten."""
        at = f"{now:%Y-%m-%dT%H:%M:%S.%f}Z ".encode()
        lines = chunk.split(b"\n")
        whole = [at + b"F " + line + b"\n" for line in lines[:-1]]
        rest = [at + b"P " + lines[-1] + b"\n"] if lines[-1] else []
        self._put(b"".join((*whole, *rest)))

    def close(self) -> None:
        """Nothing more is written."""
        self.is_open = False
        self._file.close()
        self._tell()

    def _put(self, text: bytes) -> None:
        self._file.write(text)
        self._size += len(text)
        if self._size >= self._limit:
            self._file.close()
            self._segment += 1
            self._size = 0
            self._file = _path(self._folder, self._start, self._segment).open("wb", buffering=0)
            _path(self._folder, self._start, self._segment - 2).unlink(missing_ok=True)
        self._tell()

    def _tell(self) -> None:
        waiting, self.news = self.news, asyncio.Event()
        waiting.set()


class Reader:
    """Reads a log from its beginning, or what is left of it, piece by piece."""

    def __init__(self, folder: Path, start: int) -> None:
        self._folder = folder
        self._start = start
        self._segment = -1
        self._offset = 0
        self._rest = b""

    def more(self) -> list[Entry]:
        """The next entries; none where there are none for now."""
        while (chunk := self._chunk()) == b"":
            if not self._move_on():
                return []
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [_entry(line) for line in lines]

    def _chunk(self) -> bytes:
        if self._segment < 0:
            return b""
        try:
            with _path(self._folder, self._start, self._segment).open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(_READ_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(chunk)
        return chunk

    def _move_on(self) -> bool:
        later = [number for number in _segments(self._folder, self._start) if number > self._segment]
        if not later:
            return False
        self._segment, self._offset, self._rest = min(later), 0, b""
        return True


async def read(
    folder: Path, start: int, wanted: Wanted, *, now: datetime, log: Log | None = None
) -> AsyncGenerator[bytes]:
    """What is wanted of the log of one start. `log` is its writer, where it is still written."""
    left = wanted.limit_bytes
    async for text in _pieces(Reader(folder, start), wanted, now, log):
        piece = text if left is None else text[:left]
        if piece:
            yield piece
        if left is not None:
            left -= len(piece)
            if left <= 0:
                return


async def _pieces(reader: Reader, wanted: Wanted, now: datetime, log: Log | None) -> AsyncGenerator[bytes]:
    since = "" if wanted.since is None else f"{now - wanted.since:%Y-%m-%dT%H:%M:%S.%f}Z"
    last: collections.deque[list[Entry]] = collections.deque(maxlen=wanted.tail_lines)
    while entries := await asyncio.to_thread(reader.more):
        chosen = [one for one in entries if one.at >= since]
        if wanted.tail_lines is None:
            yield _shown(chosen, wanted)
        else:
            _gather(last, chosen)
    for line in last:
        yield _shown(line, wanted)
    while wanted.follow and log is not None:
        news, ended = log.news, not log.is_open
        while entries := await asyncio.to_thread(reader.more):
            yield _shown(entries, wanted)
        if ended:
            return
        if log.is_open:
            await news.wait()


def _gather(lines: collections.deque[list[Entry]], entries: list[Entry]) -> None:
    for entry in entries:
        if lines and not lines[-1][-1].ends_line:
            lines[-1].append(entry)
        else:
            lines.append([entry])


def _shown(entries: list[Entry], wanted: Wanted) -> bytes:
    pieces = []
    begins = True
    for entry in entries:
        pieces.append(entry.shown(timestamps=wanted.timestamps and begins))
        begins = entry.ends_line
    return b"".join(pieces)


def tail(folder: Path, start: int, *, lines: int, limit: int) -> str:
    """The end of a log as text."""
    reader = Reader(folder, start)
    last: collections.deque[list[Entry]] = collections.deque(maxlen=lines)
    while entries := reader.more():
        _gather(last, entries)
    whole = b"".join(entry.shown(timestamps=False) for line in last for entry in line)
    return whole[-limit:].decode(errors="replace")


def starts(folder: Path) -> list[int]:
    """The starts of which there is a log, the newest last."""
    return sorted({int(path.name.partition(".")[0]) for path in folder.glob("*.*.log")})


def forget(folder: Path, *, before: int) -> None:
    """Removes the logs of starts before that one."""
    for path in folder.glob("*.*.log"):
        if int(path.name.partition(".")[0]) < before:
            path.unlink(missing_ok=True)


def _segments(folder: Path, start: int) -> Iterator[int]:
    for path in folder.glob(f"{start}.*.log"):
        yield int(path.name.split(".")[1])


def _path(folder: Path, start: int, segment: int) -> Path:
    return folder / f"{start}.{segment}.log"


def _entry(line: bytes) -> Entry:
    at, _, rest = line.partition(b" ")
    kind, _, text = rest.partition(b" ")
    return Entry(at.decode(errors="replace"), kind == b"F", text)
