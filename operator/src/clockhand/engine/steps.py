"""Long work in short steps: what is due and what workers say goes on in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

AT_ONCE = 32
T = TypeVar("T")


async def gathered(items: Iterable[T], *, at_once: int = AT_ONCE) -> list[T]:
    """All of them, `at_once` in a step."""
    found: list[T] = []
    for item in items:
        found.append(item)
        if len(found) % at_once == 0:
            await asyncio.sleep(0)
    return found
