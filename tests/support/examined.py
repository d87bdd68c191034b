"""One check of `clockhand doctor` on an installation of a test's own."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from clockhand import config
from clockhand.admin.doctor import examination, table
from clockhand.admin.doctor.patient import Patient
from clockhand.domain import findings, sharding
from clockhand.domain.findings import Finding, Verdict
from clockhand.kube import client as clients
from clockhand.store import database, installation

NO_TIME = timedelta()
OPERATOR = sharding.Role.OPERATOR


def settings_for(url: str, **changes: Any) -> config.Settings:
    """Settings as an administrator's shell gives them."""
    return config.Settings(**{"database_url": url, "replica": "doctor", **changes})


async def patient_of(
    db: database.Database,
    url: str,
    *,
    cluster: clients.Client | None = None,
    later: timedelta = NO_TIME,
    **changes: Any,
) -> Patient:
    """The installation `later` than it is; the processes of its cluster are on this host."""
    async with db.transaction() as connection:
        found = await installation.clock(connection)
    now = found.stored.time_at(found.shows)
    return Patient(
        settings_for(url, **changes),
        db,
        cluster,
        None if cluster else findings.skipped("no cluster in this test"),
        now=now + later,
        clock=found.shows + later,
        here=lambda: datetime.now(UTC) + later,
        reach=lambda _: "127.0.0.1",
    )


async def finding_of(patient: Patient, name: str) -> Finding:
    """What the check finds."""
    [found] = await examination.examine(patient, [name])
    return found.finding


async def mended(patient: Patient, name: str) -> tuple[str, ...]:
    """What the remedy of the check did; a second time there must be nothing to do, and the check must be content."""
    [found] = await examination.examine(patient, [name])
    assert found.can_be_mended, found
    done = await examination.mend(patient, found)
    assert not done.failure, done
    [again] = await examination.examine(patient, [name])
    assert again.finding.verdict is Verdict.OK, again
    return done.done


def hurried(patient: Patient, by: timedelta) -> Patient:
    """The same installation, `by` later."""
    return dataclasses.replace(patient, now=patient.now + by, clock=patient.clock + by)


def names() -> list[str]:
    """Every check."""
    return list(table.BY_NAME)
