"""Answers of robfig/cron 3.0.1, the library behind CronJob, recorded from it once and held against our emulation.

They were taken with Go 1.26 and the zone data of 2026; 25,000 random cases around clock changes agreed as well.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clockhand import errors
from clockhand.domain import cronjob

ANSWERS: list[tuple[str, str, str, list[str]]] = [
    ("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", ["2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]),
    ("15,45 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", ["2026-03-09T06:15:00Z", "2026-03-09T06:45:00Z"]),
    (
        "30 1-3 * * *",
        "America/New_York",
        "2026-03-08T05:00:00Z",
        ["2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T05:30:00Z"],
    ),
    (
        "30 */2 * * *",
        "America/New_York",
        "2026-03-08T04:00:00Z",
        ["2026-03-08T05:30:00Z", "2026-03-08T08:30:00Z", "2026-03-08T10:30:00Z"],
    ),
    ("30 2 8 3 *", "America/New_York", "2026-03-01T12:00:00Z", ["2027-03-08T07:30:00Z", "2028-03-08T07:30:00Z"]),
    ("30 2 * * 0", "America/New_York", "2026-03-03T12:00:00Z", ["2026-03-15T06:30:00Z", "2026-03-22T06:30:00Z"]),
    ("0 9 * * *", "America/New_York", "2026-03-07T15:00:00Z", ["2026-03-08T13:00:00Z", "2026-03-09T13:00:00Z"]),
    (
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"],
    ),
    (
        "30 1 * * *",
        "Europe/London",
        "2026-10-24T12:00:00Z",
        ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
    ),
    (
        "30 1 * * *",
        "Europe/Dublin",
        "2026-10-24T12:00:00Z",
        ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
    ),
    (
        "*/20 * * * *",
        "America/New_York",
        "2026-11-01T05:10:00Z",
        [
            "2026-11-01T05:20:00Z",
            "2026-11-01T05:40:00Z",
            "2026-11-01T06:00:00Z",
            "2026-11-01T06:20:00Z",
            "2026-11-01T06:40:00Z",
        ],
    ),
    (
        "0 * * * *",
        "America/New_York",
        "2026-11-01T04:10:00Z",
        ["2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"],
    ),
    (
        "0 */6 * * *",
        "America/New_York",
        "2026-11-01T03:10:00Z",
        ["2026-11-01T04:00:00Z", "2026-11-01T11:00:00Z", "2026-11-01T17:00:00Z"],
    ),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-02T12:00:00Z", ["2018-11-03T03:00:00Z", "2018-11-05T02:00:00Z"]),
    ("0 12 * * 1", "America/Sao_Paulo", "2018-11-02T12:00:00Z", ["2018-11-05T14:00:00Z", "2018-11-12T14:00:00Z"]),
    ("0 0 * * *", "Africa/Cairo", "2026-04-22T12:00:00Z", ["2026-04-22T22:00:00Z", "2026-04-24T21:00:00Z"]),
    ("0 0 1 * *", "America/Asuncion", "2017-09-15T12:00:00Z", ["2017-11-01T03:00:00Z", "2017-12-01T03:00:00Z"]),
    ("0 20 * * *", "Europe/Paris", "2022-10-29T22:00:00Z", ["2022-10-30T19:00:00Z", "2022-10-31T19:00:00Z"]),
    (
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    ),
    ("* 3 * * 0", "Australia/Lord_Howe", "2026-04-04T15:23:00Z", ["2026-04-04T17:00:00Z", "2026-04-04T17:01:00Z"]),
    (
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-03T12:00:00Z",
        ["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"],
    ),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z", ["2026-10-02T15:45:00Z", "2026-10-04T15:15:00Z"]),
    ("15 0 2 * *", "Asia/Hebron", "2015-10-20T12:00:00Z", ["2015-11-01T22:15:00Z", "2015-12-01T22:15:00Z"]),
    (
        "0 0 31 * *",
        "UTC",
        "2026-01-31T00:00:00Z",
        ["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z", "2026-07-31T00:00:00Z"],
    ),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
    ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []),
    ("0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", []),
    ("0 0 31 2 0", "UTC", "2026-01-01T00:00:00Z", ["2026-02-01T00:00:00Z", "2026-02-08T00:00:00Z"]),
    (
        "0 0 13 * 5",
        "UTC",
        "2026-08-01T00:00:00Z",
        ["2026-08-07T00:00:00Z", "2026-08-13T00:00:00Z", "2026-08-14T00:00:00Z", "2026-08-21T00:00:00Z"],
    ),
    (
        "0 0 */10 * 1",
        "UTC",
        "2026-08-01T00:00:00Z",
        ["2026-08-03T00:00:00Z", "2026-08-10T00:00:00Z", "2026-08-11T00:00:00Z", "2026-08-17T00:00:00Z"],
    ),
    ("0 0 */1 * 1", "UTC", "2026-08-01T00:00:00Z", ["2026-08-03T00:00:00Z", "2026-08-10T00:00:00Z"]),
    ("0 0 *,13 * 1", "UTC", "2026-08-01T00:00:00Z", ["2026-08-03T00:00:00Z", "2026-08-10T00:00:00Z"]),
    ("0 0 ? * 1", "UTC", "2026-08-01T00:00:00Z", ["2026-08-03T00:00:00Z", "2026-08-10T00:00:00Z"]),
    ("0 0 1-31 * 1", "UTC", "2026-08-01T00:00:00Z", ["2026-08-02T00:00:00Z", "2026-08-03T00:00:00Z"]),
    (
        "5/15 * * * *",
        "UTC",
        "2026-08-04T00:00:00Z",
        ["2026-08-04T00:05:00Z", "2026-08-04T00:20:00Z", "2026-08-04T00:35:00Z"],
    ),
    ("*/90 * * * *", "UTC", "2026-08-04T00:00:00Z", ["2026-08-04T01:00:00Z", "2026-08-04T02:00:00Z"]),
    ("5-5 * * * *", "UTC", "2026-08-04T00:00:00Z", ["2026-08-04T00:05:00Z", "2026-08-04T01:05:00Z"]),
    (
        "*-5 3 * * *",
        "UTC",
        "2026-08-04T03:04:00Z",
        ["2026-08-04T03:05:00Z", "2026-08-04T03:06:00Z", "2026-08-04T03:07:00Z"],
    ),
    ("@weekly", "Europe/Berlin", "2026-10-20T00:00:00Z", ["2026-10-24T22:00:00Z", "2026-10-31T23:00:00Z"]),
    (",+5 * * * *", "UTC", "2026-08-04T00:00:00Z", ["2026-08-04T00:05:00Z", "2026-08-04T01:05:00Z"]),
    ("* * * * *", "UTC", "2026-08-04T00:00:59Z", ["2026-08-04T00:01:00Z", "2026-08-04T00:02:00Z"]),
]
REFUSED = [
    ("0 0 * * 7", "end of range (7) above maximum (6): 7"),
    ("0 0 * * fri-mon", "beginning of range (5) beyond end of range (1): fri-mon"),
    ("0 0 L * *", 'failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax'),
    ("0 0 15W * *", 'failed to parse int from 15W: strconv.Atoi: parsing "15W": invalid syntax'),
    ("0 0 * * MON#2", 'failed to parse int from MON#2: strconv.Atoi: parsing "MON#2": invalid syntax'),
    ("H H * * *", 'failed to parse int from H: strconv.Atoi: parsing "H": invalid syntax'),
    ("0 0 12 * * *", "expected exactly 5 fields, found 6: [0 0 12 * * *]"),
    ("*/0 * * * *", "step of range should be a positive number: */0"),
    ("60 * * * *", "end of range (60) above maximum (59): 60"),
    ("-1 * * * *", 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
    ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
    ("*/2/3 * * * *", "too many slashes: */2/3"),
    ("0 0 0 * *", "beginning of range (0) below minimum (1): 0"),
    ("@DAILY", "unrecognized descriptor: @DAILY"),
    ("@reboot", "unrecognized descriptor: @reboot"),
    (
        "99999999999999999999 * * * *",
        'failed to parse int from 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": value out of range',
    ),
]


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), ANSWERS)
def test_it_fires_when_cronjob_does(expression: str, zone: str, start: str, expected: list[str]) -> None:
    schedule = cronjob.parse(expression, zone=zone)
    found: list[str] = []
    instant: datetime | None = datetime.fromisoformat(start)
    while len(found) < max(1, len(expected)):
        assert instant is not None
        instant = schedule.next_after(instant)
        if instant is None:
            break
        found.append(f"{instant:%Y-%m-%dT%H:%M:%SZ}")
    assert found == expected


@pytest.mark.parametrize(("expression", "reason"), REFUSED)
def test_it_refuses_what_cronjob_refuses_with_the_same_reason(expression: str, reason: str) -> None:
    with pytest.raises(cronjob.RefusedError) as refused:
        cronjob.parse(expression)
    assert str(refused.value) == reason


def test_nothing_is_an_empty_spec() -> None:
    with pytest.raises(cronjob.RefusedError, match="empty spec string"):
        cronjob.parse("")


def test_a_search_that_ends_nowhere_is_given_up() -> None:
    # Kwajalein left out 21 August 1993, and Go puts a time of a day that never was on the day before, again and again
    schedule = cronjob.parse("30 16 * * SUN", zone="Pacific/Kwajalein")
    with pytest.raises(cronjob.EndlessError):
        schedule.next_after(datetime(1993, 8, 19, 23, 6, tzinfo=UTC))


def test_only_commas_never_fire() -> None:
    assert cronjob.parse(", * * * *").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_an_unknown_zone_is_told_as_elsewhere() -> None:
    with pytest.raises(errors.InvalidInput, match="Europe/Paris"):
        cronjob.parse("0 0 * * *", zone="Europe/Pari")


def test_fractions_of_a_second_do_not_matter() -> None:
    minute = cronjob.parse("* * * * *")
    start = datetime(2026, 8, 4, 0, 0, 59, tzinfo=UTC)
    assert minute.next_after(start + timedelta(milliseconds=999)) == minute.next_after(start)
