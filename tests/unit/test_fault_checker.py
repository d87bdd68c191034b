"""The checker of the fault tests must be able to fail: a good story passes, and each rule has one that breaks it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.faults import checker, evidence
from tests.faults.recorder import Pod, Recorder

from clockhand.domain import observed

JOB, RUN = uuid.uuid4(), uuid.uuid4()
FIRST, SECOND = uuid.uuid4(), uuid.uuid4()
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


class World:
    """A run that failed once and then succeeded, as it should look from every side."""

    def __init__(self) -> None:
        self.due = [checker.Due(JOB, AT, failing=1, limit=3)]
        self.run = evidence.Run(RUN, JOB, "Slot", "", AT, "Succeeded", None, 2, 1, 0, SECOND, False)
        self.more_runs: list[evidence.Run] = []
        self.attempts = [evidence.Attempt(RUN, 1, "Failed", "Error", 1)]
        self.skips: list[evidence.Skip] = []
        self.changes = ["Queued", "Claimed", "Running", "Retrying", "Queued", "Claimed", "Running", "Succeeded"]
        self.pods = [_pod(FIRST, 1, "Failed"), _pod(SECOND, 2, "Succeeded")]
        self.excuses = checker.Excuses()
        self.has_run = True

    @property
    def tables(self) -> evidence.Tables:
        runs = [*([self.run] if self.has_run else []), *self.more_runs]
        return evidence.Tables(runs, self.attempts, self.skips, [(RUN, state) for state in self.changes])

    def change(self, **fields: Any) -> None:
        self.run = dataclasses.replace(self.run, **fields)

    def rules(self) -> set[str]:
        """The names of the rules that are broken."""
        found = checker.violations(self.due, self.tables, self.pods, self.excuses)
        return {line.split(":")[0].split(" ")[0] for line in found}


def _pod(uid: uuid.UUID, attempt: int, phase: str) -> Pod:
    return Pod(str(uid), "faults", f"job-mark-{attempt}", str(RUN), attempt, "7", phase, gone=True)


def _lose(world: World) -> None:
    world.has_run = False
    world.changes, world.attempts, world.pods = [], [], []


def _double(world: World) -> None:
    world.more_runs.append(dataclasses.replace(world.run, run_id=uuid.uuid4()))


def _invent(world: World) -> None:
    world.due = []


def _keep_in_both(world: World) -> None:
    world.more_runs.append(dataclasses.replace(world.run, live=True))


def _start_twice(world: World) -> None:
    world.pods.append(_pod(uuid.uuid4(), 2, "Succeeded"))


def _start_for_nobody(world: World) -> None:
    world.pods.append(_pod(uuid.uuid4(), 3, "Succeeded"))


def _go_backwards(world: World) -> None:
    world.changes.insert(3, "Claimed")


def _end_twice(world: World) -> None:
    world.changes.append("Succeeded")


def _fail_the_pod(world: World) -> None:
    world.pods[1].phase = "Failed"


def _kill_the_pod(world: World) -> None:
    world.pods[1].asked_alive = True


def _leave_the_pod(world: World) -> None:
    world.pods[1].phase, world.pods[1].gone = "Running", False


BREAKAGES: list[tuple[str, Callable[[World], Any]]] = [
    ("lost", _lose),
    ("doubled", _double),
    ("doubled", _keep_in_both),
    ("phantom", _invent),
    ("second-pod", _start_twice),
    ("phantom-pod", _start_for_nobody),
    ("not-terminal", lambda world: world.change(live=True, state="Running")),
    ("wrong-state", lambda world: world.change(state="Dead")),
    ("false-failure", lambda world: world.change(state="Dead")),
    ("false-success", _fail_the_pod),
    ("false-success", lambda world: world.change(pod_uid=None)),
    ("wrong-failures", lambda world: world.change(failures=0)),
    ("wrong-disruptions", lambda world: world.change(disruptions=1)),
    ("wrong-attempts", lambda world: world.attempts.clear()),
    ("attempt-burnt", lambda world: world.change(attempt=3)),
    ("wrong-claims", lambda world: world.change(attempt=3)),
    ("no-change-log", lambda world: world.changes.clear()),
    ("illegal-transition", _go_backwards),
    ("wrong-change-log", _end_twice),
    ("wrong-change-log", lambda world: world.changes.pop()),
    ("live-pod-deleted", _kill_the_pod),
    ("pod-left-running", _leave_the_pod),
]


def test_a_story_without_fault_passes() -> None:
    assert World().rules() == set()


@pytest.mark.parametrize(("rule", "breakage"), BREAKAGES)
def test_each_rule_can_be_broken(rule: str, breakage: Callable[[World], Any]) -> None:
    world = World()
    breakage(world)
    assert rule in world.rules()


def test_a_slot_may_be_skipped_with_a_record() -> None:
    world = World()
    _lose(world)
    world.skips = [evidence.Skip(JOB, AT, AT, 1)]
    assert world.rules() == set()
    assert checker.unsettled(world.due, world.tables) == 0


def test_a_pod_deleted_by_the_harness_is_a_disruption_that_counts() -> None:
    world = World()
    world.pods[0] = dataclasses.replace(world.pods[0], phase="Running", asked_alive=True)
    world.excuses.deleted.add(str(FIRST))
    assert "wrong-disruptions" in world.rules()
    world.attempts = [evidence.Attempt(RUN, 1, "Disrupted", "Deleted", None)]
    world.change(failures=0, disruptions=1)
    assert world.rules() == set()


def test_a_pod_that_succeeds_while_it_is_deleted_has_succeeded() -> None:
    world = World()
    world.pods[1].asked_alive = True
    world.excuses.deleted.add(str(SECOND))
    assert world.rules() == set()


def test_recorder_tells_a_deletion_from_an_end() -> None:
    recorder = Recorder()
    marks = {observed.RUN_ID: str(RUN), observed.ATTEMPT: "1"}
    body: Any = {
        "metadata": {"uid": "u", "namespace": "n", "name": "p", "annotations": marks},
        "status": {"phase": "Running"},
    }
    recorder.note_object(body, gone=False)
    recorder.note_object({**body, "status": {"phase": "Succeeded"}}, gone=False)
    recorder.note_object({**body, "status": {"phase": "Succeeded"}}, gone=True)
    (pod,) = recorder.pods(frozenset({str(RUN)}))
    assert (pod.over, pod.gone, pod.asked_alive) == (True, True, False)
    other = {**body, "metadata": {**body["metadata"], "uid": "v"}}
    recorder.note_object(other, gone=False)
    recorder.note_object(other, gone=True)
    assert [pod.asked_alive for pod in recorder.pods(frozenset({str(RUN)}))] == [False, True]


@pytest.mark.parametrize(("finished", "by_itself"), [(["09"], True), (["10"], False), (["10", "09"], False)])
def test_recorder_believes_the_first_report_of_an_end(finished: list[str], by_itself: bool) -> None:
    recorder = Recorder()
    marks = {observed.RUN_ID: str(RUN), observed.ATTEMPT: "1"}
    deleted = {"deletionTimestamp": "2026-11-01T12:00:40Z", "deletionGracePeriodSeconds": 30}
    metadata = {"uid": "u", "namespace": "n", "name": "p", "annotations": marks, **deleted}
    recorder.note_object({"metadata": metadata, "status": {"phase": "Running"}}, gone=False)
    for second in finished:
        ended = {"terminated": {"exitCode": 3, "finishedAt": f"2026-11-01T12:00:{second}Z"}}
        status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]}
        recorder.note_object({"metadata": metadata, "status": status}, gone=False)
    (pod,) = recorder.pods(frozenset({str(RUN)}))
    assert pod.failed is by_itself
