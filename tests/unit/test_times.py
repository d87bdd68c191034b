"""Slots told as a span, for whichever kind of due rule."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clockhand.domain import spec, times

HOURLY = spec.JobSpec(schedule="0 * * * *").due(times.ANYBODY)
ONCE = spec.JobSpec(at="2026-11-04T12:00:00Z").due(times.ANYBODY)


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-04T{clock}").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "until", "first", "last", "count"),
    [
        ("10:00", "13:00", "11:00", "13:00", 3),
        ("10:00", "11:59", "11:00", "11:00", 1),
        ("09:59", "10:00", "10:00", "10:00", 1),
    ],
)
def test_a_span_has_its_end_and_not_its_beginning(after: str, until: str, first: str, last: str, count: int) -> None:
    found = times.span(HOURLY, after=at(after), until=at(until))
    assert found == times.Span(at(first), at(last), count)


@pytest.mark.parametrize(("after", "until"), [("10:00", "10:59"), ("10:00", "10:00"), ("12:00", "10:00")])
def test_without_a_slot_there_is_no_span(after: str, until: str) -> None:
    assert times.span(HOURLY, after=at(after), until=at(until)) is None


def test_the_one_slot_of_a_one_shot() -> None:
    assert times.span(ONCE, after=at("11:00"), until=at("12:00")) == times.Span(at("12:00"), at("12:00"), 1)
    assert times.span(ONCE, after=at("12:00"), until=at("13:00")) is None
