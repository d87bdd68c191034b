"""What a check is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clockhand import config
from clockhand.domain import findings
from clockhand.kube import client as clients
from clockhand.store import database, doctor

LIMIT = 200
"""Rows that a check looks at, at most."""


@dataclass(frozen=True, slots=True)
class Patient:
    """An installation: its database, its cluster if it has one, and what time it is."""

    settings: config.Settings
    db: database.Database
    cluster: clients.Client | None
    clusterless: findings.Finding | None
    """Why there is no cluster to look at."""
    now: datetime
    """The installation's time."""
    clock: datetime
    """What the database's clock shows: `now`, and any step of it that nobody has confirmed."""
    here: Callable[[], datetime]
    """What this host's clock shows."""
    reach: Callable[[str], str] = str
    """Where a host of the cluster is: its name says it to whoever has the cluster's resolver."""

    @property
    def api(self) -> clients.Client:
        """The cluster, for checks that come after the one that has reached it."""
        assert self.cluster is not None
        return self.cluster

    async def row(self, name: str, **parameters: object) -> Any:
        """The one row of a query of `doctor.sql`, for a check that asks no more."""
        async with doctor.reading(self.db) as connection:
            return await doctor.one(connection, name, **parameters)

    async def rows(self, name: str, **parameters: object) -> Sequence[Any]:
        """The same for any number of rows."""
        async with doctor.reading(self.db) as connection:
            return await doctor.some(connection, name, **parameters)
