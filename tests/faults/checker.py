"""The rules, each a count that must be 0: what was due, what the tables say, and what happened to pods must agree.

Nothing of the product decides here. What was due is known from the harness that made it due, what ran is known from the
storage of the API server, and the tables are read as rows.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from tests.faults.evidence import Run, Tables
from tests.faults.recorder import Pod

from clockhand.domain import states

T = TypeVar("T")
Target = tuple[uuid.UUID, datetime, str, str]


@dataclass(frozen=True)
class Due:
    """Something that must have exactly one run. Its first `failing` attempts fail; `limit` failures are its end."""

    job_id: uuid.UUID
    scheduled_at: datetime
    failing: int
    limit: int
    kind: str = "Slot"
    key: str = ""

    @property
    def target(self) -> Target:
        return (self.job_id, self.scheduled_at, self.kind, self.key)

    @property
    def dies(self) -> bool:
        return self.failing >= self.limit


@dataclass
class Excuses:
    """What the harness itself did to pods, by uid, and runs whose attempts it stood in the way of."""

    deleted: set[str] = field(default_factory=set)
    name_taken: set[uuid.UUID] = field(default_factory=set)
    handed_back: bool = False
    """The API server was away for so long that a replica may have given a claim back."""


@dataclass(frozen=True)
class Story:
    """All that is known about one run."""

    due: Due
    run: Run
    pods: Sequence[Pod]
    outcomes: Mapping[int, str]
    changes: Sequence[str]

    def __str__(self) -> str:
        run = self.run
        counts = f"attempt={run.attempt} failures={run.failures} disruptions={run.disruptions}"
        seen = f"changes={list(self.changes)} pods={list(map(str, self.pods))} ended={dict(self.outcomes)}"
        return f"run {run.run_id} {run.state}({run.reason}) {counts} {seen}"


def unsettled(due: Sequence[Due], tables: Tables) -> int:
    """How many targets have no answer yet: no run, no skip, or a run that is not over."""
    over = {target_of(run) for run in tables.runs if not run.live}
    return sum(one.target not in over and not _skipped(one, tables) for one in due)


def violations(due: Sequence[Due], tables: Tables, pods: Sequence[Pod], excuses: Excuses) -> list[str]:
    """Every broken rule as one line: its name, a colon, and the story."""
    return [*of_targets(due, tables), *_of_pods(tables, pods), *_of_runs(due, tables, pods, excuses)]


def of_targets(due: Sequence[Due], tables: Tables) -> Iterator[str]:
    """The rules about rows: each thing that was due has one, and nothing else has any."""
    rows = Counter(target_of(run) for run in tables.runs)
    expected = {one.target for one in due}
    for one in due:
        if rows[one.target] == 0 and not _skipped(one, tables):
            yield f"lost: {one}"
        if rows[one.target] > 1:
            yield f"doubled: {one} has {rows[one.target]} rows"
    ids = Counter(run.run_id for run in tables.runs)
    yield from (f"doubled: run {run_id} has {count} rows" for run_id, count in ids.items() if count > 1)
    yield from (f"phantom: {target} was never due" for target in rows if target not in expected)


def _of_pods(tables: Tables, pods: Sequence[Pod]) -> Iterator[str]:
    attempts = {str(run.run_id): run.attempt for run in tables.runs}
    made: dict[tuple[str, int], list[Pod]] = defaultdict(list)
    for pod in pods:
        made[(pod.run_id, pod.attempt)].append(pod)
        if pod.attempt > attempts.get(pod.run_id, 0):
            yield f"phantom-pod: {pod}"
    yield from (f"second-pod: {several}" for several in made.values() if len(several) > 1)


def _of_runs(due: Sequence[Due], tables: Tables, pods: Sequence[Pod], excuses: Excuses) -> Iterator[str]:
    for story in stories(due, tables, pods):
        broken = [
            *_broken_state(story),
            *_broken_counts(story, excuses),
            *broken_log(story.changes, story.run),
            *_broken_pods(story, excuses),
        ]
        yield from (f"{rule}: {story}" for rule in broken)


def _broken_state(story: Story) -> Iterator[str]:
    run = story.run
    if run.live:
        yield "not-terminal"
        return
    succeeded = [pod for pod in story.pods if pod.phase == "Succeeded"]
    expected = "Dead" if story.due.dies else "Succeeded"
    if run.state != expected:
        yield f"wrong-state (not {expected})"
    if run.state == "Succeeded" and str(run.pod_uid) not in {p.uid for p in succeeded if p.attempt == run.attempt}:
        yield "false-success"
    if run.state != "Succeeded" and succeeded:
        yield "false-failure"


def _broken_counts(story: Story, excuses: Excuses) -> Iterator[str]:
    """No attempt is spent but on a pod that ended ill, and each of those counts once."""
    run = story.run
    failed = {pod.attempt for pod in story.pods if pod.failed}
    taken = 1 if run.run_id in excuses.name_taken else 0
    disrupted = sum(pod.disrupted and pod.uid in excuses.deleted for pod in story.pods)
    if run.failures != len(failed) + taken:
        yield f"wrong-failures (not {len(failed) + taken})"
    if run.disruptions != disrupted:
        yield f"wrong-disruptions (not {disrupted})"
    if {attempt for attempt, outcome in story.outcomes.items() if outcome == "Failed"} != failed:
        yield "wrong-attempts (rows do not match the pods that failed)"
    if len(story.outcomes) != run.failures + run.disruptions:
        yield "wrong-attempts (rows do not add up)"
    handed_back = sum(pair == ("Claimed", "Queued") for pair in _pairs(story.changes))
    if handed_back and not excuses.handed_back:
        yield "handed-back"
    if run.attempt != len(story.outcomes) + (run.state == "Succeeded") + handed_back:
        yield "attempt-burnt"


def broken_log(changes: Sequence[str], run: Run) -> Iterator[str]:
    """The change log is a history of its own: it must be one legal walk from nothing to one end."""
    walk = [states.RunState(state) for state in changes]
    if not walk:
        yield "no-change-log"
        return
    legal = states.may_become(None, walk[0]) and all(
        old == new != states.RunState.QUEUED or states.may_become(old, new) for old, new in _pairs(walk)
    )
    if not legal:
        yield "illegal-transition"
    if sum(state.is_over for state in walk) > 1 or walk[-1] != run.state:
        yield "wrong-change-log"
    claims = [new for old, new in _pairs([None, *walk]) if new is states.RunState.CLAIMED and old is not new]
    if len(claims) != run.attempt:
        yield "wrong-claims"


def _broken_pods(story: Story, excuses: Excuses) -> Iterator[str]:
    if any(pod.asked_alive and pod.uid not in excuses.deleted for pod in story.pods):
        yield "live-pod-deleted"
    if not story.run.live and any(not pod.over and not pod.gone for pod in story.pods):
        yield "pod-left-running"


def stories(due: Sequence[Due], tables: Tables, pods: Sequence[Pod]) -> Iterator[Story]:
    """One for each run that was due."""
    expected = {one.target: one for one in due}
    of_run: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        of_run[pod.run_id].append(pod)
    outcomes: dict[uuid.UUID, dict[int, str]] = defaultdict(dict)
    for row in tables.attempts:
        outcomes[row.run_id][row.attempt] = row.outcome
    changes: dict[uuid.UUID, list[str]] = defaultdict(list)
    for run_id, state in tables.changes:
        changes[run_id].append(state)
    for run in tables.runs:
        if (one := expected.get(target_of(run))) is not None:
            yield Story(one, run, of_run[str(run.run_id)], outcomes[run.run_id], changes[run.run_id])


def _pairs(walk: Sequence[T]) -> list[tuple[T, T]]:
    return list(itertools.pairwise(walk))


def target_of(run: Run) -> Target:
    """What a run is for."""
    return (run.job_id, run.scheduled_at, run.kind, run.key)


def _skipped(one: Due, tables: Tables) -> bool:
    return any(skip.job_id == one.job_id and skip.first_at <= one.scheduled_at <= skip.last_at for skip in tables.skips)
