"""Which statements were sent, and who waits for a lock."""

from __future__ import annotations

import asyncio
from typing import LiteralString

import pytest
from tests.support import jobs

from clockhand.store import database, queries

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by the name of each query sent from now on."""
    names: list[str] = []

    def text(name: str) -> LiteralString:
        names.append(name)
        return queries.sql(name)

    monkeypatch.setattr(database, "_text", text)
    return names


async def until_somebody_waits(db: database.Database, sessions: int = 1) -> None:
    """Returns once that many sessions wait for a lock."""
    async with asyncio.timeout(30):
        while True:
            async with db.transaction() as connection:
                if await jobs.one(connection, _WAITING) >= sessions:
                    return
            await asyncio.sleep(0.01)
