"""The regular expressions of the schema refuse only what the parser refuses, and catch the mistakes made most."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import strategies

from clockhand import errors
from clockhand.domain import cron, forms, instants, intervals, schedule

JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")


def complaints(shapes: Sequence[forms.Form], text: str) -> list[str]:
    """What the API server would say, in RE2's reading of `$`, which is the very end."""
    return [
        one.sentence
        for one in shapes
        if (re.search(one.pattern.replace("$", r"\Z"), text, re.ASCII) is None) is one.wanted
    ]


CAUGHT = [
    ("0 0 12 * * *", "needs 5 fields"),
    ("0 2 * *", "needs 5 fields"),
    ("   ", "needs 5 fields"),
    ("TZ=UTC 0 2 * * *", "carries a time zone"),
    ("cron_tz=UTC 0 2 * * *", "carries a time zone"),
    ("@reboot", "cannot be @reboot"),
    ("@every 90m", "cannot be @every"),
    ("@fortnightly", "is not a known name"),
    ("@daily * * *", "is not a known name"),
    ("*/0 * * * *", "has a step of 0"),
    ("0 H/00 * * *", "has a step of 0"),
    ("60 * * * *", "out of range in its minute"),
    ("5,100-101 * * * *", "out of range in its minute"),
    ("0 24 * * *", "out of range in its hour"),
    ("0 0 0 * *", "out of range in its day of month"),
    ("0 0 32W * *", "out of range in its day of month"),
    ("0 0 * 13 *", "out of range in its month"),
    ("0 0 * * 1-8", "out of range in its day of week"),
    (",5 * * * *", "has a comma"),
    ("5, * * * *", "has a comma"),
    ("5,,6 * * * *", "has a comma"),
    ("+5 * * * *", "has a number with a sign"),
    ("-1 * * * *", "has a number with a sign"),
    ("\u0663 * * * *", "plain ASCII"),
    ("0 2 * * *\x7f", "plain ASCII"),
    ("0 0 30 2 *", "names a date that never comes"),
    ("0 0 31 FEB ?", "names a date that never comes"),
]


@pytest.mark.parametrize(("text", "sentence"), CAUGHT)
def test_common_mistake_is_caught_once(text: str, sentence: str) -> None:
    said = complaints(forms.CRON, text)
    assert len(said) == 1
    assert sentence in said[0]
    with pytest.raises(errors.InvalidInput):
        schedule.parse(text, job_id=JOB)


ITEMS = strategies.from_regex(
    r"(\*|\?|[lL]|[lL]?[0-6]|[0-9]{1,2}[wW]?|LW|[0-7]#[1-5]|mon-FRI|jan|H|h\([0-9]-[0-9]{1,2}\))(/[0-9]{1,2})?",
    fullmatch=True,
)
FIELDS = strategies.lists(ITEMS, min_size=1, max_size=3).map(",".join)
EXPRESSIONS = (
    strategies.lists(FIELDS, min_size=5, max_size=5).map(" ".join)
    | strategies.tuples(*[strategies.sampled_from(["*", "5", "1-5", "*/7", "H", "1,31"])] * 5).map("  ".join)
    | strategies.sampled_from([*cron.NAMED, *(f" {name.upper()}\n" for name in cron.NAMED)])
    | strategies.text("0123456789*/,-LWH#?@ \t\njansuf", max_size=24)
)


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(EXPRESSIONS)
@hypothesis.example("* * *,0 * *")
def test_no_form_refuses_what_the_parser_reads(text: str) -> None:
    try:
        schedule.parse(text, job_id=JOB)
    except errors.InvalidInput:
        return
    assert complaints(forms.CRON, text) == []


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.from_regex(r"[0-9]{0,4}d?[0-9]{0,5}h?[0-9]{0,3}m?[0-9]{0,3}s?", fullmatch=True))
def test_intervals_are_read_alike(text: str) -> None:
    try:
        intervals.read(text)
        readable = True
    except errors.InvalidInput as error:
        readable = "is longer than" in error.sentence  # left to the parser
    assert readable == (text != "" and complaints(forms.INTERVAL, text) == [])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("2026-12-24T18:00:00Z", True),
        ("2026-12-24T18:00:00.123+05:30", True),
        ("2026-12-24T18:00:00.120000000Z", True),
        ("2026-12-24T18:00:00.0001Z", False),
        ("2026-12-24T24:00:00Z", False),
        ("2026-12-24T18:60:00Z", False),
        ("2026-12-24T18:00:60Z", False),
        ("2026-12-24t18:00:00z", False),
        ("2026-12-24 18:00:00Z", False),
        ("2026-12-24T18:00Z", False),
        ("2026-12-24", False),
        ("2026-12-24T18:00:00+24:00", False),
        (" 2026-12-24T18:00:00Z", False),
        ("٢026-12-24T18:00:00Z", False),
    ],
)
def test_instants_are_read_alike(text: str, fits: bool) -> None:
    assert (complaints([forms.INSTANT], text) == []) is fits
    try:
        instants.read(text, "spec.at")
        readable = True
    except errors.InvalidInput:
        readable = False
    assert readable is fits


@pytest.mark.parametrize("form", [forms.QUANTITY, forms.NAMESPACE, forms.VARIABLE, forms.HANDLER, forms.CLASS])
def test_a_newline_at_the_end_is_seen(form: forms.Form) -> None:
    forms.check([("any", "1" if form is not forms.VARIABLE else "A", form)])
    with pytest.raises(errors.InvalidInput):
        forms.check([("any", "1\n" if form is not forms.VARIABLE else "A\n", form)])
