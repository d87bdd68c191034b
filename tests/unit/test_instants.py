"""One-shots and bounds: instants are read strictly, and cut a due rule at both ends without shifting it."""

from __future__ import annotations

import datetime

import hypothesis
import pytest
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import bounds, instants, intervals, schedule, times

UTC = datetime.UTC
HOUR = datetime.timedelta(hours=1)
NOON = datetime.datetime(2026, 12, 24, 12, tzinfo=UTC)
AHEAD = datetime.timezone(2 * HOUR)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-12-24T12:00:00Z", NOON),
        ("2026-12-24T12:00:00+00:00", NOON),
        ("2026-12-24T12:00:00-00:00", NOON),
        ("2026-12-24T17:30:00+05:30", NOON),
        ("2026-12-24T12:00:00.5Z", NOON + HOUR / 7200),
        ("2026-12-24T12:00:00.001000Z", NOON + instants.MILLISECOND),
        ("1970-01-01T00:00:00Z", instants.EPOCH),
        ("9998-12-31T23:59:59.999Z", datetime.datetime(9998, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_instant(text: str, instant: datetime.datetime) -> None:
    read = instants.read(text, "spec.at")
    assert read == instant
    assert read.utcoffset() == datetime.timedelta()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-12-24",
        "2026-12-24T12:00:00",
        "2026-12-24T12:00Z",
        "2026-12-24 12:00:00Z",
        "2026-12-24T12:00:00.0001Z",
        "2026-12-24T12:00:00.Z",
        "2026-02-29T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-12-24T24:00:00Z",
        "2026-12-24T23:59:60Z",
        "2026-12-24T12:00:00+2500",
        "2026-12-24T12:00:00 Europe/Paris",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "9998-12-31T23:59:59-00:01",
        "9999-01-01T00:00:00Z",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00Z",
    ],
)
def test_doubtful_instant_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        instants.read(text, "spec.endAt")
    assert str(caught.value) == (
        "spec.endAt: is not an instant from 1970 to 9998: write date, time and offset,"
        " such as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+01:00"
    )


def test_once() -> None:
    due = instants.Once(NOON)
    assert due.next_after(NOON - instants.MILLISECOND) == NOON
    assert due.next_after(NOON) is None
    assert due.count_between(NOON - HOUR, NOON) == 1
    assert due.count_between(NOON, NOON + HOUR) == 0
    assert due.last_before_or_at(NOON, after=NOON - HOUR) == NOON
    assert due.last_before_or_at(NOON + HOUR, after=NOON) is None
    assert due.newest(3, after=NOON - HOUR, until=NOON + HOUR) == (NOON,)
    assert due.newest(0, after=NOON - HOUR, until=NOON + HOUR) == ()


def test_no_bounds_change_nothing() -> None:
    inner = schedule.parse("@hourly")
    assert bounds.within(inner, start=None, end=None) is inner


def test_bounds_belong_to_the_span() -> None:
    due = bounds.within(schedule.parse("@hourly"), start=NOON, end=NOON + 2 * HOUR)
    slots = (NOON, NOON + HOUR, NOON + 2 * HOUR)
    assert due.next_after(instants.EPOCH) == NOON
    assert due.next_after(NOON + HOUR) == NOON + 2 * HOUR
    assert due.next_after(NOON + 2 * HOUR) is None
    assert due.next_after(NOON + 9 * HOUR) is None
    assert due.newest(9, after=NOON - 9 * HOUR, until=NOON + 9 * HOUR) == slots
    assert due.count_between(NOON - 9 * HOUR, NOON + 9 * HOUR) == 3
    assert due.last_before_or_at(NOON + 9 * HOUR, after=instants.EPOCH) == NOON + 2 * HOUR
    assert due.last_before_or_at(NOON - HOUR, after=instants.EPOCH) is None


def test_bounds_may_hold_no_slot() -> None:
    due = bounds.within(schedule.parse("@hourly"), start=NOON + HOUR / 4, end=NOON + HOUR / 2)
    assert due.next_after(NOON - HOUR) is None
    assert due.newest(9, after=NOON - HOUR, until=NOON + HOUR) == ()
    assert due.count_between(NOON - HOUR, NOON + HOUR) == 0


MOMENTS = strategies.datetimes(
    datetime.datetime(2026, 3, 1), datetime.datetime(2026, 4, 30), timezones=strategies.just(UTC)
)
RULES: list[times.Times] = [
    schedule.parse("*/20 * * * *"),
    schedule.parse("30 2 * * *", zone="America/New_York"),
    schedule.union(["15 1,3 * * *", "@hourly"], zone="Europe/Paris"),
    intervals.anchored("47m", start=None, created_at=datetime.datetime(2026, 3, 3, tzinfo=UTC)),
    instants.Once(datetime.datetime(2026, 4, 1, tzinfo=UTC)),
]


@hypothesis.settings(deadline=None)
@hypothesis.given(
    inner=strategies.sampled_from(RULES),
    start=strategies.none() | MOMENTS,
    end=strategies.none() | MOMENTS,
    span=strategies.tuples(MOMENTS, MOMENTS),
)
def test_bounds_only_cut(
    inner: times.Times,
    start: datetime.datetime | None,
    end: datetime.datetime | None,
    span: tuple[datetime.datetime, datetime.datetime],
) -> None:
    start, end = (None if one is None else one.replace(microsecond=0) for one in (start, end))
    after, until = sorted(span)
    due = bounds.within(inner, start=start, end=end)
    every = inner.newest(100_000, after=after, until=until)
    kept = tuple(slot for slot in every if (start is None or start <= slot) and (end is None or slot <= end))
    assert due.newest(100_000, after=after, until=until) == kept
    assert due.count_between(after, until) == len(kept)
    assert due.last_before_or_at(until, after=after) == (kept[-1] if kept else None)
    following = due.next_after(after)
    assert (following if following and following <= until else None) == (kept[0] if kept else None)


@pytest.mark.parametrize(
    ("instant", "text", "in_seconds"),
    [
        (datetime.datetime(2026, 11, 1, 5, 30, tzinfo=UTC), "2026-11-01T05:30:00Z", "2026-11-01T05:30:00Z"),
        (
            datetime.datetime(2026, 11, 1, 5, 30, 0, 7000, tzinfo=UTC),
            "2026-11-01T05:30:00.007Z",
            "2026-11-01T05:30:00Z",
        ),
        (datetime.datetime(2026, 11, 1, 7, 30, tzinfo=AHEAD), "2026-11-01T05:30:00Z", "2026-11-01T05:30:00Z"),
    ],
)
def test_instants_are_written_in_utc(instant: datetime.datetime, text: str, in_seconds: str) -> None:
    assert instants.rfc3339_ms(instant) == text
    assert instants.rfc3339(instant) == in_seconds
