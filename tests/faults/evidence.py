"""What the tables say at the end, read in one snapshot: the checker compares it with what the storage of pods saw."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import rows

_RUNS = """
SELECT run_id, job_id, kind::text, key, scheduled_at, state::text, reason, attempt, failures, disruptions, pod_uid, live,
       token, worker
FROM (SELECT run_id, job_id, kind, key, scheduled_at, state, reason, attempt, failures, disruptions, pod_uid, true AS live,
             token, worker
      FROM live_runs WHERE job_id = ANY(%(jobs)s)
      UNION ALL
      SELECT run_id, job_id, kind, key, scheduled_at, state, reason, attempt, failures, disruptions, pod_uid, false,
             token, worker
      FROM run_history WHERE job_id = ANY(%(jobs)s)) AS both_tables
"""
_ATTEMPTS = """
SELECT run_id, attempt, outcome, reason, exit_code, token, ended_at FROM attempts
WHERE run_id = ANY(%(runs)s)
"""
_SKIPS = "SELECT job_id, first_at, last_at, count FROM skips WHERE job_id = ANY(%(jobs)s)"
_CHANGES = """
SELECT one.run_id, one.state::text
FROM run_changes, unnest(runs, states) WITH ORDINALITY AS one (run_id, state, place)
WHERE one.run_id = ANY(%(runs)s)
ORDER BY change_id, place
"""


@dataclass(frozen=True)
class Run:
    """A row of one of the two tables of runs."""

    run_id: uuid.UUID
    job_id: uuid.UUID
    kind: str
    key: str
    scheduled_at: datetime
    state: str
    reason: str | None
    attempt: int
    failures: int
    disruptions: int
    pod_uid: uuid.UUID | None
    live: bool
    token: int | None = None
    worker: str | None = None


@dataclass(frozen=True)
class Attempt:
    """A row about an attempt that did not end well."""

    run_id: uuid.UUID
    attempt: int
    outcome: str
    reason: str
    exit_code: int | None
    token: int | None = None
    """Of one whose end a worker has reported."""
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Skip:
    """Slots that did not run."""

    job_id: uuid.UUID
    first_at: datetime
    last_at: datetime
    count: int


@dataclass(frozen=True)
class Tables:
    """All rows about some jobs. `changes` are (run, state) in the order in which they were stored."""

    runs: list[Run]
    attempts: list[Attempt]
    skips: list[Skip]
    changes: list[tuple[uuid.UUID, str]]


def read(url: str, job_ids: Collection[uuid.UUID]) -> Tables:
    """Everything stored about these jobs."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        jobs = {"jobs": list(job_ids)}
        found = connection.cursor(row_factory=rows.class_row(Run)).execute(_RUNS, jobs).fetchall()
        runs = {"runs": [run.run_id for run in found]}
        return Tables(
            runs=found,
            attempts=connection.cursor(row_factory=rows.class_row(Attempt)).execute(_ATTEMPTS, runs).fetchall(),
            skips=connection.cursor(row_factory=rows.class_row(Skip)).execute(_SKIPS, jobs).fetchall(),
            changes=[(row[0], row[1]) for row in connection.execute(_CHANGES, runs).fetchall()],
        )
