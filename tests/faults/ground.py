"""What falls due: jobs in a database, made due by the harness, whoever then makes their runs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from psycopg import rows
from tests.faults.checker import Due

from clockhand.domain import ids, states
from clockhand.engine import requests
from clockhand.store import database

_SPREAD = """
WITH spread AS (UPDATE jobs SET shard = n.shard FROM unnest(%(jobs)s::uuid[], %(shards)s::int[]) AS n (job_id, shard)
                WHERE jobs.job_id = n.job_id RETURNING jobs.job_id, jobs.shard)
UPDATE job_status SET shard = spread.shard %% 256 FROM spread WHERE job_status.job_id = spread.job_id
"""
_MAKE_DUE = """
WITH instant AS (
    SELECT coalesce(%(at)s::timestamptz, date_trunc('milliseconds', clock_timestamp()) - interval '5 milliseconds') AS at)
UPDATE jobs SET next_slot_at = instant.at, next_run_at = instant.at FROM instant
WHERE job_id = ANY(%(jobs)s) AND next_run_at > now() AND last_slot_at < instant.at
RETURNING job_id, next_slot_at
"""
_OPEN = "SELECT count(*) FROM live_runs WHERE job_id = ANY(%s)"
_PENDING = "SELECT count(*) FROM jobs WHERE job_id = ANY(%s) AND next_run_at <= now()"


class Planned(Protocol):
    """A job, as far as what falls due needs to know it."""

    @property
    def name(self) -> str: ...
    @property
    def failing(self) -> int: ...
    @property
    def attempts(self) -> int: ...


P = TypeVar("P", bound=Planned)


@dataclass
class Fleet(Generic[P]):
    """Some jobs that are known to the database, and everything that they were made due for."""

    plans: dict[uuid.UUID, P]
    due: list[Due] = field(default_factory=list)

    @property
    def ids(self) -> list[uuid.UUID]:
        return list(self.plans)


class Ground:
    """A database at `url`, with jobs of one namespace that can be made due."""

    namespace = "faults"
    shards: Sequence[int] = range(ids.SHARDS)

    def __init__(self) -> None:
        self.url = ""
        self._manual = 0

    @property
    def owner(self) -> str:
        return f"k8s/{self.namespace}"

    def make_due(self, fleet: Fleet[Any], *, at: datetime | None = None, manual: bool = True) -> list[Due]:
        """Makes an instant due for each job that has none due, and asks for one manual run; returns what is new.

        The instant is `at`, or a few milliseconds ago.
        """
        found = self._asked(_MAKE_DUE, {"at": at, "jobs": fleet.ids})
        new = [_due(fleet, row.job_id, row.next_slot_at) for row in found]
        if manual:
            new.append(asyncio.run(self._ask_for_run(fleet)))
        fleet.due += new
        return new

    def open_work(self, fleet: Fleet[Any]) -> int:
        """Slots that are due and runs that are not over."""
        return self._count(_OPEN, fleet.ids) + self._count(_PENDING, fleet.ids)

    def pending(self, fleet: Fleet[Any]) -> int:
        return self._count(_PENDING, fleet.ids)

    def query(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows that a statement returns, as named tuples."""
        return self._asked(statement, parameters)

    def _asked(self, statement: str, parameters: Any) -> list[Any]:
        with psycopg.connect(self.url, row_factory=rows.namedtuple_row) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def _count(self, statement: str, parameter: Any) -> int:
        count: int = self.query(statement, parameter)[0][0]
        return count

    def _spread(self, job_ids: Sequence[uuid.UUID]) -> None:
        step = len(self.shards) / len(job_ids)
        self._place(job_ids, [self.shards[int(number * step)] for number in range(len(job_ids))])

    def _place(self, job_ids: Sequence[uuid.UUID], shards: Sequence[int]) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(_SPREAD, {"jobs": list(job_ids), "shards": list(shards)})

    async def _ask_for_run(self, fleet: Fleet[Any]) -> Due:
        self._manual += 1
        job_id = fleet.ids[self._manual % len(fleet.ids)]
        plan, name = fleet.plans[job_id], f"manual-{self._manual}"
        connection: Any = await psycopg.AsyncConnection.connect(self.url, row_factory=rows.namedtuple_row)
        async with connection:
            now = await database.now(connection)
            await requests.request_run(connection, owner=self.owner, job_id=job_id, name=name, actor="test", now=now)
        return Due(job_id, now, plan.failing, plan.attempts, states.RunKind.MANUAL.value, name)


def _due(fleet: Fleet[Any], job_id: uuid.UUID, at: Any) -> Due:
    plan = fleet.plans[job_id]
    return Due(job_id, at, plan.failing, plan.attempts)
