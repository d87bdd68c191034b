"""What an attempt wrote: the last 64 KiB of its log records and of its output, whichever thread or task wrote them.

Which attempt writes is told by the context, so that attempts of one process do not mix. What is written still goes where
it went before.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO, cast

from clockhand.domain import protocol

_LIMIT = protocol.MAX_LOG_BYTES


class Tail:
    """The end of a text."""

    __slots__ = ("_lock", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: collections.deque[str] = collections.deque()
        self._size = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Adds `text`, and forgets what is more than 64 Ki characters back."""
        text = text[-_LIMIT:]
        with self._lock:
            self._parts.append(text)
            self._size += len(text)
            while self._size - len(self._parts[0]) >= _LIMIT:
                self._size -= len(self._parts.popleft())

    def text(self) -> str | None:
        """The last 64 KiB as text that a database takes, None where nothing was written."""
        with self._lock:
            whole = "".join(self._parts)
        return clean(whole).encode()[-_LIMIT:].decode(errors="ignore") or None


def clean(text: str) -> str:
    """`text` without what is no text: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


current: contextvars.ContextVar[Tail | None] = contextvars.ContextVar("attempt_tail", default=None)
"""The tail of the attempt that runs here."""


class _Routed:
    """A stream that copies what an attempt writes to its tail."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if (tail := current.get()) is not None:
            tail.write(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def keep(kept: Tail, text: str) -> None:
    """Adds what an attempt's process wrote to its tail, and passes it on as this process's own."""
    kept.write(text)
    below = sys.stderr
    (below.stream if isinstance(below, _Routed) else below).write(text)


class _Records(logging.Handler):
    """Copies log records, unless a handler of the root writes them to a routed stream, and so to the tail, already."""

    def emit(self, record: logging.LogRecord) -> None:
        tail = current.get()
        if tail is None or any(isinstance(getattr(other, "stream", None), _Routed) for other in logging.root.handlers):
            return
        tail.write(self.format(record) + "\n")


@contextlib.contextmanager
def routed() -> Iterator[None]:
    """For the length of the block, log records and output of attempts go to their tails as well."""
    records = _Records()
    records.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, _Routed(out)), cast(TextIO, _Routed(err))
    logging.root.addHandler(records)
    try:
        yield
    finally:
        logging.root.removeHandler(records)
        sys.stdout, sys.stderr = out, err
