"""What is true of the whole installation: its epoch, its time, and its zone data.

Fencing tokens and resource versions grow from counters in the database. A promoted standby or a restored backup may have
gone back in time, and its counters with it; the epoch is their high part, and rises then, so that none is given out twice.

Its time is that of the database's clock, less a step which nobody has confirmed. What is stored was stored in that time:
when a step is believed, every end of a duration moves with it, so that no lease lapses and no attempt times out by it.
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime

from clockhand.domain import clock as clocks
from clockhand.store import database

_PAGE = 5000
_NO_RUN = uuid.UUID(int=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """What the database's clock shows, and what is known of it."""

    shows: datetime
    stored: clocks.Stored


async def settle_epoch(connection: database.Connection, *, restored: bool = False) -> int | None:
    """Raises the epoch where the timeline has changed or the database was `restored`; returns the new one, if any.

    A backup that was restored into a new cluster shows no other timeline: only the person who did it can say so.
    """
    row = await database.fetch_one(connection, "installation.settle_epoch", {"restored": restored})
    return row.epoch if row else None


async def clock(connection: database.Connection) -> Clock:
    """The clock of the database at the start of this transaction."""
    row = await database.fetch_one(connection, "installation.now")
    assert row is not None
    return Clock(row.clock, clocks.Stored(row.clock_step, row.clock_noticed_at))


async def cursor_key(connection: database.Connection) -> bytes:
    """With what the cursors of lists are signed, by every process alike."""
    row = await database.fetch_one(connection, "installation.cursor_key")
    assert row is not None
    return bytes(row.cursor_key)


async def believe_step(connection: database.Connection, stored: clocks.Stored) -> bool:
    """The clock is right and the time leaps by the step; False where somebody else has dealt with it."""
    seen = {"step": stored.step, "noticed_at": stored.noticed_at}
    if stored.step is None or not await database.execute(connection, "installation.believe_step", seen):
        return False
    parameters = {"step": stored.step.total_seconds()}
    await database.execute(connection, "installation.move_leases", parameters)
    await database.execute(connection, "installation.move_expiries", parameters)
    after, size = _NO_RUN, _PAGE
    while size == _PAGE:
        page = {**parameters, "after": after, "limit": _PAGE}
        moved = [row.run_id for row in await database.fetch(connection, "installation.move_runs", page)]
        size = len(moved)
        after = max(moved, default=after)
    return True
