"""Every fault: what is done, to which jobs, and what has to be true for it to count as a hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.arena import Plan
from tests.faults.replicas import wait_for
from tests.faults.scene import AT_ONCE, Scene, Wire, shoot, volley
from tests.faults.trigger import Shot

Strike = Callable[[Scene, int], int]
"""One round, by its number from 1 on; how often the fault hit while work was under way."""


@dataclass(frozen=True)
class Fault:
    """`name` is its identifier in reports; `what` one sentence for people."""

    name: str
    what: str
    strike: Strike
    plans: Sequence[Plan]


def _plans(**options: object) -> Sequence[Plan]:
    """Jobs that succeed, that fail once, and that fail for good."""
    good = [Plan(f"good-{n}", **options) for n in range(8)]  # type: ignore[arg-type]
    flaky = [Plan(f"flaky-{n}", "exit:1,succeed", **options) for n in range(2)]  # type: ignore[arg-type]
    doomed = [Plan(f"doomed-{n}", "exit:3", attempts=2, **options) for n in range(2)]  # type: ignore[arg-type]
    return [*good, *flaky, *doomed]


MIX = _plans()
LASTING = _plans(duration="2s")
SHORT_LIVED = _plans(kept_seconds=0)
FAILING = [
    *(Plan(f"flaky-{n}", "exit:1,succeed") for n in range(6)),
    *(Plan(f"doomed-{n}", "exit:3", attempts=2) for n in range(6)),
]


def _kill(point: str, *, spread: int = 1) -> Strike:
    """kill -9 of some replicas at once at a point; with `spread` at its first, second, ... passing in turn."""

    def strike(scene: Scene, number: int) -> int:
        shots = [Shot(point, "kill", 1 + (number + one) % spread) for one in range(min(AT_ONCE, scene.wanted))]
        return len(volley(scene, shots))

    return strike


def _freeze(*points: str) -> Strike:
    """SIGSTOP at one of the points in turn, for longer than the lease; SIGCONT once others have taken over."""

    def strike(scene: Scene, number: int) -> bool:
        if not shoot(scene, Shot(points[number % len(points)], "stop")):
            return False
        victim = scene.join_frozen()
        scene.freeze_until_replaced(victim)
        scene.join()
        return True

    return strike


def _freeze_anywhere(scene: Scene, number: int) -> bool:
    victim = scene.join()
    scene.make_due()
    if number % 2:
        scene.wait_running()
    busy = scene.arena.open_work(scene.fleet) > 0
    victim.freeze()
    scene.freeze_until_replaced(victim)
    scene.join()
    return busy


def _terminate(scene: Scene, number: int) -> bool:
    del number
    victim = scene.join()
    scene.make_due()
    busy = scene.arena.open_work(scene.fleet) > 0
    victim.terminate()
    left_well = victim.ended_well(20)
    scene.victim = None
    return busy and left_well


def _lose_answer(scene: Scene, number: int) -> bool:
    return shoot(scene, Shot("answered", "lose", 1 + number % 3))


def _restart_postgres(scene: Scene, number: int) -> bool:
    scene.make_due()
    if number % 2:
        scene.wait_running()
    busy = scene.arena.open_work(scene.fleet) > 0
    scene.arena.restart_postgres()
    return busy


def _restart_apiserver(scene: Scene, number: int) -> bool:
    scene.excuses.handed_back = True
    scene.make_due()
    if number % 2:
        scene.wait_running()
    busy = scene.arena.open_work(scene.fleet) > 0
    scene.arena.restart_apiserver()
    return busy


def _silence_watch(scene: Scene, number: int) -> bool:
    """The connections of one replica go silent while its pods run; their ends come while nothing comes through."""
    del number
    scene.wire = scene.wire or Wire(scene.arena)
    victim = scene.join(CLOCKHAND_KUBECONFIG=str(scene.wire.kubeconfig), CLOCKHAND_TEST_STALL="1")
    scene.arena.deal(scene.fleet, [victim.name])
    wait_for("connections anew after those that went silent before", scene.wire.heard)
    scene.make_due()
    scene.wait_running(held_by=victim.name)
    return scene.wire.hush() > 0


def _delete_pods(scene: Scene, number: int) -> bool:
    del number
    scene.make_due()
    return any([scene.delete_pod(row) for row in scene.wait_running()[:3]])


def _unlabel_pods(scene: Scene, number: int) -> bool:
    del number
    scene.make_due()
    return any([scene.unlabel_pod(row) for row in scene.wait_running()[:3]])


def _occupy_names(scene: Scene, number: int) -> bool:
    scene.occupy_names(2, labelled=bool(number % 2))
    return scene.wait_name_taken()


FAULTS: Sequence[Fault] = (
    Fault("F01-due-read", "killed after due slots were read, before the transaction", _kill("due-read"), MIX),
    Fault("F02-inserted", "killed inside the firing transaction", _kill("inserted"), MIX),
    Fault("F03-claimed", "killed after the claim was stored, before the pod was asked for", _kill("claimed"), MIX),
    Fault("F04-posted", "killed after the pod was created, before the answer", _kill("posted", spread=3), MIX),
    Fault("F05-answered", "killed with the answer, before anything of it was noted", _kill("answered", spread=3), MIX),
    Fault("F05-unstored", "killed before the start of pods was stored", _kill("started-unstored"), LASTING),
    Fault("F06-tracking", "killed while its pods run", _kill("started-stored"), LASTING),
    Fault("F07-unstored", "killed after pods ended, before their outcome was stored", _kill("ended-unstored"), MIX),
    Fault("F07-storing", "killed inside the transaction that stores outcomes", _kill("finish-open"), MIX),
    Fault("F08-undeleted", "killed after the outcome was stored, before the pod went", _kill("undeleted"), SHORT_LIVED),
    Fault("F08-deleted", "killed after the pod was deleted", _kill("deleted"), SHORT_LIVED),
    Fault("F09-unadvanced", "killed between inserting runs and moving their jobs on", _kill("unadvanced"), MIX),
    Fault("F09-fired", "killed right after the firing transaction", _kill("fired"), MIX),
    Fault("F10-retrying", "killed inside the transaction that schedules a retry", _kill("retry-open"), FAILING),
    Fault("F10-retried", "killed right after a retry was stored", _kill("retry-stored"), FAILING),
    Fault("F10-dying", "killed inside the transaction that moves a run to the dead", _kill("death-open"), FAILING),
    Fault("F10-died", "killed right after that", _kill("death-stored"), FAILING),
    Fault("F10-promoting", "killed while a run whose back-off is over is queued again", _kill("promoted"), FAILING),
    Fault("F11-term", "SIGTERM in the middle of a burst", _terminate, LASTING),
    Fault("F12-frozen", "stopped for longer than its lease while pods run", _freeze_anywhere, LASTING),
    Fault("F12-post", "stopped just before and just after the last look before the creation of a pod",
          _freeze("unposted", "posting"), MIX),
    Fault("F12-store", "stopped with sightings in hand", _freeze("started-unstored", "ended-unstored"), LASTING),
    Fault("postgres-restart", "PostgreSQL is killed and started", _restart_postgres, LASTING),
    Fault("apiserver-restart", "the API server is killed and started", _restart_apiserver, LASTING),
    Fault("watch-silent", "open connections to the API server go silent, without an end", _silence_watch, LASTING),
    Fault("pod-deleted", "running pods are deleted by hand", _delete_pods, LASTING),
    Fault("label-removed", "running pods lose the label by which they are watched", _unlabel_pods, LASTING),
    Fault("answer-lost", "a pod is created, and the answer is a time-out", _lose_answer, MIX),
    Fault("name-taken", "a stranger's pod has the name", _occupy_names, MIX),
)  # fmt: skip
