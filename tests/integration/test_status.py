"""Which objects are written when: urgent news at once, other news seldom, and none lost while a patch is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb
from tests.support import statements

from clockhand.engine import status
from clockhand.store import database
from clockhand.store import status as rows

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
READY = {"type": "Ready", "status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": "t"}
SHARDS = range(256)


async def add(db: database.Database, *, shard: int = 7, **fields: Any) -> UUID:
    """A job whose status is dirty since NOW, but for the fields given."""
    job_id = uuid4()
    columns = {"dirty_at": NOW, "urgent": False, "written_at": None, **fields}
    async with db.transaction() as connection:
        await connection.execute("INSERT INTO owners VALUES ('k8s/team-a', 0) ON CONFLICT DO NOTHING")
        await connection.execute(
            "WITH s AS (INSERT INTO job_specs (job_id, generation, spec, stored_at) VALUES (%(id)s, 1, '{}', now()) "
            "RETURNING spec_id) INSERT INTO jobs (job_id, owner, name, shard, generation, resource_version, spec_id, "
            "created_at, last_slot_at) SELECT %(id)s, 'k8s/team-a', 'sample', %(shard)s, 3, 1, spec_id, now(), now() FROM s",
            {"id": job_id, "shard": shard},
        )
        await connection.execute(
            "INSERT INTO job_status (job_id, shard, dirty_at, urgent, written_at) "
            "VALUES (%(id)s, %(shard)s, %(dirty_at)s, %(urgent)s, %(written_at)s)",
            {"id": job_id, "shard": shard, **columns},
        )
    return job_id


async def dirty(
    db: database.Database,
    shards: Sequence[int] = SHARDS,
    *,
    written_before: datetime = NOW,
    settled: datetime = NOW + timedelta(days=36_500),
    batch: int = 10,
    usual: int = 10,
) -> Sequence[rows.Dirty]:
    async with db.transaction() as connection:
        return await rows.dirty(
            connection, shards, written_before=written_before, settled=settled, batch=batch, usual=usual
        )


async def write(db: database.Database, one: rows.Dirty, *, patched: bool = True) -> None:
    async with db.transaction() as connection:
        done = rows.Written(one.job_id, one.version, b"digest", patched)
        await rows.written(connection, [done], now=NOW)


async def change(db: database.Database, text: str, job_id: UUID) -> None:
    async with db.transaction() as connection:
        await connection.execute(text.encode(), (job_id,))


async def test_only_dirty_objects_of_the_own_shards(db: database.Database) -> None:
    mine = await add(db, shard=3)
    await add(db, shard=4)
    await add(db, shard=3, dirty_at=None)
    assert [one.job_id for one in await dirty(db, [3])] == [mine]


async def test_news_waits_for_the_pause_unless_urgent(db: database.Database) -> None:
    recent, long_ago = NOW - timedelta(seconds=5), NOW - timedelta(seconds=31)
    await add(db, written_at=recent)
    old = await add(db, written_at=long_ago)
    urgent = await add(db, written_at=recent, urgent=True)
    never = await add(db, dirty_at=NOW + timedelta(seconds=1))
    before = NOW - timedelta(seconds=30)
    assert [one.job_id for one in await dirty(db, written_before=before)] == [urgent, old, never]
    assert [one.job_id for one in await dirty(db, written_before=before, usual=0)] == [urgent]


async def test_news_settles_before_it_is_written_unless_urgent(db: database.Database) -> None:
    old = await add(db, dirty_at=NOW - timedelta(seconds=3))
    await add(db, dirty_at=NOW - timedelta(seconds=2))
    urgent = await add(db, dirty_at=NOW, urgent=True)
    settled = NOW - timedelta(seconds=3)
    assert [one.job_id for one in await dirty(db, settled=settled)] == [urgent, old]


async def test_the_oldest_news_first_over_all_shards(db: database.Database) -> None:
    made = [await add(db, shard=9 - age, dirty_at=NOW - timedelta(seconds=age)) for age in range(5)]
    assert [one.job_id for one in await dirty(db, usual=3)] == list(reversed(made))[:3]


async def test_a_crowd_does_not_hide_urgent_news(db: database.Database) -> None:
    for age in range(5):
        await add(db, dirty_at=NOW - timedelta(seconds=age))
    urgent = await add(db, urgent=True)
    first, _ = await dirty(db, batch=1, usual=1)
    assert first.job_id == urgent


async def test_written_news_is_off_the_list(db: database.Database) -> None:
    await add(db, urgent=True)
    [one] = await dirty(db)
    await write(db, one)
    assert await dirty(db, written_before=NOW + timedelta(days=1)) == []


async def test_news_that_comes_during_a_patch_is_not_lost(db: database.Database) -> None:
    job_id = await add(db)
    [one] = await dirty(db)
    # the very same instant: only the row's version can tell
    await change(db, "UPDATE job_status SET consecutive_failures = 1, dirty_at = dirty_at WHERE job_id = %s", job_id)
    await write(db, one)
    assert await dirty(db, written_before=NOW - timedelta(seconds=1)) == [], "it was written just now"
    [again] = await dirty(db, written_before=NOW)
    assert again.consecutive_failures == 1
    await write(db, again)
    assert await dirty(db, written_before=NOW + timedelta(days=1)) == []


async def test_an_object_that_shows_it_already_keeps_its_pause(db: database.Database) -> None:
    job_id = await add(db, written_at=NOW - timedelta(days=1))
    [one] = await dirty(db)
    await write(db, one, patched=False)
    await change(db, "UPDATE job_status SET dirty_at = now() WHERE job_id = %s", job_id)
    [again] = await dirty(db)
    assert again.written_digest == b"digest"


async def test_a_failed_patch_stands_in_nobodys_way(db: database.Database) -> None:
    job_id = await add(db, urgent=True)
    async with db.transaction() as connection:
        await rows.postponed(connection, [job_id], now=NOW)
    assert await dirty(db, written_before=NOW - timedelta(seconds=30)) == []
    assert [one.job_id for one in await dirty(db, written_before=NOW)] == [job_id]


@pytest.mark.parametrize("postponed", [True, False])
async def test_a_batch_locks_its_rows_in_one_order(db: database.Database, postponed: bool) -> None:
    """Whoever waits for the lowest row holds none of the others, so two batches cannot wait for each other."""
    job_ids = sorted([await add(db) for _ in range(20)])
    found = {one.job_id: one for one in await dirty(db, batch=20, usual=20)}
    backwards = [found[job_id] for job_id in reversed(job_ids)]

    async def store() -> None:
        async with db.transaction() as connection:
            if postponed:
                await rows.postponed(connection, [one.job_id for one in backwards], now=NOW)
            else:
                done = [rows.Written(one.job_id, one.version, b"digest", patched=True) for one in backwards]
                await rows.written(connection, done, now=NOW)

    async with db.transaction() as blocker:
        await blocker.execute("SELECT FROM job_status WHERE job_id = %s FOR UPDATE", (job_ids[0],))
        storing = asyncio.create_task(store())
        await statements.until_somebody_waits(db)
        async with db.transaction() as other:
            await other.execute("SELECT FROM job_status WHERE job_id = ANY(%s) FOR UPDATE NOWAIT", (job_ids[1:],))
    await storing
    assert await dirty(db, batch=20, usual=20, written_before=NOW - timedelta(seconds=1)) == []


@pytest.mark.parametrize("parked", [None, "cannot be evaluated"])
async def test_what_the_object_shows(db: database.Database, parked: str | None) -> None:
    job_id = await add(db)
    await change(
        db,
        "UPDATE job_status SET last_scheduled_at = '2026-11-01T10:00:00Z', consecutive_failures = 2, conditions = "
        """'[{"type": "Ready", "status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": "t"}]' """
        "WHERE job_id = %s",
        job_id,
    )
    if parked is None:
        next_slot = (
            "UPDATE jobs SET next_slot_at = '2100-01-01T00:00:00Z', next_run_at = '2100-01-01T00:00:00.5Z' "
            "WHERE job_id = %s"
        )
        await change(db, next_slot, job_id)
    else:
        await change(db, f"UPDATE jobs SET parked = '{parked}' WHERE job_id = %s", job_id)
    [one] = await dirty(db)
    shown = status.status_of(one)
    [ready] = shown.pop("conditions")
    assert shown == {
        "nextRunTime": "2100-01-01T00:00:00.500Z" if parked is None else None,
        "lastScheduledTime": "2026-11-01T10:00:00Z",
        "lastSuccessfulTime": None,
        "active": 0,
        "consecutiveFailures": 2,
        "observedGeneration": 3,
    }
    if parked is None:
        assert ready == READY
    else:
        assert (ready["status"], ready["message"]) == ("False", parked)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (None, "Finished"),
        ("suspended = true", "Scheduled"),
        ("paused_at = now()", "Scheduled"),
        ("next_slot_at = '2100-01-01', next_run_at = '2100-01-01'", "Scheduled"),
    ],
)
async def test_a_job_of_which_no_slot_comes_says_so(db: database.Database, column: str | None, reason: str) -> None:
    job_id = await add(db)
    other = {**READY, "type": "TemplateValid"}
    async with db.transaction() as connection:
        await connection.execute("UPDATE job_status SET conditions = %s", (Jsonb([READY, other]),))
    if column:
        await change(db, f"UPDATE jobs SET {column} WHERE job_id = %s", job_id)
    [one] = await dirty(db)
    shown = status.status_of(one)
    assert (shown["nextRunTime"] is None) == (column is None or "next" not in column)
    [ready, template] = shown["conditions"]
    assert template == other
    assert (ready["status"], ready["reason"]) == ("True", reason)
    # still ready, and for as long as before
    assert ready["lastTransitionTime"] == READY["lastTransitionTime"]
    assert ("later instant" in ready["message"]) == (reason == "Finished")
