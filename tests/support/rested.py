"""Jobs made over REST, and what is shown of them, for tests of what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from clockhand.domain import resources
from clockhand.engine import limits, loops
from clockhand.engine.jobs import asking, service
from clockhand.store import database

ACME = asking.Asker("rest/acme", "ci (token)")
OTHER = asking.Asker("rest/other", "somebody")
TEAM = asking.Asker("k8s/team-a", "jane@example.com", templates=True)
NIGHTLY = {"schedule": "0 2 * * *", "handler": "email.send"}
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}


def read(text: str) -> resources.Job:
    """What was shown, as its type has it."""
    return msgspec.json.decode(text, type=resources.Job)


def of(shown: asking.Shown) -> resources.Job:
    """The same of what is not encoded yet."""
    return read(msgspec.json.encode(shown.document).decode())


@contextlib.asynccontextmanager
async def at_work(db: database.Database) -> AsyncIterator[service.Jobs]:
    """The service, with its loop, for the length of the block."""
    core = service.Jobs(db, limits.LimitsFile(None))
    task = asyncio.create_task(loops.forever("creates", core.step))
    yield core
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    core.close()


async def make(core: service.Jobs, asker: asking.Asker = ACME, **fields: Any) -> resources.Job:
    """A nightly job, but for the fields given; None takes one away."""
    wanted = {name: value for name, value in {**NIGHTLY, **fields}.items() if value is not None}
    return read((await core.create(asker, wanted)).body)


async def get(core: service.Jobs, job: resources.Job, owner: str = "rest/acme") -> resources.Job:
    """How it is now."""
    return of(await core.get(owner, job.id))


async def rows(db: database.Database, text: str, *parameters: object) -> list[Any]:
    """What a statement returns."""
    async with db.transaction() as connection:
        cursor = await connection.execute(text.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []
