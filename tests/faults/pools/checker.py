"""The rules for runs of pools, each a count that must be 0: what was due, the tables and the record of workers agree.

Nothing of the product decides here: what workers did is known from their own record, line by line.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.faults import checker
from tests.faults.checker import Due
from tests.faults.evidence import Attempt, Run, Tables
from tests.faults.pools.witness import BEGUN, EFFECT, TOLD, Line

_SUCCEEDED, _FAILED = "Succeeded", "Failed"


@dataclass(frozen=True)
class Story:
    """All that is known about one run."""

    due: Due
    run: Run
    once: bool
    lines: Sequence[Line]
    attempts: Sequence[Attempt]
    changes: Sequence[str]

    def __str__(self) -> str:
        run = self.run
        counts = f"attempt={run.attempt} failures={run.failures} disruptions={run.disruptions}"
        seen = f"changes={list(self.changes)} seen={list(self.lines)} attempts={list(self.attempts)}"
        return f"run {run.run_id} {run.state}({run.reason}) {counts} {seen}"

    def keys(self, what: str) -> Sequence[tuple[str, str]]:
        return [line.key for line in self.lines if line.what == what]

    def accepted(self, outcome: str) -> set[tuple[str, str]]:
        """Attempts of which a worker was told that its word counts."""
        told = (line for line in self.lines if line.what == TOLD and line.accepted)
        return {line.key for line in told if line.outcome == outcome}


def violations(
    due: Sequence[Due], tables: Tables, lines: Sequence[Line], *, once: Collection[uuid.UUID], again: bool
) -> list[str]:
    """Every broken rule as one line: its name, a colon, and the story.

    `once` are the jobs that are made at most once. `again`: the fault may cost attempts, so that work begins again.
    """
    found = [*checker.of_targets(due, tables)]
    for story in stories(due, tables, lines, once=once):
        broken = (
            ["not-terminal"]
            if story.run.live
            else [
                *_broken_state(story, again=again),
                *_broken_answers(story),
                *_broken_work(story, again=again),
                *_broken_counts(story, again=again),
                *checker.broken_log(story.changes, story.run),
            ]
        )
        found += [f"{rule}: {story}" for rule in broken]
    return found


def over_cap(lines: Sequence[Line], cap: int) -> list[str]:
    """Moments at which more handlers were between beginning and effect than `cap` allows."""
    effects = {line.key: line.at for line in lines if line.what == EFFECT}
    steps = [(line.at, 1) for line in lines if line.what == BEGUN and line.key in effects]
    steps += [(at, -1) for at in effects.values()]
    held, found = 0, []
    for at, step in sorted(steps):
        held += step
        if step > 0 and held > cap:
            found.append(f"over-cap: {held} at {at}")
    return found


def _broken_state(story: Story, *, again: bool) -> Iterator[str]:
    run = story.run
    # a worker that falls silent with one run alone has failed with it
    spent = again and run.failures >= story.due.limit
    expected = "Dead" if story.due.dies or spent else _SUCCEEDED
    if run.state != expected and not (run.state == "Unknown" and story.once and again):
        yield f"wrong-state (not {expected})"
    if run.state == _SUCCEEDED and (str(run.run_id), str(run.token)) not in story.keys(EFFECT):
        yield "false-success"
    if run.state != _SUCCEEDED and story.accepted(_SUCCEEDED):
        yield "false-failure"


def _broken_answers(story: Story) -> Iterator[str]:
    """What workers were told about their reports."""
    run_id = str(story.run.run_id)
    succeeded, failed = story.accepted(_SUCCEEDED), story.accepted(_FAILED)
    if len(succeeded) > 1:
        yield "accepted-twice"
    if succeeded - {(run_id, str(story.run.token))}:
        yield "stale-accepted (success)"
    if failed - {(run_id, str(row.token)) for row in story.attempts}:
        yield "stale-accepted (failure)"
    earned = {(line.worker, line.key) for line in story.lines if line.what == EFFECT}
    told = [line for line in story.lines if line.what == TOLD]
    if any(
        line.accepted and line.outcome == _SUCCEEDED and (line.worker.removesuffix(".told"), line.key) not in earned
        for line in told
    ):
        yield "unearned-accepted"
    accepted = set[tuple[str, str, str, str]]()
    for line in told:
        said = (line.worker, line.outcome, *line.key)
        if line.accepted:
            accepted.add(said)
        elif said in accepted:
            yield "repeat-refused"


def _broken_work(story: Story, *, again: bool) -> Iterator[str]:
    """What handlers did."""
    begun, effects = story.keys(BEGUN), story.keys(EFFECT)
    if any(count > 1 for count in Counter(begun).values()):
        yield "begun-twice (one attempt)"
    if story.once and len(begun) > 1:
        yield "begun-again (at most once)"
    if len(effects) > 1 and not again:
        yield "second-effect"
    if set(effects) - set(begun):
        yield "effect-unbegun"
    over = {row.attempt: row.ended_at.timestamp() for row in story.attempts if row.ended_at and row.token is None}
    if any(line.at > over.get(line.attempt, line.at) for line in story.lines if line.what == EFFECT):
        yield "late-effect"


def _broken_counts(story: Story, *, again: bool) -> Iterator[str]:
    run = story.run
    charged = run.failures + run.disruptions
    unseen = run.state == "Unknown"
    if len(story.attempts) != charged + unseen:
        yield "wrong-attempts (rows do not add up)"
    if len(story.keys(BEGUN)) > charged + (run.state in (_SUCCEEDED, "Unknown")):
        yield "uncharged"
    if not again and run.disruptions:
        yield "wrong-disruptions (not 0)"
    reported = sum(row.token is not None and row.outcome == _FAILED for row in story.attempts)
    if run.failures != reported and not again:
        yield f"wrong-failures (not {reported})"


def stories(
    due: Sequence[Due], tables: Tables, lines: Sequence[Line], *, once: Collection[uuid.UUID]
) -> Iterator[Story]:
    """One for each run that was due."""
    expected = {one.target: one for one in due}
    seen = _by_run(lines)
    attempts: dict[uuid.UUID, list[Attempt]] = defaultdict(list)
    for row in tables.attempts:
        attempts[row.run_id].append(row)
    changes: dict[uuid.UUID, list[str]] = defaultdict(list)
    for run_id, state in tables.changes:
        changes[run_id].append(state)
    for run in tables.runs:
        if (one := expected.get(checker.target_of(run))) is not None:
            lines_of = seen.get(str(run.run_id), [])
            yield Story(one, run, run.job_id in once, lines_of, attempts[run.run_id], changes[run.run_id])


def _by_run(lines: Sequence[Line]) -> Mapping[str, Sequence[Line]]:
    seen: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        seen[line.run_id].append(line)
    return seen
