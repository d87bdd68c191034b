"""Intervals keep their distance whatever clocks do, and count from an anchor that never moves."""

from __future__ import annotations

import datetime
import itertools

import hypothesis
import pytest
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import instants, intervals

UTC = datetime.UTC
SECOND = datetime.timedelta(seconds=1)
MADE = datetime.datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
START = datetime.datetime(2026, 3, 8, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("90s", 90),
        ("90m", 5_400),
        ("1h30m", 5_400),
        ("36h", 129_600),
        ("7d", 604_800),
        ("1d2h3m4s", 93_784),
        ("007d", 604_800),
        ("3650d", 315_360_000),
    ],
)
def test_length(text: str, seconds: int) -> None:
    assert intervals.read(text) == datetime.timedelta(seconds=seconds)


FORM = "is not an interval: write whole days, hours, minutes and seconds in that order, such as 90m, 1h30m or 7d"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", FORM),
        ("90", FORM),
        ("1.5h", FORM),
        ("30m1h", FORM),
        ("1h1h", FORM),
        ("-5m", FORM),
        ("5 m", FORM),
        ("5M", FORM),
        ("PT5M", FORM),
        ("1w", FORM),
        ("500ms", FORM),
        ("٣m", FORM),
        ("5m\n", FORM),
        ("0s", "is no time at all: write 1s or more"),
        ("0d0h0m0s", "is no time at all: write 1s or more"),
        ("3651d", "is longer than 3650d: write a shorter one, or spec.at for one instant"),
        ("3650d1s", "is longer than 3650d: write a shorter one, or spec.at for one instant"),
    ],
)
def test_doubtful_interval_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        intervals.read(text)
    assert (caught.value.field, caught.value.sentence) == ("spec.every", sentence)


def test_start_is_a_slot_and_creation_is_none() -> None:
    early = MADE - 400 * SECOND
    started = intervals.anchored("5m", start=START, created_at=MADE)
    assert started.next_after(early) == START
    assert started.next_after(START) == START + 300 * SECOND
    made = intervals.anchored("5m", start=None, created_at=MADE)
    first = datetime.datetime(2026, 3, 1, 12, 5, 0, 123_000, tzinfo=UTC)
    assert made.next_after(early) == first, "whole milliseconds, one interval after the creation"
    assert made.newest(5, after=early, until=first) == (first,)
    assert made.last_before_or_at(first - SECOND, after=early) is None


def test_interval_ignores_clock_changes() -> None:
    # through the night in which New York has no 02:00 to 03:00
    due = intervals.anchored("1h", start=START, created_at=MADE)
    slots = due.newest(100, after=START - SECOND, until=START + 5 * 3600 * SECOND)
    assert slots == tuple(START + n * 3600 * SECOND for n in range(6))


def test_calendar_ends() -> None:
    end = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    due = intervals.anchored("3650d", start=START, created_at=MADE)
    assert due.next_after(end) is None
    assert due.count_between(START - SECOND, end) == len(due.newest(10_000, after=START - SECOND, until=end))


MOMENTS = strategies.datetimes(
    datetime.datetime(1990, 1, 1), datetime.datetime(2060, 1, 1), timezones=strategies.just(UTC)
)


@hypothesis.given(
    seconds=strategies.integers(1, 10_000_000), started=strategies.booleans(), anchor=MOMENTS, after=MOMENTS
)
def test_answers_agree(*, seconds: int, started: bool, anchor: datetime.datetime, after: datetime.datetime) -> None:
    due = intervals.anchored(f"{seconds}s", start=anchor if started else None, created_at=anchor)
    slots: list[datetime.datetime] = []
    at: datetime.datetime | None = after
    while len(slots) < 6 and (at := due.next_after(at or after)) is not None:
        slots.append(at)
    assert all(slot > after for slot in slots)
    assert all(later - earlier == seconds * SECOND for earlier, later in itertools.pairwise(slots))
    assert due.count_between(after, slots[-1]) == len(slots)
    assert due.newest(4, after=after, until=slots[-1]) == tuple(slots[-4:])
    assert due.last_before_or_at(slots[-1] - instants.MILLISECOND, after=after) == slots[-2]
    assert due.count_between(slots[-1], after) == 0
    assert due.newest(3, after=slots[-1], until=after) == ()
    earliest = anchor if started else due.anchor + seconds * SECOND
    assert slots[0] >= earliest
    assert (slots[0] - due.anchor) % (seconds * SECOND) == datetime.timedelta()


def test_two_jobs_made_apart_do_not_share_slots() -> None:
    one, other = (intervals.anchored("1h", start=None, created_at=MADE + n * SECOND) for n in (0, 7))
    assert one.next_after(MADE) != other.next_after(MADE)
