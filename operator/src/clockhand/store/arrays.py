"""Lists as array literals, written at once: batches are lists, and the driver's own way costs more than the rest of a call.

The type is left to the statement, which casts every array. One statement is then prepared once, whatever is in its lists.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import abc, adapt

_Write = Callable[[Any], str]


def _text(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


@functools.lru_cache(maxsize=1024)
def _instant(value: datetime) -> str:
    """Many of a batch are alike."""
    return f'"{value.isoformat()}"'


_WRITERS: Mapping[type, _Write] = {
    type(None): lambda _: "NULL",
    bool: lambda value: "t" if value else "f",
    int: str,
    str: _text,
    uuid.UUID: lambda value: value.hex,
    datetime: _instant,
    timedelta: lambda value: f'"{value // timedelta.resolution} microseconds"',
}


class Lists(adapt.Dumper):
    """Writes a list; items of other types as the driver writes each of them."""

    def __init__(self, cls: type, context: abc.AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._transformer = adapt.Transformer.from_context(context)

    def dump(self, obj: list[Any]) -> bytes:
        """An array literal."""
        try:
            written = [_WRITERS[type(item)](item) for item in obj]
        except KeyError:
            written = [self._written(item) for item in obj]
        return f"{{{','.join(written)}}}".encode()

    def _written(self, item: Any) -> str:
        if isinstance(item, list):
            return self.dump(item).decode()
        if (write := _WRITERS.get(type(item))) is not None:
            return write(item)
        dumped = self._transformer.get_dumper(item, adapt.PyFormat.TEXT).dump(item)
        return "NULL" if dumped is None else _text(bytes(dumped).decode())


def adapters() -> adapt.AdaptersMap:
    """What a connection is to be made with."""
    found = adapt.AdaptersMap(psycopg.adapters)
    found.register_dumper(list, Lists)
    return found
