"""Each guard alone, with the others off, and then none at all: checks that cannot fail prove nothing.

A guard that stands behind another is never seen to work while the other does. So for each kind of harm the guards are
switched off together, which must do harm, and then each is switched on by itself, which must end it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.faults import evidence, mutations, runner
from tests.faults.arena import Arena, Fleet, Plan
from tests.faults.replicas import wait_for
from tests.faults.scene import Scene, shoot
from tests.faults.trigger import Shot

ROUNDS = 3
HANGING = [Plan(f"hanging-{n}", "hang") for n in range(9)]
_UNCLAIMED = "SELECT count(*) FROM live_runs WHERE job_id = ANY(%s) AND state <> 'Running'"
_SECOND = "SELECT count(*) FROM live_runs WHERE run_id = ANY(%s) AND state = 'Running' AND attempt >= 2"


class Named(Protocol):
    """A trial: the harm, and the guard left `on`, empty for none."""

    @property
    def harm(self) -> str: ...
    @property
    def on(self) -> str: ...


@dataclass(frozen=True)
class Trial:
    """`on` names the guard left on, empty for none. `strike` is one round, `harm` counts what went wrong in all."""

    harm: str
    on: str
    strike: Callable[[Scene, int], bool]
    count: Callable[[Arena, Fleet], int]
    off: Sequence[str] = ()
    changes: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    trial: Named
    hits: int
    harm: int
    crashes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Harm without a guard, none with one; and the code ran, so that it was the guard and not an error."""
        right = self.harm == 0 if self.trial.on else self.harm > 0
        return right and self.hits >= ROUNDS and not self.crashes

    def __str__(self) -> str:
        verdict = "as it should be" if self.good else "WRONG"
        return f"{self.trial.harm}, guard {self.trial.on or 'none'}: {self.hits} hits, {self.harm}, {verdict}"

    def row(self) -> dict[str, Any]:
        shown = {"harm": self.trial.harm, "guard": self.trial.on or "none", "hits": self.hits}
        return {**shown, "rounds": ROUNDS, "count": self.harm, "crashes": self.crashes, "good": self.good}


def run(arena: Arena, trials: Sequence[Trial], *, say: Callable[[str], None]) -> list[Outcome]:
    """Each on a database and with replicas of its own."""
    return [_try(arena, trial, say) for trial in trials]


def _try(arena: Arena, trial: Trial, say: Callable[[str], None]) -> Outcome:
    with arena.database(*trial.changes, mutations=trial.off):
        runner.start_crew(arena)
        with arena.fleet(HANGING) as fleet:
            scene = Scene(arena, fleet)
            hits = sum(trial.strike(scene, number) for number in range(1, ROUNDS + 1))
            harm = trial.count(arena, fleet)
            scene.end()
        crashes = [line[:2000] for line in arena.crew.crashes()]
    outcome = Outcome(trial, hits, harm, crashes)
    say(str(outcome))
    return outcome


def _kill(*points: str) -> Callable[[Scene, int], bool]:
    """kill -9 at one of the points in turn, and then until the others have fired and started everything."""

    def strike(scene: Scene, number: int) -> bool:
        hit = shoot(scene, Shot(points[number % len(points)]))
        victim, scene.victim = scene.victim, None
        assert victim is not None
        scene.arena.crew.leave(victim)
        wait_for("others to fire", lambda: scene.arena.pending(scene.fleet) == 0)
        _wait_quiet(scene)
        return hit

    return strike


def _freeze_past_its_attempt(scene: Scene, number: int) -> bool:
    """A replica sleeps with the launch of pods in hand, and wakes when their runs are in another attempt."""
    del number
    if not shoot(scene, Shot("launched-unstored", "stop", then=Shot("launched-stored", "stop"))):
        return False
    victim = scene.join_frozen()
    scene.wait_replaced(victim)
    new = [due for due in scene.fleet.due if due.kind == "Slot"][-len(HANGING) :]
    first = wait_for("first attempts to run", lambda: _running(scene, 1, len(new)))
    for row in first:
        scene.delete_pod(row)
    wait_for(
        "second attempts to run", lambda: scene.arena.query(_SECOND, [r.run_id for r in first])[0].count == len(first)
    )
    victim.thaw()
    wait_for("the late write", lambda: victim.shots() >= 2 and victim.stopped())
    scene.arena.crew.leave(victim)
    return True


def _running(scene: Scene, attempt: int, count: int) -> list[Any]:
    rows = [row for row in scene.arena.running(scene.fleet) if row.attempt == attempt]
    return rows if len(rows) >= count else []


def _wait_quiet(scene: Scene) -> None:
    """Until every run runs; without guards some may never, so this is no condition of anything."""
    deadline = time.monotonic() + 12
    while scene.arena.query(_UNCLAIMED, scene.fleet.ids)[0].count and time.monotonic() < deadline:
        time.sleep(0.1)


def _duplicates(arena: Arena, fleet: Fleet) -> int:
    rows = Counter(
        (run.job_id, run.scheduled_at, run.kind, run.key) for run in evidence.read(arena.url, fleet.ids).runs
    )
    return sum(count - 1 for count in rows.values())


def _second_pods(arena: Arena, fleet: Fleet) -> int:
    _, pods = runner.gather(arena, fleet)
    made = Counter((pod.run_id, pod.attempt) for pod in pods)
    return sum(count - 1 for count in made.values())


def _stale_writes(arena: Arena, fleet: Fleet) -> int:
    """Runs about which somebody wrote as of an attempt that was over, so that more were given up than pods deleted."""
    tables, pods = runner.gather(arena, fleet)
    deleted = Counter(pod.run_id for pod in pods if pod.asked_alive)
    given_up = sum(run.disruptions > deleted[str(run.run_id)] for run in tables.runs)
    return given_up + _late_launches(arena, fleet)


def _late_launches(arena: Arena, fleet: Fleet) -> int:
    """Runs whose row names a pod that is not of their attempt, as only one who slept through its end would say."""
    tables, pods = runner.gather(arena, fleet)
    own: dict[tuple[str, int], set[str]] = defaultdict(set)
    for pod in pods:
        own[(pod.run_id, pod.attempt)].add(pod.uid)
    named = [run for run in tables.runs if run.pod_uid is not None]
    return sum(str(run.pod_uid) not in own[(str(run.run_id), run.attempt)] for run in named)


_SPLIT = _kill("between-transactions")
_CLEARED = (mutations.UNCONSTRAINED, mutations.UNORDERED)

TRIALS: Sequence[Trial] = (
    Trial("duplicate runs", "", _SPLIT, _duplicates, ("no-mark", "split-advance"), _CLEARED),
    Trial("duplicate runs", "unique key", _SPLIT, _duplicates, ("no-mark", "split-advance"), (mutations.UNORDERED,)),
    Trial("duplicate runs", "high-water mark", _SPLIT, _duplicates, ("split-advance",), _CLEARED),
    Trial("duplicate runs", "one transaction", _kill("inserted", "fired"), _duplicates, ("no-mark",), _CLEARED),
    Trial("stale writes", "", _freeze_past_its_attempt, _stale_writes, ("no-token", "no-generation")),
    Trial("stale writes", "token", _freeze_past_its_attempt, _stale_writes, ("no-generation",)),
    Trial("writes after the lease", "", _freeze_past_its_attempt, _late_launches, ("no-token", "no-generation")),
    Trial("writes after the lease", "lease generation", _freeze_past_its_attempt, _late_launches, ("no-token",)),
    Trial("second pods", "", _kill("answered"), _second_pods, ("random-names",)),
    Trial("second pods", "name from run and attempt", _kill("answered"), _second_pods),
)
