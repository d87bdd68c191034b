"""Parts of the REST client that need no server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clockhand import client, errors
from clockhand.client import calls, config, events, fields
from clockhand.domain import spec

URL = "http://127.0.0.1:8080"
TOKEN = {"CLOCKHAND_TOKEN": "secret"}


def test_its_import_brings_in_no_server() -> None:
    code = (
        "import sys, clockhand.client; "
        "heavy = {'kopf', 'psycopg', 'kubernetes', 'clockhand.store', 'clockhand.engine'} & set(sys.modules); "
        "sys.exit(f'brought in {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_field_of_a_job_is_an_argument() -> None:
    assert set(fields.JobFields.__annotations__) == {*spec.JobSpec.__struct_fields__, "name", "labels"}


def test_arguments_are_spelled_as_the_api_has_them() -> None:
    made = fields.document(
        {"handler": "echo", "priority": 1},
        {
            "time_zone": "Europe/Berlin",
            "priority": 2,
            "start_at": datetime(2026, 12, 24, 18, microsecond=5, tzinfo=UTC),
        },
    )
    assert made == {
        "handler": "echo",
        "priority": 2,
        "timeZone": "Europe/Berlin",
        "startAt": "2026-12-24T18:00:00Z",
    }


def test_an_instant_needs_a_zone() -> None:
    with pytest.raises(errors.InvalidInput, match="at: has no time zone"):
        fields.document(None, {"at": datetime(2026, 12, 24)})


@pytest.mark.parametrize(
    ("environment", "given", "found"),
    [
        ({"CLOCKHAND_API_URL": URL + "/", **TOKEN}, {}, config.Settings(api_url=URL, token="secret")),
        ({"CLOCKHAND_API_URL": URL, **TOKEN}, {"token_file": "f"}, config.Settings(api_url=URL, token_file="f")),
        (TOKEN, {"api_url": URL}, config.Settings(api_url=URL, token="secret")),
        ({}, {"api_url": URL, "token": "t"}, config.Settings(api_url=URL, token="t")),
    ],
)
def test_who_is_told_more_closely_counts(
    environment: Mapping[str, str], given: Mapping[str, str], found: config.Settings, tmp_path: Path
) -> None:
    assert config.find({"HOME": str(tmp_path), **environment}, **given) == found


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "CLOCKHAND_API_URL: missing; name the API, .* or start `clockhand dev`"),
        ({"CLOCKHAND_API_URL": "ftp://x"}, "CLOCKHAND_API_URL: 'ftp://x' is not a URL"),
        ({"CLOCKHAND_API_URL": URL}, "CLOCKHAND_TOKEN_FILE: name the file of your token"),
        ({"CLOCKHAND_API_URL": URL, "CLOCKHAND_TOKEN_FILE": "f", **TOKEN}, "and not both"),
    ],
)
def test_what_is_missing_is_named(environment: Mapping[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match=sentence):
        config.find({"HOME": str(tmp_path), **environment})


def test_a_running_dev_is_found_and_its_token_goes_nowhere_else(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    file = config.told_in(home)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"url": URL, "token_file": "/dev/token"}))
    assert config.find(home) == config.Settings(api_url=URL, token_file="/dev/token")
    assert config.find(home, token="mine") == config.Settings(api_url=URL, token="mine")
    with pytest.raises(errors.InvalidInput, match="name the file of your token"):
        config.find(home, api_url="http://elsewhere:8080")
    file.write_text("{")
    with pytest.raises(errors.InvalidInput, match=r"client.json: cannot be read"):
        config.find(home)


async def test_events_are_read_as_browsers_do() -> None:
    async def lines() -> AsyncIterator[bytes]:
        for line in (
            b"retry: 1000\n",
            b": a comment\n",
            b"id: 7\n",
            b"\n",
            b"event: run\r\n",
            b"data: {\r\n",
            b"data:}\r\n",
            b"id: 8\r\n",
            b"\r\n",
            b": still here\n",
            b"\n",
            b"data: broken off\n",
        ):
            yield line

    assert [event async for event in events.read(lines())] == [
        events.Event("message", "", "7"),
        events.Event("run", "{\n}", "8"),
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidInput),
        (413, errors.InvalidInput),
        (422, errors.InvalidInput),
        (401, errors.Refused),
        (403, errors.Refused),
        (404, errors.NotFound),
        (412, errors.Changed),
        (429, errors.Unavailable),
        (500, errors.Uncertain),
        (503, errors.Unavailable),
    ],
)
def test_an_answer_says_what_to_do_next(status: int, kind: type[errors.ClockhandError]) -> None:
    headers = {"Content-Type": "application/problem+json", "Retry-After": "7"}
    error = calls.error_of(status, b'{"detail": "because"}', headers)
    assert type(error) is kind
    assert str(error) == "because"
    assert not isinstance(error, errors.Unavailable) or error.retry_after == 7


def test_a_conflict_that_soon_passes_is_no_conflict() -> None:
    head = {"Content-Type": "application/problem+json"}
    assert isinstance(calls.error_of(409, b"{}", head), errors.Conflict)
    assert isinstance(calls.error_of(409, b"{}", {**head, "Retry-After": "1"}), errors.Unavailable)


def test_a_mistake_has_its_place() -> None:
    body = b'{"detail": "/at: is late", "errors": [{"pointer": "/at", "detail": "is late"}]}'
    error = calls.error_of(422, body, {"Content-Type": "application/problem+json"})
    assert isinstance(error, client.InvalidInput)
    assert (error.field, error.sentence, str(error)) == ("/at", "is late", "/at: is late")


def test_who_is_not_the_api_is_not_believed() -> None:
    assert isinstance(calls.error_of(404, b"<html>", {"Content-Type": "text/html"}), errors.Unavailable)


@pytest.mark.parametrize("body", [{1: object()}, object(), {"a": {"b": {3, object()}}}])
def test_what_is_no_json_is_refused_before_it_is_sent(body: object) -> None:
    with pytest.raises(errors.InvalidInput, match="cannot be written as JSON"):
        calls.encoded(body)
