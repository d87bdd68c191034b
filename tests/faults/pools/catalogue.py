"""Every fault of pools: what is done, to which jobs and workers, and what has to be true for it to count as a hit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.pools import messages, witness
from tests.faults.pools.plans import LASTING, MIX, QUICK, Plan, mix
from tests.faults.pools.scene import Scene
from tests.faults.pools.stage import LEASE, WORKERS, Setting
from tests.faults.trigger import Shot

from clockhand.domain import ids

Strike = Callable[[Scene, int], int]
"""One round, by its number from 1 on; how often the fault hit while work was under way."""

PLAIN = Setting()
CROWD = 200
CAP = 4
LONG_LEASE, LONG_OUTAGE = 90, 300.0
CLOGGED = LEASE / 2
"""Seconds without answers at most: no lease ends by that."""


@dataclass(frozen=True)
class Fault:
    """`name` is its identifier in reports; `what` one sentence for people.

    `again`: it may cost attempts, so that work begins again. `long`: it takes minutes, and is made once, where asked for.
    """

    name: str
    what: str
    strike: Strike
    plans: tuple[Plan, ...] = MIX
    again: bool = False
    long: bool = False
    setting: Setting = PLAIN
    workers: int = WORKERS
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of its workers."""
    cap: int | None = None


def _kill_worker(scene: Scene, number: int) -> bool:
    del number
    scene.make_due()
    victim = scene.busy_worker()
    if victim is not None:
        scene.stage.dismiss(victim)
    return victim is not None


def _kill_worker_at(point: str) -> Strike:
    def strike(scene: Scene, number: int) -> int:
        return scene.shoot([scene.workers[number % len(scene.workers)]], Shot(point))

    return strike


def _freeze_worker(scene: Scene, number: int) -> bool:
    """SIGSTOP in the middle of work, until others have it, then SIGCONT."""
    del number
    scene.make_due()
    victim = scene.busy_worker()
    if victim is None:
        return False
    victim.freeze()
    replaced = scene.tried("its runs to be others'", lambda: not scene.open(victim), seconds=30.0)
    victim.thaw()
    return bool(replaced)


def _freeze_worker_reporting(scene: Scene, number: int) -> bool:
    """SIGSTOP with the effect done and its report in hand."""
    victim = scene.workers[number % len(scene.workers)]
    if not scene.shoot([victim], Shot("reporting", "stop")):
        return False
    replaced = scene.tried("its runs to be others'", lambda: not scene.open(victim), seconds=30.0)
    victim.thaw()
    return bool(replaced)


def _die_of_handler(scene: Scene, number: int) -> bool:
    """A handler that kills its worker each time, and workers that are started again each time."""
    del number
    due = len(scene.make_due(manual=False))
    before = scene.over()
    return scene.keep_staffed(lambda: scene.over() - before >= due)


def _outage(seconds: float) -> Strike:
    """No API for so long, while everything runs."""

    def strike(scene: Scene, number: int) -> bool:
        del number
        due = len(scene.make_due())
        scene.tried("runs to be under way", lambda: len(scene.begun()) > due / 2)
        busy = len(scene.begun()) > due / 2
        for seat in scene.stage.seats:
            scene.stage.kill_api(seat)
        time.sleep(seconds)
        scene.stage.start_apis()
        return busy

    return strike


def _kill_api(point: str) -> Strike:
    """kill -9 of one of the API processes at a point, and another one in its place."""

    def strike(scene: Scene, number: int) -> int:
        seat = scene.stage.seats[number % len(scene.stage.seats)]
        assert seat.api is not None
        hits = scene.shoot([seat.api], Shot(point))
        scene.stage.kill_api(seat)  # waits for its end, or ends one that did not come to that point
        scene.stage.start_apis()
        return hits

    return strike


def _kill_rescuer(scene: Scene, number: int) -> int:
    """kill -9 of the API process that is about to rescue what a worker left that was killed."""
    [rescuer] = scene.stage.query("SELECT holder FROM shard_leases WHERE shard = %s", ids.POOL_SHARDS.start)
    seat = next(seat for seat in scene.stage.seats if seat.api is not None and seat.api.name == rescuer.holder)
    if seat.api is None or not _kill_worker(scene, number):
        return 0
    seat.api.arm(Shot("rescue-open"))
    hits = seat.api.shots
    scene.tried("the rescue", hits)
    scene.stage.kill_api(seat)
    scene.stage.start_apis()
    return hits()


def _restart_postgres(scene: Scene, number: int) -> bool:
    scene.make_due()
    if number % 2:
        scene.tried("work under way", scene.begun)
    busy = scene.stage.open_work(scene.fleet) > 0
    scene.stage.restart_postgres()
    return busy


def _report_twice(scene: Scene, number: int) -> int:
    del number
    before = scene.over()
    due = len(scene.make_due())
    scene.tried("the runs to be over", lambda: scene.over() - before >= due)
    return 1 if any(line.what == witness.TOLD for line in witness.read(scene.stage.witness)) else 0


def _lose_report_answer(scene: Scene, number: int) -> bool:
    """Requests get through and answers do not, until something is over that its worker was not told of."""
    del number
    scene.tried("everything to be over", lambda: scene.stage.open_work(scene.fleet) == 0, seconds=30.0)
    scene.make_due()
    scene.tried("work under way", scene.begun)
    before = scene.over()
    scene.stage.wire.clog()
    lost = scene.tried("a report to be stored", lambda: scene.over() > before, seconds=CLOGGED)
    scene.stage.wire.cut()
    scene.stage.wire.mend()
    return bool(lost)


def _lose_claim_answer(scene: Scene, number: int) -> bool:
    """The same while workers wait for work: what is theirs has not come to them."""
    del number
    scene.tried("everything to be over", lambda: scene.stage.open_work(scene.fleet) == 0)
    scene.stage.wire.clog()
    scene.make_due()
    lost = scene.tried("runs to be claimed", scene.open, seconds=CLOGGED)
    scene.stage.wire.cut()
    scene.stage.wire.mend()
    return bool(lost)


def _meddle(scene: Scene, number: int) -> bool:
    """A stranger in the same pool speaks of attempts that others have, by their tokens: as one who was given them too."""
    scene.make_due()
    if scene.busy_worker() is None:
        return False
    held = [{"runId": str(row.run_id), "token": row.token} for row in scene.open()]
    stranger = f"stranger-{number}"
    note = witness.Witness(scene.stage.witness, f"{stranger}.told")
    for outcome in ("Succeeded", "Failed", "Disrupted", "Released"):
        reports = [{**one, "outcome": outcome} for one in held]
        answer = scene.stage.call("report", {"worker": stranger, "reports": reports})
        for one in answer["reports"]:
            note.note(witness.TOLD, one["runId"], one["token"], outcome=outcome, accepted=one["accepted"])
    beat = scene.stage.call("heartbeat", {"worker": stranger, "held": held})
    begun = scene.stage.call("start", {"worker": stranger, "held": held})
    note.close()
    lost = all(one["standing"] == "Lost" for one in beat["held"]) and not beat.get("runs")
    return bool(held) and lost and not begun["runs"]


def _say_again(scene: Scene, number: int) -> bool:
    """Each message comes three times, and its token is presented by a stranger too."""
    scene.make_due()
    said = messages.say_again(scene.stage, f"stranger-{number}", seconds=4.0)
    scene.tried("everything to be over", lambda: scene.stage.open_work(scene.fleet) == 0, seconds=30.0)
    return said > 0


def _kill_broker(scene: Scene, number: int) -> bool:
    """kill -9 of the only broker in the middle of work, and a start on the same data."""
    del number
    broker = scene.stage.broker
    assert broker is not None
    scene.make_due()
    scene.tried("work under way", scene.begun)
    busy = scene.stage.open_work(scene.fleet) > 0
    broker.kill()
    scene.tried("some more work", lambda: scene.stage.open_work(scene.fleet) == 0, seconds=3.0)
    broker.start()
    return busy


def _crowd(scene: Scene, number: int) -> bool:
    """Everybody at once, until all is over."""
    del number
    before = scene.over()
    due = len(scene.make_due())
    scene.tried("the runs to be over", lambda: scene.over() - before >= due, seconds=90.0)
    lines = witness.read(scene.stage.witness)
    return len({line.worker for line in lines if line.what == witness.BEGUN}) > CROWD / 2


MANY = {"CLOCKHAND_TEST_WORKERS": "8", "CLOCKHAND_CONCURRENCY": "2"}
"""Workers enough for some to be waiting at each API process."""
KILLER = Plan("killer", "die", attempts=2, disruptions=2)
OUTAGE = mix(1.5, good=90)
KAFKA = Setting(kafka=True)
CAPPED = Setting(limits=f'owners: {{"k8s/faults": {{maxConcurrentRuns: {CAP}}}}}\n')


def _api_killed(name: str, when: str, point: str, plans: tuple[Plan, ...] = MIX) -> Fault:
    return Fault(
        f"api-killed-{name}", f"kill -9 of an API process {when}", _kill_api(point), plans, workers=1, settings=MANY
    )


FAULTS: Sequence[Fault] = (
    Fault("worker-killed", "kill -9 of a worker in the middle of work", _kill_worker, LASTING, again=True),
    Fault("worker-killed-reporting", "kill -9 with the effect done, before the report of it",
          _kill_worker_at("reporting"), again=True),
    Fault("worker-frozen", "a worker sleeps in the middle of work, and wakes when others have it",
          _freeze_worker, LASTING, again=True),
    Fault("worker-frozen-reporting", "a worker sleeps with a report in hand", _freeze_worker_reporting, again=True),
    Fault("handler-kills", "a handler kills its worker each time", _die_of_handler, (KILLER,), again=True,
          workers=1, settings={"CLOCKHAND_CONCURRENCY": "1"}),
    Fault("handler-kills-company", "the same beside other runs", _die_of_handler, (KILLER, *MIX), again=True),
    _api_killed("firing", "in the transaction that makes runs and hands them over", "hand-over-open", QUICK),
    _api_killed("claiming", "in the transaction of a claim", "claim-open", mix(good=30)),
    _api_killed("claimed", "after a claim was stored, before its answer", "claim-stored"),
    _api_killed("beating", "in the transaction of heartbeats", "heartbeat-open", LASTING),
    _api_killed("unreported", "with reports in hand", "report-unstored"),
    _api_killed("reporting", "in the transaction of reports", "report-open"),
    _api_killed("reported", "after reports were stored, before the answer", "report-stored"),
    Fault("api-killed-rescuing", "kill -9 in the transaction that rescues what a dead worker left", _kill_rescuer,
          LASTING, again=True),
    Fault("api-killed-capped", "kill -9 in the transaction of a claim, under a cap", _kill_api("claim-open"), QUICK,
          setting=CAPPED, cap=CAP),
    Fault("apis-killed", "kill -9 of all API processes, and a start", _outage(0.0), LASTING, again=True),
    Fault("api-away", "no API for two leases with 100 runs under way", _outage(2.2 * LEASE), OUTAGE, again=True,
          settings={"CLOCKHAND_CONCURRENCY": "40"}),
    Fault("api-away-minutes", "no API for 5 minutes, with leases of 90 s and 100 runs under way", _outage(LONG_OUTAGE),
          mix(30.0, good=90), again=True, long=True, setting=Setting(lease=LONG_LEASE),
          settings={"CLOCKHAND_CONCURRENCY": "40"}),
    Fault("postgres-restarted", "PostgreSQL is killed and started", _restart_postgres, LASTING, again=True),
    Fault("pooler", "the same behind a pooler in transaction mode", _restart_postgres, LASTING, again=True,
          setting=Setting(pooler=True)),
    Fault("reported-twice", "each report is sent twice", _report_twice,
          setting=Setting(worker_mutations=("reports-twice",))),
    Fault("report-answer-lost", "reports are stored, and their answers do not come", _lose_report_answer),
    Fault("claim-answer-lost", "runs are given, and the answers do not come", _lose_claim_answer),
    Fault("stranger", "another worker of the pool reports, renews and starts attempts by their tokens", _meddle,
          LASTING),
    Fault("message-twice", "each message comes three times, and its token is presented by others too", _say_again,
          tuple(Plan(f"good-{n}", seconds=1.0, once=n % 4 == 0) for n in range(40)), setting=KAFKA),
    Fault("broker-killed", "kill -9 of the Kafka broker, and a start", _kill_broker, LASTING, setting=KAFKA),
    Fault("crowd", f"{CROWD} workers at once", _crowd, mix(1.0, good=CROWD), setting=Setting(lease=15), workers=4,
          settings={"CLOCKHAND_TEST_WORKERS": f"{CROWD // 4}", "CLOCKHAND_CONCURRENCY": "1"}),
)  # fmt: skip
