"""docs/rest.md: its examples are sent as they stand there, and what it says of calls and limits is so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support import answers, jobs, workers_api

from clockhand.api import bodies
from clockhand.api.rest import room
from clockhand.domain import resources, spec, tokens
from clockhand.store import database

PAGE = (Path(__file__).parents[2] / "docs/rest.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^curl (?:.*\\\n)*.*$", PAGE, re.MULTILINE)
_FOLLOWS = "-sSN"
"""Of an example whose answer does not end."""


async def test_every_example_does_what_it_is_for(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    async with workers_api.served(db) as api:
        token = await workers_api.make_token(db, owner="rest/acme", role=tokens.Role.EDITOR)
        words = {"API": api.url, "TOKEN": token}
        for example in EXAMPLES:
            if _FOLLOWS in shlex.split(example):
                continue
            answer = await sent(api, example, words)
            assert answer.status < 300, (example, answer.text)
            words |= learnt(answer)


async def sent(api: workers_api.Served, example: str, words: Mapping[str, str]) -> answers.Answer:
    """What curl would send."""
    text = re.sub(r"\$([A-Z]+)", lambda match: words[match[1]].replace('"', r"\""), example.replace("\\\n", " "))
    given: dict[str, list[str]] = {"-H": [], "-d": [], "-X": []}
    arguments = iter(shlex.split(text)[1:])
    url = ""
    for argument in arguments:
        if argument in given:
            given[argument].append(next(arguments))
        elif argument != "-sS":
            url = argument
    method = given["-X"][0] if given["-X"] else "POST" if given["-d"] else "GET"
    headers = dict(header.split(": ", 1) for header in given["-H"])
    body = "".join(given["-d"]).encode()
    return await api.caller().send(method, url.removeprefix(api.url), body, headers=headers)


def learnt(answer: answers.Answer) -> Mapping[str, str]:
    """What later examples name."""
    kind, _, one = answer.headers.get("Location", "").removeprefix("/v1/").partition("/")
    if not one:
        return {}
    return {"JOB": one, "ETAG": answer.headers["ETag"]} if kind == "jobs" else {"RUN": one}


async def test_every_call_is_in_the_table(db: database.Database) -> None:
    async with workers_api.served(db) as api:
        there = {(route.method, route.path) for route in api.rest.table.routes}
    assert set(told()) == there


def told() -> Iterator[tuple[str, str]]:
    """The calls that the first column of the page's first table lists, its short forms written out."""
    for row in re.findall(r"^\| (`[A-Z].*?) \|", PAGE, re.MULTILINE):
        methods: list[str] = []
        path = ""
        for part in re.findall(r"`([^`]+)`", row):
            words = part.split(" ")
            methods = ([*methods, words[0]] if not path else [words[0]]) if words[0].isupper() else methods
            if words[-1].startswith("/v1/"):
                path = words[-1]
            elif words[-1].startswith("/"):
                path = re.sub(r"(\{id\}).*", rf"\1{words[-1]}", path)
            elif words[-1].startswith(":"):
                path = path.rpartition(":")[0] + words[-1]
            else:
                continue
            yield from ((method, path) for method in methods)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    said = " ".join(PAGE.split())
    assert (resources.MAX_BODY_BYTES, resources.MAX_BATCH_BODY_BYTES) == (1 << 20, 16 << 20)
    assert f"1 MiB; of `jobs:batch` 16 MiB and {resources.MAX_BATCH:,} jobs" in said
    assert f"{room.BIG_BODIES} in a process, {room.BIG_BODIES // 2} of one owner" in said
    assert f"{bodies.MAX_DEPTH} levels" in said
    assert f"{spec.MAX_PAYLOAD_BYTES >> 10} KiB" in said
    assert f"{resources.MAX_PAGE:,} items, {resources.PAGE} by default" in said
    assert f"did not arrive in {bodies.READ_SECONDS:.0f} s" in said
    assert f"for {resources.KEY_SECONDS // 3600} hours" in said
    assert f"each connection {room.CONNECTION_SHARE} requests" in said
    assert room.HOLD_SECONDS == 1
    assert "503 after a second" in said
