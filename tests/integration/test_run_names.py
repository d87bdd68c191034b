"""Runs that share a name: made by real firing, found over REST, by the runs API's look-up and in the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs, workers_api
from tests.support.workers_api import Caller, Served

from clockhand import client
from clockhand.domain import ids, instants, tokens
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.store import database, listing, partitions

OWNER = "rest/acme"
SECONDS = 30


@pytest.fixture
async def now(db: database.Database) -> datetime:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure_window(connection, now=now, retention_days=30)
    return now


@pytest.fixture
async def api(db: database.Database) -> AsyncIterator[Served]:
    async with workers_api.served(db) as running:
        yield running


async def fired(db: database.Database, who: Caller, at: datetime) -> Any:
    """Makes the one-shot, lets it fire, and returns its run."""
    made = await who.post("/v1/jobs", {"name": "once", "at": instants.rfc3339_ms(at), "handler": "h"})
    assert made.status == 201, made.text
    async with asyncio.timeout(SECONDS):
        while not (found := (await who.send("GET", f"/v1/jobs/{made.json['id']}/runs")).json["items"]):
            await fire.Fire(db).run_once(ids.POOL_SHARDS)
    [run] = found
    return run


async def test_runs_of_jobs_made_one_after_the_other_under_one_name(
    db: database.Database, api: Served, now: datetime
) -> None:
    name = f"once-{now:%Y%m%dt%H%M%Sz}"
    secret = await workers_api.make_token(db, owner=OWNER, role=tokens.Role.EDITOR)
    who = api.caller(secret)
    newest_first: list[Any] = []
    for _ in range(4):
        run = await fired(db, who, now)
        assert (await who.send("DELETE", f"/v1/jobs/{run['jobId']}")).status == 204
        newest_first.insert(0, (await who.send("GET", f"/v1/runs/{run['id']}")).json)
    assert {run["name"] for run in newest_first} == {name}

    assert (await who.send("GET", f"/v1/runs?name={name}")).json["items"] == newest_first
    assert (await who.send("GET", f"/v1/runs?name={name}&limit=2")).json["items"] == newest_first[:2]
    async with client.Clockhand(api.url, token=secret) as clockhand:
        assert str((await clockhand.runs.find(name)).id) == newest_first[0]["id"]
    async with db.transaction() as connection:
        by_name = await listing.by_name(connection, owner=OWNER, name=name)
        await connection.execute(b"DELETE FROM jobs WHERE job_id = %s", (newest_first[0]["jobId"],))
        of_the_rest = await listing.by_name(connection, owner=OWNER, name=name)
    assert by_name is not None
    assert str(by_name.run_id) == newest_first[0]["id"]
    assert of_the_rest is not None
    assert str(of_the_rest.run_id) == newest_first[1]["id"]


@pytest.mark.parametrize("state", [S.QUEUED, S.SUCCEEDED])
async def test_two_runs_of_a_job_within_a_second(db: database.Database, now: datetime, state: S) -> None:
    """As after an edit of `at`. The one that was made last is found, whatever has become of either."""
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, owner=OWNER)
        at = now.replace(microsecond=0)
        later = at + timedelta(milliseconds=900)
        last = await jobs.make_run(connection, job, state, at=at, created_at=now)
        first = await jobs.make_run(connection, job, S.DEAD, at=later, created_at=now - timedelta(seconds=1))
        name = f"{job.name}-{at:%Y%m%dt%H%M%Sz}"
        found = await listing.all_named(connection, owner=OWNER, name=name)
        assert [run.run_id for run in found] == [last, first]
        assert {run.name for run in found} == {name}


async def test_a_run_of_a_job_whose_row_is_gone_beside_a_new_job_of_that_name(
    db: database.Database, now: datetime
) -> None:
    async with db.transaction() as connection:
        gone = await jobs.make_job(connection, owner=OWNER)
        run_id = await jobs.make_run(connection, gone, S.SUCCEEDED, at=now)
        await connection.execute(b"DELETE FROM jobs")
        await jobs.make_job(connection, owner=OWNER)
        [run] = await listing.by_ids(connection, [run_id])
        assert await listing.by_name(connection, owner=OWNER, name=run.name) == run
