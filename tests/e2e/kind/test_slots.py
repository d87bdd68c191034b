"""After everything that the other tests did: no slot is missing, none ran twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support import runs
from tests.support.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.outage
MINUTE = timedelta(minutes=1)


def test_each_minute_of_the_session_has_its_run_or_says_why_not(fleet: Kubectl) -> None:
    created = runs.instant(fleet.get("sjob", "minutely")["metadata"]["creationTimestamp"])
    now = datetime.now(UTC)

    def after_now() -> list[runs.Run]:
        return [run for run in runs.of_job(fleet, "minutely") if runs.scheduled_at(run) > now]

    wait_for("a run after every outage", after_now, seconds=180)
    ran = [runs.scheduled_at(run) for run in runs.of_job(fleet, "minutely")]
    skipped = [slot for skip in runs.skipped_of_job(fleet, "minutely") for slot in slots_of(skip)]
    accounted = sorted(ran + skipped)
    first = created.replace(second=0, microsecond=0) + MINUTE
    assert accounted == [first + MINUTE * number for number in range(len(accounted))]


def slots_of(skip: runs.Run) -> list[datetime]:
    """The slots that one entry stands for."""
    first, last = runs.instant(skip["status"]["firstSkippedTime"]), runs.scheduled_at(skip)
    return [first + MINUTE * number for number in range(int((last - first) / MINUTE) + 1)]
