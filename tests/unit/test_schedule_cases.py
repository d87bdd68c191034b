"""The collected cases of clock changes, calendars and dialects, each with the answer that the documentation promises.

Rows keep the numbers of the collection. Rule: a schedule for a time of day runs once straight after a gap that
swallowed it and once where a wall time comes twice, any other follows real time; day of month and day of week are
joined by "or" where both are restricted, and `*/n` is restricted, as in Kubernetes.
"""

from __future__ import annotations

import datetime
import itertools
import json
import uuid
from collections.abc import Iterator

import click.testing
import pytest

from clockhand import cli, errors
from clockhand.domain import instants, schedule

UTC = datetime.UTC
JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
NEW_YORK, LONDON, SAO_PAULO = "America/New_York", "Europe/London", "America/Sao_Paulo"
APIA = "Pacific/Apia"

# row, expression, zone, start, the next slots: local times with their offset, UTC where they have none
DUE = [
    (1, "30 2 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-08T03:00-04:00 2026-03-09T02:30-04:00"),
    (
        2,
        "15,45 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00",
        "2026-03-08T03:00-04:00 2026-03-09T02:15-04:00 2026-03-09T02:45-04:00",
    ),
    (
        3,
        "30 1-3 * * *",
        NEW_YORK,
        "2026-03-08T05:00",
        "2026-03-08T01:30-05:00 2026-03-08T03:00-04:00 2026-03-08T03:30-04:00 2026-03-09T01:30-04:00",
    ),
    (
        4,
        "30 */2 * * *",
        NEW_YORK,
        "2026-03-08T04:00",
        "2026-03-08T00:30-05:00 2026-03-08T04:30-04:00 2026-03-08T06:30-04:00",
    ),
    (6, "30 2 8 3 *", NEW_YORK, "2026-03-01T12:00", "2026-03-08T03:00-04:00 2027-03-08T02:30-05:00"),
    (7, "30 2 * * 0", NEW_YORK, "2026-03-03T12:00", "2026-03-08T03:00-04:00 2026-03-15T02:30-04:00"),
    (8, "0 9 * * *", NEW_YORK, "2026-03-07T15:00", "2026-03-08T09:00-04:00 2026-03-09T09:00-04:00"),
    (9, "30 1 * * *", NEW_YORK, "2026-10-31T12:00", "2026-11-01T01:30-04:00 2026-11-02T01:30-05:00"),
    (11, "30 1 * * *", LONDON, "2026-10-24T12:00", "2026-10-25T01:30+01:00 2026-10-26T01:30+00:00"),
    (12, "30 1 * * *", "Europe/Dublin", "2026-10-24T12:00", "2026-10-25T01:30+01:00 2026-10-26T01:30+00:00"),
    (
        14,
        "*/20 * * * *",
        NEW_YORK,
        "2026-11-01T05:10",
        "2026-11-01T01:20-04:00 2026-11-01T01:40-04:00 2026-11-01T01:00-05:00 2026-11-01T01:20-05:00"
        " 2026-11-01T01:40-05:00",
    ),
    (
        15,
        "0 * * * *",
        NEW_YORK,
        "2026-11-01T04:10",
        "2026-11-01T01:00-04:00 2026-11-01T01:00-05:00 2026-11-01T02:00-05:00",
    ),
    (
        16,
        "0 */6 * * *",
        NEW_YORK,
        "2026-11-01T03:10",
        "2026-11-01T00:00-04:00 2026-11-01T06:00-05:00 2026-11-01T12:00-05:00",
    ),
    (
        19,
        "0 0 * * *",
        SAO_PAULO,
        "2018-11-02T12:00",
        "2018-11-03T00:00-03:00 2018-11-04T01:00-02:00 2018-11-05T00:00-02:00",
    ),
    (
        21,
        "0 0 * * *",
        "Africa/Cairo",
        "2026-04-22T12:00",
        "2026-04-23T00:00+02:00 2026-04-24T01:00+03:00 2026-04-25T00:00+03:00",
    ),
    (23, "0 0 1 * *", "America/Asuncion", "2017-09-15T12:00", "2017-10-01T01:00-03:00 2017-11-01T00:00-03:00"),
    (24, "0 20 * * *", "Europe/Paris", "2022-10-29T22:00", "2022-10-30T20:00+01:00 2022-10-31T20:00+01:00"),
    # 30 December 2011 did not exist: what it swallowed runs once at the first instant after it
    (
        26,
        "0 12 * * *",
        APIA,
        "2011-12-29T00:00",
        "2011-12-29T12:00-10:00 2011-12-31T00:00+14:00 2011-12-31T12:00+14:00 2012-01-01T12:00+14:00",
    ),
    (28, "0 0 31 * *", "UTC", "2026-01-31", "2026-03-31 2026-05-31 2026-07-31 2026-08-31"),
    (29, "0 0 29 2 *", "UTC", "2026-01-01", "2028-02-29 2032-02-29 2036-02-29"),
    (32, "0 0 31 2 0", "UTC", "2026-01-01", "2026-02-01 2026-02-08"),
    (33, "0 0 13 * 5", "UTC", "2026-08-01", "2026-08-07 2026-08-13 2026-08-14 2026-08-21"),
    (34, "0 0 */10 * 1", "UTC", "2026-08-01", "2026-08-03 2026-08-10 2026-08-11 2026-08-17 2026-08-21"),
    (36, "0 0 1-31 * 1", "UTC", "2026-08-01", "2026-08-02 2026-08-03 2026-08-04 2026-08-05"),
    (38, "0 0 * * 7", "UTC", "2026-08-01", "2026-08-02 2026-08-09"),
    (40, "0 0 * * sun-tue", "UTC", "2026-08-01", "2026-08-02 2026-08-03 2026-08-04 2026-08-09"),
    (43, "5/15 * * * *", "UTC", "2026-08-04", "2026-08-04T00:05 2026-08-04T00:20 2026-08-04T00:35 2026-08-04T00:50"),
    (44, "59/15 * * * *", "UTC", "2026-08-04", "2026-08-04T00:59 2026-08-04T01:59"),
    (45, "*/7 * * * *", "UTC", "2026-08-04T00:50", "2026-08-04T00:56 2026-08-04T01:00 2026-08-04T01:07"),
    (46, "*/90 * * * *", "UTC", "2026-08-04", "2026-08-04T01:00 2026-08-04T02:00"),
    (48, "5-5 * * * *", "UTC", "2026-08-04", "2026-08-04T00:05 2026-08-04T01:05"),
    (51, "0 0 L * *", "UTC", "2026-01-31", "2026-02-28 2026-03-31 2026-04-30"),
    (52, "0 0 LW * *", "UTC", "2026-01-31", "2026-02-27 2026-03-31"),
    (53, "0 0 15W * *", "UTC", "2026-08-01", "2026-08-14 2026-09-15"),
    (54, "0 0 * * 5L", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    (54, "0 0 * * L5", "UTC", "2026-08-01", "2026-08-28 2026-09-25"),
    (55, "0 0 * * MON#5", "UTC", "2026-08-01", "2026-08-31 2026-11-30"),
    (58, "0 0 13 * ?", "UTC", "2026-08-01", "2026-08-13 2026-09-13"),
    (59, "@hourly", "UTC", "2026-08-01", "2026-08-01T01:00 2026-08-01T02:00"),
    (59, "@daily", "UTC", "2026-08-01", "2026-08-02 2026-08-03"),
    (59, "@midnight", "UTC", "2026-08-01", "2026-08-02 2026-08-03"),
    (59, "@weekly", "UTC", "2026-08-01", "2026-08-02 2026-08-09"),
    (59, "@annually", "UTC", "2026-08-01", "2027-01-01 2028-01-01"),
    (61, "H H * * *", "UTC", "2026-08-01", "2026-08-01T16:47 2026-08-02T16:47"),
    (64, "* * * * *", "UTC", "2026-08-04T00:00:59.999999", "2026-08-04T00:01 2026-08-04T00:02"),
    (65, "19 3 19 1 *", "UTC", "2038-01-01", "2038-01-19T03:19 2039-01-19T03:19"),
    (66, "05 08 * * *", "UTC", "2026-08-01", "2026-08-01T08:05"),
]
# row, expression, the whole sentence
REFUSED = [
    (31, "0 0 30 2 *", "names a date that never comes, such as 30 February: write a day that its months have"),
    (41, "0 0 * * fri-mon", '"fri-mon" runs backwards: write fri-sat,sun-mon'),
    (42, "0 0 1 nov-feb *", '"nov-feb" runs backwards: write nov-dec,jan-feb'),
    (49, "*/0 * * * *", 'the step of "*/0" is 0: write a step of 1 or more, or leave it out'),
    (49, "60 * * * *", "minute 60 is out of range: write a number from 0 to 59"),
    (49, "0 24 * * *", "hour 24 is out of range: write a number from 0 to 23"),
    (49, "0 0 0 * *", "day of month 0 is out of range: write a number from 1 to 31"),
    (49, "0 0 32 * *", "day of month 32 is out of range: write a number from 1 to 31"),
    (49, "0 0 * 13 *", "month 13 is out of range: write a number from 1 to 12 or jan-dec"),
    (49, "-1 * * * *", '"-1" has a sign: write a plain minute, a number from 0 to 59'),
    (60, "@reboot", "@reboot has no meaning in a cluster: write the time at which to run, such as 0 2 * * *"),
    (60, "@every 90m", "@every is not a schedule: leave spec.schedule out and set spec.every, such as 90m"),
    (
        62,
        "0 0 12 * * *",
        "has 6 fields where 5 are needed: write minute, hour, day of month, month, day of week,"
        " without seconds or a year",
    ),
]


def at(text: str) -> datetime.datetime:
    """An instant; UTC where the text names no offset."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def walk(due: schedule.Schedule, after: datetime.datetime) -> Iterator[datetime.datetime]:
    while True:
        following = due.next_after(after)
        assert following > after
        yield following
        after = following


@pytest.mark.parametrize(
    ("row", "expression", "zone", "start", "expected"), DUE, ids=[f"{row}-{text}" for row, text, *_ in DUE]
)
def test_row(*, row: int, expression: str, zone: str, start: str, expected: str) -> None:
    slots = [at(text) for text in expected.split()]
    due = schedule.parse(expression, zone=zone, job_id=JOB)
    assert list(itertools.islice(walk(due, at(start)), len(slots))) == slots
    assert due.newest(1_000, after=at(start), until=slots[-1]) == tuple(slots)
    assert due.count_between(at(start), slots[-1]) == len(slots)


@pytest.mark.parametrize(
    ("row", "expression", "zone", "start", "expected"), DUE, ids=[f"{row}-{text}" for row, text, *_ in DUE]
)
def test_preview_shows_the_row(*, row: int, expression: str, zone: str, start: str, expected: str) -> None:
    slots = [instants.rfc3339(at(text)) for text in expected.split()]
    options = ("--time-zone", zone, "--after", instants.rfc3339_ms(at(start)), "--count", str(len(slots)))
    seen = preview(expression, *options, "--job-uid", str(JOB), "-o", "json")
    assert json.loads(seen.stdout) == {"instants": slots}


@pytest.mark.parametrize(("row", "expression", "sentence"), REFUSED, ids=[f"{row}-{text}" for row, text, *_ in REFUSED])
def test_preview_refuses_the_row(row: int, expression: str, sentence: str) -> None:
    seen = preview("--job-uid", str(JOB), "--", expression)
    assert (seen.exit_code, seen.stdout, seen.stderr) == (2, "", f"clockhand: EXPR: {sentence}\n")


def preview(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.clockhand, ["preview", *arguments])


@pytest.mark.parametrize(("row", "expression", "sentence"), REFUSED, ids=[f"{row}-{text}" for row, text, *_ in REFUSED])
def test_refused_row(row: int, expression: str, sentence: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        schedule.parse(expression, job_id=JOB)
    assert (caught.value.field, caught.value.sentence) == ("spec.schedule", sentence)


@pytest.mark.parametrize(
    ("row", "expression", "zone", "start", "gap", "overlap", "expected"),
    [
        (1, "30 2 * * *", NEW_YORK, "2026-03-07T12:00", "Skip", "First", "2026-03-09T02:30-04:00"),
        (
            3,
            "30 1-3 * * *",
            NEW_YORK,
            "2026-03-08T05:00",
            "Skip",
            "First",
            "2026-03-08T01:30-05:00 2026-03-08T03:30-04:00",
        ),
        (
            9,
            "30 1 * * *",
            NEW_YORK,
            "2026-10-31T12:00",
            "RunAfter",
            "Both",
            "2026-11-01T01:30-04:00 2026-11-01T01:30-05:00",
        ),
        (11, "30 1 * * *", LONDON, "2026-10-24T12:00", "Skip", "Both", "2026-10-25T01:30+01:00 2026-10-25T01:30+00:00"),
        (
            14,
            "*/20 1 * * *",
            NEW_YORK,
            "2026-11-01T05:50",
            "Skip",
            "First",
            "2026-11-01T01:00-05:00 2026-11-01T01:20-05:00",
        ),
        (
            19,
            "0 0 * * *",
            SAO_PAULO,
            "2018-11-02T12:00",
            "Skip",
            "First",
            "2018-11-03T00:00-03:00 2018-11-05T00:00-02:00",
        ),
        (26, "0 12 * * *", APIA, "2011-12-29T00:00", "Skip", "First", "2011-12-29T12:00-10:00 2011-12-31T12:00+14:00"),
        (
            26,
            "0 12 * * 5",
            APIA,
            "2011-12-29T00:00",
            "RunAfter",
            "First",
            "2011-12-31T00:00+14:00 2012-01-06T12:00+14:00",
        ),
    ],
)
def test_row_under_other_policies(
    *, row: int, expression: str, zone: str, start: str, gap: str, overlap: str, expected: str
) -> None:
    slots = [at(text) for text in expected.split()]
    due = schedule.parse(expression, zone=zone, gap=gap, overlap=overlap)
    assert list(itertools.islice(walk(due, at(start)), len(slots))) == slots
    assert due.newest(1_000, after=at(start), until=slots[-1]) == tuple(slots)
