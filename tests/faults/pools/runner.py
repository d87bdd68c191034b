"""Runs faults of pools one after the other, and judges each by the checker alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.faults import evidence
from tests.faults.checker import unsettled
from tests.faults.pools import checker, witness
from tests.faults.pools.catalogue import Fault
from tests.faults.pools.scene import Scene
from tests.faults.pools.stage import Arena, Setting, Stage
from tests.faults.runner import Result, rounds

SETTLE_SECONDS = 90.0
_NO_MISTAKES = (": Traceback", '"most_workers_silent"')


def run(arena: Arena, faults: Sequence[Fault], *, times: int, say: Callable[[str], None]) -> list[Result]:
    """All of them, those with the same setting on one stage."""
    results = []
    for setting, several in by_setting(faults):
        with arena.stage(setting) as stage:
            results += [execute(stage, fault, times=1 if fault.long else times, say=say) for fault in several]
    return results


def by_setting(faults: Sequence[Fault]) -> Iterator[tuple[Setting, Sequence[Fault]]]:
    """Faults by what they have around them."""
    for setting in dict.fromkeys(fault.setting for fault in faults):
        yield setting, [fault for fault in faults if fault.setting == setting]


def execute(stage: Stage, fault: Fault, *, times: int, say: Callable[[str], None] = print) -> Result:
    """Strikes until there were `times` hits, or its rounds are over; then lets everything come to rest, and checks."""
    with stage.fleet(fault.plans) as fleet:
        scene = Scene(stage, fleet, dict(fault.settings), fault.workers)
        hits, failure = 0, []
        try:
            for number in rounds(times):
                scene.wanted = times - hits
                scene.staff()
                hits += fault.strike(scene, number)
                if hits >= times:
                    break
            scene.keep_staffed(
                lambda: unsettled(fleet.due, evidence.read(stage.url, fleet.ids)) == 0,
                seconds=SETTLE_SECONDS + 2 * stage.setting.lease,
            )
        except TimeoutError as error:
            failure = [f"stuck: {error}"]
        tables = evidence.read(stage.url, fleet.ids)
        scene.end()
        lines = witness.read(stage.witness)
    once = {job_id for job_id, plan in fleet.plans.items() if plan.once}
    found = checker.violations(fleet.due, tables, lines, once=once, again=fault.again)
    found += checker.over_cap(lines, fault.cap) if fault.cap is not None else []
    found += [*failure, *(f"crash: {line[:2000]}" for line in new_crashes(stage))]
    begun = sum(line.what == witness.BEGUN for line in lines)
    result = Result(fault.name, hits, times, len(fleet.due), len(tables.runs), begun, found)
    say("\n".join([f"{fault.name}: {hits}/{times} hits, {len(found)} violations", *found[:3]]))
    return result


def new_crashes(stage: Stage) -> list[str]:
    """Mistakes in logs that were not reported before.

    What a worker writes of its handlers' failures is none, nor is the alarm that most workers are silent.
    """
    entries = [line for crew in stage.crews for line in crew.crashes()]
    found = [line for line in entries if not any(text in line.partition("\n")[0] for text in _NO_MISTAKES)]
    fresh = [line for line in found if line not in stage.known_crashes]
    stage.known_crashes.update(fresh)
    return fresh
