"""The REST API of a process: its parts put together, over connections of its own.

What it asks of the database waits for none of the engine's connections, and the engine never waits for what is asked here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from clockhand import config
from clockhand.api import auth, bodies, reviews
from clockhand.api.rest import (
    audit,
    cursors,
    front,
    jobs,
    openapi,
    orders,
    page,
    rates,
    rights,
    room,
    routes,
    runs,
    stream,
)
from clockhand.api.runs import feed
from clockhand.engine import limits as limit_files
from clockhand.engine import loops
from clockhand.engine.jobs import service
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


def _pages(table: routes.Table) -> Mapping[str, tuple[str, bytes]]:
    document = openapi.document(table.routes)
    return {
        openapi.PATH: (routes.JSON, msgspec.json.encode(document)),
        page.PATH: ("text/html; charset=utf-8", page.render(document).encode()),
    }


class Rest:
    """The REST API over `db`. Without `asked` there is no cluster.

    `changed` is called when runs have changed, for whoever gives them to workers.
    """

    def __init__(
        self,
        settings: config.Settings,
        db: database.Database,
        *,
        gate: auth.Gate,
        asked: reviews.Reviews | None,
        limits: limit_files.LimitsFile,
        changed: Callable[[], None],
        body_seconds: float = bodies.READ_SECONDS,
    ) -> None:
        self._feed = feed.Feed(db)
        self._jobs = service.Jobs(db, limits)
        marks = cursors.Cursors(db)
        self.table = routes.Table(
            (
                *jobs.JobCalls(self._jobs, db, marks).all(),
                *runs.Runs(db, marks).all(),
                *orders.Orders(db, marks, limits, kept_days=settings.retention_days, changed=changed).all(),
                *stream.Streams(db, self._feed).all(),
                *audit.Audit(self._jobs, marks).all(),
            )
        )
        self.room = room.Room(settings.rest_pool)
        self._front = front.Front(
            self.table,
            gate=gate,
            rights=rights.Rights(asked),
            rates=rates.Rates(lambda owner: limits.current.request_rate(owner)),
            room=self.room,
            pages=_pages(self.table),
            body_seconds=body_seconds,
        )

    def end_streams(self) -> None:
        """Ends answers that would go on, before the server waits for the others."""
        self._feed.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[front.Front]:
        """With its loops, for the length of the block."""
        tasks = [asyncio.create_task(loops.forever("jobs", self._jobs.step)), asyncio.create_task(self._feed.run())]
        try:
            yield self._front
        finally:
            self._feed.close()
            self._jobs.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
