"""Questions about tokens, a few at a time: whoever was good a moment ago does not wait behind strangers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from clockhand import errors

MOST_STRANGERS = 256
"""Tokens of nobody that is known which wait to be looked up; further ones are told to come again."""
_AGAIN_SECONDS = 1.0


class Lanes:
    """`at_once` questions about tokens that are known, and as many about others."""

    def __init__(self, at_once: int) -> None:
        self._known = asyncio.Semaphore(at_once)
        self._strange = asyncio.Semaphore(at_once)
        self._strangers = 0

    @contextlib.asynccontextmanager
    async def turn(self, *, known: bool) -> AsyncIterator[None]:
        """A turn to ask, for the length of the block. Raises Unavailable where too many strangers wait for theirs."""
        if known:
            async with self._known:
                yield
            return
        if self._strangers >= MOST_STRANGERS:
            raise errors.Unavailable("too many tokens that nobody knows yet are being looked up", _AGAIN_SECONDS)
        self._strangers += 1
        try:
            async with self._strange:
                yield
        finally:
            self._strangers -= 1
