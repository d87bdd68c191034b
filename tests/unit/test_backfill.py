"""Which past slots a backfill makes into runs, played through without a database."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhand import errors
from clockhand.domain import admission, backfill, firing, schedule, spec, times
from clockhand.domain.backfill import Order
from clockhand.domain.spec import ConcurrencyPolicy
from clockhand.domain.states import RunState as S

NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
DAY = timedelta(days=1)
FROM, TO = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00+01:00"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def span(first: str, last: str, order: Order = Order.OLDEST_FIRST) -> backfill.Span:
    return backfill.Span(at(first), at(last), order)


def everything(over: backfill.Span, due: times.Times) -> tuple[datetime, ...]:
    return over.ahead(due, None, 10_000)


def run(state: S, number: int = 1) -> admission.LiveRun:
    return admission.LiveRun(uuid.UUID(int=number), state, NOW)


def test_both_ends_of_a_range_belong_to_it() -> None:
    hourly = schedule.parse("0 * * * *")
    inclusive = span("2026-11-04T10:00:00Z", "2026-11-04T12:00:00Z")
    assert [slot.hour for slot in everything(inclusive, hourly)] == [10, 11, 12]
    assert inclusive.left(hourly, None) == 3
    inside = span("2026-11-04T10:00:00.001Z", "2026-11-04T11:59:59.999Z")
    assert [slot.hour for slot in everything(inside, hourly)] == [11]


@pytest.mark.parametrize("order", list(Order))
def test_half_past_two_over_both_clock_changes(order: Order) -> None:
    berlin = schedule.parse("30 2 * * *", zone="Europe/Berlin")
    spring = span("2026-03-28T00:00:00+01:00", "2026-03-30T23:00:00+02:00", order)
    autumn = span("2026-10-24T00:00:00+02:00", "2026-10-26T23:00:00+01:00", order)
    for over, hours in ((spring, ["28T01:30", "29T01:00", "30T00:30"]), (autumn, ["24T00:30", "25T00:30", "26T01:30"])):
        found = [f"{slot:%dT%H:%M}" for slot in everything(over, berlin)]
        assert found == (hours if order is Order.OLDEST_FIRST else hours[::-1])
        assert over.left(berlin, None) == 3


@pytest.mark.parametrize("order", list(Order))
def test_what_is_reached_is_behind_also_under_another_schedule(order: Order) -> None:
    whole = span("2026-11-04T00:00:00Z", "2026-11-04T23:59:00Z", order)
    reached = at("2026-11-04T12:00:00Z")
    slots = whole.ahead(schedule.parse("*/30 * * * *"), reached, 2)
    assert [f"{slot:%H:%M}" for slot in slots] == (
        ["12:30", "13:00"] if order is Order.OLDEST_FIRST else ["11:30", "11:00"]
    )


def test_an_edge_has_nothing_behind_it() -> None:
    hourly = schedule.parse("0 * * * *")
    for order, edge in ((Order.OLDEST_FIRST, "2026-11-04T12:00:00Z"), (Order.NEWEST_FIRST, "2026-11-04T10:00:00Z")):
        over = span("2026-11-04T10:00:00Z", "2026-11-04T12:00:00Z", order)
        assert over.ahead(hourly, at(edge), 5) == ()
        assert over.left(hourly, at(edge)) == 0


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_slot_is_decided_once_and_in_order(data: st.DataObject) -> None:
    """Whatever has a run already, however much room there is at each look, and however short the looks are."""
    expression = data.draw(st.sampled_from(["*/7 * * * *", "0 * * * *", "30 2 * * *", "15,45 1-3 * * *"]))
    due = schedule.parse(expression, zone=data.draw(st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"])))
    first = at("2026-10-24T12:00:00Z") + timedelta(minutes=data.draw(st.integers(0, 3_000)))
    last = first + timedelta(minutes=data.draw(st.integers(0, 2_000)))
    over = backfill.Span(first, last, data.draw(st.sampled_from(Order)))
    slots = everything(over, due)
    assert list(slots) == sorted(set(slots), reverse=over.order is Order.NEWEST_FIRST)
    taken = set(data.draw(st.lists(st.sampled_from(slots), unique=True))) if slots else set()
    made: list[datetime] = []
    passed, reached = 0, None
    for look in range(len(slots) + 2):
        assert over.left(due, reached) == len(slots) - len(made) - passed
        room, asked = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
        ahead = over.ahead(due, reached, asked)
        step = backfill.Step((), 0, reached).on(ahead, taken, room=room, asked=asked)
        assert len(step.make) <= room
        made += step.make
        passed, reached = passed + step.passed, step.reached
        if step.complete:
            break
        assert step.make or step.passed, f"look {look} did nothing and did not end"
    assert step.complete
    assert made == [slot for slot in slots if slot not in taken]
    assert passed == len(taken)


def test_two_looks_of_one_step_share_its_room() -> None:
    slots = everything(span("2026-11-04T10:00:00Z", "2026-11-04T16:00:00Z"), schedule.parse("0 * * * *"))
    step = backfill.Step((), 0, None).on(slots[:3], {slots[0], slots[1]}, room=2, asked=3)
    step = step.on(slots[3:], (), room=2, asked=500)
    assert step == backfill.Step(slots[2:4], 2, slots[3], complete=False)


@pytest.mark.parametrize(
    ("plan", "live", "own", "concurrency", "room"),
    [
        ({}, [], 0, 3, 3),
        ({}, [S.RUNNING] * 7, 2, 3, 1),
        ({}, [S.RUNNING] * 7, 3, 3, 0),
        # more of its own than it may have: some were retried by hand
        ({}, [S.RUNNING] * 7, 5, 3, 0),
        ({}, [S.RUNNING, S.BLOCKED], 0, 3, 0),
        ({"max_concurrent_runs": 4}, [S.RUNNING, S.RETRYING], 1, 9, 2),
        ({"concurrency_policy": ConcurrencyPolicy.FORBID}, [], 0, 9, 1),
        ({"concurrency_policy": ConcurrencyPolicy.FORBID}, [S.RETRYING], 0, 9, 0),
        ({"concurrency_policy": ConcurrencyPolicy.QUEUE}, [S.QUEUED], 0, 9, 0),
        ({"concurrency_policy": ConcurrencyPolicy.REPLACE}, [S.STOPPING], 1, 9, 0),
    ],
)
def test_it_takes_only_places_that_nobody_waits_for(
    plan: dict[str, Any], live: list[S], own: int, concurrency: int, room: int
) -> None:
    job = spec.JobSpec(schedule="* * * * *", **plan)
    runs = [run(state, number) for number, state in enumerate(live)]
    assert backfill.room(job, runs, own=own, concurrency=concurrency) == room


def test_forbid_lets_a_slot_of_the_present_wait_for_a_backfill_and_not_for_another_run() -> None:
    job = spec.JobSpec(schedule="* * * * *", concurrency_policy=ConcurrencyPolicy.FORBID)
    slot = at("2026-11-30T12:00:00Z")

    def fired(*live: admission.LiveRun) -> list[tuple[str, str | None]]:
        decided = firing.fire(job, origin=times.ANYBODY, next_slot_at=slot, live=live, now=slot)
        return [(one.state, one.reason) for one in decided.slots] + [(skip.reason, None) for skip in decided.skips]

    past = admission.LiveRun(uuid.UUID(int=1), S.RUNNING, NOW, backfill=True)
    assert fired() == [("Queued", None)]
    assert fired(past) == [("Blocked", "JobLimit")]
    assert fired(past, run(S.BLOCKED)) == [("Forbid", None)]


def test_the_states_that_people_see() -> None:
    def seen(*, stop_reason: str | None = None, begun: bool = True, over: bool = False, failed: int = 0) -> S:
        return backfill.state(stop_reason=stop_reason, begun=begun, over=over, failed=failed)

    assert seen(begun=False) is S.QUEUED
    assert seen(failed=1) is S.RUNNING
    assert seen(stop_reason="Cancelled") is S.STOPPING
    assert seen(stop_reason="Cancelled", over=True, failed=1) is S.CANCELLED
    assert seen(over=True, failed=1) is S.DEAD
    assert seen(over=True) is S.SUCCEEDED


def test_what_is_left_out_has_a_default() -> None:
    wanted = backfill.read({"from": FROM, "to": TO}, kept_days=30)
    assert wanted == backfill.Wanted(span(FROM, TO), 1, 30)
    full = backfill.read({"from": FROM, "to": TO, "order": "NewestFirst", "concurrency": 100}, kept_days=30)
    assert full == backfill.Wanted(span(FROM, TO, Order.NEWEST_FIRST), 100, 30)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "spec.backfill"),
        ([], "spec.backfill"),
        ({"to": TO}, "spec.backfill.from"),
        ({"from": FROM}, "spec.backfill.to"),
        ({"from": "2026-11-01", "to": TO}, "spec.backfill.from"),
        ({"from": "2026-11-01T00:00:00", "to": TO}, "spec.backfill.from"),
        ({"from": FROM, "to": "yesterday"}, "spec.backfill.to"),
        ({"from": FROM, "to": "2026-02-30T00:00:00Z"}, "spec.backfill.to"),
        ({"from": 1, "to": TO}, "spec.backfill.from"),
        ({"from": FROM, "to": TO, "order": "Random"}, "spec.backfill.order"),
        ({"from": FROM, "to": TO, "order": []}, "spec.backfill.order"),
        ({"from": FROM, "to": TO, "concurrency": 0}, "spec.backfill.concurrency"),
        ({"from": FROM, "to": TO, "concurrency": 101}, "spec.backfill.concurrency"),
        ({"from": FROM, "to": TO, "concurrency": True}, "spec.backfill.concurrency"),
        ({"from": FROM, "to": TO, "concurrency": 1.5}, "spec.backfill.concurrency"),
    ],
)
def test_a_mistake_is_named(document: object, field: str) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        backfill.read(document, kept_days=30)
    assert refused.value.field == field
    assert "\n" not in refused.value.sentence


def test_a_range_that_cannot_be_gone_through_is_told_what_to_write() -> None:
    def said(first: datetime, last: datetime) -> str:
        with pytest.raises(errors.InvalidInput) as refused:
            backfill.Wanted(backfill.Span(first, last), 1, 30).check(NOW)
        return str(refused.value)

    assert said(NOW - DAY, NOW + DAY) == ("spec.backfill.to: lies in the future: write 2026-11-30T12:00:30Z or earlier")
    assert said(NOW - DAY, NOW - 2 * DAY) == "spec.backfill.from: lies behind the end of the range: exchange the two"
    assert said(NOW - 31 * DAY, NOW - DAY) == (
        "spec.backfill.from: lies beyond the 30 days for which runs are kept: write 2026-10-31T12:01:30Z or later"
    )
    backfill.Wanted(backfill.Span(NOW - 30 * DAY, NOW), 1, 30).check(NOW)


def test_a_year_of_minutes_is_counted_without_a_walk() -> None:
    minutes = schedule.parse("* * * * *")
    year = span("2025-11-01T00:00:00Z", "2026-10-31T23:59:00Z")
    assert year.left(minutes, None) == 365 * 24 * 60
    assert Counter(slot.second for slot in year.ahead(minutes, at("2026-05-01T00:00:00Z"), 500)) == {0: 500}


def test_three_nights_without_a_run() -> None:
    """The example of docs/semantics.md."""
    nightly = schedule.parse("0 2 * * *")
    six = span("2026-11-01T00:00:00Z", "2026-11-07T00:00:00Z")
    ran = {at(f"2026-11-0{day}T02:00:00Z") for day in (1, 2, 6)}
    assert six.left(nightly, None) == 6
    made: list[int] = []
    step = backfill.Step((), 0, None)
    while not step.complete:
        looked = backfill.Step((), 0, step.reached)
        step = looked.on(six.ahead(nightly, step.reached, 500), ran, room=1, asked=500)
        made += [slot.day for slot in step.make]
    assert made == [3, 4, 5]
