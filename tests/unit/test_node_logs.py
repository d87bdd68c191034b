"""Logs of containers: bounded, in segments, and read back by line, by bytes, by time, or as they grow."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clockhand.standalone.nodes import logs

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


async def read(folder: Path, start: int = 0, *, now: datetime = T0, **wanted: Any) -> str:
    pieces = [piece async for piece in logs.read(folder, start, logs.Wanted(**wanted), now=now)]
    return b"".join(pieces).decode()


def write(folder: Path, *chunks: bytes, start: int = 0, segment_bytes: int = logs.SEGMENT_BYTES) -> None:
    """A chunk each second, and the end."""
    log = logs.Log(folder, start, segment_bytes=segment_bytes)
    for number, chunk in enumerate(chunks):
        log.write(chunk, T0 + timedelta(seconds=number))
    log.close()


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"one\ntwo\n",), "one\ntwo\n"),
        ((b"no end",), "no end"),
        ((b"in ", b"parts\nand", b" more"), "in parts\nand more"),
        ((b"\n\n", b"x"), "\n\nx"),
        ((b"a" * 100_000 + b"\n", b"b"), "a" * 100_000 + "\nb"),
        ((), ""),
    ],
)
async def test_what_was_written_is_what_is_read(tmp_path: Path, chunks: tuple[bytes, ...], expected: str) -> None:
    write(tmp_path, *chunks)

    assert await read(tmp_path) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"tail_lines": 1}, "and last"),
        ({"tail_lines": 2}, "second\nand last"),
        ({"tail_lines": 9}, "first\nsecond\nand last"),
        ({"tail_lines": 0}, ""),
        ({"limit_bytes": 7}, "first\ns"),
        ({"tail_lines": 2, "limit_bytes": 3}, "sec"),
        ({"since": timedelta(seconds=2)}, "and last"),
        (
            {"timestamps": True},
            "2026-03-01T12:00:00.000000Z first\n2026-03-01T12:00:01.000000Z second\n2026-03-01T12:00:02.000000Z and last",
        ),
    ],
)
async def test_parts_of_a_log(tmp_path: Path, wanted: dict[str, Any], expected: str) -> None:
    write(tmp_path, b"first\n", b"second\n", b"and ", b"last")

    assert await read(tmp_path, now=T0 + timedelta(seconds=4), **wanted) == expected


async def test_only_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    write(tmp_path, *(b"line %03d\n" % number for number in range(200)), segment_bytes=1000)

    kept = (await read(tmp_path)).splitlines()

    assert kept[-1] == "line 199"
    assert 20 < len(kept) < 60
    assert kept == [f"line {number:03}" for number in range(200 - len(kept), 200)]
    assert len(os.listdir(tmp_path)) == 2


async def test_each_start_has_a_log_of_its_own(tmp_path: Path) -> None:
    for start in range(3):
        write(tmp_path, b"start %d" % start, start=start)

    logs.forget(tmp_path, before=1)

    assert logs.starts(tmp_path) == [1, 2]
    assert await read(tmp_path, 1) == "start 1"
    assert logs.tail(tmp_path, 2, lines=5, limit=3) == "t 2"


async def test_a_log_is_followed_over_its_segments_to_its_end(tmp_path: Path) -> None:
    log = logs.Log(tmp_path, 0, segment_bytes=100)
    log.write(b"begin\n", T0)
    pieces = logs.read(tmp_path, 0, logs.Wanted(follow=True), now=T0, log=log)

    assert await anext(pieces) == b"begin\n"
    log.write(b"x" * 200 + b"\n", T0)
    assert await anext(pieces) == b"x" * 200 + b"\n"
    log.write(b"after\n", T0)
    log.close()
    assert b"".join([piece async for piece in pieces]) == b"after\n"
