"""Time-outs: of a pod that cannot start, of an attempt, and of a run as a whole. Database time decides."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from clockhand.domain import states
from clockhand.engine import pauses
from clockhand.store import database, runs

BATCH = 500


class Deadlines:
    """Ends what is past its deadline in the held shards."""

    def __init__(self, db: database.Database) -> None:
        self._db = db

    async def run_once(self, shards: Collection[int], *, gated: Collection[runs.Key] = ()) -> int:
        """Ends or stops overdue runs; returns how many. The pods of `gated` attempts are held back on purpose."""
        if not shards:
            return 0
        dead: set[uuid.UUID] = set()
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            if gated:
                await runs.extend_pending(connection, list(gated), now=now)
            found = await runs.overdue(connection, shards=shards, now=now, limit=BATCH)
            waiting = [row.run_id for row in found if states.RunState(row.state) in states.WAITING]
            if waiting:
                ended = await runs.cancel_waiting(
                    connection,
                    run_ids=waiting,
                    reason=states.Reason.RUN_TIMEOUT,
                    state=states.RunState.DEAD,
                    now=now,
                )
                dead.update(row.job_id for row in ended)
            for reason, run_ids in _by_reason(found, set(waiting)).items():
                await runs.stop_open(connection, run_ids=run_ids, reason=reason)
        await pauses.pause(self._db, dead)
        return len(found)


def _by_reason(found: Sequence[Any], waiting: set[uuid.UUID]) -> Mapping[str, list[uuid.UUID]]:
    groups: dict[str, list[uuid.UUID]] = {}
    for row in found:
        if row.run_id not in waiting:
            groups.setdefault(row.reason, []).append(row.run_id)
    return groups
