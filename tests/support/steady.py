"""Jobs that fall due all the time, and what must be true of their runs whatever happens meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta

from tests.support import objects, runs
from tests.support.kubectl import Kubectl, wait_for

JOBS = tuple(f"steady-{number}" for number in range(3))
EVERY = timedelta(seconds=10)


def account_for_every_slot(team: Kubectl, meanwhile: Callable[[], None]) -> None:
    """Each slot of the jobs has one run, and its first attempt was enough, although `meanwhile` happened."""
    # no slot may be left out, however late
    catch_up = {"policy": "All", "limit": 100}
    team.apply(*(objects.job(name, schedule=None, every="10s", catchUp=catch_up) for name in JOBS))
    for name in JOBS:
        wait_for(f"a first run of {name}", functools.partial(_ended, team, name))
    meanwhile()
    last = slots(team, JOBS[0])[-1]
    wait_for("runs of afterwards", lambda: slots(team, JOBS[0])[-1] > last)
    for name in JOBS:
        team.run("patch", "sjob", name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    for name in JOBS:
        wait_for(f"every run of {name} to end", functools.partial(_all_ended, team, name))
        fell_due = slots(team, name)
        assert fell_due == [fell_due[0] + EVERY * number for number in range(len(fell_due))]
        assert {run["status"]["attempt"] for run in runs.of_job(team, name)} == {1}
    team.run("delete", "sjob", *JOBS)


def slots(team: Kubectl, name: str) -> list[datetime]:
    """For which instants the job has runs, a repeated one as often."""
    return sorted(runs.scheduled_at(run) for run in runs.of_job(team, name))


def _ended(team: Kubectl, name: str) -> list[runs.Run]:
    return [run for run in runs.of_job(team, name) if runs.state(run) == "Succeeded"]


def _all_ended(team: Kubectl, name: str) -> bool:
    return len(_ended(team, name)) == len(runs.of_job(team, name))
