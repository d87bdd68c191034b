"""The flow of writes: its decisions with a clock of our own, its waiting on the event loop."""

from __future__ import annotations

import asyncio
import math

import pytest

from clockhand.kube import flow

SETTINGS = flow.FlowSettings(initial_in_flight=4, max_in_flight=6, writes_per_second=10, burst=8)


def test_capacity_is_bounded_by_what_is_in_flight_and_by_tokens() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    assert state.capacity(0.0) == 4
    for _ in range(4):
        state.start(0.0)
    assert state.capacity(0.0) == 0
    assert state.delay(0.0) == math.inf
    for _ in range(3):
        state.end()
    assert state.capacity(0.0) == 3


def test_tokens_come_back_at_the_rate() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    for _ in range(8):
        state.start(0.0)
        state.end()
    assert state.capacity(0.0) == 0
    assert state.delay(0.0) == pytest.approx(0.1)
    assert state.delay(0.05) == pytest.approx(0.05)
    assert state.delay(0.1) == 0.0
    assert state.capacity(0.25) == 2
    assert state.capacity(60.0) == 4, "the burst is a bound"


def test_the_limit_halves_once_per_round_trip() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    for _ in range(4):
        state.start(0.0)
    state.overloaded(1.0, started=0.0)
    state.overloaded(1.1, started=0.0)
    state.overloaded(1.2, started=0.5)
    assert state.limit == 2
    state.overloaded(2.0, started=1.5)
    assert state.limit == 1
    state.overloaded(3.0, started=2.5)
    assert state.limit == 1, "one call at a time is the least"
    assert state.throttled == 5


def test_the_limit_grows_by_one_per_window_of_successes_while_it_is_used() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    for _ in range(4):
        state.start(0.0)
    for _ in range(4):
        state.succeeded()
    assert state.limit == 5
    state.start(0.0)
    for _ in range(5 + 6 + 6 + 6):
        state.in_flight = int(state.limit)
        state.succeeded()
    assert state.limit == 6, "the administrator's bound"


def test_an_idle_flow_does_not_grow() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    for _ in range(100):
        state.start(0.0)
        state.succeeded()
        state.end()
    assert state.limit == 4


def test_retry_after_stops_everything_until_then() -> None:
    state = flow.Flow(SETTINGS, 0.0)
    state.start(0.0)
    state.overloaded(1.0, started=0.0, pause=5.0)
    assert state.capacity(5.9) == 0
    assert state.delay(2.0) == pytest.approx(4.0)
    assert state.capacity(6.0) == 1


def test_a_clock_that_stands_still_or_goes_back_gives_no_tokens() -> None:
    state = flow.Flow(SETTINGS, 10.0)
    for _ in range(8):
        state.start(10.0)
        state.end()
    assert state.capacity(3.0) == 0


async def test_the_gate_never_lets_more_through_than_the_limit() -> None:
    gate = flow.WriteGate(flow.FlowSettings(3, 3, writes_per_second=1e6, burst=1e6))
    inside = 0
    most = 0

    async def call() -> None:
        nonlocal inside, most
        async with gate.permit() as permit:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            permit.succeeded()

    await asyncio.gather(*(call() for _ in range(50)))
    assert most == 3
    assert gate.flow.in_flight == 0


async def test_the_gate_serves_in_order_of_arrival() -> None:
    gate = flow.WriteGate(flow.FlowSettings(1, 1, writes_per_second=1e6, burst=1e6))
    order: list[int] = []

    async def call(number: int) -> None:
        async with gate.permit():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_call_that_is_cancelled_while_it_waits_leaves_its_place() -> None:
    gate = flow.WriteGate(flow.FlowSettings(1, 1, writes_per_second=1e6, burst=1e6))

    async def call() -> None:
        async with gate.permit():
            await asyncio.Event().wait()

    holder = asyncio.create_task(call())
    waiter = asyncio.create_task(call())
    await asyncio.sleep(0)
    waiter.cancel()
    holder.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    async with asyncio.timeout(10), gate.permit():
        assert gate.flow.in_flight == 1
    assert gate.flow.in_flight == 0


async def test_a_refusal_with_retry_after_pauses_with_jitter() -> None:
    now = 0.0
    settings = flow.FlowSettings(4, 8, 1000, 1000, pause_jitter=0.5)
    gate = flow.WriteGate(settings, clock=lambda: now, draw=lambda: 1.0)
    async with gate.permit() as permit:
        permit.overloaded(2.0)
    assert gate.flow.limit == 2
    now = 2.9
    assert gate.capacity() == 0
    now = 3.0
    assert gate.capacity() == 2
