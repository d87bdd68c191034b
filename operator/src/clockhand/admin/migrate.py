"""`clockhand migrate`: the schema of this release, partitions ahead, and the epoch after a restore."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from datetime import timedelta

import click

from clockhand import config, errors
from clockhand.store import database, doctor, installation, migrations, partitions

_SILENT = timedelta(seconds=60)
"""Longer than any fail-over takes."""


async def run(settings: config.Settings, *, check: bool, after: bool, restored: bool) -> None:
    """Applies what is missing, or with `check` says whether anything is."""
    db = database.Database(settings.database_url, size=2, name="migrate", options=settings.database_session_options)
    await db.open()
    try:
        if check:
            _tell(await migrations.check(db))
            return
        if after and await migrations.is_there(db):
            await _refuse_beside_others(db)
        for name in await migrations.apply(db, after=after):
            click.echo(f"applied {name}")
        async with db.transaction() as connection:
            now = await database.now(connection)
            await partitions.ensure_window(connection, now=now, retention_days=settings.retention_days)
            if restored:
                click.echo(f"epoch {await installation.settle_epoch(connection, restored=True)}")
        _tell(await migrations.check(db))
    finally:
        await db.close()


def _tell(to_come: Sequence[str]) -> None:
    for name in to_come:
        click.echo(f"{name} is to come: `clockhand migrate --after`, once nobody wants an older release back")
    click.echo("the schema fits this release")


async def _refuse_beside_others(db: database.Database) -> None:
    """What ends a release is not for a database on which one still works."""
    async with db.transaction() as connection:
        now = await database.now(connection)
        rows = await doctor.some(connection, "replicas")
    mine = importlib.metadata.version("clockhand")
    live = [row for row in rows if now - row.last_seen <= _SILENT]
    others = [f"{row.replica} ({row.release or 'unknown'})" for row in live if row.release != mine]
    if others:
        raise errors.Conflict(
            f"processes of other releases than {mine} work on the database: {', '.join(others)}. End the roll-out first; "
            f"a process that was killed counts for {_SILENT.total_seconds():.0f} s more"
        )
