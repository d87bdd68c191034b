"""Runs faults one after the other on one set of servers, and judges each by the checker alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.faults import checker, evidence
from tests.faults.arena import Fleet, Stage
from tests.faults.catalogue import Fault
from tests.faults.replicas import wait_for
from tests.faults.scene import Scene

from clockhand.domain import ids

STEADY = 2
"""Replicas that nothing is done to."""
_SPARE_ROUNDS = 6


@dataclass(frozen=True)
class Result:
    """What came of one fault. `bound` is the 95 % upper bound of the share of hits that do harm, none having been seen."""

    fault: str
    hits: int
    wanted: int
    slots: int
    runs: int
    attempts: int
    """Pods that were made, or beginnings at workers."""
    violations: list[str] = field(default_factory=list)

    @property
    def bound(self) -> float:
        return min(1.0, 3 / self.hits) if self.hits else 1.0

    @property
    def good(self) -> bool:
        """A fault that did not hit proves nothing."""
        return not self.violations and self.hits >= self.wanted

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "bound": round(self.bound, 3), "good": self.good}


def start_crew(arena: Stage) -> None:
    """The replicas that stay, with every shard in their hands."""
    for _ in range(STEADY):
        arena.crew.join()
    held = "SELECT count(*) FROM shard_leases WHERE expires_at > now()"
    wait_for("every shard to be held", lambda: arena.query(held)[0].count == ids.SHARDS)


def rounds(times: int) -> range:
    """The rounds for so many hits: which process is given how much is chance, and one with too little is not hit."""
    return range(1, 2 * times + _SPARE_ROUNDS + 1)


def execute(arena: Stage, fault: Fault, *, times: int, say: Callable[[str], None] = print) -> Result:
    """Strikes until there were `times` hits, or its rounds are over; then lets all come to rest, and checks."""
    with arena.fleet(fault.plans) as fleet:
        scene = Scene(arena, fleet)
        hits = 0
        failure = ""
        try:
            for number in rounds(times):
                scene.wanted = times - hits
                hits += fault.strike(scene, number)
                if hits >= times:
                    break
            settle(arena, fleet)
        except TimeoutError as error:
            failure = f"stuck: {error}"
        tables, pods = gather(arena, fleet)
        found = [*checker.violations(fleet.due, tables, pods, scene.excuses), *scene.touched_strangers()]
        found += [failure] if failure else []
        scene.end()
    found += [f"crash: {line[:2000]}" for line in new_crashes(arena)]
    result = Result(fault.name, hits, times, len(fleet.due), len(tables.runs), len(pods), found)
    say(f"{fault.name}: {hits}/{times} hits, {len(found)} violations")
    return result


def settle(arena: Stage, fleet: Fleet) -> None:
    """Returns once everything that was due is over; the checker says what is not."""
    try:
        wait_for(
            "every run to be over",
            lambda: checker.unsettled(fleet.due, evidence.read(arena.url, fleet.ids)) == 0,
            seconds=arena.settle_seconds,
        )
    except TimeoutError:
        return


def gather(arena: Stage, fleet: Fleet) -> tuple[evidence.Tables, Sequence[Any]]:
    """The two sides of the comparison."""
    tables = evidence.read(arena.url, fleet.ids)
    arena.sync()
    return tables, arena.recorder.pods(frozenset(str(run.run_id) for run in tables.runs))


def new_crashes(arena: Stage) -> list[str]:
    """Mistakes in logs that were not reported before."""
    fresh = [line for line in arena.crew.crashes() if line not in arena.known_crashes]
    arena.known_crashes.update(fresh)
    return fresh
