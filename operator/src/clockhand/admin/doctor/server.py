"""The PostgreSQL server: whether it keeps what it is given, and what holds it up."""

from __future__ import annotations

from datetime import timedelta

from clockhand import errors
from clockhand.admin.doctor.patient import LIMIT, Patient
from clockhand.domain import findings
from clockhand.domain.findings import Finding, counted
from clockhand.store import doctor

OLDEST = 150_000
OLD = timedelta(minutes=1)
TOO_OLD = timedelta(minutes=15)
"""As long as the change log is kept: a watch that waits for longer has to begin anew."""
_NEVER = ("0", "0ms", "0s")


async def database(patient: Patient) -> Finding:
    """Reachable, new enough, and one that can be written to."""
    try:
        await doctor.reach(patient.settings.database_url)
        row = await patient.row("server")
    except errors.Unavailable as error:
        return findings.error(
            f"it cannot be reached: {error}",
            "see that it runs, and that CLOCKHAND_DATABASE_URL names it and a user who may log in",
        )
    if row.number < OLDEST:
        return findings.error(f"PostgreSQL {row.version} is too old", "use PostgreSQL 15 or newer")
    if row.standby or row.read_only:
        what = "a standby" if row.standby else "read-only"
        return findings.error(
            f"it is {what}: nothing can be stored",
            "name the primary, or all hosts with target_session_attrs=read-write in CLOCKHAND_DATABASE_URL",
        )
    return findings.ok(f"PostgreSQL {row.version} answers")


async def durability(patient: Patient) -> Finding:
    """What is committed must survive a crash of the server."""
    row = await patient.row("settings")
    off = [name for name in ("fsync", "full_page_writes") if not getattr(row, name)]
    if row.synchronous_commit == "off":
        off.append("synchronous_commit")
    if off:
        return findings.error(
            f"{' and '.join(off)} off: a crash of the server loses runs or damages the database",
            "switch on in postgresql.conf; synchronous_commit also for the user that a pooler connects as",
        )
    return findings.ok("fsync, full_page_writes and synchronous_commit are on")


async def standby(patient: Patient) -> Finding:
    """A fail-over must not lose what was committed."""
    async with doctor.reading(patient.db) as connection:
        wanted = (await doctor.one(connection, "settings")).synchronous_standby_names
        rows = await doctor.some(connection, "standbys")
    if any(not row.seen for row in rows):
        return findings.skipped("this user may not see the standbys: grant it pg_read_all_stats")
    synchronous = [row for row in rows if row.sync_state in ("sync", "quorum")]
    if wanted and not synchronous:
        return findings.error(
            "synchronous standbys are asked for and none is connected: every commit waits",
            "start the standby, or take it out of synchronous_standby_names",
        )
    if rows and not synchronous:
        return findings.warning(
            "no standby is synchronous: a fail-over loses what was committed last, and runs are made a second time",
            "name one in synchronous_standby_names, or accept it",
            [row.name for row in rows],
        )
    if not rows:
        return findings.ok("there is no standby")
    return findings.ok(f"{counted(len(synchronous), 'synchronous standby', 'synchronous standbys')} connected")


async def connections(patient: Patient) -> Finding:
    """All replicas together may open no more connections than the server allows."""
    async with doctor.reading(patient.db) as connection:
        row = await doctor.one(connection, "settings")
        replicas = [one for one in await doctor.some(connection, "replicas") if patient.now - one.last_seen < OLD]
    mine = patient.settings
    most = sum(mine.database_pool + (mine.rest_pool if one.role == "api" else 0) for one in replicas)
    numbers = (
        f"{row.connected} of {row.connections} are in use, and {counted(len(replicas), 'replica')} may open {most}"
    )
    if row.connected >= row.connections * 0.95:
        return findings.error(f"connections run out: {numbers}", "raise max_connections, or put a pooler before it")
    if most > row.connections:
        return findings.warning(
            f"there are too few connections: {numbers}",
            "raise max_connections, lower CLOCKHAND_DATABASE_POOL, or put a pooler before it",
        )
    return findings.ok(numbers)


async def timeouts(patient: Patient) -> Finding:
    """A process that hangs in a transaction must not hold up all others."""
    async with doctor.reading(patient.db) as connection:
        await connection.execute("SET LOCAL statement_timeout TO DEFAULT")
        row = await doctor.one(connection, "settings")
    missing = [
        name
        for name, value in (
            ("idle_in_transaction_session_timeout", row.idle_timeout),
            ("statement_timeout", row.statement_timeout),
        )
        if value in _NEVER
    ]
    if missing:
        return findings.warning(
            f"connections have no {' and no '.join(missing)}: a process that hangs holds up all others",
            "behind a pooler set both for the user: ALTER ROLE ... SET idle_in_transaction_session_timeout = '10s'",
        )
    return findings.ok("statements and idle transactions are given up in time")


async def autovacuum(patient: Patient) -> Finding:
    """Rows change all the time: without vacuum tables and indexes grow, and everything gets slower."""
    row = await patient.row("settings")
    off = [name for name in ("autovacuum", "track_counts") if not getattr(row, name)]
    if off:
        return findings.error(
            f"{' and '.join(off)} off: tables only grow", "switch on in postgresql.conf, and reload the server"
        )
    return findings.ok("autovacuum is on")


async def snapshots(patient: Patient) -> Finding:
    """An old transaction keeps vacuum from removing rows, and one that writes keeps watches from seeing changes."""
    rows = await patient.rows("transactions", before=patient.clock - OLD, limit=LIMIT)
    if not rows:
        return findings.ok("no transaction is older than a minute")
    things = [
        f"{row.kind} {row.name} of {row.application or 'an unnamed application'} on {row.base}, "
        f"open for {_whole(patient.clock - row.since)}"
        for row in rows
    ]
    finding = findings.error if patient.clock - rows[0].since > TOO_OLD else findings.warning
    return finding(
        f"{counted(len(rows), 'transaction')} older than a minute: vacuum and the change log wait",
        "end it where it was begun, or by pg_terminate_backend(pid), COMMIT PREPARED or ROLLBACK PREPARED",
        things,
    )


async def slots(patient: Patient) -> Finding:
    """A replication slot that nobody reads keeps old rows and old log for good."""
    rows = await patient.rows("slots")
    if rows:
        return findings.warning(
            f"{counted(len(rows), 'replication slot')} that nobody reads: the disk fills up",
            "start what reads it, or drop it by pg_drop_replication_slot(name)",
            [f"{row.name}, {row.age} transactions old, log {row.wal or 'unknown'}" for row in rows],
        )
    return findings.ok("no replication slot is idle")


async def host_clock(patient: Patient) -> Finding:
    """No host's clock decides anything, but certificates and people go by it."""
    before = patient.here()
    row = await patient.row("server")
    after = patient.here()
    off = row.clock - (before + (after - before) / 2)
    unsure = (after - before) / 2
    if abs(off) - unsure > timedelta(seconds=5):
        return findings.warning(
            f"the database's clock and that of this host are {_whole(abs(off))} apart",
            "let both follow NTP; slots fall due by the database's",
        )
    return findings.ok("the database's clock and that of this host agree")


def _whole(span: timedelta) -> str:
    return str(span).partition(".")[0]
