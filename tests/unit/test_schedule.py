"""Due instants against answers written down by hand, and against an oracle that looks at every minute."""

from __future__ import annotations

import calendar
import contextlib
import datetime
import itertools
import zoneinfo
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import schedule

UTC = datetime.UTC
MINUTE = datetime.timedelta(minutes=1)
DAY = datetime.timedelta(days=1)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def at(text: str) -> datetime.datetime:
    """An instant; UTC where the text names no offset."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def walk(due: schedule.Schedule, after: datetime.datetime) -> Iterator[datetime.datetime]:
    while True:
        after = due.next_after(after)
        yield after


NEW_YORK, LONDON, PARIS = "America/New_York", "Europe/London", "Europe/Paris"
# expression, zone, start, the next slots: local times with their offset
LITERAL = [
    ("30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", "2026-03-08T03:00-04:00 2026-03-09T02:30-04:00"),
    (
        "15,45 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00Z",
        "2026-03-08T03:00-04:00 2026-03-09T02:15-04:00 2026-03-09T02:45-04:00",
    ),
    (
        "30 1-3 * * *",
        NEW_YORK,
        "2026-03-08T05:00Z",
        "2026-03-08T01:30-05:00 2026-03-08T03:00-04:00 2026-03-08T03:30-04:00 2026-03-09T01:30-04:00",
    ),
    ("0,30 2-3 * * *", NEW_YORK, "2026-03-08T05:00Z", "2026-03-08T03:00-04:00 2026-03-08T03:30-04:00"),
    (
        "30 */2 * * *",
        NEW_YORK,
        "2026-03-08T04:00Z",
        "2026-03-08T00:30-05:00 2026-03-08T04:30-04:00 2026-03-08T06:30-04:00",
    ),
    ("30 2 8 3 *", NEW_YORK, "2026-03-01T12:00Z", "2026-03-08T03:00-04:00 2027-03-08T02:30-05:00"),
    ("30 2 * * 0", NEW_YORK, "2026-03-03T12:00Z", "2026-03-08T03:00-04:00 2026-03-15T02:30-04:00"),
    ("0 9 * * *", NEW_YORK, "2026-03-07T15:00Z", "2026-03-08T09:00-04:00"),
    ("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", "2026-11-01T01:30-04:00 2026-11-02T01:30-05:00"),
    ("30 1 * * *", LONDON, "2026-10-24T12:00Z", "2026-10-25T01:30+01:00 2026-10-26T01:30+00:00"),
    ("30 1 * * *", "Europe/Dublin", "2026-10-24T12:00Z", "2026-10-25T01:30+01:00 2026-10-26T01:30+00:00"),
    (
        "*/20 * * * *",
        NEW_YORK,
        "2026-11-01T05:10Z",
        "2026-11-01T01:20-04:00 2026-11-01T01:40-04:00 2026-11-01T01:00-05:00 2026-11-01T01:20-05:00",
    ),
    (
        "0 * * * *",
        NEW_YORK,
        "2026-11-01T04:10Z",
        "2026-11-01T01:00-04:00 2026-11-01T01:00-05:00 2026-11-01T02:00-05:00",
    ),
    (
        "0 */6 * * *",
        NEW_YORK,
        "2026-11-01T03:10Z",
        "2026-11-01T00:00-04:00 2026-11-01T06:00-05:00 2026-11-01T12:00-05:00",
    ),
    (
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-11-02T12:00Z",
        "2018-11-03T00:00-03:00 2018-11-04T01:00-02:00 2018-11-05T00:00-02:00",
    ),
    (
        "0 0 * * *",
        "Africa/Cairo",
        "2026-04-22T12:00Z",
        "2026-04-23T00:00+02:00 2026-04-24T01:00+03:00 2026-04-25T00:00+03:00",
    ),
    ("0 0 1 * *", "America/Asuncion", "2017-09-15T12:00Z", "2017-10-01T01:00-03:00 2017-11-01T00:00-03:00"),
    ("0 20 * * *", PARIS, "2022-10-29T22:00Z", "2022-10-30T20:00+01:00 2022-10-31T20:00+01:00"),
    ("10 3 * * 0", "Europe/Prague", "2025-10-19T12:00Z", "2025-10-26T03:10+01:00"),
    ("1 2 * * *", "Europe/Berlin", "2020-03-29T00:59:55Z", "2020-03-29T03:00+02:00 2020-03-30T02:01+02:00"),
    ("* 3 * * 0", "Australia/Lord_Howe", "2026-04-04T15:23Z", "2026-04-04T16:30Z"),
    ("4,16,51 1 * * 0", "Europe/Dublin", "2018-10-28T01:15:17Z", "2018-11-04T01:04+00:00"),
    ("0 0 31 * *", "UTC", "2026-01-31", "2026-03-31 2026-05-31 2026-07-31 2026-08-31"),
    ("0 0 29 2 *", "UTC", "2026-01-01", "2028-02-29 2032-02-29 2036-02-29"),
    ("0 0 29 2 *", "UTC", "2096-03-01", "2104-02-29"),
    ("0 0 31 2 0", "UTC", "2026-01-01", "2026-02-01 2026-02-08"),
    ("0 0 13 * 5", "UTC", "2026-08-01", "2026-08-07 2026-08-13 2026-08-14 2026-08-21"),
    ("0 0 */10 * 1", "UTC", "2026-08-01", "2026-08-03 2026-08-10 2026-08-11"),
    ("0 0 1-31 * 1", "UTC", "2026-08-01", "2026-08-02 2026-08-03 2026-08-04"),
    ("0 0 1 * 1#1", "UTC", "2026-08-01", "2026-08-03 2026-09-01 2026-09-07"),
    ("0 0 * * 7", "UTC", "2026-08-01", "2026-08-02 2026-08-09"),
    ("0 0 * * 5-7", "UTC", "2026-08-05", "2026-08-07 2026-08-08 2026-08-09 2026-08-14"),
    ("0 0 * * sun-tue", "UTC", "2026-08-01", "2026-08-02 2026-08-03 2026-08-04"),
    ("0 0 * * MON", "UTC", "2026-08-01", "2026-08-03"),
    ("5/15 * * * *", "UTC", "2026-08-04", "2026-08-04T00:05 2026-08-04T00:20 2026-08-04T00:35 2026-08-04T00:50"),
    ("59/15 * * * *", "UTC", "2026-08-04", "2026-08-04T00:59 2026-08-04T01:59"),
    ("*/7 * * * *", "UTC", "2026-08-04T00:50", "2026-08-04T00:56 2026-08-04T01:00 2026-08-04T01:07"),
    ("*/90 * * * *", "UTC", "2026-08-04", "2026-08-04T01:00 2026-08-04T02:00"),
    ("5-5 * * * *", "UTC", "2026-08-04", "2026-08-04T00:05 2026-08-04T01:05"),
    ("0 0 1 JAN-JAN *", "UTC", "2026-08-04", "2027-01-01 2028-01-01"),
    ("0 0 L * *", "UTC", "2026-01-31", "2026-02-28 2026-03-31 2026-04-30"),
    ("0 0 LW * *", "UTC", "2026-01-31", "2026-02-27 2026-03-31"),
    ("0 0 LW 2 *", "UTC", "2026-01-31", "2026-02-27 2027-02-26"),
    ("0 0 15W * *", "UTC", "2026-08-01", "2026-08-14 2026-09-15"),
    ("0 0 1W,15W * *", "UTC", "2026-08-01", "2026-08-03 2026-08-14 2026-09-01"),
    ("0 0 * * 5L", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    ("0 0 * * L5", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    ("0 0 * * FRIL", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    ("0 0 * * MON#5", "UTC", "2026-08-01", "2026-08-31 2026-11-30"),
    ("0 0 * * WED,MON#2", "UTC", "2026-08-01", "2026-08-05 2026-08-10 2026-08-12"),
    ("0 0 13 * ?", "UTC", "2026-08-01", "2026-08-13 2026-09-13"),
    ("@hourly", "UTC", "2026-08-01", "2026-08-01T01:00"),
    ("@daily", "UTC", "2026-08-01", "2026-08-02"),
    ("@midnight", "UTC", "2026-08-01", "2026-08-02"),
    ("@weekly", "UTC", "2026-08-01", "2026-08-02 2026-08-09"),
    ("@monthly", "UTC", "2026-08-01", "2026-09-01"),
    ("@yearly", "UTC", "2026-08-01", "2027-01-01"),
    ("@annually", "UTC", "2026-08-01", "2027-01-01"),
    ("* * * * *", "UTC", "2026-08-01T00:00:59.999999", "2026-08-01T00:01"),
    ("19 3 19 1 *", "UTC", "2038-01-01", "2038-01-19T03:19 2039-01-19T03:19"),
    ("05 08 * * *", "UTC", "2026-08-01", "2026-08-01T08:05"),
    ("  0\t2  * * *\n", "UTC", "2026-08-01", "2026-08-01T02:00"),
]


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), LITERAL)
def test_slots_as_written_down(expression: str, zone: str, start: str, expected: str) -> None:
    slots = [at(text) for text in expected.split()]
    due = schedule.parse(expression, zone=zone)
    assert list(itertools.islice(walk(due, at(start)), len(slots))) == slots
    assert due.newest(1_000, after=at(start), until=slots[-1]) == tuple(slots)
    assert due.count_between(at(start), slots[-1]) == len(slots)


def test_slots_around_a_skipped_day() -> None:
    due = schedule.parse("0 12 * * *", zone="Pacific/Apia")
    expected = ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"]
    assert list(itertools.islice(walk(due, at("2011-12-29T00:00")), 3)) == [at(text) for text in expected]


@pytest.mark.parametrize(
    ("gap", "overlap", "expected"),
    [
        ("Skip", "First", ["2026-03-09T02:30-04:00"]),
        ("RunAfter", "Both", ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"]),
    ],
)
def test_gap_rule(gap: str, overlap: str, expected: list[str]) -> None:
    due = schedule.parse("30 2 * * *", zone=NEW_YORK, gap=gap, overlap=overlap)
    after = at("2026-03-07T12:00")
    assert list(itertools.islice(walk(due, after), len(expected))) == [at(text) for text in expected]


def test_overlap_rule_both() -> None:
    due = schedule.parse("30 1 * * *", zone=NEW_YORK, overlap="Both")
    expected = ["2026-11-01T01:30-04:00", "2026-11-01T01:30-05:00", "2026-11-02T01:30-05:00"]
    assert list(itertools.islice(walk(due, at("2026-10-31T12:00")), 3)) == [at(text) for text in expected]


REFUSED = [
    ("", "has 0 fields where 5 are needed"),
    ("0 2 * *", "has 4 fields where 5 are needed"),
    ("0 0 12 * * *", "has 6 fields where 5 are needed"),
    ("0 0 12 * * * 2030", "without seconds or a year"),
    ("0 0 * * fri-mon", "write fri-sat,sun-mon"),
    ("0 0 * * sat-sun", "write sat,sun"),
    ("0 22-2 * * *", "write 22-23,0-2"),
    ("10-5 * * * *", "write 10-59,0-5"),
    ("0 0 1 nov-feb *", "write nov-dec,jan-feb"),
    ("TZ=UTC 0 2 * * *", "set spec.timeZone"),
    ("CRON_TZ=Europe/Paris 0 2 * * *", "set spec.timeZone"),
    ("@reboot", "write the time at which to run"),
    ("@every 90m", "set spec.every, such as 90m"),
    ("@fortnightly", "one of @hourly, @daily"),
    ("*/0 * * * *", "write a step of 1 or more"),
    ("60 * * * *", "write a number from 0 to 59"),
    ("0 24 * * *", "write a number from 0 to 23"),
    ("0 0 0 * *", "write a number from 1 to 31"),
    ("0 0 32 * *", "write a number from 1 to 31"),
    ("0 0 * 13 *", "write a number from 1 to 12 or jan-dec"),
    ("0 0 * * 8", "write a number from 0 to 7 or sun-sat"),
    ("0 0 * * MONDAY", "write a number from 0 to 7 or sun-sat"),
    ("-1 * * * *", "has a sign"),
    ("+5 * * * *", "has a sign"),
    (",5 * * * *", "leave that comma out"),
    ("5, * * * *", "leave that comma out"),
    ("5,,6 * * * *", "leave that comma out"),
    ("1-2-3 * * * *", "write a value, a range a-b"),
    ("*/5/5 * * * *", "write a value, a range a-b"),
    ("? * * * *", "write a value, a range a-b"),
    ("0 0 * * 1#6", "write #1 to #5"),
    ("H H * * *", "is not a fixed minute: write a number"),
    ("0 H(1-5) * * *", "is not a fixed hour: write a number"),
    ("0 0 30 2 *", "names a date that never comes"),
    ("0 0 31 4,6,9,11 *", "names a date that never comes"),
    ("\u0663 * * * *", "plain ASCII"),
    ("0\u00a02 * * *", "plain ASCII"),
    ("0 2 * * \x00", "plain ASCII"),
    (",".join(map(str, range(20_000))) + " * * * *", "longer than 256 characters"),
]


@pytest.mark.parametrize(("expression", "sentence"), REFUSED)
def test_doubtful_expression_is_refused(expression: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        schedule.parse(expression)
    assert caught.value.field == "spec.schedule"
    assert sentence in caught.value.sentence


@pytest.mark.parametrize(
    "zone", ["", "Local", "Europe/Pari", "utc", "../etc/passwd", "/etc/localtime", "right/UTC", "UTC+2", "\x00"]
)
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(errors.InvalidInput, match="is not an IANA time zone: write a name such as") as caught:
        schedule.parse("0 2 * * *", zone=zone)
    assert caught.value.field == "spec.timeZone"


def test_misspelt_zone_gets_a_suggestion() -> None:
    with pytest.raises(errors.InvalidInput, match="such as Europe/Paris"):
        schedule.parse("0 2 * * *", zone="Europe/Pari")


@hypothesis.given(strategies.text(max_size=40) | strategies.text("0123456789*/,-LW#?@ jansuf", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    after = at("2026-01-01")
    with contextlib.suppress(errors.InvalidInput):
        assert schedule.parse(text).next_after(after) > after


@pytest.mark.parametrize("expression", ["0 0 * * *", "0 0 1 1 *", "0 0 L 2 MON#2", "* * * * *"])
def test_end_of_time_is_refused_and_not_a_crash(expression: str) -> None:
    with pytest.raises(errors.InvalidInput, match="has no instant in 40 years"):
        schedule.parse(expression, zone=NEW_YORK).next_after(at("9999-12-31T12:00"))


def test_equal_schedules_are_one() -> None:
    first, second = (schedule.parse("0 2 * * *", zone=zone) for zone in (PARIS, PARIS))
    assert first is second
    assert hash(first) == hash(second)
    assert first != schedule.parse("0 2 * * *")


def test_long_spans_are_counted_not_walked() -> None:
    # a walk of 53 million minutes would not end within a test
    due = schedule.parse("* * * * *")
    start, end = at("2000-01-01"), at("2100-01-01")
    assert due.count_between(start, end) == (end - start) // MINUTE
    assert due.newest(2, after=start, until=end) == (end - MINUTE, end)
    assert due.last_before_or_at(end + MINUTE / 2, after=start) == end


def test_empty_spans_hold_nothing() -> None:
    due = schedule.parse("0 2 * * *")
    slot = at("2026-08-01T02:00")
    assert due.count_between(slot, slot) == 0
    assert due.count_between(slot, slot - DAY) == 0
    assert due.last_before_or_at(slot, after=slot) is None
    assert due.newest(5, after=slot, until=slot - DAY) == ()
    assert due.newest(0, after=slot - DAY, until=slot) == ()
    assert due.last_before_or_at(slot, after=slot - MINUTE) == slot


def test_threads_share_schedules() -> None:
    # croniter keeps its place in the object: two threads on one would move each other
    due = schedule.parse("7 */3 1-20,L * mon#1", zone=NEW_YORK)
    starts = [at("2026-01-01") + DAY * day for day in range(300)]
    alone = [due.newest(1, after=start, until=start + DAY * 60) for start in starts]
    with futures.ThreadPoolExecutor(4) as pool:
        firsts = list(pool.map(due.next_after, starts))
    for start, first, newest in zip(starts, firsts, alone, strict=True):
        assert due.count_between(start, first) == 1
        assert due.last_before_or_at(first, after=start) == first
        assert due.count_between(newest[0], start + DAY * 60) == 0


@dataclass(frozen=True)
class Part:
    """A field as text, beside what it means: the oracle never reads the text."""

    text: str
    means: Callable[[int], bool]

    @property
    def starred(self) -> bool:
        return self.text.startswith("*")


def one_of(*values: int) -> Callable[[int], bool]:
    return lambda value: value in values


@strategies.composite
def parts(draw: strategies.DrawFn, low: int, high: int) -> Part:
    first, last = sorted(draw(strategies.tuples(*[strategies.integers(low, high)] * 2)))
    step = draw(strategies.integers(1, high + 2))
    return draw(
        strategies.sampled_from(
            [
                Part("*", lambda value: True),
                Part(f"*/{step}", one_of(*range(low, high + 1, step))),
                Part(f"{first}", one_of(first)),
                Part(f"{first}-{last}", one_of(*range(first, last + 1))),
                Part(f"{first}-{last}/{step}", one_of(*range(first, last + 1, step))),
                Part(f"{first}/{step}", one_of(*range(first, high + 1, step))),
                Part(f"{last},{first}", one_of(first, last)),
            ]
        )
    )


@dataclass(frozen=True)
class Wanted:
    """An expression and what it means for a wall time."""

    minute: Part
    hour: Part
    date: Part
    weekday: Part

    @property
    def text(self) -> str:
        return f"{self.minute.text} {self.hour.text} {self.date.text} * {self.weekday.text}"

    @property
    def fixed(self) -> bool:
        return not self.minute.starred and not self.hour.starred

    def matches(self, wall: datetime.datetime) -> bool:
        return self.minute.means(wall.minute) and self.hour.means(wall.hour) and self._on(wall)

    def _on(self, wall: datetime.datetime) -> bool:
        by_date, by_weekday = self.date.means(wall.day), self.weekday.means(wall.isoweekday() % 7)
        if "*" in (self.date.text, self.weekday.text):
            return by_date and by_weekday
        return by_date or by_weekday


def oracle(
    wanted: Wanted, zone: str, *, after: datetime.datetime, until: datetime.datetime, gap: str, overlap: str
) -> list[datetime.datetime]:
    """Looks at the wall in each minute, from long enough before that a repeated wall time is known as one."""
    info, slots = zoneinfo.ZoneInfo(zone), []
    instant = after.replace(second=0, microsecond=0) - 2 * DAY
    newest: datetime.datetime | None = None
    while instant <= until:
        wall = instant.astimezone(info).replace(tzinfo=None)
        newest = newest or wall - MINUTE
        due = wanted.matches(wall)
        if wanted.fixed and overlap == "First" and wall <= newest:
            due = False
        if wanted.fixed and gap == "RunAfter":
            skipped = range(1, max(1, (wall - newest) // MINUTE))
            due = due or any(wanted.matches(newest + MINUTE * n) for n in skipped)
        newest = max(newest, wall)
        if due and instant > after:
            slots.append(instant)
        instant += MINUTE
    return slots


CHANGES = [
    (NEW_YORK, "2026-03-08T07:00"),
    (NEW_YORK, "2026-11-01T06:00"),
    (LONDON, "2026-10-25T01:00"),
    ("Europe/Dublin", "2018-10-28T01:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Sao_Paulo", "2017-10-15T03:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Africa/Cairo", "2026-04-23T22:00"),
    ("America/Asuncion", "2017-10-01T04:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Pacific/Kiritimati", "1994-12-31T10:40"),
    ("Africa/Sao_Tome", "2019-01-01T01:00"),
    ("America/Caracas", "2016-05-01T07:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("America/Havana", "2026-03-08T05:00"),
    ("America/St_Johns", "2011-03-13T03:31"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Asia/Kathmandu", "2026-08-01T00:00"),
    ("UTC", "2026-12-31T20:00"),
]


@hypothesis.settings(deadline=None, max_examples=250)
@hypothesis.given(
    wanted=strategies.builds(Wanted, minute=parts(0, 59), hour=parts(0, 23), date=parts(1, 31), weekday=parts(0, 6)),
    change=strategies.sampled_from(CHANGES),
    before=strategies.integers(0, 40 * 3600),
    span=strategies.integers(60, 80 * 3600),
    gap=strategies.sampled_from(["RunAfter", "RunAfter", "Skip"]),
    overlap=strategies.sampled_from(["First", "First", "Both"]),
)
def test_every_answer_agrees_with_the_oracle(
    *, wanted: Wanted, change: tuple[str, str], before: int, span: int, gap: str, overlap: str
) -> None:
    zone, moment = change
    after = at(moment) - datetime.timedelta(seconds=before)
    until = after + datetime.timedelta(seconds=span)
    due = schedule.parse(wanted.text, zone=zone, gap=gap, overlap=overlap)
    slots = oracle(wanted, zone, after=after, until=until, gap=gap, overlap=overlap)
    assert due.count_between(after, until) == len(slots)
    assert due.newest(10_000, after=after, until=until) == tuple(slots)
    assert due.last_before_or_at(until, after=after) == (slots[-1] if slots else None)
    walked = list(itertools.islice(itertools.takewhile(lambda slot: slot <= until, walk(due, after)), 30))
    assert walked == slots[:30]
    near = [slot for slot in slots if slot >= at(moment)][:5]
    for slot in near:
        assert due.next_after(slot - datetime.timedelta(microseconds=1)) == slot


SPECIAL = ["0 4 L * *", "0 4 LW * *", "0 4 15W * *", "30 2 * * 5L", "30 2 1 * MON#2", "0 0 29 2 *", "0 1 1,L * 3L"]


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
    expression=strategies.sampled_from(SPECIAL),
    zone=strategies.sampled_from([zone for zone, _ in CHANGES]),
    start=strategies.datetimes(
        datetime.datetime(1975, 1, 1), datetime.datetime(2090, 1, 1), timezones=strategies.just(UTC)
    ),
)
def test_walking_and_counting_agree_over_years(expression: str, zone: str, start: datetime.datetime) -> None:
    due = schedule.parse(expression, zone=zone)
    slots = list(itertools.islice(walk(due, start), 12))
    assert due.newest(100, after=start, until=slots[-1]) == tuple(slots)
    assert due.count_between(start, slots[-1]) == 12
    assert due.count_between(start, slots[5]) + due.count_between(slots[5], slots[-1]) == 12
    assert all(earlier < later for earlier, later in itertools.pairwise(slots))


@pytest.mark.parametrize("year", range(2024, 2030))
def test_last_weekday_of_each_month(year: int) -> None:
    due = schedule.parse("0 0 LW * *")
    expected = []
    for month in range(1, 13):
        weeks = calendar.monthcalendar(year, month)
        expected.append(datetime.datetime(year, month, max(max(week[:5]) for week in weeks), tzinfo=UTC))
    start = datetime.datetime(year, 1, 1, tzinfo=UTC)
    assert list(itertools.islice(walk(due, start), 12)) == expected


def test_names_mean_their_numbers() -> None:
    start = at("2026-01-01")
    for number, name in enumerate(MONTHS, start=1):
        by_name, by_number = (schedule.parse(f"0 0 5 {month} *") for month in (name, number))
        assert by_name.next_after(start) == by_number.next_after(start)
    for number, name in enumerate(WEEKDAYS):
        by_name, by_number = (schedule.parse(f"0 0 * * {day}") for day in (name, number))
        assert by_name.next_after(start) == by_number.next_after(start)
