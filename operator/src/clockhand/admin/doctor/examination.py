"""The checks made, one after the other, and what is mended of what they found."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from clockhand import config, errors
from clockhand.admin.doctor import table
from clockhand.admin.doctor.patient import Patient
from clockhand.domain import findings
from clockhand.domain.findings import Finding, Verdict
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database, doctor, installation

_PATIENCE = 10.0
_MEND_SECONDS = 3600
_UNWELL = (Verdict.ERROR, Verdict.SKIPPED)


@dataclass(frozen=True, slots=True)
class Examined:
    """One check, and what it found."""

    check: table.Check
    finding: Finding

    @property
    def can_be_mended(self) -> bool:
        return self.check.remedy is not None and self.finding.verdict in (Verdict.WARNING, Verdict.ERROR)


@dataclass(frozen=True, slots=True)
class Mended:
    """What was done about one finding, or with `planned` would be; `failure` says why not."""

    name: str
    does: str
    planned: bool = False
    done: tuple[str, ...] = ()
    failure: str = ""


@contextlib.asynccontextmanager
async def admitted(
    settings: config.Settings, *, here: Callable[[], datetime], with_cluster: bool = True
) -> AsyncIterator[Patient]:
    """The installation that the settings name, as far as it can be reached. Raises InvalidInput where they name none."""
    reachable = await _is_reachable(settings)
    db = database.Database(
        settings.database_url,
        size=1,
        name="doctor",
        options=settings.database_session_options,
        patience=_PATIENCE,
        statement_seconds=_MEND_SECONDS,
    )
    async with contextlib.AsyncExitStack() as stack:
        cluster, clusterless = await _connected(settings, stack) if with_cluster else (None, _LEFT_OUT)
        now, clock = await _times(db, stack, here) if reachable else (here(), here())
        yield Patient(settings, db, cluster, clusterless, now=now, clock=clock, here=here)


async def examine(patient: Patient, names: Collection[str] = ()) -> Sequence[Examined]:
    """Makes the named checks (none named: all), and beforehand those that they need."""
    wanted = [table.BY_NAME[name] for name in names] or table.CHECKS
    needed = {name for check in wanted for name in (check.name, *check.needs)}
    found: dict[str, Finding] = {}
    for check in table.CHECKS:
        if check.name in needed:
            found[check.name] = await _look(patient, check, found)
    return [Examined(check, found[check.name]) for check in table.CHECKS if check in wanted]


async def mend(patient: Patient, one: Examined) -> Mended:
    """Does what can be done about it."""
    remedy = one.check.remedy
    assert remedy is not None
    try:
        with doctor.translated():
            done = await remedy.mend(patient)
    except errors.ClockhandError as error:
        return Mended(one.check.name, remedy.does, failure=str(error))
    return Mended(one.check.name, remedy.does, done=tuple(done))


def plan(one: Examined) -> Mended:
    """What `mend` would do."""
    assert one.check.remedy is not None
    return Mended(one.check.name, one.check.remedy.does, planned=True)


_LEFT_OUT = findings.skipped("left out by --no-cluster")


async def _look(patient: Patient, check: table.Check, found: dict[str, Finding]) -> Finding:
    unwell = [name for name in check.needs if found[name].verdict in _UNWELL]
    if unwell:
        return findings.skipped(f"it needs `{unwell[0]}`")
    try:
        with doctor.translated():
            return await check.look(patient)
    except errors.Refused as error:
        return findings.skipped(f"this account may not look: {error}")
    except errors.ClockhandError as error:
        return findings.skipped(f"it could not be looked at: {error}")
    except Exception as error:  # a mistake in one check hides nothing of the others
        return findings.skipped(f"the check itself failed, please report it: {type(error).__name__}: {error}")


async def _connected(
    settings: config.Settings, stack: contextlib.AsyncExitStack
) -> tuple[clients.Client | None, Finding | None]:
    try:
        connection = await connections.find_if_any(settings.kubeconfig)
    except (errors.InvalidInput, errors.Unavailable) as error:
        return None, findings.error(str(error), "correct CLOCKHAND_KUBECONFIG or KUBECONFIG, or leave out the cluster")
    if connection is None:
        return None, findings.skipped("nothing names a cluster: neither a kubeconfig nor a service account")
    return await stack.enter_async_context(clients.connect(connection)), None


async def _is_reachable(settings: config.Settings) -> bool:
    """Asked first: a pool would try again and again, and log each time."""
    try:
        await doctor.reach(settings.database_url)
    except errors.Unavailable:
        return False
    return True


async def _times(
    db: database.Database, stack: contextlib.AsyncExitStack, here: Callable[[], datetime]
) -> tuple[datetime, datetime]:
    """The installation's time and that of the database's clock; this host's where the tables are not there yet."""
    await db.open()
    stack.push_async_callback(db.close)
    with contextlib.suppress(errors.ClockhandError), doctor.translated():
        async with doctor.reading(db) as connection:
            found = await installation.clock(connection)
        return found.stored.time_at(found.shows), found.shows
    return here(), here()
