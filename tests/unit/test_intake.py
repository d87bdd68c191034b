"""Calls that are stored together: each gets its own answer, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from clockhand import errors
from clockhand.engine.pools import intake


class Store:
    """Doubles what it is given; refuses what it was told to refuse. It waits while its gate is closed."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.refused: dict[int, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        for item in items:
            if item in self.refused:
                raise self.refused[item]
        return [2 * item for item in items]


@contextlib.asynccontextmanager
async def serving(store: Store, most: int = 4) -> AsyncIterator[intake.Intake[int, int]]:
    taken: intake.Intake[int, int] = intake.Intake(store, most=most)

    async def forever() -> None:
        while True:
            with contextlib.suppress(errors.ClockhandError):
                await taken.step()

    task = asyncio.create_task(forever())
    yield taken
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_comes_while_a_batch_is_stored_is_the_next_batch() -> None:
    store = Store()
    async with serving(store) as taken:
        store.gate.clear()
        first = asyncio.create_task(taken.submit([1]))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(taken.submit([number, number])) for number in (2, 3, 4)]
        await asyncio.sleep(0)
        store.gate.set()
        assert [await first, *[await one for one in rest]] == [[2], [4, 4], [6, 6], [8, 8]]
    assert store.batches == [[1], [2, 2, 3, 3], [4, 4]]


async def test_a_call_larger_than_a_batch_is_a_batch() -> None:
    store = Store()
    async with serving(store) as taken:
        assert await taken.submit(range(9)) == [2 * number for number in range(9)]


async def test_whoever_leaves_has_its_items_stored() -> None:
    store = Store()
    async with serving(store) as taken:
        store.gate.clear()
        leaving, staying = asyncio.create_task(taken.submit([1])), asyncio.create_task(taken.submit([2]))
        await asyncio.sleep(0)
        leaving.cancel()
        store.gate.set()
        assert await staying == [4]
    assert store.batches == [[1, 2]]


@pytest.mark.parametrize("error", [errors.Unavailable("away", 2.0), errors.Uncertain("lost")])
async def test_a_database_that_is_away_is_told_to_everybody(error: Exception) -> None:
    store = Store()
    store.refused[1] = error
    async with serving(store) as taken:
        answers = await asyncio.gather(taken.submit([1]), taken.submit([2]), return_exceptions=True)
        assert list(answers) == [error, error]
        store.refused.clear()
        assert await taken.submit([1]) == [2]


async def test_a_mistake_in_one_call_is_paid_for_by_that_one() -> None:
    store = Store()
    store.refused[2] = mistake = ValueError("mistake")
    async with serving(store) as taken:
        answers = await asyncio.gather(*(taken.submit([number]) for number in (1, 2, 3)), return_exceptions=True)
    assert list(answers) == [[2], mistake, [6]]


async def test_a_stop_is_told_to_those_who_wait_and_those_who_come() -> None:
    store = Store()
    async with serving(store, most=1) as taken:
        store.gate.clear()
        storing, waiting = asyncio.create_task(taken.submit([1])), asyncio.create_task(taken.submit([2]))
        await asyncio.sleep(0.01)
    taken.close()
    for call in (storing, waiting, asyncio.ensure_future(taken.submit([3]))):
        with pytest.raises(errors.Unavailable):
            await call
