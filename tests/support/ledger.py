"""What happened to live runs, in the order in which it was committed, and what was taken up after each commit.

A deferred trigger writes it down under a lock that is held until the commit can be seen: so the order of its lines is that
of the commits, and a cap that was exceeded for a moment only is in it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tests.support import jobs

from clockhand.domain import limits, states
from clockhand.domain.states import RunState
from clockhand.store import database

_TRIGGER = """
CREATE TABLE ledger (
    line bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), run_id uuid,
    owner text, pool text, job_id uuid, concurrency_group text, was text, is_now text);
CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run live_runs := coalesce(NEW, OLD);
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    INSERT INTO ledger (run_id, owner, pool, job_id, concurrency_group, was, is_now)
    VALUES (run.run_id, run.owner, run.pool, run.job_id, run.concurrency_group, OLD.state, NEW.state);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER write_down AFTER INSERT OR UPDATE OR DELETE ON live_runs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_down();
"""


@dataclasses.dataclass(frozen=True)
class Taken:
    """What was taken up after a commit, by `owner:`, `pool:`, `job:` or `group:` and a name."""

    xid: int
    counts: Counter[str]


async def begin(connection: database.Connection) -> None:
    """Writes down from now on."""
    await connection.execute(_TRIGGER.encode())


async def taken(connection: database.Connection) -> Iterator[Taken]:
    """After each commit."""
    rows = await jobs.query(connection, "SELECT * FROM ledger ORDER BY line")
    return _replayed(rows)


def caps(found: limits.Limits, jobs_of: dict[str, int]) -> dict[str, int]:
    """Every cap of the limits, and those of jobs by id, under the keys of `Taken.counts`."""
    of: dict[str, int | None] = {f"job:{job_id}": cap for job_id, cap in jobs_of.items()}
    of |= {f"owner:{owner}": found.owner_cap(owner) for owner in found.owners}
    of |= {f"pool:{pool}": found.pool_cap(pool) for pool in found.pools}
    of |= {f"group:{group}": found.group_cap(group) for group in found.groups}
    return {key: cap for key, cap in of.items() if cap is not None}


def _replayed(rows: list[Any]) -> Iterator[Taken]:
    counts: Counter[str] = Counter()
    for xid, lines in groupby(rows, key=lambda row: row.xid):
        for line in lines:
            counts.subtract(_keys(line, line.was))
            counts.update(_keys(line, line.is_now))
        yield Taken(xid, +counts)


def _keys(line: Any, state: str | None) -> list[str]:
    if state is None:
        return []
    keys = []
    if RunState(state) in states.ATTEMPT_OPEN:
        keys += [f"owner:{line.owner}", *([f"pool:{line.pool}"] if line.pool else [])]
    if RunState(state) in states.HOLDS_PLACE:
        keys += [f"job:{line.job_id}", *([f"group:{line.concurrency_group}"] if line.concurrency_group else [])]
    return keys
