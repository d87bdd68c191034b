"""What the ends of attempts mean for others, acted upon once they are stored: pauses, runs that waited, backfills.

Level-triggered, each of them: what a process that dies here leaves undone is found by the sweeps.
"""

from __future__ import annotations

from clockhand.engine import admit, backfill, limits, pauses, verdicts
from clockhand.store import database


class Aftermath:
    """Follows up what was stored."""

    def __init__(self, db: database.Database, file: limits.LimitsFile | None = None) -> None:
        self._db = db
        self._admit = admit.Admit(db, file)
        self._backfill = backfill.Backfill(db, file)

    async def follow(self, stored: verdicts.Stored) -> int:
        """Does what the stored ends call for; returns how many runs became Queued that had waited for them."""
        await pauses.follow(self._db, stored.pausing)
        promoted = await self._admit.follow(stored.jobs) if stored.jobs else 0
        # after the promotion: what waits for a place comes before what could have been made long ago
        for backfill_id in stored.backfills:
            promoted += await self._backfill.look(backfill_id)
        return promoted
