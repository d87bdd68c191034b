"""A process waits for the schema that it needs."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from clockhand import errors
from clockhand.store import database, migrations

_LOOK_SECONDS = 3.0
log = structlog.get_logger(__name__)


async def until_it_fits(db: database.Database, stop: asyncio.Event) -> None:
    """Waits for the schema of this release or for `stop`; a database that cannot be reached or is older may yet come."""
    while not stop.is_set():
        try:
            await migrations.check(db)
            return
        except (errors.Unavailable, errors.SchemaMismatch) as error:
            log.warning("waiting_for_database", error=str(error))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stop.wait()
