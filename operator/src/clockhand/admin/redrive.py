"""`clockhand redrive`: many ended runs are tried again, once their cause is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import click

from clockhand import config, errors
from clockhand.domain import instants, limits, states
from clockhand.engine import limits as limit_files
from clockhand.engine import redrive
from clockhand.store import database, migrations, redrives, runs

ACTOR = "clockhand redrive"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for on the command line."""

    owner: str
    job: str | None
    state: str
    since: str | None
    until: str | None
    limit: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it so far. With `dry_run` nothing did: it is what would."""

    redriven: int = 0
    passed_over: int = 0
    dry_run: bool = False


async def tell(settings: config.Settings, *, asked: Wanted, output: str, write: Callable[[str], None]) -> None:
    """Redrives what is asked for, and `write`s what came of it; on stderr after each batch how far it is."""

    def so_far(done: Done) -> None:
        click.echo(f"clockhand: {done.redriven} so far", err=True)

    done = await run(settings, asked, tell=so_far)
    write((as_json if output == "json" else as_text)(done))


async def run(settings: config.Settings, wanted: Wanted, *, tell: Callable[[Done], None]) -> Done:
    """Redrives what is wanted, batch by batch; after each one `tell` is told how far it is."""
    db = database.Database(settings.database_url, size=1, name="redrive", options=settings.database_session_options)
    await db.open()
    try:
        await migrations.check(db)
        caps = limit_files.LimitsFile(settings.limits).current if settings.limits else None
        return await _all(db, wanted, caps=caps, tell=tell)
    finally:
        await db.close()


async def _all(
    db: database.Database, wanted: Wanted, *, caps: limits.Limits | None, tell: Callable[[Done], None]
) -> Done:
    async with db.transaction() as connection:
        selection = _selection(wanted, await database.now(connection))
    done, after = Done(dry_run=wanted.dry_run), runs.NO_RUN
    while (most := min(redrive.BATCH, wanted.limit - done.redriven)) > 0:
        async with db.transaction() as connection:
            if wanted.dry_run:
                step = await redrive.count(connection, selection, after=after, most=most)
            else:
                step = await redrive.step(connection, selection, after=after, most=most, actor=ACTOR, caps=caps)
        if step.last is None:
            break
        after = step.last
        done = Done(done.redriven + step.redriven, done.passed_over + step.passed_over, wanted.dry_run)
        tell(done)
    return done


def as_json(done: Done) -> str:
    """What came of it, for programs."""
    return json.dumps({"redriven": done.redriven, "passedOver": done.passed_over, "dryRun": done.dry_run}) + "\n"


def as_text(done: Done) -> str:
    """The same for people."""
    did = "would try" if done.dry_run else "trying"
    text = f"{did} {done.redriven} {'run' if done.redriven == 1 else 'runs'} again\n"
    if done.passed_over:
        why = "whose job is gone or cannot be read by this release, or whose JobClass has changed"
        text += f"passed over {done.passed_over}, {why}\n"
    return text


def _selection(wanted: Wanted, now: datetime) -> redrives.Selection:
    """Raises InvalidInput that names the option which is wrong. A run that dies again meanwhile is not taken twice."""
    if not re.fullmatch(r"(k8s|rest)/\S+", wanted.owner):
        raise errors.InvalidInput("owner", "is no owner: write k8s/NAMESPACE or rest/TENANT")
    return redrives.Selection(
        owner=wanted.owner,
        state=states.RunState(wanted.state),
        ended_before=now,
        job_name=wanted.job,
        since=instants.read(wanted.since, "since") if wanted.since is not None else None,
        until=instants.read(wanted.until, "until") if wanted.until is not None else None,
    )
