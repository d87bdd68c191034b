"""`clockhand doctor` as somebody calls it: what it prints, how it exits, what it asks before it mends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import examined, jobs, pgbouncer, ports
from tests.support.shell import Shell

from clockhand import errors
from clockhand.admin.doctor import command
from clockhand.store import database, partitions, shards


@pytest.fixture
async def held(db: database.Database) -> database.Database:
    """An installation with a replica that does everything, and partitions."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure_window(connection, now=now, retention_days=30)
        await shards.beat(connection, replica="one", role=examined.OPERATOR, lease=jobs.LONG, zone_version="2026a")
        await shards.take(connection, replica="one", lease=jobs.LONG, shards=range(256))
        await connection.execute("UPDATE duty_leases SET holder = 'one', expires_at = now() + interval '1 hour'")
    return db


@pytest.fixture
def shell(held: database.Database, database_url: str, tmp_path: Path) -> Shell:
    return Shell(environment(database_url), tmp_path)


def environment(url: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLOCKHAND_", "KUBE"))}
    return {**kept, "CLOCKHAND_DATABASE_URL": url}


def answer(shell: Shell, *words: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "clockhand", "doctor", *words],
        env=dict(shell.environment), input=given, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


async def run(db: database.Database, text: str) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode())


def test_all_checks_are_shown(shell: Shell) -> None:
    """The server of the tests forgoes durability, and there is no cluster: nothing else is amiss."""
    code, out, _ = answer(shell)
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines() if line and not line.startswith(" ")}
    assert [name for name in rows if name in examined.names()] == examined.names()
    assert {name for name, verdict in rows.items() if verdict in ("error", "warning")} == {"durability"}
    assert code == 1
    assert rows["kubernetes"] == rows["pods-without-run"] == "skipped"
    assert "1 error" in out.splitlines()[-1]


async def told(url: str, **asked: Any) -> tuple[int, str]:
    """The exit code and what is printed, by the command within this process."""
    said: list[str] = []
    try:
        await command.tell(examined.settings_for(url), wanted=command.Wanted(**asked), write=said.append)
    except SystemExit as ended:
        return int(str(ended.code)), "".join(said)
    return 0, "".join(said)


async def test_the_exit_code_says_how_bad_it_is(held: database.Database, database_url: str) -> None:
    await run(held, "ALTER TABLE jobs RESET (fillfactor)")
    assert (await told(database_url, only=("schema", "overdue")))[0] == 0
    assert (await told(database_url, only=("table-settings",)))[0] == 0
    assert (await told(database_url, only=("table-settings",), strict=True))[0] == 1
    assert (await told(database_url, only=("durability",)))[0] == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"only": ("nonsense",)},
        {"yes": True},
        {"dry_run": True},
        {"fix": True, "yes": True, "dry_run": True},
        {"fix": True, "output": "json"},
    ],
)
def test_options_that_do_not_fit_together_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput):
        command.Wanted(**asked)


async def test_nothing_is_mended_unasked(held: database.Database, database_url: str, shell: Shell) -> None:
    only = ("table-settings",)
    await run(held, "ALTER TABLE jobs RESET (fillfactor)")
    code, out = await told(database_url, only=only, strict=True, fix=True, dry_run=True)
    assert (code, "table-settings: would set the storage parameters" in out) == (1, True)
    words = ("--only", *only, "--strict", "--fix")
    code, out, err = await asyncio.to_thread(answer, shell, *words, given="n\n")
    assert (code, "Shall I set the storage parameters of the tables back?" in err) == (1, True)
    code, out, _ = await asyncio.to_thread(answer, shell, *words, given="y\n")
    assert (code, "table-settings: set jobs back" in out) == (0, True)
    await run(held, "ALTER TABLE jobs RESET (fillfactor)")
    code, out = await told(database_url, only=only, strict=True, fix=True, yes=True, output="json")
    document = json.loads(out)
    assert (code, document["checks"][0]["verdict"]) == (0, "ok")
    assert document["fixes"] == [
        {
            "check": "table-settings",
            "does": "set the storage parameters of the tables back",
            "planned": False,
            "done": ["set jobs back"],
            "failure": None,
        }
    ]


def test_it_works_through_a_pooler(held: database.Database, database_url: str, tmp_path: Path) -> None:
    with pgbouncer.before(database_url) as pooled:
        shell = Shell({**environment(pooled), "CLOCKHAND_DATABASE_SESSION_OPTIONS": "false"}, tmp_path)
        code, out, _ = answer(shell, "-o", "json", "--no-cluster")
    document = json.loads(out)
    assert (document["failed"], document["fixes"]) == (True, [])
    assert [one["check"] for one in document["checks"]] == examined.names()
    assert {frozenset(one) for one in document["checks"]} == {
        frozenset({"check", "verdict", "sentence", "advice", "samples", "more", "fix"})
    }
    found = {one["check"]: one["verdict"] for one in document["checks"]}
    amiss = {name for name, verdict in found.items() if verdict in ("warning", "error")}
    # nobody asks for time-outs on its connections
    assert (code, amiss) == (1, {"durability", "timeouts"})


def test_a_database_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    url = f"postgresql://somebody:s3cret@127.0.0.1:{ports.free_row(1)}/any"
    code, out, err = answer(Shell(environment(url), tmp_path))
    assert (code, err) == (1, "")
    assert "it cannot be reached" in out
    assert "s3cret" not in out
