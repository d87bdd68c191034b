"""`clockhand preview`: what it prints is what a script reads, so it is held to the character."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import click.testing
import pytest

from clockhand import cli
from clockhand.commands import preview as command
from clockhand.commands import tables
from clockhand.domain import cron, preview, schedule

NEW_YORK = ("--time-zone", "America/New_York")
SPRING = ("--after", "2026-03-07T12:00:00Z")
AUTUMN = ("--after", "2026-10-31T12:00:00Z")


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.clockhand, ["preview", *arguments])


def out(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def rows(*arguments: str) -> list[list[str]]:
    lines = out(*arguments).splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[1:]]


def marks(*arguments: str) -> list[str]:
    head, *lines = out(*arguments).splitlines()
    return [line[head.index("MARK") :] for line in lines]


def test_json_is_the_instants_and_nothing_else() -> None:
    text = out("30 1 * * *", *NEW_YORK, *AUTUMN, "--count", "2", "-o", "json")
    assert text == '{"instants": ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]}\n'


def test_table_through_a_pipe_is_plain_and_stable() -> None:
    assert out("30 2 * * *", *NEW_YORK, *SPRING, "--count", "3") == (
        "LOCAL (America/New_York)     UTC                   SINCE    MARK\n"
        "Sun 2026-03-08 03:00 -04:00  2026-03-08T07:00:00Z  -        gap: 02:30 does not exist, runs after it\n"
        "Mon 2026-03-09 02:30 -04:00  2026-03-09T06:30:00Z  23h 30m\n"
        "Tue 2026-03-10 02:30 -04:00  2026-03-10T06:30:00Z  1d\n"
    )


def test_ten_slots_from_now_without_options() -> None:
    before = datetime.now(UTC)
    instants = [datetime.fromisoformat(text) for text in json.loads(out("* * * * *", "-o", "json"))["instants"]]
    assert len(instants) == 10
    assert before < instants[0] <= datetime.now(UTC) + timedelta(minutes=1)
    assert {later - earlier for earlier, later in pairwise(instants)} == {timedelta(minutes=1)}


MARKS = [
    (("30 2 * * *", *SPRING, "--dst-gap", "Skip"), ["gap: 02:30 does not exist, no run", "", ""]),
    (("15,45 2 * * *", *SPRING), ["gap: 02:15 and 02:45 do not exist, runs once after it", ""]),
    (("0 2,3 * * *", *SPRING), ["gap: 02:00 does not exist, this run stands for it as well", ""]),
    (("0 2 * * *", "--after", "2026-03-08T07:00:00Z"), ["", ""]),
    (("30 3 * * *", *SPRING), ["", ""]),
    (
        ("*/20 * * * *", "--after", "2026-03-08T06:30:00Z"),
        ["", "gap: 02:00, 02:20 and 02:40 do not exist, no run", ""],
    ),
    (("* * * * *", "--after", "2026-03-08T06:59:00Z"), ["gap: 02:00 to 02:59 (60 times) do not exist, no run", "", ""]),
    (("30 1 * * *", *AUTUMN), ["overlap: 01:30 comes twice, first one", ""]),
    (
        ("30 1 * * *", *AUTUMN, "--dst-overlap", "Both"),
        ["overlap: 01:30 comes twice, first of two", "overlap: 01:30 comes twice, second of two"],
    ),
    (
        ("0 * * * *", "--after", "2026-11-01T05:30:00Z"),
        ["overlap: 01:00 comes twice, second of two", ""],
    ),
    (("0 1 * * *", *AUTUMN), ["overlap: 01:00 comes twice, first one", ""]),
    (("0 2 * * *", *AUTUMN), ["", ""]),
]


@pytest.mark.parametrize(("arguments", "expected"), MARKS, ids=lambda value: str(value)[:40])
def test_marks(arguments: tuple[str, ...], expected: list[str]) -> None:
    assert marks(*arguments, *NEW_YORK, "--count", "2") == expected


def test_a_whole_day_that_never_was_is_named_with_its_date() -> None:
    told = marks("0 12 * * *", "--time-zone", "Pacific/Apia", "--after", "2011-12-29T00:00:00Z", "--count", "3")
    assert told == ["", "gap: 2011-12-30 12:00 does not exist, runs after it", ""]


def test_half_an_hour_on_lord_howe() -> None:
    zone = ("--time-zone", "Australia/Lord_Howe", "--count", "1")
    [gap] = rows("15 2 * * *", *zone, "--after", "2026-10-03T00:00:00Z")
    assert gap[:2] == ["Sun 2026-10-04 02:30 +11:00", "2026-10-03T15:30:00Z"]
    assert gap[-1] == "gap: 02:15 does not exist, runs after it"
    [overlap] = rows("45 1 * * *", *zone, "--after", "2026-04-04T00:00:00Z")
    assert overlap[-1] == "overlap: 01:45 comes twice, first one"


def test_marks_are_right_over_many_years_and_zones() -> None:
    """A slot that is not at a wall time of its schedule says so; one whose wall time comes twice says so."""
    for zone in ("Europe/Dublin", "Africa/Cairo", "America/Sao_Paulo", "Asia/Hebron", "Pacific/Apia"):
        times = schedule.parse("15 0,1,2,3 * * *", zone=zone)
        after = datetime(2008, 1, 1, tzinfo=UTC)
        slots = preview.slots_after(times, after=after, count=20_000)
        wall = schedule.parse(times.expression)
        for row in preview.rows(times, after=after, slots=slots):
            local = (row.instant + row.offset).replace(tzinfo=UTC)
            named = wall.count_between(local - timedelta(seconds=1), local) == 1
            assert row.mark.startswith("gap") != named, row


def test_since_counts_from_the_slot_before() -> None:
    assert [row[2] for row in rows("0 */6 * * *", *NEW_YORK, "--after", "2026-11-01T03:10:00Z", "--count", "3")] == [
        "-",
        "7h",
        "6h",
    ]


def test_comparison_tells_who_fires() -> None:
    told = rows("30 1 * * *", *NEW_YORK, *AUTUMN, "--count", "2", "--compare")
    assert [row[:2] + row[3:4] for row in told] == [
        ["Sun 2026-11-01 01:30 -04:00", "2026-11-01T05:30:00Z", "both"],
        ["Sun 2026-11-01 01:30 -05:00", "2026-11-01T06:30:00Z", "only CronJob"],
        ["Mon 2026-11-02 01:30 -05:00", "2026-11-02T06:30:00Z", "both"],
    ]


def test_comparison_over_a_gap() -> None:
    told = rows("30 2 * * *", *NEW_YORK, *SPRING, "--count", "2", "--compare")
    assert [row[3] for row in told] == ["only Clockhand", "both"]


def test_comparison_in_json() -> None:
    document = json.loads(out("30 1 * * *", *NEW_YORK, *AUTUMN, "--count", "1", "--compare", "-o", "json"))
    assert document == {
        "instants": ["2026-11-01T05:30:00Z"],
        "cronJob": {"instants": ["2026-11-01T05:30:00Z"], "remark": ""},
    }


def test_with_the_rules_of_cronjob_nothing_differs() -> None:
    alike = ("--dst-gap", "Skip", "--dst-overlap", "Both", "--compare", "-o", "json", "--count", "800")
    for expression in ("30 2 * * *", "30 1 * * *", "*/30 */2 * * *", "0 9 * * 1-5"):
        document = json.loads(out(expression, *NEW_YORK, *SPRING, *alike))
        assert document["cronJob"] == {"instants": document["instants"], "remark": ""}


REMARKS = [
    (
        "0 0 L * *",
        'CronJob refuses this schedule: failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax',
    ),
    ("0 0 * * 7", "CronJob refuses this schedule: end of range (7) above maximum (6): 7"),
    ("@DAILY", "CronJob refuses this schedule: unrecognized descriptor: @DAILY"),
]


@pytest.mark.parametrize(("expression", "remark"), REMARKS)
def test_what_cronjob_refuses_is_said_with_its_reason(expression: str, remark: str) -> None:
    text = out(expression, "--compare", "--count", "2")
    assert text.splitlines()[-1] == remark
    assert text.count("only Clockhand") == 2
    document = json.loads(out(expression, "--compare", "--count", "2", "-o", "json"))
    assert document["cronJob"] == {"instants": [], "remark": remark}


def test_cronjob_gives_up_after_five_years() -> None:
    text = out("0 0 29 2 *", "--compare", "--count", "1", "--after", "2096-03-01T00:00:00Z")
    assert "2104-02-29T00:00:00Z" in text
    assert text.splitlines()[-1] == "CronJob stops here: it looks no further than five years ahead"


def test_a_day_rule_that_both_read_differently() -> None:
    # */1 is a star for CronJob, so that only Mondays are left; here it is a restriction, and either one suffices
    told = rows("0 0 */1 * 1", "--after", "2026-08-01T12:00:00Z", "--count", "3", "--compare")
    assert [row[3] for row in told] == ["only Clockhand", "both", "only Clockhand"]


def test_h_is_that_of_the_job() -> None:
    uid = uuid.UUID(int=7)
    document = json.loads(out("H H * * *", "--job-uid", str(uid), "--count", "1", "-o", "json"))
    settled = cron.settle("H H * * *", uid).split()
    instant = datetime.fromisoformat(document["instants"][0])
    assert [str(instant.minute), str(instant.hour)] == settled[:2]


def test_the_end_of_the_calendar_is_no_error_once_something_was_found() -> None:
    document = json.loads(out("0 0 29 2 *", "--after", "9899-01-01T00:00:00Z", "--count", "500", "-o", "json"))
    assert 0 < len(document["instants"]) < 500


BAD = [
    (("50-10 * * * *",), 'EXPR: "50-10" runs backwards: write 50-59,0-10'),
    (("0 0 12 * * *",), "EXPR: has 6 fields where 5 are needed"),
    (("TZ=UTC 0 0 * * *",), "EXPR: carries a time zone"),
    (("@reboot",), "EXPR: @reboot has no meaning in a cluster"),
    (("@every 90m",), "EXPR: @every is not a schedule"),
    (("*/0 * * * *",), 'EXPR: the step of "*/0" is 0'),
    (("60 * * * *",), "EXPR: minute 60 is out of range"),
    ((",5 * * * *",), 'EXPR: the minute ",5" has a comma with nothing beside it'),
    (("+5 * * * *",), 'EXPR: "+5" has a sign'),
    (("-1 * * * *",), 'EXPR: "-1" has a sign'),
    (("--", "-1 * * * *"), 'EXPR: "-1" has a sign'),
    (("--count", "3", "-1 * * oct *", "-o", "json"), 'EXPR: "-1" has a sign'),
    (("-1",), "EXPR: has 1 field where 5 are needed"),
    (("-o json",), "EXPR: has 2 fields where 5 are needed"),
    (("٣ * * * *",), "EXPR: holds a character that is not plain ASCII"),
    (("0 0 30 2 *",), "EXPR: names a date that never comes"),
    ((",".join(["1"] * 20_000) + " * * * *",), "EXPR: is longer than 256 characters"),
    (("",), "EXPR: has 0 fields where 5 are needed"),
    (("\x00 * * * *",), "EXPR: holds a character that is not plain ASCII"),
    (("0 2\x1b[2J * * *",), "EXPR: holds a character that is not plain ASCII"),
    (("'0 2 * * *'",), " is not a "),
    (("0", "2", "*", "*", "*"), "EXPR is one argument: put the schedule in quotes"),
    ((), "Missing argument 'EXPR'"),
    (("@daily", "--time-zone", "Europe/Pari"), '--time-zone: "Europe/Pari" is not an IANA time zone'),
    (("@daily", "--time-zone", ""), '--time-zone: "" is not an IANA time zone'),
    (("@daily", "--time-zone", "../../etc/passwd"), "is not an IANA time zone"),
    (("@daily", "--time-zone", "a\nb\x1b[2J"), '"a\\nb\\x1b[2J" is not an IANA time zone'),
    (("@daily", "--after", "yesterday"), "--after: is not an instant"),
    (("@daily", "--after", "-1"), "--after: is not an instant"),
    (("@daily", "--after", "2026-11-01T00:00:00"), "--after: is not an instant"),
    (("@daily", "--after", "2026-02-30T00:00:00Z"), "--after: is not an instant"),
    (("@daily", "--after", "1969-01-01T00:00:00Z"), "--after: is not an instant from 1970"),
    (("@daily", "--after", "9998-12-31T23:59:59Z"), "--after: lies beyond the year 9900"),
    (("@daily", "--count", "0"), "'--count'"),
    (("@daily", "--count", "-3"), "'--count'"),
    (("@daily", "--count", "many"), "'--count'"),
    (("@daily", "--count", "10001"), "'--count'"),
    (("@daily", "--count"), "'--count' requires an argument"),
    (("@daily", "--dst-gap", "Never"), "'--dst-gap'"),
    (("@daily", "-o", "xml"), "'--output'"),
    (("@daily", "--colour"), "No such option"),
    (("H H * * *",), "EXPR: holds an H, which each job has its own value for: name the job by --job-uid"),
    (("H H * * *", "--job-uid", "me"), "--job-uid: is not a UUID"),
    (("H(9-1) * * * *", "--job-uid", str(uuid.UUID(int=1))), 'EXPR: "h(9-1)" runs backwards'),
]


@pytest.mark.parametrize("shape", ["table", "json"])
@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[sentence[:50] for _, sentence in BAD])
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, shape: str) -> None:
    given = arguments if "-o" in arguments or not arguments else ("-o", shape, *arguments)
    result = run(*given)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("clockhand: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_help_has_examples_that_work() -> None:
    text = out("--help")
    assert 'clockhand preview "30 2 * * *" --time-zone Europe/Berlin' in text
    assert "as in spec.schedule" in text


def test_start_up_brings_in_neither_server_nor_database() -> None:
    code = (
        "import sys; from clockhand import cli; "
        "cli.clockhand(['preview', '30 2 * * *', '--compare'], standalone_mode=False); "
        "heavy = {'kopf', 'psycopg', 'aiohttp', 'kubernetes', 'asyncpg'} & set(sys.modules); "
        "sys.exit(f'brought in {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("LOCAL (UTC)")


@pytest.mark.parametrize(("terminal", "draws"), [("xterm", True), ("", True), ("dumb", False), ("unknown", False)])
def test_a_terminal_gets_a_table_with_nothing_cut_off(
    monkeypatch: pytest.MonkeyPatch, terminal: str, draws: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    row = [
        "Sun 2026-03-08 03:00 -04:00",
        "2026-03-08T07:00:00Z",
        "gap: 02:15 and 02:45 do not exist, runs once after it",
    ]
    drawn = tables.drawn(["LOCAL (America/New_York)", "UTC", "MARK"], [row], style=command._style)
    assert ("───" in drawn) is draws
    assert all(cell in drawn for cell in row)


@pytest.mark.parametrize("command", ["preview '* * * * *'", "preview @daily -o json", "convert", "crds"])
@pytest.mark.parametrize(("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_what_cannot_be_written_is_said_in_one_line(command: str, redirection: str, why: str, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text("{apiVersion: v1, kind: List, items: []}")
    given = f" -o json {manifest}" if command == "convert" else ""
    line = f"{sys.executable} -m clockhand {command}{given} {redirection}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, f"clockhand: stdout: cannot be written to: {why}\n")


def test_who_closes_the_pipe_has_read_enough() -> None:
    line = f"({sys.executable} -m clockhand preview '* * * * *' --count 9999) | head -n 1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("LOCAL")
    assert done.stderr == ""
