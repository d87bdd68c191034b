"""Long work in short steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from clockhand.engine import steps


async def test_others_have_their_turn_between_steps() -> None:
    done: list[int] = []
    seen: list[int] = []

    def work() -> Iterator[int]:
        for number in range(10):
            done.append(number)
            yield number

    async def look() -> None:
        while len(done) < 10:
            seen.append(len(done))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    assert await steps.gathered(work(), at_once=3) == list(range(10))
    await looking
    assert seen == [3, 6, 9]
