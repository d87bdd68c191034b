"""Every kind of due rule on a cluster: one-shots, intervals, unions, bounds, and slots that nobody was there to fire."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from tests.support import objects, runs
from tests.support.installation import Installation
from tests.support.kubectl import Kubectl, NotYet, wait_for

TEN_SECONDS = timedelta(seconds=10)
MINUTE = timedelta(minutes=1)


@dataclasses.dataclass(frozen=True)
class Applied:
    """When the jobs of this module were applied, by their own creation."""

    kubectl: Kubectl
    soon: datetime
    bound: datetime

    def created(self, name: str) -> datetime:
        return runs.instant(self.kubectl.get("sjob", name)["metadata"]["creationTimestamp"])


@pytest.fixture(scope="module")
def applied(here: Kubectl) -> Applied:
    """All at once, so that they fall due side by side."""
    now = datetime.now(UTC).replace(microsecond=0)
    soon, bound = now + timedelta(seconds=8), now + timedelta(seconds=20)
    union = ["*/2 * * * *", "1-59/2 * * * *", "* * * * *"]
    here.apply(
        objects.job("soon", schedule=None, at=text(soon)),
        objects.job("missed", schedule=None, at=text(now - MINUTE)),
        objects.job("too-late", schedule=None, at=text(now - MINUTE), startingDeadlineSeconds=30),
        objects.job("interval", schedule=None, every="10s"),
        objects.job("bounded", schedule=None, every="4s", startAt=text(soon), endAt=text(bound)),
        objects.job("union", schedule=None, schedules=union),
        objects.job("jittered", schedule=objects.EVERY_MINUTE, jitterSeconds=30),
        objects.job("hashed", schedule="H H * * *"),
        objects.job(
            "failing",
            objects.failing(3),
            schedule=None,
            every="5s",
            retry={"maxAttempts": 1},
            concurrencyPolicy="Forbid",
            pauseAfterFailures=2,
        ),
    )
    return Applied(here, soon, bound)


def test_a_one_shot_runs_once_and_is_finished(here: Kubectl, applied: Applied) -> None:
    (run,) = wait_for("the run of soon", lambda: ended(here, "soon", 1))
    assert runs.scheduled_at(run) == applied.soon
    assert runs.state(run) == "Succeeded"
    wait_ready_reason(here, "soon", "Finished")
    job = wait_for("its last run to be shown", lambda: shows_last(here, "soon"))
    assert "nextRunTime" not in job["status"]


def test_an_instant_before_creation_runs_once_at_once(here: Kubectl, applied: Applied) -> None:
    (run,) = wait_for("the run of missed", lambda: ended(here, "missed", 1))
    assert runs.scheduled_at(run) == applied.soon - timedelta(seconds=8) - MINUTE
    (skipped,) = wait_for("the row of too-late", lambda: runs.skipped_of_job(here, "too-late"))
    assert runs.reason(skipped) == "Deadline"
    assert runs.of_job(here, "too-late") == []


def test_a_finished_one_shot_goes_when_its_time_is_over(here: Kubectl) -> None:
    here.apply(objects.job("goes", schedule=None, at=text(datetime.now(UTC)), ttlSecondsAfterFinished=5))
    wait_for("the object to go", lambda: here.find("sjob", "goes") is None)
    (run,) = runs.of_job(here, "goes")
    assert runs.state(run) == "Succeeded"


def test_an_interval_counts_from_creation(here: Kubectl, applied: Applied) -> None:
    found = wait_for("three runs of interval", lambda: ended(here, "interval", 3))
    first = applied.created("interval") + TEN_SECONDS
    assert [runs.scheduled_at(run) for run in found] == [first + TEN_SECONDS * n for n in range(len(found))]


def test_bounds_hold_the_first_and_the_last_slot(here: Kubectl, applied: Applied) -> None:
    found = wait_for("the runs of bounded", lambda: ended(here, "bounded", 4))
    instants = [applied.soon + timedelta(seconds=4 * n) for n in range(4)]
    assert instants[-1] == applied.bound
    wait_ready_reason(here, "bounded", "Finished")
    assert accounted(here, "bounded", found) == instants


def test_a_union_fires_an_instant_once(here: Kubectl, applied: Applied) -> None:
    found = wait_for("two runs of union", lambda: ended(here, "union", 2), seconds=200)
    first = applied.created("union").replace(second=0) + MINUTE
    assert [runs.scheduled_at(run) for run in found] == [first + MINUTE * n for n in range(len(found))]


def test_jitter_moves_the_start_and_not_the_slot(here: Kubectl, applied: Applied) -> None:
    found = wait_for("two runs of jittered", lambda: ended(here, "jittered", 2), seconds=240)
    assert all(runs.scheduled_at(run).second == 0 for run in found)


def test_a_hashed_schedule_has_a_time_of_its_own(here: Kubectl, applied: Applied) -> None:
    def next_run() -> datetime:
        shown = here.get("sjob", "hashed").get("status", {}).get("nextRunTime")
        if shown is None:
            raise NotYet("no nextRunTime yet")
        return runs.instant(shown)

    found = wait_for("the next run of hashed", next_run)
    assert applied.created("hashed") < found <= applied.created("hashed") + timedelta(days=1)


def test_dead_runs_pause_a_job_until_somebody_resumes_it(here: Kubectl, applied: Applied) -> None:
    wait_for("failing to be paused", lambda: condition_is(here, "failing", "Paused", "True"))
    dead = [run for run in runs.of_job(here, "failing") if runs.state(run) == "Dead"]
    assert len(dead) == 2
    before = datetime.now(UTC)
    for suspend in ("true", "false"):
        here.run("patch", "sjob", "failing", "--type=merge", "-p", f'{{"spec":{{"suspend":{suspend}}}}}')
        wait_for("the edit to be seen", lambda: observed(here, "failing"))
    more = wait_for("another run of failing", lambda: runs.of_job(here, "failing")[2:])
    assert runs.scheduled_at(more[0]) > before
    assert "Paused" in [runs.reason(skipped) for skipped in runs.skipped_of_job(here, "failing")]


@pytest.mark.outage
def test_slots_missed_while_no_replica_was_there_are_caught_up_or_counted(
    here: Kubectl, installation: Installation
) -> None:
    policies = {"latest": {}, "all": {"policy": "All", "limit": 3}, "none": {"policy": "None"}}
    for name, policy in policies.items():
        here.apply(objects.job(f"{name}-missed", schedule=None, every="10s", catchUp=policy))
        wait_for(f"a run of {name}", lambda name=name: ended(here, f"{name}-missed", 1))  # type: ignore[misc]
    installation.stop_operators()
    try:
        gone = datetime.now(UTC)
        wait_for("six slots to pass", lambda: datetime.now(UTC) > gone + 6 * TEN_SECONDS)
    finally:
        installation.start_operators()
    back = datetime.now(UTC)
    for name, kept in (("latest", 1), ("all", 3), ("none", 1)):
        job = f"{name}-missed"
        wait_for(f"{name} to go on", lambda job=job: since(here, job, back))  # type: ignore[misc]
        slots = accounted(here, job, runs.of_job(here, job))
        assert slots == [slots[0] + TEN_SECONDS * n for n in range(len(slots))]
        # replicas that are back fire on time again, a while before they are told to be ready
        again = min(at for run in runs.of_job(here, job) if (at := runs.created_at(run)) > gone + 5 * TEN_SECONDS)
        missed = [run for run in runs.of_job(here, job) if gone < runs.scheduled_at(run) <= again]
        assert len(missed) <= kept + 1, missed  # one slot may have been fired as the replicas went
        assert {runs.reason(skipped) for skipped in runs.skipped_of_job(here, job)} == {"CatchUp"}


def text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def ended(kubectl: Kubectl, job: str, count: int) -> Sequence[runs.Run] | None:
    """The job's runs once `count` of them are over."""
    found = runs.of_job(kubectl, job)
    return found if sum(runs.state(run) in runs.ENDED for run in found) >= count else None


def since(kubectl: Kubectl, job: str, instant: datetime) -> Sequence[runs.Run]:
    return [run for run in runs.of_job(kubectl, job) if runs.scheduled_at(run) > instant]


def accounted(kubectl: Kubectl, job: str, found: Sequence[runs.Run]) -> list[datetime]:
    """The instants of runs and of skipped slots ten (or four) seconds apart, as the rows tell them."""
    step = timedelta(seconds=4) if job == "bounded" else TEN_SECONDS
    instants = [runs.scheduled_at(run) for run in found]
    for skipped in runs.skipped_of_job(kubectl, job):
        first, last = runs.instant(skipped["status"]["firstSkippedTime"]), runs.scheduled_at(skipped)
        instants += [first + step * n for n in range(int((last - first) / step) + 1)]
    return sorted(instants)


def condition_is(kubectl: Kubectl, job: str, kind: str, status: str) -> bool:
    return objects.condition(kubectl.get("sjob", job), kind).get("status") == status


def wait_ready_reason(kubectl: Kubectl, job: str, reason: str) -> None:
    def look() -> bool:
        ready = objects.condition(kubectl.get("sjob", job), "Ready")
        if ready.get("reason") != reason:
            raise NotYet(f"Ready is {ready}")
        return True

    wait_for(f"{job} to be {reason}", look)


def shows_last(kubectl: Kubectl, job: str) -> runs.Run | None:
    thing: runs.Run = kubectl.get("sjob", job)
    return thing if thing.get("status", {}).get("lastSuccessfulTime") else None


def observed(kubectl: Kubectl, job: str) -> bool:
    thing = kubectl.get("sjob", job)
    return bool(thing.get("status", {}).get("observedGeneration") == thing["metadata"]["generation"])
