"""The REST API of a process: its parts put together, over connections of its own.

What it asks of the database waits for none of the engine's connections, and the engine never waits for what is asked here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from clockhand import config
from clockhand.api import auth, reviews
from clockhand.api.rest import front, rates, rights, room, routes
from clockhand.engine import limits as limit_files
from clockhand.engine import loops
from clockhand.store import database

PATIENCE = 1.0
"""For a connection: who would wait longer is told to come again."""
STATEMENT_SECONDS = 5


def database_of(settings: config.Settings) -> database.Database:
    """The connections of the REST API."""
    return database.Database(
        settings.database_url,
        size=settings.rest_pool,
        name="rest",
        options=settings.database_session_options,
        patience=PATIENCE,
        statement_seconds=STATEMENT_SECONDS,
    )


class Rest:
    """The REST API over `db`, which has `connections` of them. Without `asked` there is no cluster."""

    def __init__(
        self,
        db: database.Database,
        *,
        gate: auth.Gate,
        asked: reviews.Reviews | None,
        limits: limit_files.LimitsFile,
        connections: int,
    ) -> None:
        table = routes.Table(())
        self.front = front.Front(
            table,
            gate=gate,
            rights=rights.Rights(asked),
            rates=rates.Rates(lambda owner: limits.current.request_rate(owner)),
            room=room.Room(connections),
            pages={},
        )

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {}

    def end_streams(self) -> None:
        """Ends answers that would go on, before the server waits for the others."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[front.Front]:
        """With its loops, for the length of the block."""
        tasks = [asyncio.create_task(loops.forever(name, step), name=name) for name, step in self.steps().items()]
        try:
            yield self.front
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
