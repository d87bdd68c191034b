"""One fault at work: its jobs, the replica that it hurts, and what it did itself, which is no harm of the product's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from tests.faults import wires
from tests.faults.arena import Fleet, Stage
from tests.faults.checker import Due, Excuses
from tests.faults.replicas import Replica, wait_for
from tests.faults.trigger import Shot
from tests.support import kubeapi, objects

from clockhand.domain import ids, pods, states

SHARE = 25
"""A replica with so many shards of 256 has joined the others."""
AT_ONCE = 3
"""Replicas killed in one round."""
_MERGE = "application/merge-patch+json"


@dataclass
class Scene:
    """What a strike may use. `victim` lives on from round to round until it is killed."""

    arena: Stage
    fleet: Fleet
    excuses: Excuses = field(default_factory=Excuses)
    foreign: dict[str, str] = field(default_factory=dict)
    """Pods of strangers: uid to name."""
    victim: Replica | None = None
    wire: Wire | None = None
    wanted: int = 1
    """Hits still to be made."""

    def join(self, **environment: str) -> Replica:
        """The victim: a third replica with its share of the shards."""
        if self.victim is None or not self.victim.alive():
            self.victim = self.arena.crew.join(**environment)
        victim = self.victim
        wait_for(f"{victim.name} to have its share", lambda: self.arena.held_by(victim.name) >= SHARE)
        return victim

    def join_frozen(self) -> Replica:
        """The victim as it is, without waiting for anything."""
        assert self.victim is not None
        return self.victim

    def make_due(self, **options: Any) -> list[Due]:
        """A new slot for every job."""
        wait_for("the last slots to be fired", lambda: self.arena.pending(self.fleet) == 0)
        return self.arena.make_due(self.fleet, **options)

    def end(self) -> None:
        """Takes away what the fault brought."""
        if self.victim is not None and self.victim.alive():
            self.arena.crew.leave(self.victim)
        for name in self.foreign.values():
            self.arena.delete(f"{self.arena.pods_path}/{name}?gracePeriodSeconds=0")
        if self.wire is not None:
            self.wire.close()

    def wait_running(self, *, held_by: str | None = None) -> Sequence[Any]:
        """Runs stored as Running whose pods run."""

        def found() -> list[Any]:
            rows = self.arena.running(self.fleet)
            there = [row for row in rows if row.pod_uid not in self.excuses.deleted]
            return [row for row in there if held_by in (None, row.holder)]

        return wait_for("a run to be Running", found)

    def pod_path(self, row: Any) -> str:
        return f"{self.arena.pods_path}/{pods.pod_name(row.job_name, row.run_id, row.attempt)}"

    def delete_pod(self, row: Any) -> bool:
        """Deletes a run's pod as a person would; whether it was there."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": row.pod_uid}}
        self.excuses.deleted.add(row.pod_uid)
        return self._tried("DELETE", self.pod_path(row), options)

    def unlabel_pod(self, row: Any) -> bool:
        """Takes from a run's pod the label by which it is watched; whether it was there."""
        patch = {"metadata": {"labels": {pods.MANAGED_BY_LABEL: None}}}
        return self._tried("PATCH", self.pod_path(row), patch, content_type=_MERGE)

    def occupy_names(self, count: int, *, labelled: bool) -> list[Due]:
        """Pods of strangers under the names of the first attempts of coming runs, which then fall due."""
        at = ids.whole_ms(self.arena.query("SELECT clock_timestamp() AS now")[0].now) + timedelta(seconds=2)
        taken = list(self.fleet.plans.items())[:count]
        for job_id, plan in taken:
            run_id = ids.run_id(job_id=job_id, scheduled_at=at, kind=states.RunKind.SLOT, key="")
            body = _foreign(pods.pod_name(plan.name, run_id, 1), labelled=labelled)
            made = self.arena.api.call("POST", self.arena.pods_path, body)
            self.foreign[made["metadata"]["uid"]] = made["metadata"]["name"]
            self.excuses.name_taken.add(run_id)
        return self.make_due(at=at)

    def wait_name_taken(self) -> bool:
        """Until a run was refused for each name that was occupied."""
        refused = "SELECT count(*) FROM attempts WHERE run_id = ANY(%s) AND reason = 'PodNameTaken'"
        wanted = list(self.excuses.name_taken)
        wait_for("names to be found taken", lambda: self.arena.query(refused, wanted)[0].count == len(wanted))
        return True

    def touched_strangers(self) -> list[str]:
        """Foreign pods that somebody deleted."""
        strangers = [pod for pod in self.arena.recorder.of_namespace(self.arena.namespace) if pod.uid in self.foreign]
        return [f"foreign-pod-touched: {pod}" for pod in strangers if pod.gone or pod.asked_alive]

    def freeze_until_replaced(self, victim: Replica) -> None:
        """Leaves a stopped replica so until others hold all its shards; then it goes on as if nothing had been."""
        self.wait_replaced(victim)
        victim.thaw()

    def wait_replaced(self, victim: Replica) -> None:
        """Until others hold every shard of a stopped replica."""
        wait_for(f"{victim.name} to stop", victim.stopped)
        taken = "SELECT count(*) FROM shard_leases WHERE shard < 256 AND expires_at > now() AND holder <> %s"
        wait_for("others to take over", lambda: self.arena.query(taken, victim.name)[0].count == ids.SHARDS)

    def _tried(self, method: str, path: str, body: object, **options: Any) -> bool:
        try:
            self.arena.api.call(method, path, body, **options)
        except kubeapi.ApiError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True


class Wire(wires.Wire):
    """A wire to the API server, and a kubeconfig that leads through it."""

    def __init__(self, stage: Stage) -> None:
        address = urlsplit(stage.api.url)
        super().__init__(address.hostname or "", address.port or 0)
        self.kubeconfig = stage.directory / f"wire-{self.port}.kubeconfig"
        text = stage.kubeconfig.read_text()
        self.kubeconfig.write_text(text.replace(stage.api.url, f"https://127.0.0.1:{self.port}"))


def volley(scene: Scene, shots: Sequence[Shot], *, seconds: float = 15.0) -> list[Replica]:
    """Arms a new replica with each shot, gives each jobs of every kind, lets them fall due, and waits for the shots.

    All of them are gone afterwards; returns those whose shot went off.
    """
    crew = scene.arena.crew
    victims = [crew.join() for _ in shots]
    for victim, shot in zip(victims, shots, strict=True):
        wait_for(f"{victim.name} to join", lambda name=victim.name: scene.arena.held_by(name) >= SHARE)  # type: ignore[misc]
        victim.arm(shot)
    scene.arena.deal(scene.fleet, [victim.name for victim in victims])
    scene.make_due()
    with contextlib.suppress(TimeoutError):
        wait_for("the shots", lambda: all(victim.shots() for victim in victims), seconds=seconds)
    for victim in victims:
        crew.leave(victim)
    return [victim for victim in victims if victim.shots()]


def shoot(scene: Scene, shot: Shot, *, seconds: float = 15.0) -> bool:
    """Arms the victim, lets work fall due, and waits for the shot; whether it went off."""
    victim = scene.join()
    before = victim.shots()
    victim.arm(shot)
    scene.make_due()
    deadline = time.monotonic() + seconds
    while victim.shots() == before and time.monotonic() < deadline:
        time.sleep(0.02)
    return victim.shots() > before


def _foreign(name: str, *, labelled: bool) -> dict[str, Any]:
    pod = objects.template("true", outcome="hang")
    labels = {pods.MANAGED_BY_LABEL: pods.MANAGED_BY} if labelled else {}
    metadata = {"name": name, "labels": labels, "annotations": pod["metadata"]["annotations"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**pod["spec"], "restartPolicy": "Never"}}
