"""The examples of docs/time.md are true: each is read from the page and worked out by the code that it speaks of."""

from __future__ import annotations

import re
import shlex
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from clockhand import cli
from clockhand.domain import spec, times

PAGE = (Path(__file__).resolve().parents[2] / "docs/time.md").read_text(encoding="utf-8")
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
CONSOLES = re.findall(r"^```console\n\$ clockhand (?P<command>.+)\n(?P<output>(?:.*\n)*?)```$", PAGE, re.MULTILINE)
SPECS = re.findall(r"^```yaml\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
_REFUSED = PAGE.partition("**Refused.**")[2].partition("###")[0]
REFUSALS = re.findall(r"^\| `(?P<expression>.+)` \| `(?P<sentence>.+)` \|$", _REFUSED, re.MULTILINE)


def invoke(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.clockhand, arguments)


def test_no_example_is_passed_over() -> None:
    assert len(CONSOLES) == PAGE.count("```console") >= 14
    assert len(SPECS) == PAGE.count("```yaml") >= 8
    assert len(REFUSALS) >= 8
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert headings == ["schedule", "schedules", "every", "at", "startAt and endAt", "jitterSeconds", "H"]


@pytest.mark.parametrize(("command", "output"), CONSOLES, ids=[command for command, _ in CONSOLES])
def test_commands_print_what_the_page_shows(command: str, output: str) -> None:
    result = invoke(*shlex.split(command))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == output


@pytest.mark.parametrize(("expression", "sentence"), REFUSALS)
def test_what_the_page_calls_refused_is_refused_like_that(expression: str, sentence: str) -> None:
    result = invoke("preview", expression)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


@pytest.mark.parametrize("text", SPECS, ids=[text.splitlines()[-1] for text in SPECS])
def test_jobs_are_due_when_the_page_says(text: str) -> None:
    told = dict(line.removeprefix("# ").split(": ", 1) for line in text.splitlines() if line.startswith("# "))
    written: dict[str, Any] = yaml.safe_load(text)
    made = datetime.fromisoformat(told["made"])
    job_id = uuid.UUID(told.get("uid", str(uuid.UUID(int=1))))
    job = spec.parse({**written, "template": TEMPLATE})
    due = job.due(times.Origin(job_id, made))
    expected = [datetime.fromisoformat(one) for one in told["due"].split()]
    found: list[datetime] = []
    after: datetime | None = made
    while len(found) < len(expected) and after is not None:
        after = due.next_after(after)
        if after is not None:
            found.append(after)
    assert found == expected
    if job.end_at is not None or job.one_shot:
        assert due.next_after(expected[-1]) is None
    if "delay" in told:
        assert f"{job.delay(job_id).total_seconds():.3f} s" == told["delay"]
    assert all(one.tzinfo is UTC for one in found)
