"""Database time as a test tells it: days pass in a moment, on real rows and with every decision as it is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs

from clockhand.domain import ids, sightings
from clockhand.engine import fire, mirror, status, templates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, duties, partitions
from clockhand.store import status as status_rows

EVERYWHERE = range(ids.SHARDS)
_NOBODY = connections.Connection(server="http://127.0.0.1:1")
_FAR = timedelta(days=3_650)


@dataclasses.dataclass(slots=True)
class Clock:
    """What firing and the mirror take for the database's time. Leases keep to the real one."""

    at: datetime

    async def now(self, _: database.Connection) -> datetime:
        return self.at

    def pass_by(self, **span: float) -> datetime:
        """Moves on; returns the new time."""
        self.at += timedelta(**span)
        return self.at


@contextlib.asynccontextmanager
async def world(db: database.Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world whose clock stands at a full hour of today, with partitions for the weeks around it."""
    async with db.transaction() as connection:
        real = await database.now(connection)
        await partitions.ensure_window(connection, now=real, retention_days=30)
        held = await duties.take(connection, duties.MIRROR, replica="one", lease=timedelta(hours=1))
    assert held
    clock = Clock(real.replace(minute=0, second=0, microsecond=0))
    monkeypatch.setattr(database, "now", clock.now)
    async with clients.connect(_NOBODY) as client:
        yield World(db, clock, mirror.Mirror(db, templates.Templates(db, pods.Pods(client))), held)


class World:
    """A database whose time is told, the mirror that writes to it and the engine that fires from it."""

    def __init__(self, db: database.Database, clock: Clock, store: mirror.Mirror, held: duties.Held) -> None:
        self.db = db
        self.clock = clock
        self._store = store
        self._held = held

    async def see(self, *seen: sightings.Sighting) -> None:
        """The mirror stores these objects now."""
        await self._store.store(self._held, seen)

    async def stop_all(self) -> None:
        """The resource itself is not served any more."""
        await self._store.stop_all(self._held)

    async def fire(self) -> int:
        """Fires what is due now; returns how many jobs had something."""
        total = 0
        while fired := await fire.Fire(self.db).run_once(EVERYWHERE):
            total += fired
        return total

    async def query(self, text: str, *parameters: object) -> list[Any]:
        async with self.db.transaction() as connection:
            return await jobs.query(connection, text, *parameters)

    async def row(self, seen: sightings.Sighting) -> Any:
        [found] = await self.query("SELECT * FROM jobs WHERE job_id = %s", seen.uid)
        return found

    async def runs(self, seen: sightings.Sighting) -> list[datetime]:
        """The slots of the job that became runs."""
        text = "SELECT scheduled_at FROM runs WHERE job_id = %s AND kind = 'Slot' ORDER BY scheduled_at"
        return [at for (at,) in await self.query(text, seen.uid)]

    async def skips(self, seen: sightings.Sighting) -> list[tuple[str, int, datetime, datetime]]:
        text = "SELECT reason::text, count, first_at, last_at FROM skips WHERE job_id = %s ORDER BY skip_id"
        return [tuple(row) for row in await self.query(text, seen.uid)]

    async def shown(self, seen: sightings.Sighting) -> tuple[str | None, str, str]:
        """nextRunTime, and reason and message of Ready, as the object's status will say."""
        async with self.db.transaction() as connection:
            far = self.clock.at + _FAR
            found = await status_rows.dirty(
                connection, EVERYWHERE, written_before=far, settled=far, batch=1_000, usual=1_000
            )
        [one] = [one for one in found if one.job_id == seen.uid]
        shown = status.status_of(one)
        [ready] = [condition for condition in shown["conditions"] if condition["type"] == "Ready"]
        return shown["nextRunTime"], ready["reason"], ready["message"]

    async def written(self) -> None:
        """Takes every object off the list of those to be written, as the writer does."""
        await self.query("UPDATE job_status SET dirty_at = NULL, urgent = false RETURNING 1")
