"""Answers that are kept: for ten seconds, one question for all who ask at once, and no failure."""

from __future__ import annotations

import asyncio

import pytest

from clockhand import errors
from clockhand.api import kept


class Source:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.failure: errors.ClockhandError | None = None

    async def ask(self) -> int:
        self.asked += 1
        asked = self.asked
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return asked


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_an_answer_is_kept_for_ten_seconds_and_no_longer() -> None:
    clock, source = Clock(), Source()
    answers = kept.Kept[int](clock)
    assert await answers.get("a", source.ask) == 1
    clock.now = kept.KEEP_SECONDS
    assert await answers.get("a", source.ask) == 1
    clock.now += 0.1
    assert await answers.get("a", source.ask) == 2


async def test_an_answer_is_one_key_s_alone() -> None:
    source = Source()
    answers = kept.Kept[int](Clock())
    assert [await answers.get(key, source.ask) for key in "aba"] == [1, 2, 1]


async def test_those_who_ask_at_once_share_a_question() -> None:
    source = Source()
    answers = kept.Kept[int](Clock())
    assert await asyncio.gather(*(answers.get("a", source.ask) for _ in range(50))) == [1] * 50


async def test_one_that_gives_up_does_not_take_the_answer_from_the_others() -> None:
    source = Source()
    answers = kept.Kept[int](Clock())
    first = asyncio.create_task(answers.get("a", source.ask))
    second = asyncio.create_task(answers.get("a", source.ask))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1


async def test_a_failure_is_told_and_not_kept() -> None:
    source = Source()
    source.failure = errors.Unavailable("away")
    answers = kept.Kept[int](Clock())
    with pytest.raises(errors.Unavailable):
        await answers.get("a", source.ask)
    source.failure = None
    assert await answers.get("a", source.ask) == 2


async def test_it_keeps_a_bounded_number() -> None:
    source = Source()
    answers = kept.Kept[int](Clock())
    for key in range(3 * kept.ENTRIES):
        await answers.get(key, source.ask)
    assert len(answers) <= kept.ENTRIES


async def test_many_who_are_not_known_do_not_push_out_who_is() -> None:
    source = Source()
    answers = kept.Kept[int | None](Clock())

    async def nobody() -> None:
        return None

    assert await answers.get("known", source.ask) == 1
    for number in range(2 * kept.ENTRIES):
        await answers.get(number, nobody)
    assert await answers.get("known", source.ask) == 1
    assert len(answers) <= kept.ENTRIES


async def test_who_was_known_still_is_after_a_failure_and_among_many_others() -> None:
    clock, source = Clock(), Source()
    answers = kept.Kept[int | None](clock)

    async def nobody() -> None:
        return None

    assert not answers.knows("known")
    await answers.get("known", source.ask)
    clock.now = 2 * kept.KEEP_SECONDS
    source.failure = errors.Unavailable("away")
    with pytest.raises(errors.Unavailable):
        await answers.get("known", source.ask)
    for number in range(2 * kept.ENTRIES):
        await answers.get(number, nobody)
    assert answers.knows("known")
    assert not answers.knows(2 * kept.ENTRIES - 1)
    source.failure = None
    assert await answers.get("known", source.ask) == 3, "what was known is asked again all the same"
    clock.now = 4 * kept.KEEP_SECONDS
    assert await answers.get("known", nobody) is None
    assert not answers.knows("known"), "it was revoked"
