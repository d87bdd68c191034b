"""A full installation: a million jobs, a million ended runs, 200,000 live ones, analysed. Made by the database itself."""

from __future__ import annotations

from datetime import timedelta
from typing import LiteralString

import psycopg

from clockhand.store import database, partitions

JOBS = 1_000_000
HISTORY = 1_000_000
LIVE = 200_000

# a run id as domain/ids.py makes it: 48 bits of the instant in milliseconds, the marks of version and variant, a hash
_RUN_ID: LiteralString = """
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(n::text), 1, 3)
     || '8' || substr(md5(n::text), 4, 15))::uuid"""

_STEPS: tuple[LiteralString, ...] = (
    "INSERT INTO owners (owner) SELECT 'k8s/team-' || n FROM generate_series(0, 99) AS n",
    """INSERT INTO job_specs (job_id, generation, spec, stored_at)
       SELECT md5('job' || n)::uuid, 1, '{"schedule": "* * * * *"}', now() - interval '1 day'
       FROM generate_series(1, 1000000) AS n ORDER BY n""",
    """INSERT INTO jobs (job_id, owner, name, shard, generation, resource_version, spec_id, created_at, last_slot_at,
                         next_slot_at, next_run_at)
       SELECT s.job_id, 'k8s/team-' || spec_id % 100, 'job-' || spec_id, spec_id % 256, 1, spec_id, spec_id,
              now() - interval '1 day', now() - interval '1 hour', due.at, due.at
       FROM job_specs s, LATERAL (
           SELECT now() + CASE WHEN spec_id % 500 = 0 THEN -interval '1 second' ELSE spec_id * interval '86 ms' END AS at
       ) AS due""",
    "INSERT INTO job_status (job_id, shard) SELECT job_id, shard FROM jobs",
    """INSERT INTO live_runs (run_id, job_id, owner, job_name, name, kind, scheduled_at, created_at, shard, spec_id, state,
                              queue_at, ready_at, attempt, token, claimed_at, deadline_at, run_deadline_at,
                              pending_timeout, stop_reason)
       SELECT """
    + _RUN_ID
    + """, md5('job' || j)::uuid, 'k8s/team-' || j % 100, 'job-' || j, 'job-' || j || '-' || n, 'Slot', at, at, j % 256, j,
              state::run_state, at, now() + CASE WHEN n % 20 = 0 THEN -interval '1 s' ELSE interval '1 h' END,
              (state IN ('Claimed', 'Running', 'Stopping'))::int,
              CASE WHEN state IN ('Claimed', 'Running', 'Stopping') THEN n END,
              CASE WHEN state IN ('Claimed', 'Running', 'Stopping') THEN at END,
              CASE WHEN state IN ('Claimed', 'Running', 'Stopping')
                   THEN now() + CASE WHEN n % 100 = 0 THEN -interval '1 s' ELSE interval '1 h' END END,
              now() + CASE WHEN n % 400 = 0 THEN -interval '1 s' ELSE interval '1 day' END,
              900, CASE WHEN state = 'Stopping' THEN 'Cancelled' END
       FROM (SELECT n, CASE WHEN state = 'Blocked' THEN 1 + n % 1000 ELSE n END AS j, state,
                    date_trunc('milliseconds', now()) - interval '1 minute' - n * interval '1 ms' AS at
             FROM (SELECT n, (ARRAY['Queued', 'Queued', 'Queued', 'Queued', 'Claimed', 'Running', 'Running', 'Stopping',
                                    'Retrying', 'Blocked'])[1 + n % 10] AS state
                   FROM generate_series(1, 200000) AS n) AS mixed) AS timed""",
    """INSERT INTO run_history (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                                spec_id, state, attempt, failures, disruptions, finished_at)
       SELECT """
    + _RUN_ID
    + """, md5('job' || j)::uuid, 'k8s/team-' || j % 100, 'job-' || j, 'job-' || j || '-' || n,
              CASE WHEN n % 10 = 0 THEN '{"tier": "gold"}'::jsonb END,
              CASE WHEN n % 50 = 0 THEN 'Manual' ELSE 'Slot' END::run_kind,
              CASE WHEN n % 50 = 0 THEN 'job-' || j || '-' || n ELSE '' END, at, at, j % 256, j,
              CASE WHEN n % 200 = 0 THEN 'Dead' ELSE 'Succeeded' END::run_state, 1, 0, 0, at + interval '3 s'
       FROM (SELECT n, 1 + n % 10000 AS j, date_trunc('milliseconds', now()) - interval '1 hour' - n * interval '2 s' AS at
             FROM generate_series(1, 1000000) AS n) AS timed""",
    """INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at)
       SELECT md5('job' || 1 + n % 10000)::uuid, 'k8s/team-' || n % 100, 'job-' || n % 10000, at, at, 1, 'Forbid', at
       FROM (SELECT n, now() - n * interval '10 s' AS at FROM generate_series(1, 100000) AS n) AS timed""",
    """INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, ended_at, outcome, reason, pod_name)
       SELECT run_id, scheduled_at, 1, scheduled_at, scheduled_at, 'Failed', 'Error', 'pod'
       FROM run_history WHERE state = 'Dead'""",
    """INSERT INTO run_changes (first_number, changed_at, runs, states)
       SELECT CASE WHEN n <= 50000 THEN n END, now() - (50100 - n) * interval '50 ms', ARRAY[md5(n::text)::uuid],
              ARRAY['Queued'::run_state]
       FROM generate_series(1, 50100) AS n""",
    """INSERT INTO backfills (backfill_id, job_id, owner, job_name, name, shard, from_at, to_at, newest_first, concurrency,
                              look_at, spec_id, slots, created_at, ended_at)
       SELECT md5('backfill' || n)::uuid, md5('job' || n)::uuid, 'k8s/team-' || n % 100, 'job-' || n, 'backfill-' || n,
              n % 256, now() - interval '9 days', now() - interval '8 days', false, 1, now() - n * interval '1 s', n, 24,
              now() - interval '1 day', CASE WHEN n % 100 > 0 THEN now() END
       FROM generate_series(1, 50000) AS n""",
    "UPDATE installation SET last_change = 50000",
    "INSERT INTO replicas VALUES ('one', 'operator', now(), now()), ('two', 'operator', now(), now())",
    "UPDATE shard_leases SET holder = 'one', generation = 7, expires_at = now() + interval '1 day'",
)

_INDEXES: LiteralString = """
    SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
    FROM pg_index i
    WHERE i.indrelid IN ('jobs'::regclass, 'live_runs'::regclass, 'run_history'::regclass)
      AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)"""


async def make_weeks(db: database.Database) -> None:
    """The partitions that the history needs."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure(connection, oldest=now - timedelta(days=25), newest=now + timedelta(days=8))


def fill(url: str) -> None:
    """Fills the migrated database at `url`: without checks of foreign keys, and indexes only once the rows are there."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET maintenance_work_mem = '256MB'")
        connection.execute("SET session_replication_role = replica")
        indexes = connection.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}".encode())
        for step in _STEPS:
            connection.execute(step)
        for _, definition in indexes:
            connection.execute(definition.replace(" ON ONLY ", " ON ").encode())
        connection.execute("VACUUM (ANALYZE)")
