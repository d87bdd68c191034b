"""A loop outlives every error of its step, backs off, and ends only when it is told to."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import cast

import pytest

from clockhand import errors, metrics
from clockhand.engine import loops, replica
from clockhand.engine.pools import service
from clockhand.kube import client as clients
from clockhand.store import database


class Told(Exception):
    """Ends the loop under test from inside its sleep."""


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the loop slept, ended after twelve times."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 12:
            raise Told

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waits


async def test_it_sleeps_as_long_as_the_step_says_give_or_take_a_tenth(slept: list[float]) -> None:
    async def step() -> float:
        return 3.0

    with pytest.raises(Told):
        await loops.forever("test", step)
    assert all(2.7 <= wait <= 3.3 for wait in slept)
    assert len(set(slept)) > 1


@pytest.mark.parametrize("error", [errors.Unavailable("away"), errors.Stale("lost"), ValueError("a mistake")])
async def test_an_error_is_counted_and_the_step_tried_again_less_and_less_often(
    slept: list[float], error: Exception
) -> None:
    async def step() -> float:
        raise error

    counter = metrics.LOOP_ERRORS.labels(loop="test")
    before = counter._value.get()
    with pytest.raises(Told):
        await loops.forever("test", step)
    assert counter._value.get() - before == 12
    assert slept[0] < 0.5
    assert slept[2] > slept[0]
    assert all(wait <= 5.5 for wait in slept)
    assert slept[-1] >= 4.5


async def test_a_success_forgets_earlier_errors(slept: list[float]) -> None:
    rounds = itertools.count()

    async def step() -> float:
        if next(rounds) % 2:
            raise errors.Unavailable("away")
        return 1.0

    with pytest.raises(Told):
        await loops.forever("test", step)
    assert all(wait < 0.5 for wait in slept[1::2])
    assert all(wait > 0.85 for wait in slept[::2])


async def test_a_cancelled_loop_ends() -> None:
    entered = asyncio.Event()

    async def step() -> float:
        entered.set()
        await asyncio.Event().wait()
        return 0.0

    task = asyncio.create_task(loops.forever("test", step))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def made(kind: str) -> replica.Replica | service.Pools:
    """A process of either kind, before its loops go round; its database is away."""
    db = database.Database("postgresql://127.0.0.1:1/none", size=1, name="test")
    if kind == "operator":
        return replica.Replica(db, cast(clients.Client, None), name="one", lease=10)
    return service.Pools(db, replica="one", lease=10)


@pytest.mark.parametrize("kind", ["operator", "api"])
def test_a_process_that_waits_for_its_schema_is_alive(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarted for it again and again, it would be minutes late when the database is back."""
    one = made(kind)
    later = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert one.alive()
