"""Seats are taken in turn, served by a commit, given back by a rollback, and never lost in between."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from clockhand import errors
from clockhand.engine.pools import desk as desks
from clockhand.store import assigned, pools

NOW = datetime(2026, 3, 1, tzinfo=UTC)
POOL = "k8s/a/mailers"
SETTINGS = pools.Settings(POOL, "k8s/a")
PAIR = (POOL, "send")


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def run(worker: str | None) -> assigned.Assigned:
    return assigned.Assigned(uuid.uuid4(), 1, "job-1", "job", "k8s/a", "send", "Slot", NOW, 1, 1, None, "null", worker)


def sit(desk: desks.Desk, worker: str = "w", *, room: int = 1, handlers: Sequence[str] = ("send",)) -> desks.Seat:
    return desk.sit(SETTINGS, worker=worker, handlers=handlers, room=room)


def serve(desk: desks.Desk, count: int) -> list[str | None]:
    """Who was given each of that many runs."""
    with desk.handing() as handing:
        seats = [handing.take(*PAIR) for _ in range(count)]
        for seat in seats:
            if seat is not None:
                handing.give(seat, run(seat.worker), now=NOW)
    return [seat.worker if seat is not None else None for seat in seats]


def fail(desk: desks.Desk, count: int, error: errors.ClockhandError) -> None:
    """A transaction that takes that many places, stores its runs, and does not come to a good end."""
    with contextlib.suppress(type(error)), desk.handing() as handing:
        for _ in range(count):
            seat = handing.take(*PAIR)
            assert seat is not None
            handing.give(seat, run(seat.worker), now=NOW)
        assert handing.take(*PAIR) is None
        raise error


async def test_workers_are_served_in_turn_as_far_as_their_room_goes() -> None:
    desk = desks.Desk()
    first, second = sit(desk, "a", room=3), sit(desk, "b", room=1)
    assert serve(desk, 5) == ["a", "b", "a", "a", None]
    assert [len(seat.done.result()) for seat in (first, second)] == [3, 1]
    assert desk.spans() == {}


async def test_whoever_was_given_something_takes_no_more() -> None:
    desk = desks.Desk()
    sit(desk, "a", room=10)
    assert serve(desk, 1) == ["a"]
    assert serve(desk, 1) == [None]


async def test_only_those_who_know_the_handler_are_asked() -> None:
    desk = desks.Desk()
    other = sit(desk, "a", handlers=("other",))
    both = sit(desk, "b", handlers=("other", "send"), room=2)
    assert serve(desk, 3) == ["b", "b", None]
    assert (other.done.done(), both.done.done()) == (False, True)


async def test_a_rollback_gives_places_back_also_of_a_full_seat() -> None:
    desk = desks.Desk()
    sit(desk, room=2)
    fail(desk, 2, errors.Unavailable("gone"))
    assert serve(desk, 3) == ["w", "w", None]


async def test_a_place_that_was_not_used_is_given_back() -> None:
    desk = desks.Desk()
    seat = sit(desk)
    with desk.handing() as handing:
        assert handing.take(*PAIR) is seat
    assert not seat.done.done()
    assert serve(desk, 1) == ["w"]


async def test_an_uncertain_commit_ends_the_seat_and_says_so() -> None:
    desk = desks.Desk()
    seat = sit(desk, room=2)
    fail(desk, 2, errors.Uncertain("lost"))
    assert (seat.done.result(), seat.doubtful) == ([], True)


async def test_a_seat_that_rises_waits_for_what_is_under_way() -> None:
    desk = desks.Desk()
    seat = sit(desk, room=2)
    with desk.handing() as handing:
        assert handing.take(*PAIR) is seat
        desk.rise(seat)
        assert not seat.done.done()
        with desk.handing() as another:
            assert another.take(*PAIR) is None
        handing.give(seat, run("w"), now=NOW)
    assert len(seat.done.result()) == 1


async def test_two_transactions_may_hold_places_of_one_seat() -> None:
    desk = desks.Desk()
    seat = sit(desk, room=2)
    with desk.handing() as first, desk.handing() as second:
        assert first.take(*PAIR) is second.take(*PAIR) is seat
        first.give(seat, run("w"), now=NOW)
        second.give(seat, run("w"), now=NOW)
    assert len(seat.done.result()) == 2


async def test_a_closed_desk_answers_everybody_and_takes_nobody() -> None:
    desk = desks.Desk()
    seat = sit(desk)
    desk.close()
    assert seat.done.result() == []
    with pytest.raises(errors.Unavailable, match="stopping"):
        sit(desk)


async def test_a_queue_is_looked_into_where_it_may_have_something_for_somebody() -> None:
    desk = desks.Desk()
    desk.queued([PAIR])
    assert not desk.marked.is_set()
    sit(desk, "a")
    assert desk.take_marks() == [POOL]
    desk.found_empty([PAIR])
    assert sit(desk, "b").looked.is_set()
    assert not desk.marked.is_set()
    desk.queued([PAIR])
    assert desk.take_marks() == [POOL]
    desk.looked([PAIR], [])
    assert desk.take_marks() == []
    desk.looked([PAIR], [PAIR])
    assert desk.take_marks() == [POOL]
    desk.mark_all()
    assert desk.take_marks() == [POOL]


async def test_appetite_follows_workers_that_come_back() -> None:
    clock = Clock()
    desk = desks.Desk(monotonic=clock)
    sit(desk, "a", room=80)
    assert await desk.appetite(500) == 500
    serve(desk, 1)
    sit(desk, "a", room=80)
    assert await desk.appetite(500) == 80
    desk.queued([PAIR])
    waiting = asyncio.create_task(desk.appetite(500))
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.found_empty([PAIR])
    assert await waiting == 80
    clock.at += 1
    assert await desk.appetite(500) == 500


async def test_appetite_does_not_wait_for_a_pool_whose_workers_stay_away() -> None:
    desk = desks.Desk()
    sit(desk, "a")
    serve(desk, 1)
    assert await desk.appetite(500) == 500
