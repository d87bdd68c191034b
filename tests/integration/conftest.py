"""Real Postgres for every test here: a server a session, a migrated template, a clone a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support import kafka, postgres, tenants

from clockhand.store import database, migrations


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.server() as running:
        yield running


@pytest.fixture(scope="session")
def broker() -> Iterator[kafka.Broker]:
    """A Kafka, started for the first test that wants one."""
    with kafka.broker() as running:
        yield running


@pytest.fixture(scope="session")
def template(server: postgres.PostgresServer) -> str:
    """The name of a migrated database that nobody stays connected to."""
    name = server.new_database()

    async def migrate() -> None:
        db = database.Database(server.url(name), size=1, name="migrate")
        await db.open()
        try:
            await migrations.apply(db)
        finally:
            await db.close()

    asyncio.run(migrate())
    return name


@pytest.fixture
def database_url(server: postgres.PostgresServer, template: str) -> Iterator[str]:
    name = server.new_database(template=template)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[database.Database]:
    opened = database.Database(database_url, size=8, name="test")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def tenant(
    server: postgres.PostgresServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tenants.Tenant]:
    """A tenant with an API process, a database and a worker of its own, for all tests of a file."""
    name = server.new_database(template=template)
    with tenants.served(server.url(name), tmp_path_factory.mktemp("tenant")) as served:
        yield served
    server.drop_database(name)
