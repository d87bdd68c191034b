"""The guards of pools: each harm with all of them off, and then with each one on by itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.mutants import ROUNDS, Outcome
from tests.faults.pools import checker, witness
from tests.faults.pools.plans import Plan
from tests.faults.pools.runner import new_crashes
from tests.faults.pools.scene import Scene
from tests.faults.pools.stage import HEARTBEAT, LEASE, Arena, Setting
from tests.faults.pools.witness import EFFECT, TOLD, Line

LONGEST = 6.0 * LEASE
_MOST_ROUNDS = 12
"""Without a guard, until harm is seen: a worker that wakes may hear that its runs are gone before it does anything."""
CAP = 3


@dataclass(frozen=True)
class Trial:
    """`on` names the guard left on, empty for none. `strike` is one round, `count` says how much harm there was in all."""

    harm: str
    on: str
    strike: Callable[[Scene], bool]
    count: Callable[[Sequence[Line]], int]
    setting: Setting
    plans: tuple[Plan, ...]
    workers: int = 2


def run(arena: Arena, trials: Sequence[Trial], *, say: Callable[[str], None]) -> list[Outcome]:
    """Each on a database and with processes of its own."""
    return [_try(arena, trial, say) for trial in trials]


def _try(arena: Arena, trial: Trial, say: Callable[[str], None]) -> Outcome:
    with arena.stage(trial.setting) as stage, stage.fleet(trial.plans) as fleet:
        scene = Scene(stage, fleet, {}, trial.workers)
        hits = 0
        for number in range(ROUNDS if trial.on else _MOST_ROUNDS):
            if number >= ROUNDS and trial.count(witness.read(stage.witness)):
                break
            scene.staff()
            hits += trial.strike(scene)
            scene.tried("everything to be over", lambda: stage.open_work(fleet) == 0, seconds=LONGEST)
        scene.end()
        harm = trial.count(witness.read(stage.witness))
        outcome = Outcome(trial, hits, harm, [line[:2000] for line in new_crashes(stage)])
    say(str(outcome))
    return outcome


def _freeze(scene: Scene) -> bool:
    """A worker sleeps until others have made its runs, and wakes to end its own attempts."""
    scene.make_due(manual=False)
    victim = scene.busy_worker()
    if victim is None:
        return False
    victim.freeze()
    made = scene.tried("others to make its runs", lambda: scene.stage.open_work(scene.fleet) == 0, seconds=LONGEST)
    victim.thaw()
    time.sleep(2 * HEARTBEAT)
    return bool(made)


def _outage(scene: Scene) -> bool:
    """No API for longer than a lease, with all work under way; and workers that do not reach it the moment it is back."""
    due = len(scene.make_due(manual=False))
    busy = scene.tried("all work to be under way", lambda: len(scene.begun()) >= due)
    scene.stage.wire.cut()
    for seat in scene.stage.seats:
        scene.stage.kill_api(seat)
    time.sleep(1.2 * LEASE)
    scene.stage.start_apis()
    time.sleep(2 * HEARTBEAT)
    scene.stage.wire.mend()
    return bool(busy)


def _rush(scene: Scene) -> bool:
    """Both API processes give work to those who wait, at the same time."""
    return bool(scene.make_due(manual=False))


def _accepted_by_both(lines: Sequence[Line]) -> int:
    """Runs of which two attempts had their effect, and were both told that it counts."""
    effects = {line.key for line in lines if line.what == EFFECT}
    told = {line.key for line in lines if line.what == TOLD and line.accepted and line.key in effects}
    return sum(count > 1 for count in Counter(run_id for run_id, _ in told).values())


def _made_twice(lines: Sequence[Line]) -> int:
    """Runs that had their effect in two attempts."""
    effects = {line.key for line in lines if line.what == EFFECT}
    return sum(count > 1 for count in Counter(run_id for run_id, _ in effects).values())


def _over_cap(lines: Sequence[Line]) -> int:
    return len(checker.over_cap(lines, CAP))


FROZEN = tuple(Plan(f"frozen-{n}", seconds=0.8 * LEASE) for n in range(4))
CUT_OFF = tuple(Plan(f"cut-off-{n}", seconds=1.4 * LEASE) for n in range(4))
"""Over when no lease is left, and before the API is back."""
SHORT = tuple(Plan(f"short-{n}", seconds=0.5) for n in range(24))
_LIMITS = f'owners: {{"k8s/faults": {{maxConcurrentRuns: {CAP}}}}}\n'
_NO_STOP = ("no-self-stop",)


def _guards(*api: str, worker: Sequence[str] = (), limits: str = "") -> Setting:
    return Setting(api_mutations=api, worker_mutations=tuple(worker), limits=limits)


TRIALS: Sequence[Trial] = (
    Trial("effects by both", "", _freeze, _accepted_by_both, _guards("no-token", worker=_NO_STOP), FROZEN),
    Trial("effects by both", "token", _freeze, _accepted_by_both, _guards(worker=_NO_STOP), FROZEN),
    Trial("effects by both", "self-stop", _freeze, _accepted_by_both, _guards("no-token"), FROZEN),
    Trial("work made twice", "", _outage, _made_twice, _guards("never-away", worker=_NO_STOP), CUT_OFF),
    Trial("work made twice", "a lease for the return", _outage, _made_twice, _guards(worker=_NO_STOP), CUT_OFF),
    Trial("work made twice", "self-stop", _outage, _made_twice, _guards("never-away"), CUT_OFF),
    Trial("more than a cap", "", _rush, _over_cap, _guards("no-lock", "slow-claims", limits=_LIMITS), SHORT, 6),
    Trial("more than a cap", "lock", _rush, _over_cap, _guards("slow-claims", limits=_LIMITS), SHORT, 6),
)
