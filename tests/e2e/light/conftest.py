"""A real Postgres beside the light cluster: a server a module, a migrated database a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support import postgres

from clockhand.store import database, migrations, partitions


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.server() as running:
        yield running


@pytest.fixture
async def db(server: postgres.PostgresServer) -> AsyncIterator[database.Database]:
    name = await asyncio.to_thread(server.new_database)
    opened = database.Database(server.url(name), size=8, name="test")
    await opened.open()
    await migrations.apply(opened)
    async with opened.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
    yield opened
    await opened.close()
