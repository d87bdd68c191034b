"""What one replica measures of the whole installation, on real rows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest
from prometheus_client import REGISTRY
from tests.support import jobs, statements

from clockhand import metrics
from clockhand.domain.states import Reason
from clockhand.domain.states import RunState as S
from clockhand.engine import survey
from clockhand.store import database, partitions
from clockhand.store import survey as rows

DAYS = 30


@pytest.fixture
async def looks(db: database.Database) -> AsyncIterator[survey.Survey]:
    yield survey.Survey(db, retention_days=DAYS, is_mine=lambda: True)
    await survey.Survey(db, retention_days=DAYS, is_mine=lambda: False).step()


async def make_window(db: database.Database) -> None:
    async with db.transaction() as connection:
        await partitions.ensure_window(connection, now=await database.now(connection), retention_days=DAYS)


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


async def test_live_runs_are_counted_by_state_and_mode(db: database.Database, looks: survey.Survey) -> None:
    await make_window(db)
    async with db.transaction() as connection:
        pod = await jobs.make_job(connection)
        pooled = await jobs.make_job(connection, jobs.pooled())
        now = await database.now(connection)
        many = [S.QUEUED] * 2 + [S.RUNNING] * 3 + [S.RETRYING] + [S.BLOCKED] * 2
        for number, state in enumerate(many):
            await jobs.make_run(connection, pod, state, at=now - timedelta(seconds=number))
        await jobs.make_run(connection, pooled, S.QUEUED)
        await connection.execute("UPDATE live_runs SET reason = 'JobLimit' WHERE state = 'Blocked'")
        await connection.execute("UPDATE live_runs SET ready_at = now() - interval '1 hour' WHERE pool IS NOT NULL")
    assert await looks.step() == survey.EVERY
    assert shown("clockhand_live_runs", state="Queued", mode="pod") == 2
    assert shown("clockhand_live_runs", state="Queued", mode="pool") == 1
    assert shown("clockhand_live_runs", state="Running", mode="pod") == 3
    assert shown("clockhand_live_runs", state="Stopping", mode="pod") == 0
    assert shown("clockhand_blocked_runs", reason=Reason.JOB_LIMIT) == 2
    assert shown("clockhand_blocked_runs", reason=Reason.GROUP_LIMIT) == 0
    assert (shown("clockhand_oldest_queued_seconds", mode="pool") or 0) >= 3600


async def test_who_has_not_the_duty_tells_nothing_and_asks_nothing(
    db: database.Database, looks: survey.Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_window(db)
    await looks.step()
    assert shown("clockhand_live_runs", state="Queued", mode="pod") == 0
    asked = statements.named(monkeypatch)
    await survey.Survey(db, retention_days=DAYS, is_mine=lambda: False).step()
    assert asked == []
    assert shown("clockhand_live_runs", state="Queued", mode="pod") is None
    assert math.isnan(shown("clockhand_partitions_ahead_seconds") or 0)


async def test_a_snapshot_that_is_held_shows(db: database.Database, database_url: str, looks: survey.Survey) -> None:
    await make_window(db)
    with psycopg.connect(database_url) as holding:
        holding.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holding.execute("SELECT FROM jobs")
        await asyncio.sleep(0.5)
        await make_window(db)
        async with db.transaction() as connection:
            await connection.execute("SELECT pg_current_xact_id()")
        async with db.transaction() as connection:
            held = await rows.look(connection)
        assert held.horizon_seconds >= 0.5
        assert held.horizon_transactions >= 1
        await looks.step()
        assert (shown("clockhand_database_oldest_transaction_seconds") or 0) >= 0.5


async def test_partitions_that_are_missing_or_left_show(db: database.Database, looks: survey.Survey) -> None:
    await looks.step()
    assert shown("clockhand_partitions_ahead_seconds") == 0
    await make_window(db)
    await looks.step()
    assert timedelta(days=14).total_seconds() <= (shown("clockhand_partitions_ahead_seconds") or 0)
    assert shown("clockhand_retention_overdue_seconds") == 0
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure(connection, oldest=now - timedelta(days=80), newest=now - timedelta(days=80))
    await looks.step()
    overdue = timedelta(seconds=shown("clockhand_retention_overdue_seconds") or 0)
    assert timedelta(days=36) - overdue <= timedelta(days=7), "of the week of the 80th day before"


async def test_ends_are_counted_by_state_and_reason(db: database.Database) -> None:
    def ended(reason: str) -> float:
        return shown("clockhand_runs_ended_total", state="Dead", reason=reason) or 0

    metrics.begin("operator")
    known, other = ended(Reason.ATTEMPTS_USED), ended("Other")
    metrics.count_end("Dead", Reason.ATTEMPTS_USED, 2)
    metrics.count_end("Dead", "a word of the kubelet", 3)
    assert (ended(Reason.ATTEMPTS_USED), ended("Other")) == (known + 2, other + 3)


async def test_connections_and_statements_are_measured(db: database.Database) -> None:
    before = shown("clockhand_query_seconds_count", query="installation.now") or 0
    async with asyncio.timeout(30):  # one that is being made counts as used
        while True:
            if shown("clockhand_database_connections", pool="test", state="used") == 0:
                break
            await asyncio.sleep(0.01)
    async with db.transaction() as connection:
        await database.now(connection)
        assert shown("clockhand_database_connections", pool="test", state="used") == 1
    assert shown("clockhand_query_seconds_count", query="installation.now") == before + 1
    assert shown("clockhand_database_connections_max", pool="test") == 8
    assert shown("clockhand_database_waiting", pool="test") == 0
