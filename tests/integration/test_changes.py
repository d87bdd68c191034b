"""The change log: numbered in commit order, kept for a while, and never with a hole that a reader could fall into."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

from clockhand.store import changes, database


async def log_change(connection: database.Connection, *runs: uuid.UUID) -> None:
    await connection.execute(
        "INSERT INTO run_changes (runs, states) VALUES (%s, %s::run_state[])", (list(runs), ["Queued"] * len(runs))
    )


async def commit_change(db: database.Database, *runs: uuid.UUID) -> None:
    async with db.transaction() as connection:
        await log_change(connection, *runs)


async def read(db: database.Database, after: int) -> list[tuple[int, uuid.UUID]]:
    async with db.transaction() as connection:
        return [(change.number, change.run_id) for change in await changes.read_after(connection, after)]


async def standing(db: database.Database) -> changes.Standing:
    async with db.transaction() as connection:
        return await changes.newest(connection)


@contextlib.asynccontextmanager
async def open_transaction(db: database.Database, run: uuid.UUID) -> AsyncIterator[asyncio.Event]:
    """A transaction that has logged a change and commits when the event is set, at the latest at the end of the block."""
    logged, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with db.transaction() as connection:
            await log_change(connection, run)
            logged.set()
            await release.wait()

    task = asyncio.create_task(hold())
    await logged.wait()
    try:
        yield release
    finally:
        release.set()
        await task


async def test_nothing_is_numbered_past_an_older_open_transaction(db: database.Database) -> None:
    older, newer = uuid.uuid4(), uuid.uuid4()
    async with open_transaction(db, older):
        await commit_change(db, newer)
        await changes.number_pending(db)
        assert await read(db, 0) == []
        assert (await standing(db)).pending
    await changes.number_pending(db)
    assert await read(db, 0) == [(1, older), (2, newer)]
    assert not (await standing(db)).pending


async def test_a_rolled_back_change_leaves_no_hole(db: database.Database) -> None:
    with contextlib.suppress(RuntimeError):
        async with db.transaction() as connection:
            await log_change(connection, uuid.uuid4())
            raise RuntimeError
    kept = uuid.uuid4()
    await commit_change(db, kept)
    await changes.number_pending(db)
    assert await read(db, 0) == [(1, kept)]


async def test_each_run_of_a_row_has_a_number_and_a_reader_may_stop_between_them(db: database.Database) -> None:
    runs = [uuid.uuid4() for _ in range(5)]
    await commit_change(db, *runs[:3])
    await commit_change(db, *runs[3:])
    await changes.number_pending(db)
    numbered = list(enumerate(runs, start=1))
    assert await read(db, 0) == numbered
    for after in range(1, 6):
        assert await read(db, after) == numbered[after:]
    assert (await standing(db)).newest == 5


async def test_a_reader_never_misses_a_change_of_concurrent_writers(db: database.Database) -> None:
    writers, rounds = 5, 12
    seen: list[tuple[int, uuid.UUID]] = []
    written: set[uuid.UUID] = set()

    async def write(number: int) -> None:
        draw = random.Random(number)
        for _ in range(rounds):
            run = uuid.uuid4()
            async with db.transaction() as connection:
                await log_change(connection, run)
                await asyncio.sleep(draw.random() * 0.02)
            written.add(run)
            await changes.number_pending(db)

    async def follow() -> None:
        while len(seen) < writers * rounds:
            seen.extend(await read(db, seen[-1][0] if seen else 0))
            await changes.number_pending(db)

    async with asyncio.timeout(60):
        await asyncio.gather(follow(), *(write(number) for number in range(writers)))
    assert [number for number, _ in seen] == list(range(1, writers * rounds + 1))
    assert {run for _, run in seen} == written


async def test_a_writer_waits_for_a_sequencer_that_may_have_looked_too_early(db: database.Database) -> None:
    async with db.transaction() as busy:
        await busy.execute("SELECT pg_advisory_xact_lock(hashtext('clockhand.changes')::bigint)")
        await commit_change(db, run := uuid.uuid4())
        async with db.transaction() as connection:
            assert await changes.number(connection) is None
        pending = asyncio.create_task(changes.number_pending(db))
        await asyncio.sleep(0)
        assert await read(db, 0) == []
    await pending
    assert await read(db, 0) == [(1, run)]


async def test_what_is_trimmed_is_known_to_be_gone(db: database.Database) -> None:
    for _ in range(3):
        await commit_change(db, uuid.uuid4())
    await changes.number_pending(db)
    await commit_change(db, unnumbered := uuid.uuid4())
    async with db.transaction() as connection:
        await connection.execute(
            "UPDATE run_changes SET changed_at = now() - interval '1 hour' WHERE first_number IS NULL OR first_number < 3"
        )
        assert await changes.trim(connection, await database.now(connection)) == 2
        at = await changes.newest(connection)
        assert not await changes.is_kept(connection, 0, standing=at)
        assert not await changes.is_kept(connection, 1, standing=at)
        assert await changes.is_kept(connection, 2, standing=at)
        assert await changes.is_kept(connection, 3, standing=at)
        assert not await changes.is_kept(connection, 4, standing=at)
    await changes.number_pending(db)
    assert (await read(db, 3)) == [(4, unnumbered)]


async def test_an_idle_log_stays_readable_however_old_it_is(db: database.Database) -> None:
    await commit_change(db, uuid.uuid4())
    await changes.number_pending(db)
    async with db.transaction() as connection:
        later = await database.now(connection) + changes.KEPT + timedelta(seconds=1)
        await changes.trim(connection, later)
        assert await changes.is_kept(connection, 1, standing=await changes.newest(connection))


def test_versions_grow_over_epochs() -> None:
    assert changes.parts(changes.version(3, 17)) == (3, 17)
    assert changes.version(2, 0) > changes.version(1, 2**39)
