"""JSON pointers (RFC 6901) of the places that errors name."""

from __future__ import annotations

import re

_PART = re.compile(r"\[(?P<index>[^\]]+)\]|\.?(?P<name>[^.\[]+)")


def of_path(path: str) -> str:
    """The pointer of a path such as `reports[0].result`."""
    return "".join(step(one["index"] or one["name"]) for one in _PART.finditer(path))


def step(name: str) -> str:
    """The pointer of one step down."""
    return f"/{name.replace('~', '~0').replace('/', '~1')}"
