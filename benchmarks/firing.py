"""What firing costs with a million jobs of every kind, and how much of it goes into evaluating their schedules.

Everything is real but for what comes after: no replica claims what was fired. Enough jobs are due at once for each batch to
be a full one, and they come back in a second round, for which what was evaluated before is remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg
from benchmarks import report, schedule, usage
from tests.support import postgres

from clockhand.domain import firing, ids, spec
from clockhand.engine import fire, specs
from clockhand.store import database, migrations, partitions

_FILL: tuple[LiteralString, ...] = (
    "INSERT INTO owners (owner) SELECT 'k8s/team-' || n FROM generate_series(0, 99) AS n",
    """INSERT INTO job_specs (job_id, generation, spec, followed, stored_at)
       SELECT gen_random_uuid(), 1, kinds.spec, false, now()
       FROM unnest(%(specs)s::jsonb[]) WITH ORDINALITY AS kinds (spec, number)
       JOIN generate_series(1, %(jobs)s) AS n ON kinds.number = 1 + n %% %(distinct)s
       ORDER BY n""",
    """INSERT INTO jobs (job_id, owner, name, shard, generation, resource_version, spec_id, created_at, last_slot_at,
                         next_slot_at, next_run_at)
       SELECT job_id, 'k8s/team-' || spec_id %% 100, 'job-' || spec_id, spec_id %% 256, 1, spec_id, spec_id,
              now() - interval '1 day', now() - interval '1 minute', due.at, due.at
       FROM job_specs, LATERAL (SELECT now() + interval '1 hour' + spec_id * interval '1 day' / %(jobs)s AS at) AS due""",
    "INSERT INTO job_status (job_id, shard) SELECT job_id, shard FROM jobs",
)
_SETTINGS = {"max_wal_size": "8GB", "synchronous_commit": "on"}


@dataclasses.dataclass(frozen=True)
class Settings:
    jobs: int = 1_000_000
    distinct: int = 20_000
    batches: int = 100


class _Clock:
    """Seconds spent inside functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*values: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*values, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return timed


async def run(settings: Settings) -> report.Report:
    """Two rounds over the same jobs: schedules never seen, then seen before."""
    made = report.Report("firing", dataclasses.asdict(settings))
    with postgres.server(**_SETTINGS) as server:
        server.execute("CREATE DATABASE firing")
        db = database.Database(server.url("firing"), size=4, name="benchmark")
        await db.open()
        try:
            await migrations.apply(db)
            async with db.transaction() as connection:
                await partitions.ensure_window(connection, now=await database.now(connection), retention_days=30)
            await asyncio.to_thread(_fill, server.url("firing"), settings)
            rows = [await _round(db, server.pid, name, settings) for name in ("never seen", "seen before")]
        finally:
            await db.close()
    columns = ("schedules", "jobs", "jobs/s", "us a job", "evaluation %", "reading specs %", "Postgres us CPU a job")
    made.add(f"{settings.batches} batches of {fire.BATCH} due jobs, one replica", columns, rows)
    return made


async def _round(db: database.Database, server: int, name: str, settings: Settings) -> tuple[report.Value, ...]:
    await _make_due(db, settings)
    meter = usage.Meter({"postgres": (server,)})
    meter.start()
    with _timed() as clock:
        began, fired = time.perf_counter(), 0
        firer = fire.Fire(db)
        for _ in range(settings.batches):
            fired += await firer.run_once(range(ids.SHARDS))
        seconds = time.perf_counter() - began
    spent = clock.seconds
    return (
        name,
        fired,
        fired / seconds,
        1e6 * seconds / fired,
        100 * spent["evaluation"] / seconds,
        100 * spent["specs"] / seconds,
        1e6 * meter.spent()["postgres"] / fired,
    )


@contextlib.contextmanager
def _timed() -> Iterator[_Clock]:
    clock = _Clock()
    evaluate, read = firing.fire, specs.of
    firing.fire = clock.around("evaluation", evaluate)
    specs.of = clock.around("specs", read)  # type: ignore[assignment]
    try:
        yield clock
    finally:
        firing.fire, specs.of = evaluate, read


async def _make_due(db: database.Database, settings: Settings) -> None:
    """As if the next slot of as many jobs as will be fired had come."""
    async with db.transaction() as connection:
        await connection.execute(b"SET LOCAL statement_timeout = 0")
        at = b"greatest(last_slot_at + interval '1 ms', date_trunc('milliseconds', now()))"
        query = b"UPDATE jobs SET next_slot_at = %b, next_run_at = %b WHERE spec_id <= %%s" % (at, at)
        await connection.execute(query, (settings.batches * fire.BATCH,))


def _fill(url: str, settings: Settings) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        values = {"jobs": settings.jobs, "distinct": settings.distinct, "specs": _specs(settings.distinct)}
        for step in _FILL:
            connection.execute(step, values if "%(" in step else None)
        connection.execute("VACUUM (ANALYZE)")


def _specs(count: int) -> list[str]:
    """Three in four by cron, of the kinds that people write; the others by intervals, unions and instants."""
    expressions = schedule.distinct(count)
    return [spec.encode(_spec(number, *expressions[number])).decode() for number in range(count)]


def _spec(number: int, expression: str, zone: str) -> spec.JobSpec:
    if number % 12 == 0:
        return spec.JobSpec(schedules=(expression, "0 12 * * 0"), time_zone=zone)
    if number % 12 == 4:
        return spec.JobSpec(every=f"{1 + number % 1_000}m")
    if number % 12 == 8:
        return spec.JobSpec(schedule="H H * * *", time_zone=zone, jitter_seconds=60)
    return spec.JobSpec(schedule=expression, time_zone=zone)
