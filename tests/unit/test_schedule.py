"""What an evaluation promises beside right instants: sentences for what is refused, bounded work, one union."""

from __future__ import annotations

import calendar
import contextlib
import datetime
import itertools
import uuid
from collections.abc import Iterator
from concurrent import futures

import hypothesis
import pytest
from hypothesis import strategies
from tests.support import oracle

from clockhand import errors
from clockhand.domain import (
    axes,
    budget,
    cron,
    days,
    hashing,
    instants,
    intervals,
    pattern,
    schedule,
    zones,
)

UTC = datetime.UTC
MINUTE = datetime.timedelta(minutes=1)
DAY = datetime.timedelta(days=1)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NEW_YORK, PARIS = "America/New_York", "Europe/Paris"
JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")


def at(text: str) -> datetime.datetime:
    """An instant; UTC where the text names no offset."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def seconds(text: str) -> int:
    return int(at(text).timestamp())


def walk(due: schedule.Schedule, after: datetime.datetime) -> Iterator[datetime.datetime]:
    while True:
        after = due.next_after(after)
        yield after


# Beyond the collected cases: expression, zone, start, the next slots
DUE = [
    ("0,30 2-3 * * *", NEW_YORK, "2026-03-08T05:00", "2026-03-08T03:00-04:00 2026-03-08T03:30-04:00"),
    ("10 3 * * 0", "Europe/Prague", "2025-10-19T12:00", "2025-10-26T03:10+01:00"),
    ("1 2 * * *", "Europe/Berlin", "2020-03-29T00:59:55", "2020-03-29T03:00+02:00 2020-03-30T02:01+02:00"),
    ("* 3 * * 0", "Australia/Lord_Howe", "2026-04-04T15:23", "2026-04-04T16:30"),
    ("4,16,51 1 * * 0", "Europe/Dublin", "2018-10-28T01:15:17", "2018-11-04T01:04+00:00"),
    ("0 0 * * *", "Pacific/Kwajalein", "1993-08-20T00:00", "1993-08-20T00:00-12:00 1993-08-22T00:00+12:00"),
    ("0 0 29 2 *", "UTC", "2096-03-01", "2104-02-29"),
    ("0 0 1 * 1#1", "UTC", "2026-08-01", "2026-08-03 2026-09-01 2026-09-07"),
    ("0 0 * * 5-7", "UTC", "2026-08-05", "2026-08-07 2026-08-08 2026-08-09 2026-08-14"),
    ("0 0 1 JAN-JAN *", "UTC", "2026-08-04", "2027-01-01 2028-01-01"),
    ("0 0 LW 2 *", "UTC", "2026-01-31", "2026-02-27 2027-02-26"),
    ("0 0 1W,15W * *", "UTC", "2026-08-01", "2026-08-03 2026-08-14 2026-09-01"),
    ("0 0 * * FRIL", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    ("0 0 * * WED,MON#2", "UTC", "2026-08-01", "2026-08-05 2026-08-10 2026-08-12"),
    ("@monthly", "UTC", "2026-08-01", "2026-09-01"),
    ("@yearly", "UTC", "2026-08-01", "2027-01-01"),
    ("  0\t2  * * *\n", "UTC", "2026-08-01", "2026-08-01T02:00"),
]


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), DUE)
def test_slots_as_written_down(expression: str, zone: str, start: str, expected: str) -> None:
    slots = [at(text) for text in expected.split()]
    due = schedule.parse(expression, zone=zone)
    assert list(itertools.islice(walk(due, at(start)), len(slots))) == slots
    assert due.newest(1_000, after=at(start), until=slots[-1]) == tuple(slots)
    assert due.count_between(at(start), slots[-1]) == len(slots)


SHAPE = "write minute, hour, day of month, month, day of week"
# the whole sentences, since they are all that a user gets to see
REFUSED = [
    ("", f"has 0 fields where 5 are needed: {SHAPE}"),
    ("5", f"has 1 field where 5 are needed: {SHAPE}"),
    ("0 2 * *", f"has 4 fields where 5 are needed: {SHAPE}"),
    ("0 0 12 * * *", f"has 6 fields where 5 are needed: {SHAPE}, without seconds or a year"),
    ("0 0 12 * * * 2030", f"has 7 fields where 5 are needed: {SHAPE}, without seconds or a year"),
    ("0 0 * * sat-sun", '"sat-sun" runs backwards: write sat,sun'),
    ("0 22-2 * * *", '"22-2" runs backwards: write 22-23,0-2'),
    ("10-5 * * * *", '"10-5" runs backwards: write 10-59,0-5'),
    ("TZ=UTC 0 2 * * *", "carries a time zone: leave the prefix out and set spec.timeZone"),
    ("CRON_TZ=Europe/Paris 0 2 * * *", "carries a time zone: leave the prefix out and set spec.timeZone"),
    ("@fortnightly", f'"@fortnightly" is not known: write 5 fields or one of {", ".join(cron.NAMED)}'),
    ("0 0 * * 8", "day of week 8 is out of range: write a number from 0 to 7 or sun-sat"),
    ("0 0 * * MONDAY", '"monday" is not a day of week: write a number from 0 to 7 or sun-sat'),
    ("+5 * * * *", '"+5" has a sign: write a plain minute, a number from 0 to 59'),
    (",5 * * * *", 'the minute ",5" has a comma with nothing beside it: leave that comma out'),
    ("5, * * * *", 'the minute "5," has a comma with nothing beside it: leave that comma out'),
    ("0 5,,6 * * *", 'the hour "5,,6" has a comma with nothing beside it: leave that comma out'),
    ("1-2-3 * * * *", '"1-2-3" is not a minute: write a value, a range a-b, */n or a list of them'),
    ("*/5/5 * * * *", '"*/5/5" is not a minute: write a value, a range a-b, */n or a list of them'),
    ("? * * * *", '"?" is not a minute: write a value, a range a-b, */n or a list of them'),
    ("0 0 * * 1#6", '"1#6" names a week that no month has: write #1 to #5, or L for the last one'),
    ("R H * * *", '"r" is not a fixed minute: write a number from 0 to 59'),
    ("H(5-70) * * * *", "minute 70 is out of range: write a number from 0 to 59"),
    ("H(9-5) * * * *", '"h(9-5)" runs backwards: write H(5-9)'),
    ("H/0 * * * *", 'the step of "h/0" is 0: write a step of 1 or more, or leave it out'),
    ("H- * * * *", '"h-" is not a minute: write H, H/n, H(a-b) or H(a-b)/n'),
    ("0 0 31 4,6,9,11 *", "names a date that never comes, such as 30 February: write a day that its months have"),
    ("\u0663 * * * *", "holds a character that is not plain ASCII: write ASCII digits, letters and spaces"),
    ("0\u00a02 * * *", "holds a character that is not plain ASCII: write ASCII digits, letters and spaces"),
    ("0 2 * * \x00", "holds a character that is not plain ASCII: write ASCII digits, letters and spaces"),
    (
        ",".join(map(str, range(20_000))) + " * * * *",
        "is longer than 256 characters: write several in spec.schedules",
    ),
]


@pytest.mark.parametrize(("expression", "sentence"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_doubtful_expression_is_refused(expression: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        schedule.parse(expression, job_id=JOB)
    assert (caught.value.field, caught.value.sentence) == ("spec.schedule", sentence)
    with pytest.raises(errors.InvalidInput) as caught:
        schedule.union(["@daily", expression], job_id=JOB)
    assert (caught.value.field, caught.value.sentence) == ("spec.schedules[1]", sentence)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("item", ["99", "x", "?", "9-1", "*/0", "1#9", "+1", "99W"])
@pytest.mark.parametrize("around", ["*,{}", "{},*", "1,{}", "*/2,{}"])
def test_no_item_of_a_list_goes_unread(place: int, item: str, around: str) -> None:
    """A star beside it makes no difference to when the job runs, but somebody meant something else."""
    fields = ["*"] * 5
    fields[place] = around.format(item)
    with pytest.raises(errors.InvalidInput):
        schedule.parse(" ".join(fields))


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


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.text(max_size=40) | strategies.text("0123456789*/,-LWH#?@ jansuf", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    after = at("2026-01-01")
    with contextlib.suppress(errors.InvalidInput):
        assert schedule.parse(text, job_id=JOB).next_after(after) > after


@pytest.mark.parametrize("expression", ["0 0 * * *", "0 0 1 1 *", "0 0 L 2 MON#2", "* * * * *"])
def test_end_of_time_is_refused_and_not_a_crash(expression: str) -> None:
    with pytest.raises(errors.InvalidInput, match="has no instant in 40 years"):
        schedule.parse(expression, zone=NEW_YORK).next_after(at("9999-12-31T12:00"))


def test_slot_that_always_falls_into_a_gap_is_refused() -> None:
    due = schedule.parse("30 2 * 3 0#2", zone=NEW_YORK, gap="Skip")
    with pytest.raises(errors.InvalidInput, match="has no instant in 40 years: write a date that comes"):
        due.next_after(at("2026-01-01"))
    both = schedule.union(["30 2 * 3 0#2", "@yearly"], zone=NEW_YORK, gap="Skip")
    assert both.next_after(at("2026-02-01")) == at("2027-01-01T00:00-05:00")


def test_date_that_comes_once_in_forty_years_is_found() -> None:
    due = schedule.parse("0 0 * 2 1#5")
    assert due.next_after(at("2072-03-01")) == at("2112-02-29"), "1900 and 2100 are no leap years"


def test_equal_schedules_are_one() -> None:
    first, second = (schedule.parse("0 2 * * *", zone=zone) for zone in (PARIS, PARIS))
    assert first is second
    assert hash(first) == hash(second)
    assert first != schedule.parse("0 2 * * *")


def test_jobs_with_the_same_hashed_time_share_their_schedule() -> None:
    one, other = (schedule.parse("H * * * *", job_id=uuid.UUID(int=number)) for number in (0, 1))
    assert one.expressions != other.expressions
    assert one is schedule.parse(one.expressions[0])


class TestUnion:
    def test_equal_instants_are_one_slot(self) -> None:
        due = schedule.union(["0 9 * * 1-5", "0 */3 * * *", "0 9 * * *"])
        start, end = at("2026-08-03"), at("2026-08-04")
        assert due.newest(100, after=start, until=end) == tuple(start + hour * 60 * MINUTE for hour in range(3, 25, 3))
        assert due.count_between(start, end) == 8

    def test_each_part_keeps_its_own_rule_where_clocks_change(self) -> None:
        due = schedule.union(["30 1 * * *", "*/20 1 * * *", "30 2 * * *"], zone=NEW_YORK)
        autumn = [
            "01:00-04:00",
            "01:20-04:00",
            "01:30-04:00",
            "01:40-04:00",
            "01:00-05:00",
            "01:20-05:00",
            "01:40-05:00",
        ]
        expected = [at(f"2026-11-01T{time}") for time in [*autumn, "02:30-05:00"]]
        assert list(itertools.islice(walk(due, at("2026-11-01T04:00")), 8)) == expected
        assert due.newest(8, after=at("2026-11-01T04:00"), until=expected[-1]) == tuple(expected)
        assert due.next_after(at("2026-03-08T06:45")) == at("2026-03-08T03:00-04:00")

    def test_slot_after_a_gap_that_another_part_names_is_one(self) -> None:
        due = schedule.union(["30 2 * * *", "0 3 * * *"], zone=NEW_YORK)
        assert due.count_between(at("2026-03-08T05:00"), at("2026-03-09T05:00")) == 1

    def test_order_and_repetition_change_nothing(self) -> None:
        texts = ["0 9 * * 1-5", "*/7 * 1 * *", "0 9 * * 1-5"]
        start, end = at("2026-01-01"), at("2027-01-01")
        counts = {
            schedule.union(some, zone=PARIS).count_between(start, end) for some in (texts, texts[::-1], texts[:2])
        }
        assert len(counts) == 1


SPREAD = [f"{n % 60},{n * 7 % 60} {n % 24} {n % 28 + 1} * {n % 7}" for n in range(64)]
SPECIAL = [f"{n % 60} {n % 24} {','.join(f'{d}W' for d in range(1, 32))} {n % 12 + 1} {n % 7}#1" for n in range(64)]
LONG = [f"{','.join(['*/1'] * 55)} * */{n % 31 + 1} */{n % 12 + 1} *" for n in range(64)]


class TestWork:
    """Counted in steps and not in time: a step is at most some tens of microseconds, see `budget`."""

    START, END = seconds("2026-01-01"), seconds("2027-01-01")

    @pytest.mark.parametrize(
        "texts", [["* * * * *"], ["0 0 29 2 *"], SPREAD, LONG], ids=["all", "rare", "64", "64 long"]
    )
    @pytest.mark.parametrize("zone", ["UTC", NEW_YORK])
    def test_year_costs_a_few_steps_whatever_is_in_it(self, texts: list[str], zone: str) -> None:
        due = schedule.union(texts, zone=zone)
        counting, searching, listing = (budget.Budget("spec.schedules") for _ in range(3))
        count = due.count(self.START, self.END, counting)
        slots = list(due.descending(self.START, self.END, listing))
        assert count == len(slots)
        due.first(self.START, searching)
        assert counting.spent <= 25
        assert listing.spent <= 25
        assert searching.spent <= 20 + 64 * budget.ASK

    def test_count_of_a_union_is_that_of_the_oracle(self) -> None:
        question = oracle.Question(tuple(SPREAD), NEW_YORK)
        after, until = at("2026-10-25"), at("2026-11-08")
        due = schedule.union(SPREAD, zone=NEW_YORK)
        assert due.count_between(after, until) == len(oracle.slots(question, after=after, until=until))

    def test_long_spans_are_counted_not_walked(self) -> None:
        # a walk of 53 million minutes would not end within a test
        due = schedule.parse("* * * * *")
        start, end = at("2000-01-01"), at("2100-01-01")
        assert due.count_between(start, end) == (end - start) // MINUTE
        assert due.newest(2, after=start, until=end) == (end - MINUTE, end)
        assert due.last_before_or_at(end + MINUTE / 2, after=start) == end

    def test_question_without_bounds_is_refused(self) -> None:
        due = schedule.parse("0 0 29 2 *", zone=NEW_YORK)
        start, end = at("2000-01-01"), at("9000-01-01")
        sentence = "spec.schedule: takes more than 2000 steps to work out: write it simpler"
        for ask in (
            lambda: due.count_between(start, end),
            lambda: due.newest(1_000_000, after=start, until=end),
        ):
            with pytest.raises(errors.InvalidInput) as caught:
                ask()
            assert str(caught.value) == sentence

    def test_search_spends_too(self) -> None:
        due = schedule.parse("30 2 * 3 0#2", zone=NEW_YORK, gap="Skip")
        with pytest.raises(errors.InvalidInput, match="takes more than 100 steps"):
            due.first(seconds("2026-01-01"), budget.Budget("spec.schedule", limit=100))

    def test_too_many_kinds_of_day_are_refused(self) -> None:
        with pytest.raises(errors.InvalidInput) as caught:
            schedule.union(SPECIAL)
        sentence = "names more than 128 kinds of day: write fewer of L, W and #, or make it several jobs"
        assert (caught.value.field, caught.value.sentence) == ("spec.schedules", sentence)
        assert schedule.parse(SPECIAL[0]).next_after(at("2026-01-01")) == at("2026-01-01T00:00") + DAY

    def test_memory_of_answers_is_bounded(self) -> None:
        memos = {}
        for module in (axes, budget, cron, days, hashing, instants, intervals, pattern, schedule, zones):
            for name, value in vars(module).items():
                if hasattr(value, "cache_parameters"):
                    memos[f"{module.__name__}.{name}"] = value.cache_parameters()["maxsize"]
        assert len(memos) >= 10
        assert all(size is not None and size <= 32_768 for size in memos.values()), memos


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
    due = schedule.union(["7 */3 1-20,L * mon#1", "0 4 15W * *"], zone=NEW_YORK)
    starts = [at("2026-01-01") + DAY * day for day in range(300)]
    alone = [due.newest(1, after=start, until=start + DAY * 60) for start in starts]
    for memo in (schedule._next, schedule._day_from, pattern._times_in, zones._stretches):
        memo.cache_clear()
    with futures.ThreadPoolExecutor(4) as pool:
        firsts = list(pool.map(due.next_after, starts))
    for start, first, newest in zip(starts, firsts, alone, strict=True):
        assert due.count_between(start, first) == 1
        assert due.last_before_or_at(first, after=start) == first
        assert due.count_between(newest[0], start + DAY * 60) == 0


YEARS = ["0 4 L * *", "0 4 LW * *", "0 4 15W * *", "30 2 * * 5L", "30 2 1 * MON#2", "0 0 29 2 *", "0 1 1,L * 3L"]
ZONES = [NEW_YORK, "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati", "Africa/Monrovia", "UTC"]


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    expressions=strategies.lists(strategies.sampled_from(YEARS), min_size=1, max_size=3),
    zone=strategies.sampled_from(ZONES),
    start=strategies.datetimes(
        datetime.datetime(1970, 1, 1), datetime.datetime(2090, 1, 1), timezones=strategies.just(UTC)
    ),
)
def test_walking_and_counting_agree_over_years(expressions: list[str], zone: str, start: datetime.datetime) -> None:
    due = schedule.union(expressions, zone=zone)
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
