"""docs/protocol.md: its calls are made as they stand there, and answered as it says."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import answers, jobs, workers_api

from clockhand.api import bodies, pools
from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.store import database

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sh\n(curl .*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)
LITERAL = ("standing", "accepted", "state", "title", "status", "detail", "pointer", "type", "job", "owner", "handler")
"""What the page shows as it comes, and not only in its form."""


async def test_every_call_is_answered_as_the_page_says(db: database.Database) -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") == 5
    await workers_api.make_pool(db)
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        job = await jobs.make_job(connection, jobs.pooled(), name="welcome")
        await connection.execute("UPDATE jobs SET name = 'welcome'")
        await connection.execute("""UPDATE job_specs SET payload = '{"to": "somebody"}'""")
        await jobs.make_run(connection, job, S.QUEUED, job_name="welcome", attempt_timeout=300)
    async with workers_api.served(db) as api:
        worker = await api.worker()
        words = {"API": api.url, "TOKEN": worker.secret or ""}
        for command, shown in EXAMPLES:
            answer = await sent(api, command, words)
            assert form_of(answer.json) == form_of(json.loads(shown)), answer.text
            if runs := answer.json.get("runs"):
                words |= {"RUN_ID": runs[0]["runId"], "RUN_TOKEN": runs[0]["token"]}


async def sent(api: workers_api.Served, command: str, words: Mapping[str, str]) -> answers.Answer:
    """What curl would send."""
    text = re.sub(r"\$([A-Z_]+)", lambda match: words[match[1]], command.replace("\\\n", " "))
    name, *arguments = shlex.split(text)
    assert name == "curl"
    options = list(itertools.pairwise(arguments))
    [url] = [one for one in arguments if one.startswith(api.url)]
    headers = dict(value.split(": ", 1) for option, value in options if option == "-H")
    [body] = [value for option, value in options if option == "-d"]
    return await api.caller().post(url.removeprefix(api.url), body.encode(), headers=headers)


def form_of(value: Any, key: str = "") -> Any:
    """The value with what differs each time replaced by its type."""
    if isinstance(value, dict):
        return {name: form_of(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [form_of(part, key) for part in value]
    return value if key in LITERAL else type(value)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    said = " ".join(PAGE.split())
    assert f"is how many runs there is room for, {protocol.MAX_RUNS:,} at most" in said
    assert f"after `waitSeconds` (at most {protocol.MAX_WAIT_SECONDS:.0f})" in said
    assert f"within {bodies.READ_SECONDS:.0f} s" in said
    assert f"{pools.MOST_WAITING:,} claims wait there" in said
    assert (protocol.MAX_BODY_BYTES, protocol.MAX_LOG_BYTES) == (1 << 20, 64 << 10)
    assert protocol.MAX_RESULT_BYTES == 16 << 10
    assert {outcome.value for outcome in protocol.Outcome} == set(
        re.findall(r"^\| `([A-Z]\w+)` \|.*\|$", PAGE, re.M)
    ) - {standing.value for standing in protocol.Standing}


def test_every_field_of_a_message_is_named_on_the_page() -> None:
    messages = [protocol.Held, protocol.Run, protocol.Failure, protocol.Report, protocol.Renewed, protocol.Reported]
    messages += [protocol.ClaimRequest, protocol.ClaimAnswer, protocol.Dispatched, protocol.StartAnswer]
    names = {name for message in messages for name in message.__struct_encode_fields__}
    assert {name for name in names if f'"{name}"' not in PAGE and f"`{name}`" not in PAGE} == set()
