"""What sweeps pods in an operator, under a clock that a test sets, and launches none."""

from __future__ import annotations

from clockhand.engine import launch, observe, shards, sweep
from clockhand.kube import client as clients
from clockhand.kube import objects
from clockhand.kube import pods as kube_pods
from clockhand.store import database


class Sweeping:
    """Holds every shard, once it has begun."""

    def __init__(self, db: database.Database, client: clients.Client) -> None:
        self.time = 0.0
        self.api = api = kube_pods.Pods(client)
        self.held = held = shards.Shards(db, replica="heir", lease=60)
        self.observer = observe.Observe(db, api, held=held)
        self.sweeper = sweep.Sweep(
            db,
            api,
            held=held,
            launcher=launch.Launch(db, api, held=held, reports=launch.Reports(*[_unexpected] * 5)),
            observer=self.observer,
            namespaces=sweep.Namespaces(lambda name: objects.namespace_phase(client, name)),
            clock=lambda: self.time,
        )

    async def see(self, namespace: str, *names: str) -> None:
        """Begins, as after a watch has shown these pods."""
        await self.held.run_once()
        for name in names:
            self.observer.note_pod(await self.api.get(namespace, name))


def _unexpected(*_: object) -> None:
    raise AssertionError("nothing is launched here")
