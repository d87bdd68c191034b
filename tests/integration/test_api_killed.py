"""API processes die as they like: what they had given is given again, and nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from tests.integration.test_api_process import Process, running, secret
from tests.integration.test_pools import queued, until
from tests.support import jobs, workers_api

from clockhand.store import database

__all__ = ["secret"]
DYING = "tests.support.dying_api"
RUNS = 300


async def due(db: database.Database, count: int, *, ahead: timedelta = timedelta()) -> None:
    async with db.transaction() as connection:
        at = (await database.now(connection)).replace(microsecond=0) + ahead
        await jobs.make_jobs(connection, count, job=jobs.pooled(jobs.NEVER), next_slot_at=at)


def asked(worker: str = "one", **fields: Any) -> dict[str, Any]:
    return {"requestId": str(uuid.uuid4()), "worker": worker, "handlers": [jobs.HANDLER], "waitSeconds": 20, **fields}


@pytest.mark.parametrize("handed_over", [True, False])
async def test_what_a_dead_process_had_stored_is_given_again(
    db: database.Database, database_url: str, secret: str, handed_over: bool
) -> None:
    body = asked()
    async with running(database_url, program=DYING, PYTHONPATH=".") as dying:
        await dying.until_answered("/readyz")
        if handed_over:
            await due(db, 1, ahead=timedelta(seconds=1))
        else:
            async with db.transaction() as connection:
                await queued(connection, 1)
        with pytest.raises(aiohttp.ClientError):
            await dying.caller(secret).post(workers_api.path_of("claim"), body)
        assert await dying.process.wait() == -signal.SIGKILL
    async with db.transaction() as connection:
        [(run_id, token, worker)] = await jobs.query(connection, "SELECT run_id, token, worker FROM live_runs")
    async with running(database_url) as alive:
        await alive.until_answered("/readyz")
        caller = alive.caller(secret)
        answer = await caller.post(workers_api.path_of("claim"), body)
        [run] = answer.json["runs"]
        assert (run["runId"], run["token"], worker) == (str(run_id), str(token), "one")
        again = await caller.post(workers_api.path_of("claim"), body)
        assert again.json == answer.json
        ended = {"runId": run["runId"], "token": run["token"], "outcome": "Succeeded"}
        reported = await caller.call("report", worker="one", reports=[ended])
        assert [one["accepted"] for one in reported.json["reports"]] == [True]


class Worker:
    """It repeats each call, at whichever process answers, until it is answered; what it has already it drops."""

    def __init__(self, name: str, effects: Counter[str]) -> None:
        self.name = name
        self.processes: list[tuple[Process, str]] = []
        self._effects = effects
        self._known: set[tuple[str, str]] = set()

    async def work(self) -> None:
        while sum(self._effects.values()) < RUNS:
            runs = (await self._call("claim", asked(self.name, max=5, waitSeconds=1)))["runs"]
            new = [run for run in runs if (run["runId"], run["token"]) not in self._known]
            self._known.update((run["runId"], run["token"]) for run in new)
            self._effects.update(run["runId"] for run in new)
            if new:
                reports = [{"runId": run["runId"], "token": run["token"], "outcome": "Succeeded"} for run in new]
                answer = await self._call("report", {"worker": self.name, "reports": reports})
                assert all(one["accepted"] for one in answer["reports"]), answer

    async def _call(self, what: str, body: dict[str, Any]) -> Any:
        while True:
            process, secret = random.choice(self.processes)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                answer = await process.caller(secret).post(workers_api.path_of(what), body)
                if answer.status == 200:
                    return answer.json
            await asyncio.sleep(0.05)


async def test_a_process_is_killed_in_the_middle_of_the_work(
    db: database.Database, database_url: str, secret: str
) -> None:
    effects: Counter[str] = Counter()
    workers = [Worker(f"w{number}", effects) for number in range(6)]
    async with running(database_url) as first, running(database_url) as second:
        await first.until_answered("/readyz")
        await second.until_answered("/readyz")
        serve(workers, [first, second], secret)
        await due(db, RUNS)
        working = asyncio.gather(*(worker.work() for worker in workers))
        await until(lambda: sum(effects.values()) >= RUNS // 3)
        first.process.kill()
        async with running(database_url) as third:
            serve(workers, [first, second, third], secret)
            async with asyncio.timeout(120):
                await working
    assert effects == dict.fromkeys(effects, 1)
    async with db.transaction() as connection:
        text = "SELECT state::text, attempt, count(*) FROM runs GROUP BY 1, 2"
        assert await jobs.query(connection, text) == [("Succeeded", 1, RUNS)]


def serve(workers: Sequence[Worker], processes: Sequence[Process], secret: str) -> None:
    for worker in workers:
        worker.processes = [(process, secret) for process in processes]
