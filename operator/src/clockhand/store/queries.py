"""Named SQL, read from `sql/*.sql` once.

SQL in files of its own can be read, diffed, prepared and explained; a test does the last two for every query here. A query
starts with a line `-- name: <name>`; its full name is `<file>.<name>`. The lines of comment that follow say what it is for.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Mapping
from typing import LiteralString

_HEADER = re.compile(r"^-- name: (?P<name>[a-z_]+)$", re.MULTILINE)


@functools.cache
def all_queries() -> Mapping[str, LiteralString]:
    """Every named query by its full name."""
    folder = importlib.resources.files("clockhand.store") / "sql"
    found: dict[str, LiteralString] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            found.update(_parse(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))
    return found


def sql(name: str) -> LiteralString:
    """The text of the query `<file>.<name>`; a wrong name is a mistake in the code and raises KeyError."""
    return all_queries()[name]


def _parse(stem: str, text: str) -> dict[str, LiteralString]:
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    return {
        f"{stem}.{header['name']}": text[header.end() : end].strip() for header, end in zip(headers, ends, strict=True)
    }
