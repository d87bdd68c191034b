"""Jobs that fall due all the time, and what must be true of their runs whatever happens meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.support import objects, runs
from tests.support.kubectl import Kubectl, wait_for

JOBS = tuple(f"steady-{number}" for number in range(3))
EVERY = timedelta(seconds=10)
# no slot may be left out, however late
WHEN: Mapping[str, Any] = {"schedule": None, "every": "10s", "catchUp": {"policy": "All", "limit": 100}}


def account_for_every_slot(team: Kubectl, meanwhile: Callable[[], None], *, pool: str = "") -> None:
    """Each slot of the jobs has one run, and its first attempt was enough, although `meanwhile` happened.

    One of the jobs is for the workers of `pool`, where it is given, which have a command `steady`.
    """
    made = [objects.job(name, **WHEN) for name in JOBS]
    if pool:
        made.append(objects.pooled_job("steady-worker", "exec", pool, payload={"command": "steady"}, **WHEN))
    names = runs.names(made)
    team.apply(*made)
    for name in names:
        wait_for(f"a first run of {name}", functools.partial(_ended, team, name))
    meanwhile()
    wait_for_more(team, names)
    for name in names:
        team.run("patch", "sjob", name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    for name in names:
        wait_for(f"every run of {name} to end", functools.partial(_all_ended, team, name))
        fell_due = slots(team, name)
        assert fell_due == [fell_due[0] + EVERY * number for number in range(len(fell_due))]
        assert {run["status"]["attempt"] for run in runs.of_job(team, name)} == {1}
    team.run("delete", "sjob", *names)


def wait_for_more(team: Kubectl, names: Sequence[str] = JOBS) -> None:
    """Waits until each job has run for slots that are still to come."""
    for name, last in {name: slots(team, name)[-1] for name in names}.items():
        wait_for(f"a later run of {name}", functools.partial(_ended_after, team, name, last))


def slots(team: Kubectl, name: str) -> list[datetime]:
    """For which instants the job has runs, a repeated one as often."""
    return sorted(runs.scheduled_at(run) for run in runs.of_job(team, name))


def _ended(team: Kubectl, name: str) -> list[runs.Run]:
    return [run for run in runs.of_job(team, name) if runs.state(run) == "Succeeded"]


def _ended_after(team: Kubectl, name: str, last: datetime) -> bool:
    return any(runs.scheduled_at(run) > last for run in _ended(team, name))


def _all_ended(team: Kubectl, name: str) -> bool:
    return len(_ended(team, name)) == len(runs.of_job(team, name))
