"""Parts of the REST API that need no server: rates, room, depth, the table, and times to come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from clockhand.api import bodies, problems
from clockhand.api.rest import rates, room, routes
from clockhand.domain import spec, times, tokens, upcoming

NOW = datetime(2026, 10, 20, tzinfo=UTC)
ORIGIN = times.Origin(uuid.UUID(int=1), NOW)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_a_second_has_as_many_requests_as_the_rate_says() -> None:
    clock = Clock()
    limited = rates.Rates(lambda owner: 3 if owner == "rest/a" else None, clock)
    for _ in range(2):
        for _ in range(3):
            limited.take("rest/a")
        with pytest.raises(problems.Problem) as refused:
            limited.take("rest/a")
        assert refused.value.status == 429
        clock.time += 1.0
    clock.time += 60.0
    for _ in range(3):
        limited.take("rest/a")
    with pytest.raises(problems.Problem):
        limited.take("rest/a")
    for _ in range(100):
        limited.take("rest/b")


def test_what_is_kept_of_owners_does_not_grow_without_end() -> None:
    clock = Clock()
    limited = rates.Rates(lambda _: 1, clock)
    for number in range(10_000):
        clock.time += 0.001
        limited.take(f"rest/{number}")
    assert len(limited._buckets) <= rates.MOST_KEPT


async def test_one_owner_has_half_of_the_room() -> None:
    places = room.Room(1, hold_seconds=0)
    async with contextlib.AsyncExitStack() as taken:
        for _ in range(room.CONNECTION_SHARE // 2):
            await taken.enter_async_context(places.place("rest/a"))
        with pytest.raises(problems.Problem) as refused:
            await taken.enter_async_context(places.place("rest/a"))
        assert refused.value.status == 503
        for _ in range(room.CONNECTION_SHARE // 2):
            await taken.enter_async_context(places.place("rest/b"))
        with pytest.raises(problems.Problem):
            await places.look("rest/c")
    for owner in ("rest/a", "rest/c"):
        await places.look(owner)
        async with places.place(owner):
            pass


async def test_there_is_less_room_while_the_loop_comes_round_late() -> None:
    places = room.Room(1, hold_seconds=0)
    for _ in range(100):
        places.adapt(late=2 * room.LATE_SECONDS)
    async with contextlib.AsyncExitStack() as taken:
        for _ in range(room.LEAST_PLACES // 2):
            await taken.enter_async_context(places.place("rest/a"))
        with pytest.raises(problems.Problem):
            await places.look("rest/a")
        for _ in range(2):
            places.adapt(late=0)
        await places.look("rest/a")
    for _ in range(100):
        places.adapt(late=0)
    async with contextlib.AsyncExitStack() as taken:
        for _ in range(room.CONNECTION_SHARE // 2):
            await taken.enter_async_context(places.place("rest/a"))
        with pytest.raises(problems.Problem):
            await places.look("rest/a")


async def test_how_late_the_loop_is_is_seldom_looked_at_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    places, pauses = room.Room(1), list[float]()

    async def rest(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", rest)
    async with places.place("rest/a"):
        with pytest.raises(asyncio.CancelledError):
            await places.heed()
        assert max(pauses) <= 0.02
    pauses.clear()
    with pytest.raises(asyncio.CancelledError):
        await places.heed()
    assert min(pauses) >= 0.2


async def test_who_finds_no_place_hears_of_it_after_a_moment_unless_too_many_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "MOST_HELD", 2)
    places = room.Room(0, hold_seconds=math.inf)
    held = [asyncio.ensure_future(places.look("rest/a")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(problems.Problem):
        await places.look("rest/b")
    assert not any(one.done() for one in held)
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    again = asyncio.ensure_future(places.look("rest/a"))
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


def test_large_bodies_have_a_room_of_their_own() -> None:
    places = room.Room(1)
    with contextlib.ExitStack() as taken:
        for owner in ("rest/a", "rest/b"):
            for _ in range(room.BIG_BODIES // 2):
                taken.enter_context(places.big_body(owner))
            with pytest.raises(problems.Problem):
                taken.enter_context(places.big_body("rest/a"))
        with pytest.raises(problems.Problem):
            taken.enter_context(places.big_body("rest/c"))
    with places.big_body("rest/a"):
        pass


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ([], True),
        ([[]] * 1_000, True),
        ([{"a": [{}]}] * 1_000, True),
        (["[" * 500, {"{" * 500: "\\"}, '"[' * 100], True),
        (json.loads("[" * 64 + "]" * 64), True),
        (json.loads("[" * 65 + "]" * 65), False),
        ([[[]] * 100, json.loads('{"a":' * 64 + "1" + "}" * 64)], False),
    ],
)
def test_depth_is_counted_outside_of_texts(value: object, fits: bool) -> None:
    with contextlib.nullcontext() if fits else pytest.raises(problems.Problem):
        bodies.check_depth(json.dumps(value).encode())


def route(method: str, path: str, name: str) -> routes.Route:
    async def handle(_: routes.Call) -> routes.Answer:
        return routes.Answer(204)

    right = routes.Right("get")
    return routes.Route(
        method=method, path=path, name=name, summary="", role=tokens.Role.VIEWER, right=right, handle=handle, gives={}
    )


def test_paths_are_found_with_what_they_name() -> None:
    table = routes.Table([route("GET", "/v1/a/{id}", "one"), route("POST", "/v1/a/{id}:run", "run")])
    found = table.find("/v1/a/7:run")
    assert found is not None
    assert (list(found.methods), found.path) == (["POST"], {"id": "7"})
    for path in ("/v1/a/7:stop", "/v1/a/", "/v1/a/7/", "/v1/a/7:run:run", "/v1/b"):
        assert table.find(path) is None


def test_nothing_stands_twice_in_a_table() -> None:
    one = route("GET", "/a", "one")
    for other in (route("GET", "/a", "other"), route("POST", "/a", "one")):
        with pytest.raises(ValueError, match=r"twice|one name"):
            routes.Table([one, other])


def test_each_schedule_of_several_is_marked_by_itself() -> None:
    job = spec.parse(
        {"schedules": ["30 2 * * *", "*/30 2 25 10 *"], "timeZone": "Europe/Berlin", "handler": "h", "dst": {}}
    )
    slots = upcoming.after(job, ORIGIN, start=NOW, count=12)
    assert [slot.instant for slot in slots] == sorted(slot.instant for slot in slots)
    assert len([slot for slot in slots if slot.runs]) == 12
    marked = [(slot.instant.hour, slot.mark) for slot in slots if slot.mark]
    assert [hour for hour, _ in marked] == [0, 0, 1, 1]
    assert all("comes twice" in mark for _, mark in marked)


def test_times_to_come_end_where_the_job_does() -> None:
    job = spec.parse({"every": "1h", "endAt": "2026-10-20T02:30:00Z", "handler": "h"})
    slots = upcoming.after(job, ORIGIN, start=NOW, count=100)
    assert [slot.instant - NOW for slot in slots] == [timedelta(hours=1), timedelta(hours=2)]
    once = spec.parse({"at": "2026-10-20T00:00:00Z", "handler": "h"})
    assert upcoming.after(once, ORIGIN, start=NOW, count=1) == []
