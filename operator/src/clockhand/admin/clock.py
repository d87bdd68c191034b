"""`clockhand clock`: whether the database's clock is trusted, and the end of a pause where somebody confirms it."""

from __future__ import annotations

from collections.abc import Callable

from clockhand import config
from clockhand.domain import clockstate
from clockhand.engine import clock
from clockhand.store import database, migrations


async def tell(settings: config.Settings, *, confirm: bool, output: str, write: Callable[[str], None]) -> None:
    """Confirms the clock where asked to, and `write`s how it stands then."""
    db = database.Database(settings.database_url, size=1, name="clock", options=settings.database_session_options)
    await db.open()
    try:
        await migrations.check(db)
        confirmed = await clock.confirm(db) if confirm else None
        state = await clock.state(db)
    finally:
        await db.close()
    told = clockstate.as_json if output == "json" else clockstate.as_text
    write(f"{told(state, confirmed)}\n")
