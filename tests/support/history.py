"""Rows in bulk: a history that looks like one, made by the database itself, for plans, lists and benchmarks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta

import psycopg

from clockhand.domain import ids, spec, states
from clockhand.store import database, partitions

_ROWS_A_STATEMENT = 200_000
_OWNERS = 50

_JOBS = """
WITH made AS (
    INSERT INTO job_specs (job_id, generation, spec, payload, stored_at)
    SELECT md5('job' || n)::uuid, 1, '{"schedule": "* * * * *"}', '{"made": "in bulk"}', %(now)s
    FROM generate_series(0, %(jobs)s::int - 1) AS n
    RETURNING spec_id, job_id),
owned AS (
    INSERT INTO owners (owner) SELECT %(prefix)s || n FROM generate_series(0, %(owners)s::int - 1) AS n
    ON CONFLICT DO NOTHING)
SELECT 1
"""
_JOBS_ROWS = """
INSERT INTO jobs (job_id, owner, name, shard, declared, generation, resource_version, spec_id, created_at, last_slot_at)
SELECT md5('job' || n)::uuid, %(prefix)s || n %% %(owners)s, 'job-' || n, n %% 256, starts_with(%(prefix)s, 'k8s/'), 1, 1,
       (SELECT spec_id FROM job_specs s WHERE s.job_id = md5('job' || n)::uuid LIMIT 1), %(now)s, %(now)s
FROM generate_series(0, %(jobs)s::int - 1) AS n
"""
_RUNS = """
INSERT INTO run_history (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                         spec_id, state, reason, attempt, failures, disruptions, claimed_at, launched_at, started_at,
                         finished_at, node)
SELECT (lpad(to_hex(ms), 12, '0') || '8' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid,
       md5('job' || j)::uuid, %(prefix)s || j %% %(owners)s, 'job-' || j,
       'job-' || j || '-' || to_char(at AT TIME ZONE 'UTC', 'YYYYMMDD"t"HH24MISS"z"'),
       CASE WHEN j %% 10 = 0 THEN jsonb_build_object('tier', 'gold') END, 'Slot', '', at, at, j %% 256, 1,
       CASE WHEN i %% 200 = 0 THEN 'Dead' WHEN i %% 501 = 0 THEN 'Cancelled' ELSE 'Succeeded' END::run_state,
       CASE WHEN i %% 200 = 0 THEN 'AttemptsUsed' END, 1, 0, 0,
       at + interval '80 ms', at + interval '120 ms', at + interval '1 s', at + interval '4 s', 'node-' || i %% 5
FROM (SELECT i, i %% %(jobs)s AS j, md5('run' || i) AS h,
             (extract(epoch FROM %(now)s::timestamptz) * 1000)::bigint - 60000 - i::bigint * %(step)s AS ms
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS i) AS numbered,
     LATERAL (SELECT timestamptz 'epoch' + ms * interval '1 ms' AS at) AS timed
"""


async def fill(
    connection: database.Connection,
    rows: int,
    *,
    now: datetime,
    days: float = 28,
    jobs: int = 1_000,
    prefix: str = "k8s/team-",
) -> None:
    """`rows` ended runs of `jobs` jobs of 50 owners, spread evenly over the `days` before `now`; one in 200 is Dead."""
    await connection.execute("SET LOCAL statement_timeout TO 0")
    await connection.execute("SET LOCAL idle_in_transaction_session_timeout TO 0")
    await partitions.ensure(connection, oldest=now - timedelta(days=days + 1), newest=now + timedelta(days=8))
    common = {"now": now, "jobs": jobs, "owners": _OWNERS, "prefix": prefix}
    await connection.execute(_JOBS, common)
    await connection.execute(_JOBS_ROWS, common)
    step = max(1, int(days * 86_400_000 / rows))
    for first in range(0, rows, _ROWS_A_STATEMENT):
        span = {"first": first, "last": min(rows, first + _ROWS_A_STATEMENT) - 1, "step": step}
        await connection.execute(_RUNS, {**common, **span})


def analyze(url: str) -> None:
    """Statistics, and the visibility map that index-only scans need."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) run_history")
        connection.execute("ANALYZE")


_JOB = """
WITH owned AS (INSERT INTO owners (owner) VALUES (%(owner)s) ON CONFLICT DO NOTHING),
made AS (
    INSERT INTO job_specs (job_id, generation, spec, payload, template, stored_at)
    VALUES (%(job_id)s, 1, %(spec)s, %(payload)s, '{"spec": {"containers": [{"name": "main", "image": "any"}]}}', %(now)s)
    RETURNING spec_id)
INSERT INTO jobs (job_id, owner, name, shard, declared, generation, resource_version, spec_id, labels, created_at,
                  last_slot_at)
SELECT %(job_id)s, %(owner)s, %(name)s, 7, starts_with(%(owner)s, 'k8s/'), 1, 1, spec_id, %(labels)s, %(now)s, %(now)s
FROM made
"""
_STATUS = "INSERT INTO job_status (job_id, shard) VALUES (%(job_id)s, 7)"
_LIVE = """
WITH made AS (
    INSERT INTO live_runs (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                           spec_id, state, queue_at, ready_at, attempt, pending_timeout, token, stop_reason)
    SELECT %(run_id)s, job_id, owner, name, %(run_name)s, labels, %(kind)s::run_kind, %(key)s, %(at)s, %(now)s, shard,
           spec_id, %(state)s::run_state, %(at)s, %(at)s, %(attempt)s, 900,
           CASE WHEN %(state)s IN ('Claimed', 'Running', 'Stopping') THEN 1 END,
           CASE WHEN %(state)s = 'Stopping' THEN 'Cancelled' END
    FROM jobs WHERE job_id = %(job_id)s
    RETURNING run_id, state)
INSERT INTO run_changes (runs, states) SELECT array_agg(run_id), array_agg(state) FROM made HAVING count(*) > 0
"""
_MOVE = """
WITH moved AS (
    UPDATE live_runs SET state = %(state)s::run_state, attempt = %(attempt)s,
        token = CASE WHEN %(state)s IN ('Claimed', 'Running', 'Stopping') THEN 1 END,
        stop_reason = CASE WHEN %(state)s = 'Stopping' THEN 'Cancelled' END
    WHERE run_id = ANY(%(runs)s) RETURNING run_id, state)
INSERT INTO run_changes (runs, states) SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0
"""
_END = """
WITH ended AS (DELETE FROM live_runs WHERE run_id = ANY(%(runs)s) RETURNING *),
stored AS (
    INSERT INTO run_history (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                             spec_id, payload, state, reason, message, attempt, failures, disruptions, finished_at)
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, spec_id,
           payload, %(state)s::run_state, %(reason)s, NULL, attempt, failures, disruptions, %(now)s
    FROM ended RETURNING run_id, state)
INSERT INTO run_changes (runs, states) SELECT array_agg(run_id), array_agg(state) FROM stored HAVING count(*) > 0
"""


async def make_job(
    connection: database.Connection,
    name: str,
    *,
    namespace: str = "team-a",
    labels: Mapping[str, str] | None = None,
    now: datetime,
) -> uuid.UUID:
    """A job that never falls due by itself."""
    body = spec.parse(
        {"schedule": "0 0 1 1 *", "template": {"spec": {"containers": [{"name": "main", "image": "any"}]}}}
    )
    job_id = uuid.uuid4()
    parameters = {
        "job_id": job_id,
        "owner": f"k8s/{namespace}",
        "name": name,
        "spec": spec.encode(body).decode(),
        "payload": '{"from": "job"}',
        "labels": None if labels is None else json.dumps(labels),
        "now": now,
    }
    await connection.execute(_JOB, parameters)
    await connection.execute(_STATUS, parameters)
    return job_id


async def add_live(
    connection: database.Connection,
    job_id: uuid.UUID,
    job_name: str,
    *,
    at: datetime,
    state: str = "Queued",
    name: str = "",
) -> uuid.UUID:
    """A live run; of the slot `at`, or a manual one with a `name`."""
    kind = states.RunKind.MANUAL if name else states.RunKind.SLOT
    at = ids.whole_ms(at)
    run_id = ids.run_id(job_id=job_id, scheduled_at=at, kind=kind, key=name)
    parameters = {
        "run_id": run_id,
        "job_id": job_id,
        "run_name": ids.run_name(job_name=job_name, scheduled_at=at, kind=kind, key=name),
        "kind": str(kind),
        "key": name,
        "at": at,
        "now": await database.now(connection),
        "state": state,
        "attempt": 0 if state in ("Blocked", "Queued") else 1,
    }
    await connection.execute(_LIVE, parameters)
    return run_id


async def move(connection: database.Connection, *runs: uuid.UUID, state: str, attempt: int = 1) -> None:
    """Live runs to another live state, in one transaction and one row of the log."""
    await connection.execute(_MOVE, {"runs": list(runs), "state": state, "attempt": attempt})


async def end(
    connection: database.Connection, *runs: uuid.UUID, state: str = "Succeeded", reason: str | None = None
) -> None:
    """Live runs into history."""
    parameters = {"runs": list(runs), "state": state, "reason": reason, "now": await database.now(connection)}
    await connection.execute(_END, parameters)


async def skip(
    connection: database.Connection, job_id: uuid.UUID, *, last_at: datetime, count: int = 1, reason: str = "Forbid"
) -> None:
    """A row about slots that did not run."""
    await connection.execute(
        "INSERT INTO skips (job_id, owner, job_name, labels, first_at, last_at, count, reason, recorded_at) "
        "SELECT job_id, owner, name, labels, %(at)s, %(at)s, %(count)s, %(reason)s::skip_reason, %(at)s "
        "FROM jobs WHERE job_id = %(job_id)s",
        {"job_id": job_id, "at": ids.whole_ms(last_at), "count": count, "reason": reason},
    )
