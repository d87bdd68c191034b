"""Rows that are read in parts: all of them, in their order, and others have their turn in between."""

from __future__ import annotations

import asyncio

import pytest

from clockhand.store import database, queries

SERIES = "SELECT number FROM generate_series(1, %(count)s) AS number"


@pytest.mark.parametrize(("count", "parts"), [(0, 0), (1, 1), (49, 1), (50, 1), (51, 2), (170, 4)])
async def test_rows_come_in_parts(
    db: database.Database, monkeypatch: pytest.MonkeyPatch, count: int, parts: int
) -> None:
    monkeypatch.setattr(database, "_text", lambda name: {"series": SERIES}.get(name) or queries.sql(name))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    found: list[int] = []
    seen: list[int] = []
    async with db.transaction() as connection:
        task = asyncio.create_task(others())
        async for rows in database.parts(connection, "series", {"count": count}):
            found += [row.number for row in rows]
            seen.append(turns)
        task.cancel()
    assert found == list(range(1, count + 1))
    assert len(set(seen)) == len(seen) == parts, "the others had a turn before each part"
