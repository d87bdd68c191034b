"""`clockhand migrate`: the schema of this release, partitions ahead, and the epoch after a restore."""

from __future__ import annotations

import click

from clockhand import config
from clockhand.store import database, installation, migrations, partitions


async def run(settings: config.Settings, *, check: bool, after: bool, restored: bool) -> None:
    """Applies what is missing, or with `check` says whether anything is."""
    db = database.Database(settings.database_url, size=2, name="migrate", options=settings.database_session_options)
    await db.open()
    try:
        if check:
            await migrations.check(db)
            click.echo("the schema fits this release")
            return
        for name in await migrations.apply(db, after=after):
            click.echo(f"applied {name}")
        async with db.transaction() as connection:
            now = await database.now(connection)
            await partitions.ensure_window(connection, now=now, retention_days=settings.retention_days)
            if restored:
                click.echo(f"epoch {await installation.settle_epoch(connection, restored=True)}")
        click.echo("the schema fits this release")
    finally:
        await db.close()
