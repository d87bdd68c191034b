"""Which statements the database ran, and how often: counted by the server itself.

What opens and closes transactions is left out; everything else counts, also what a replica asks just to keep its leases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import psycopg

SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
    "pg_stat_statements.track_utility": "off",
    "pg_stat_statements.max": "5000",
}
_COUNT = """
SELECT calls, total_exec_time AS milliseconds, rows, query FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND query !~ '(pg_stat_statements|benchmarks/)' ORDER BY calls DESC
"""
_SHOWN = 90


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement, its constants taken out."""

    calls: int
    milliseconds: float
    rows: int
    query: str

    @property
    def words(self) -> str:
        """The beginning, on one line."""
        return " ".join(line.strip() for line in self.query.splitlines() if not line.startswith("--"))[:_SHOWN]


class Counter:
    """Counts the statements of one database from `reset` on. Its own are not among them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def reset(self) -> None:
        self._execute("SELECT pg_stat_statements_reset()")

    def read(self) -> Sequence[Statement]:
        """Most frequent first."""
        return [Statement(*row) for row in self._execute(_COUNT).fetchall()]

    def _execute(self, statement: str) -> psycopg.Cursor[Any]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return psycopg.ClientCursor(connection).execute(statement.encode())


def calls(found: Sequence[Statement]) -> int:
    return sum(statement.calls for statement in found)
