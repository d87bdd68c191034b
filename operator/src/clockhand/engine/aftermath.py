"""What the ends of attempts mean for others, acted upon once they are stored: pauses, runs that waited, backfills.

Level-triggered, each of them: what a process that dies here leaves undone is found by the sweeps.
"""

from __future__ import annotations

from clockhand.engine import admit, backfill, pauses, verdicts
from clockhand.store import database


class Aftermath:
    """Follows up what was stored."""

    def __init__(self, db: database.Database) -> None:
        self._db = db
        self._backfill = backfill.Backfill(db)

    async def follow(self, stored: verdicts.Stored) -> int:
        """Does what the stored ends call for; returns how many runs became Queued that had waited for them."""
        await pauses.follow(self._db, stored.pausing)
        promoted = 0
        if stored.jobs:
            async with self._db.transaction() as connection:
                promoted = await admit.promote_for(connection, stored.jobs, now=await database.now(connection))
        # after the promotion: what waits for a place comes before what could have been made long ago
        for backfill_id in stored.backfills:
            promoted += await self._backfill.look(backfill_id)
        return promoted
