"""What people do with a ScheduledJob: apply, edit, suspend, resume, delete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support import objects, runs
from tests.support.installation import Installation
from tests.support.kubectl import Kubectl, bundle, wait_for

MINUTE = timedelta(minutes=1)
TWO_MINUTES = 150.0


def test_an_applied_job_makes_a_pod_and_a_run_at_its_minute(fleet: Kubectl) -> None:
    def first() -> runs.Run | None:
        return next((run for run in runs.of_job(fleet, "minutely") if runs.state(run) == "Succeeded"), None)

    run = wait_for("a run of minutely that succeeded", first, seconds=TWO_MINUTES)
    slot = runs.scheduled_at(run)
    assert slot.second == 0
    assert run["metadata"]["name"] == f"minutely-{slot:%Y%m%dt%H%M}00z"
    assert run["metadata"]["labels"]["team"] == "fleet"
    assert re.fullmatch(r"[0-9a-f-]{14}8[0-9a-f-]{21}", run["metadata"]["uid"])


def test_the_table_of_jobs_tells_last_and_next(fleet: Kubectl) -> None:
    def line() -> str | None:
        text = fleet.run("get", "sjob", "minutely").out
        header, row = text.splitlines()
        assert header.split() == ["NAME", "SCHEDULE", "TIME", "ZONE", "SUSPEND", "ACTIVE", "LAST", "NEXT", "AGE"]
        # NEXT is the only instant in the row; LAST and AGE are durations
        return row if re.search(r"UTC +false +\d+ +\d+m?\d*s? +\d{4}-\d\d-\d\dT\d\d:\d\d:00Z ", row) else None

    assert wait_for("LAST and NEXT of minutely", line, seconds=TWO_MINUTES)


@pytest.fixture(scope="module")
def changed(fleet: Kubectl) -> datetime:
    """`edited` gets a new schedule and `suspended` goes on, both after this instant."""
    wait_ready(fleet, "edited")
    created = runs.instant(fleet.get("sjob", "suspended")["metadata"]["creationTimestamp"])
    # a slot has to fall into the suspension, or there would be nothing to burst
    wait_for("a slot to pass", lambda: datetime.now(UTC) > created + MINUTE, seconds=90)
    assert runs.of_job(fleet, "edited") == []
    assert runs.of_job(fleet, "suspended") == []
    before = datetime.now(UTC)
    edit = '{"spec":{"schedule":"* * * * *"}}'
    fleet.run("patch", "sjob", "edited", "--type=merge", "-p", edit)
    fleet.run("patch", "sjob", "suspended", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    return before


def test_an_edit_is_not_retroactive(fleet: Kubectl, changed: datetime) -> None:
    found = wait_for("a run of edited", lambda: runs.of_job(fleet, "edited"), seconds=TWO_MINUTES)
    assert all(runs.scheduled_at(run) > changed for run in found)
    assert not runs.skipped_of_job(fleet, "edited")


def test_a_resume_brings_no_burst(fleet: Kubectl, changed: datetime) -> None:
    found = wait_for("a run of suspended", lambda: runs.of_job(fleet, "suspended"), seconds=TWO_MINUTES)
    assert all(runs.scheduled_at(run) > changed for run in found)
    (skipped,) = runs.skipped_of_job(fleet, "suspended")
    assert runs.reason(skipped) == "Suspended"


@pytest.mark.parametrize("policy", [{}, {"onDelete": "Finish"}], ids=["default", "Finish"])
def test_deleting_a_job_lets_its_live_run_finish(
    here: Kubectl, installation: Installation, policy: dict[str, Any]
) -> None:
    job = f"leaves-{'said' if policy else 'default'}"
    here.apply(objects.job(job, objects.until_told(), podRetention={"succeededSeconds": 600}, **policy))
    runs.start(here, job, f"{job}-now")
    runs.wait_state(here, f"{job}-now", "Running")
    here.run("delete", "sjob", job)
    wait_for("the deletion to be seen", lambda: not accepts_runs(here, job))
    installation.let_finish(here, runs.running_pod(here, job))
    runs.wait_state(here, f"{job}-now", "Succeeded")
    # the container has ended, and the pod is about to show it: it was not deleted with its job
    wait_for("the pod to succeed", lambda: phases(runs.pods_of(here, job)) == ["Succeeded"])


def test_deleting_a_job_with_on_delete_cancel_stops_its_live_run(here: Kubectl) -> None:
    here.apply(objects.job("cancels", objects.until_told(), onDelete="Cancel"))
    runs.start(here, "cancels", "cancels-now")
    runs.wait_state(here, "cancels-now", "Running")
    here.run("delete", "sjob", "cancels")
    run = runs.wait_state(here, "cancels-now", "Cancelled")
    assert runs.reason(run) == "JobDeleted"
    wait_for("its pod to go", lambda: not runs.pods_of(here, "cancels"))


def test_deleting_a_job_cancels_its_waiting_run(here: Kubectl, installation: Installation) -> None:
    here.apply(objects.job("queues", objects.until_told(), concurrencyPolicy="Queue"))
    runs.start(here, "queues", "queues-first")
    runs.start(here, "queues", "queues-second")
    runs.wait_state(here, "queues-first", "Running")
    runs.wait_state(here, "queues-second", "Blocked", "Queued")
    here.run("delete", "sjob", "queues")
    run = runs.wait_state(here, "queues-second", "Cancelled")
    assert runs.reason(run) == "JobDeleted"
    # the mirror has seen the deletion, and the live run goes on
    assert runs.state(here.get("run", "queues-first")) == "Running"
    installation.let_finish(here, runs.running_pod(here, "queues"))
    runs.wait_state(here, "queues-first", "Succeeded")


def accepts_runs(kubectl: Kubectl, job: str) -> bool:
    """Whether a manual run of the job would be made; asked by a dry run."""
    body = bundle([runs.manual(f"{job}-late", job)])
    return kubectl.call("create", "--dry-run=server", "-f", "-", stdin=body).code == 0


def phases(pods: list[Mapping[str, Any]]) -> list[str]:
    return [pod["status"]["phase"] for pod in pods]


def wait_ready(kubectl: Kubectl, job: str) -> None:
    kubectl.run("wait", "--for=condition=Ready", f"sjob/{job}", "--timeout=120s", seconds=130)
