"""One fault of pools at work: its jobs, its workers, and what the harness itself says to the API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.checker import Due
from tests.faults.pools import witness
from tests.faults.pools.stage import WORKERS, Fleet, Stage
from tests.faults.replicas import Replica, wait_for
from tests.faults.trigger import Shot

SHOT_SECONDS = 15.0
_OPEN = """
SELECT run_id, token::text AS token, worker FROM live_runs
WHERE job_id = ANY(%s) AND state IN ('Claimed', 'Running') AND worker IS NOT NULL
"""
_OVER = "SELECT count(*) FROM run_history WHERE job_id = ANY(%s)"


@dataclass
class Scene:
    """What a strike may use."""

    stage: Stage
    fleet: Fleet
    settings: dict[str, str]
    """Of workers."""
    count: int = WORKERS
    wanted: int = 1
    """Hits still to be made."""
    workers: list[Replica] = field(default_factory=list)

    def staff(self) -> None:
        """Workers in place of those that died, as a Deployment would have them."""
        self.workers = [worker for worker in self.workers if worker.alive()]
        while len(self.workers) < self.count:
            self.workers.append(self.stage.worker(**self.settings))

    def make_due(self, *, manual: bool = True) -> list[Due]:
        """A new slot for every job."""
        wait_for("the last slots to be fired", lambda: self.stage.pending(self.fleet) == 0)
        return self.stage.make_due(self.fleet, manual=manual)

    def open(self, worker: Replica | None = None) -> Sequence[Any]:
        """Attempts that workers have, or that one of them has: run_id, token, worker."""
        rows = self.stage.query(_OPEN, self.fleet.ids)
        return [row for row in rows if worker is None or row.worker == worker.name]

    def over(self) -> int:
        """How many runs are over."""
        count: int = self.stage.query(_OVER, self.fleet.ids)[0].count
        return count

    def begun(self) -> set[tuple[str, str]]:
        """Attempts that are open, have begun and had no effect yet."""
        held = {(str(row.run_id), row.token) for row in self.open()}
        lines = witness.read(self.stage.witness)
        past = {line.key for line in lines if line.what != witness.BEGUN}
        return {line.key for line in lines if line.what == witness.BEGUN and line.key in held} - past

    def busy_worker(self) -> Replica | None:
        """One that is in the middle of work."""

        def found() -> Replica | None:
            begun = self.begun()
            busy = {row.worker for row in self.open() if (str(row.run_id), row.token) in begun}
            return next((worker for worker in self.workers if worker.name in busy), None)

        victim: Replica | None = self.tried("work under way", found)
        return victim

    def tried(self, what: str, condition: Callable[[], Any], *, seconds: float = SHOT_SECONDS) -> Any:
        """The first true value, or the last one that was not, after a while."""
        with contextlib.suppress(TimeoutError):
            return wait_for(what, condition, seconds=seconds)
        return condition()

    def keep_staffed(self, condition: Callable[[], bool], *, seconds: float = 90.0) -> bool:
        """Replaces workers that die until the condition holds; whether it came to that."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.staff()
            time.sleep(0.1)
        return True

    def shoot(self, victims: Sequence[Replica], shot: Shot) -> int:
        """Arms each victim; how many shots went off once work had fallen due."""
        before = sum(victim.shots() for victim in victims)
        for victim in victims:
            victim.arm(shot)
        self.make_due()
        self.tried("the shot", lambda: sum(victim.shots() for victim in victims) > before)
        return sum(victim.shots() for victim in victims) - before

    def end(self) -> None:
        """Takes away what the fault brought."""
        self.stage.wire.mend()
        for worker in self.workers:
            self.stage.dismiss(worker)
        self.stage.start_apis()
