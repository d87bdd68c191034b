"""What is kept in the database, and whether it is looked after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clockhand import errors
from clockhand.admin.doctor.patient import LIMIT, Patient
from clockhand.domain import clock as clocks
from clockhand.domain import findings, instants
from clockhand.domain.findings import Finding, counted
from clockhand.engine import answers
from clockhand.engine import limits as limit_files
from clockhand.store import database, doctor, installation, migrations, partitions, pruning

MANY_DEAD = 10_000
"""Rows; fewer of them slow nothing down."""
MANY_CHANGED = 100_000
UNVACUUMED = timedelta(minutes=10)
"""A busy table has many dead rows from one vacuum to the next, which is a minute or two."""
_LATE = timedelta(hours=3)
"""Retention has its turn every hour."""
_WEEK = timedelta(weeks=1)
_SOON = timedelta(days=7)


async def schema(patient: Patient) -> Finding:
    """The tables are those of this release."""
    try:
        to_come = await migrations.check(patient.db)
    except errors.SchemaMismatch as error:
        return findings.error(str(error), "run `clockhand migrate` of the release that is to run")
    waits = f", and {' and '.join(to_come)} of it may come by `clockhand migrate --after`" if to_come else ""
    return findings.ok(f"the schema fits this release{waits}")


async def clock(patient: Patient) -> Finding:
    """A clock that jumped keeps everything from firing until somebody believes it."""
    async with doctor.reading(patient.db) as connection:
        stored = (await installation.clock(connection)).stored
    if stored.step is not None:
        return findings.error(
            f"the database's clock jumped by {clocks.signed(stored.step)}: nothing fires",
            "`clockhand clock` tells more; where it is right now, `clockhand clock --confirm` goes on",
        )
    return findings.ok("the database's clock is trusted")


async def epoch(patient: Patient) -> Finding:
    """A promoted standby may have lost the newest claims: what grew from them has to start anew, higher."""
    row = await patient.row("epoch")
    if row.promoted:
        return findings.error(
            "the database was promoted and no replica has noticed: fencing tokens may repeat",
            "see that an operator or an API process runs: it raises the epoch within seconds",
        )
    return findings.ok(f"epoch {row.epoch}")


async def table_settings(patient: Patient) -> Finding:
    """Tables that change all the time need more vacuum than others, and room on their pages."""
    async with doctor.reading(patient.db) as connection:
        changed = await doctor.changed_options(connection)
    if changed:
        return findings.warning(
            f"{counted(len(changed), 'table')} with other settings than the migrations gave",
            "set them back",
            [f"{name}: {', '.join(options)}" for name, options in changed.items()],
        )
    return findings.ok("tables have the settings that the migrations gave them")


async def bloat(patient: Patient) -> Finding:
    """Dead rows are read with the others until vacuum removes them."""
    wanting = await bloated(patient)
    if wanting:
        return findings.warning(
            f"{counted(len(wanting), 'table')} with many dead or unanalysed rows: statements get slow",
            "vacuum and analyse; where it comes back, look at `snapshots` and `autovacuum`",
            [sentence for _, sentence in wanting],
        )
    return findings.ok("few rows are dead")


async def bloated(patient: Patient) -> Sequence[tuple[str, str]]:
    """The tables that want vacuum, each with a sentence."""
    rows = await patient.rows("tables", tables=list(doctor.TABLES))
    return [
        (row.name, f"{row.name}: {row.dead} dead of {row.live + row.dead} rows, {_vacuumed(row.vacuumed_at)}")
        for row in rows
        if _is_bloated(patient, row) or (row.analysed_at is None and row.changed > MANY_CHANGED)
    ]


def _is_bloated(patient: Patient, row: Any) -> bool:
    since = row.vacuumed_at
    return row.dead > max(MANY_DEAD, row.live) and (since is None or patient.clock - since > UNVACUUMED)


async def weeks(patient: Patient) -> Finding:
    """A run whose week has no partition cannot end, and old weeks are dropped whole."""
    oldest = patient.now - timedelta(days=patient.settings.retention_days)
    async with doctor.reading(patient.db) as connection:
        there = {row.name for row in await database.fetch(connection, "partitions.existing")}
        left = await pruning.detached(connection)
        expired = await partitions.expired(connection, oldest - 2 * _WEEK)
        in_use = await pruning.weeks_in_use(connection, oldest)
    missing = [name for name in _wanted(patient) if name not in there]
    if missing:
        return findings.error(
            f"{counted(len(missing), 'partition')} missing: runs of those weeks cannot end",
            "make them, and see that an operator runs, which does so each hour",
            missing,
        )
    if left:
        return findings.warning(f"{counted(len(left), 'partition')} detached and not dropped", "drop them", left)
    stale = [name for _, name in expired if partitions.week_of(name) not in in_use]
    if stale:
        return findings.warning(
            f"{counted(len(stale), 'partition')} older than {patient.settings.retention_days} days",
            "see that an operator runs and can have the lock: it drops them each hour",
            stale,
        )
    return findings.ok(f"{counted(len(there), 'partition')}, two weeks ahead")


async def kept(patient: Patient) -> Finding:
    """Answers and keys are kept for a day."""
    row = await patient.row("kept")
    before = patient.now - answers.KEPT_FOR - _LATE
    overdue = [name for name, at in (("answers", row.answers), ("keys", row.keys)) if at is not None and at < before]
    if overdue:
        return findings.warning(
            f"{' and '.join(overdue)} of more than a day ago are still kept",
            "delete them, and see that an operator runs, which does so each hour",
        )
    return findings.ok("nothing is kept for longer than a day")


async def limits(patient: Patient) -> Finding:
    """A file of limits that cannot be read leaves the limits before it, and keeps a process from starting."""
    path = patient.settings.limits
    if path is None:
        return findings.skipped("CLOCKHAND_LIMITS names no file")
    try:
        limit_files.LimitsFile(path)
    except errors.InvalidInput as error:
        return findings.error(f"it cannot be used: {error}", "correct the file: it is read again within seconds")
    return findings.ok(f"{path} can be read")


async def tokens(patient: Patient) -> Finding:
    """A worker or a client whose token has expired is refused."""
    rows = await patient.rows("tokens", after=patient.now - _SOON, before=patient.now + _SOON, limit=LIMIT)
    if rows:
        return findings.warning(
            f"{counted(len(rows), 'token')} expired within the last week or will within the next",
            "make another by `clockhand tokens create`, or revoke what is not needed",
            [f"{row.name} ({row.role} of {row.owner}): {instants.rfc3339(row.expires_at)}" for row in rows],
        )
    return findings.ok("no token expires within a week")


async def make_weeks(patient: Patient) -> Sequence[str]:
    """The partitions that are missing, and none that was detached and left."""
    dropped = await doctor.drop_detached(patient.db)
    made = await doctor.make_partitions(patient.db, now=patient.now, retention_days=patient.settings.retention_days)
    return [*(f"dropped {name}" for name in dropped), *(f"made {name}" for name in made)]


async def restore_settings(patient: Patient) -> Sequence[str]:
    """Each table as the migrations made it."""
    async with patient.db.transaction() as connection:
        return [f"set {name} back" for name in await doctor.restore_options(connection)]


async def vacuum(patient: Patient) -> Sequence[str]:
    """Those tables that want it."""
    names = [name for name, _ in await bloated(patient)]
    await doctor.vacuum(patient.db, names)
    return [f"vacuumed {name}" for name in names]


async def forget_kept(patient: Patient) -> Sequence[str]:
    """What was kept for more than a day."""
    done = []
    for statement in ("old_answers", "old_keys"):
        count, size = 0, pruning.LIMIT
        while size == pruning.LIMIT:
            async with patient.db.transaction() as connection:
                size = await pruning.sweep(connection, statement, before=patient.now - answers.KEPT_FOR)
            count += size
        if count:
            done.append(f"deleted {counted(count, 'row')} of {statement.removeprefix('old_')}")
    return done


def _wanted(patient: Patient) -> Sequence[str]:
    """From the week of the retention's beginning to that of a week from now; those beyond are made every hour."""
    first = patient.now - timedelta(days=patient.settings.retention_days)
    ahead = patient.settings.retention_days + _WEEK.days
    dates = {(first + timedelta(days=day)).astimezone(UTC).date() for day in range(ahead + 1)}
    found = {partitions.name_of(parent, date) for date in dates for parent in partitions.PARENTS}
    return sorted(found)


def _vacuumed(at: datetime | None) -> str:
    return "never vacuumed" if at is None else f"vacuumed at {instants.rfc3339(at)}"
