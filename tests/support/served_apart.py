"""The API over a database in a thread of its own, for clients that wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from tests.support import jobs, workers_api

from clockhand.api.rest import openapi
from clockhand.domain import tokens
from clockhand.domain.states import RunState as S
from clockhand.store import database

OWNER = "rest/acme"
_STATES = (S.QUEUED, S.RUNNING, S.RETRYING, S.SUCCEEDED, S.DEAD, S.CANCELLED)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Apart:
    """Where it is, an editor's token, what it says of itself, and ids of what the tenant has."""

    url: str
    secret: str
    document: dict[str, Any]
    jobs: Sequence[uuid.UUID]
    runs: Sequence[uuid.UUID]


@contextlib.contextmanager
def served(url: str, *, count: int = 40) -> Iterator[Apart]:
    """The API over the database at `url` for the length of the block. Its tenant has `count` jobs and a few runs of each."""
    ready: list[Apart] = []
    begun, stop = threading.Event(), threading.Event()

    async def run() -> None:
        db = database.Database(url, size=8, name="apart")
        await db.open()
        try:
            made, runs = await _furnish(db, count)
            async with workers_api.served(db) as api:
                secret = await workers_api.make_token(db, owner=OWNER, role=tokens.Role.EDITOR)
                document = msgspec.json.decode(msgspec.json.encode(openapi.document(api.rest.table.routes)))
                ready.append(Apart(api.url, secret, document, made, runs))
                begun.set()
                await asyncio.to_thread(stop.wait)
        finally:
            await db.close()
            begun.set()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        begun.wait()
        yield ready[0]
    finally:
        stop.set()
        thread.join()


async def _furnish(db: database.Database, count: int) -> tuple[Sequence[uuid.UUID], Sequence[uuid.UUID]]:
    runs: list[uuid.UUID] = []
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        now = await database.now(connection)
        made = await jobs.make_jobs(connection, count, job=jobs.pooled("0 * * * *"), owner=OWNER)
        await connection.execute(b"UPDATE jobs SET declared = false")
        await connection.execute(b"UPDATE job_specs SET template = NULL")
        for job in made:
            for number, state in enumerate(_STATES):
                runs.append(await jobs.make_run(connection, job, state, at=now - number * _HOUR))
    return [job.job_id for job in made], runs
