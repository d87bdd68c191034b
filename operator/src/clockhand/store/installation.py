"""What is true of the whole installation: its epoch.

Fencing tokens and resource versions grow from counters in the database. A promoted standby or a restored backup may have
gone back in time, and its counters with it; the epoch is their high part, and rises then, so that none is given out twice.
"""

from __future__ import annotations

from clockhand.store import database


async def settle_epoch(connection: database.Connection, *, restored: bool = False) -> int | None:
    """Raises the epoch where the timeline has changed or the database was `restored`; returns the new one, if any.

    A backup that was restored into a new cluster shows no other timeline: only the person who did it can say so.
    """
    row = await database.fetch_one(connection, "installation.settle_epoch", {"restored": restored})
    return row.epoch if row else None
