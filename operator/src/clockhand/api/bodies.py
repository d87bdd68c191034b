"""Bodies of requests: how they are read, and how much of one."""

from __future__ import annotations

import asyncio
import itertools

from aiohttp import web

from clockhand.api import problems
from clockhand.domain import protocol

READ_SECONDS = 10.0
"""For a body of usual size to arrive whole."""
MAX_DEPTH = 64
_MEBIBYTE = 1_048_576
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as signed bytes: a level more, a level less."""
_ELSE = bytes(set(range(256)) - set(b'[{]}"'))


async def read(
    request: web.BaseRequest, *, most: int = protocol.MAX_BODY_BYTES, seconds: float = READ_SECONDS
) -> bytes:
    """The body; 413 where it has more than `most` bytes, 408 where it takes longer than `seconds`, and 1 s more a MiB."""
    if most != protocol.MAX_BODY_BYTES:
        request, seconds = request.clone(client_max_size=most), seconds + most // _MEBIBYTE
    try:
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await _continue(request)
        async with asyncio.timeout(seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _unread(413, f"a body may have {most} bytes: send it in parts") from None
    except TimeoutError:
        raise _unread(408, f"the body did not arrive within {seconds:g} s") from None
    except web.RequestPayloadError as error:
        said = str(error).rpartition("\n")[2].strip()  # its first line is of a status that is not ours
        raise _unread(400, f"the body cannot be read: {said}") from None


def _unread(status: int, detail: str) -> problems.Problem:
    """Of a body that was left where it is: nothing more can come over its connection, and the client should know."""
    return problems.Problem(status, detail, headers=[("Connection", "close")])


async def _continue(request: web.BaseRequest) -> None:
    """Lets a client go on that waits to be told whether its body is wanted; the bare server leaves that to us."""
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0


def check_depth(body: bytes) -> None:
    """413 for JSON that is nested deeper than `MAX_DEPTH` levels. It has been decoded before, so its brackets match."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    marks = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STEPS, _ELSE)
    # two quotes side by side: what is beyond them is in a string, or in none, as it was
    steps = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    if max(itertools.accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
        raise too_deep()


def too_deep() -> problems.Problem:
    """The answer to JSON that is nested too deeply."""
    return problems.Problem(413, f"a body may be nested {MAX_DEPTH} levels deep: write it flatter")
