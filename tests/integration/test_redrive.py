"""Redrive of many: what died of one cause goes back together, each run once, under its own id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs

from clockhand import config
from clockhand.admin import redrive as command
from clockhand.domain.states import RunState as S
from clockhand.engine import redrive
from clockhand.store import database, redrives, runs

OWNER = jobs.OWNER


def asked(**fields: Any) -> command.Wanted:
    defaults = {"job": None, "state": "Dead", "since": None, "until": None, "limit": 1_000_000, "dry_run": False}
    return command.Wanted(**{"owner": OWNER, **defaults, **fields})


@pytest.fixture
def settings(database_url: str) -> config.Settings:
    return config.Settings(database_url=database_url, replica="none")


async def dead(db: database.Database, count: int, *, state: S = S.DEAD, **fields: Any) -> list[uuid.UUID]:
    """As many ended runs, each of a job of its own, the first of them scheduled first."""
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        now = await database.now(connection)
        made = await jobs.make_jobs(connection, count, **fields)
        return [
            await jobs.make_run(
                connection, job, state, at=now - timedelta(minutes=count - number), failures=3, attempt=3,
                finished_at=now - timedelta(seconds=1),
            )
            for number, job in enumerate(made)
        ]  # fmt: skip


async def states(db: database.Database, run_ids: list[uuid.UUID]) -> list[S]:
    async with db.transaction() as connection:
        return [state for run_id in run_ids for state in await jobs.state_of(connection, run_id)]


async def test_all_go_back_in_batches_each_under_its_own_id(db: database.Database, settings: config.Settings) -> None:
    count = redrive.BATCH + 50
    mine = await dead(db, count)
    others = await dead(db, 3, owner="k8s/team-b")
    fine = await dead(db, 3, state=S.SUCCEEDED, name="fine")
    told: list[command.Done] = []
    done = await command.run(settings, asked(), tell=told.append)
    assert done == command.Done(count)
    assert [one.redriven for one in told] == [redrive.BATCH, count]
    assert set(await states(db, mine)) == {S.QUEUED}
    assert set(await states(db, others)) == {S.DEAD}
    assert set(await states(db, fine)) == {S.SUCCEEDED}
    async with db.transaction() as connection:
        text = "SELECT attempt, failures, count(*) AS n FROM live_runs GROUP BY attempt, failures"
        assert [tuple(row) for row in await jobs.query(connection, text)] == [(3, 0, count)]
        audited = "SELECT count(DISTINCT run_id) FROM audit WHERE action = 'retry' AND actor = %s AND owner = %s"
        assert await jobs.one(connection, audited, command.ACTOR, OWNER) == count
    assert await command.run(settings, asked(), tell=told.append) == command.Done()


async def test_what_is_selected_and_nothing_else(db: database.Database, settings: config.Settings) -> None:
    found = await dead(db, 6)
    unknown = await dead(db, 1, state=S.UNKNOWN, name="unknown")
    async with db.transaction() as connection:
        text = "SELECT to_char(scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MSZ') AS at FROM run_history"
        instants = [row.at for row in await jobs.query(connection, text + " WHERE state = 'Dead' ORDER BY run_id")]
    again = asked(dry_run=True)
    assert await command.run(settings, again, tell=lambda _: None) == command.Done(6, dry_run=True)
    assert set(await states(db, found)) == {S.DEAD}
    for selection, chosen in (
        ({"since": instants[1], "until": instants[2]}, found[1:3]),
        ({"job": "job-00005"}, found[5:]),
        ({"limit": 1}, found[:1]),
        ({"state": "Unknown"}, unknown),
    ):
        assert await command.run(settings, asked(**selection), tell=lambda _: None) == command.Done(len(chosen))
        assert set(await states(db, chosen)) == {S.QUEUED}
    assert set(await states(db, found[3:5])) == {S.DEAD}


async def test_what_has_no_job_any_more_or_none_that_can_be_read_is_passed_over(
    db: database.Database, settings: config.Settings
) -> None:
    gone, unreadable, fine = await dead(db, 3)
    async with db.transaction() as connection:
        await connection.execute("DELETE FROM jobs WHERE name = 'job-00000'")
        await connection.execute(
            "UPDATE job_specs SET spec = '{\"every\": 5}' WHERE job_id = (SELECT job_id FROM jobs WHERE name = 'job-00001')"
        )
    assert await command.run(settings, asked(), tell=lambda _: None) == command.Done(1, passed_over=2)
    assert await states(db, [gone, unreadable, fine]) == [S.DEAD, S.DEAD, S.QUEUED]


async def test_what_dies_again_meanwhile_is_not_taken_twice(db: database.Database) -> None:
    await dead(db, 2)
    async with db.transaction() as connection:
        selection = redrives.Selection(OWNER, S.DEAD, ended_before=await database.now(connection))
    async with db.transaction() as connection:
        first = await redrive.step(connection, selection, most=1, actor="somebody")
        run_id = first.last
        assert run_id is not None
    async with db.transaction() as connection:
        await runs.cancel_waiting(
            connection, run_ids=[run_id], reason="AttemptsUsed", state=S.DEAD, now=await database.now(connection)
        )
    async with db.transaction() as connection:
        rest = await redrive.step(connection, selection, actor="somebody")
        assert (rest.redriven, await jobs.state_of(connection, run_id)) == (1, (S.DEAD,))


async def test_the_limits_of_a_job_hold_for_what_comes_back(db: database.Database, settings: config.Settings) -> None:
    plan = jobs.plan(max_concurrent_runs=2)
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        now = await database.now(connection)
        job = await jobs.make_job(connection, plan)
        found = [
            await jobs.make_run(connection, job, S.DEAD, at=now - timedelta(minutes=minutes), finished_at=now)
            for minutes in (5, 4, 3, 2, 1)
        ]
    assert await command.run(settings, asked(), tell=lambda _: None) == command.Done(5)
    assert sorted(await states(db, found)) == [S.BLOCKED] * 3 + [S.QUEUED] * 2


async def test_the_command_prints_one_document_and_tells_how_far_it_is(
    db: database.Database, settings: config.Settings
) -> None:
    await dead(db, 2)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "CLOCKHAND_DATABASE_URL": settings.database_url}
        command = [sys.executable, "-m", "clockhand", "redrive", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    dry = call("--owner", OWNER, "--dry-run")
    assert (dry.returncode, dry.stdout) == (0, "would try 2 runs again\n")
    done = call("--owner", OWNER, "-o", "json")
    assert json.loads(done.stdout) == {"redriven": 2, "passedOver": 0, "dryRun": False}
    assert done.stderr == "clockhand: 2 so far\n"
    for wrong, field in ((["--owner", "team-a"], "owner"), (["--owner", OWNER, "--since", "yesterday"], "since")):
        refused = call(*wrong)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"clockhand: {field}: ")
