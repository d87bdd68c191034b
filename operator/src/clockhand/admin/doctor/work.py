"""The work itself: who does it, and what nobody does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from clockhand.admin.doctor.patient import LIMIT, Patient
from clockhand.domain import findings, instants
from clockhand.domain.findings import Finding, counted
from clockhand.store import changes as change_rows
from clockhand.store import doctor
from clockhand.store import leases as lease_rows

LATE = timedelta(seconds=10)
SILENT = timedelta(seconds=60)
"""Longer than any fail-over takes."""


async def replicas(patient: Patient) -> Finding:
    """Somebody has to do the work, and all of them should know the same of time zones."""
    async with doctor.reading(patient.db) as connection:
        rows = await doctor.some(connection, "replicas")
        pooled = (await doctor.one(connection, "pooled")).any
    live = [row for row in rows if patient.now - row.last_seen <= SILENT]
    roles = {row.role for row in live}
    needed = {"operator", "api"} if pooled else {"operator"}
    if needed - roles:
        return findings.error(
            f"no {' and no '.join(sorted(needed - roles))} process lives: slots are not fired in time",
            "start it, or read the log of the one that should run",
        )
    silent = [f"{row.replica}, last seen {instants.rfc3339(row.last_seen)}" for row in rows if row not in live]
    if silent:
        return findings.warning(
            f"{counted(len(silent), 'replica')} fell silent within the last hour",
            "read its log: a process that stops as it should takes itself off the list",
            silent,
        )
    for what, found in (("releases", {row.release for row in live}), ("zone data", {row.zone_version for row in live})):
        if len(found) > 1:
            return findings.warning(
                f"replicas have different {what}: {', '.join(sorted(one or 'unknown' for one in found))}",
                "end the roll-out: all should run the same release",
            )
    return findings.ok(f"{counted(len(live), 'replica')} live: {', '.join(sorted(roles))}")


async def shards(patient: Patient) -> Finding:
    """What a shard's holder does for its jobs and pods, nobody does for a shard without one."""
    async with doctor.reading(patient.db) as connection:
        free = {row.role: row.shards for row in await doctor.some(connection, "leases", now=patient.now - LATE)}
        pooled = (await doctor.one(connection, "pooled")).any
    if not pooled:
        free.pop("api")
    things = [f"{count} of 256 shards of {role} processes" for role, count in free.items() if count and role in _ROLES]
    things += [f"the duty {name}" for name in free if name not in _ROLES]
    if things:
        return findings.error(
            "leases have expired and nobody takes them: pods, queues and upkeep are not looked after",
            "see that enough processes run and that they reach the database",
            things,
        )
    return findings.ok("every shard and duty is held")


async def worker_leases(patient: Patient) -> Finding:
    """An attempt whose worker fell silent is ended for it, a lease later at most."""
    async with doctor.reading(patient.db) as connection:
        standing = await lease_rows.standing(connection, now=patient.now)
    forgotten = [one for one in standing if one.forgotten and one.rescue_from < patient.now - SILENT]
    if forgotten:
        count = sum(one.forgotten for one in forgotten)
        return findings.error(
            f"{counted(count, 'attempt')} whose lease lapsed long ago and that nobody ends",
            "see that an API process runs: it rescues them every five seconds",
            [f"{one.forgotten} of {one.worker or 'nobody'} in {one.pool}" for one in forgotten],
        )
    return findings.ok(f"{counted(sum(one.held for one in standing), 'attempt')} of workers, none forgotten")


async def overdue(patient: Patient) -> Finding:
    """A slot starts within seconds, or a row says why it does not."""
    rows = await patient.rows("overdue", before=patient.now - LATE, limit=LIMIT)
    if rows:
        rows = sorted(rows, key=lambda row: row.at)
        return findings.error(
            f"{_at_least(len(rows), 'job')} due for more than 10 seconds and not fired",
            "look at `replicas`, `shards` and `clock`, and at the operators' log",
            [f"{row.owner}/{row.name}, due {instants.rfc3339(row.at)}" for row in rows],
        )
    return findings.ok("no slot is overdue")


async def parked(patient: Patient) -> Finding:
    """A job whose spec cannot be used stops alone, until it is edited."""
    rows = await patient.rows("parked", limit=LIMIT)
    if rows:
        return findings.warning(
            f"{_at_least(len(rows), 'job')} stopped, as they cannot be used as they are",
            "tell their owners: the sentence is in the condition Ready, and an edit ends it",
            [f"{row.owner}/{row.name}: {row.parked}" for row in rows],
        )
    return findings.ok("no job is stopped")


async def changes(patient: Patient) -> Finding:
    """A watch sees a change once it is numbered."""
    row = await patient.row("unnumbered", limit=LIMIT)
    if row.count and patient.clock - row.oldest > LATE:
        return findings.error(
            f"{_at_least(row.count, 'change')} of runs wait to be numbered: watches stand still",
            "look at `snapshots`: no change is numbered above a transaction that is open",
        )
    return findings.ok("changes are numbered")


async def conflicts(patient: Patient) -> Finding:
    """A run is live or over, never both."""
    rows = await patient.rows("conflicts", limit=LIMIT)
    if rows:
        return findings.error(
            f"{counted(len(rows), 'live run')} that history has already",
            "keep the log and report it: it should never happen",
            [f"{row.owner}/{row.name}" for row in rows],
        )
    return findings.ok("no live run is in history")


async def number_changes(patient: Patient) -> Sequence[str]:
    """What can be numbered now."""
    await change_rows.number_pending(patient.db)
    return ["numbered what no open transaction is before"]


_ROLES = ("operator", "api")


def _at_least(number: int, thing: str) -> str:
    text = counted(number, thing)
    return f"at least {text}" if number == LIMIT else text
