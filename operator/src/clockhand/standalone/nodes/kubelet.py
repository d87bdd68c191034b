"""The node of an installation without a cluster: gives pods a place, runs them as processes and keeps what they wrote.

It is scheduler and kubelet at once. A pod waits its turn while as many run as may; whatever ends the node's process, its
pods end with it, and the next one says of each that it was lost, as is said of the pods of a node that vanished.
"""

from __future__ import annotations

import asyncio
import collections
import os
import platform
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import structlog

from clockhand import errors
from clockhand.domain import instants
from clockhand.standalone.kube import accounts
from clockhand.standalone.kube import settings as wanted_settings
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import (
    credentials,
    deployments,
    ground,
    leftovers,
    lifecycle,
    logrequests,
    logs,
    manifest,
    notices,
    rendering,
    statuses,
    volumes,
)

log = structlog.get_logger(__name__)

CAPACITY = 64
"""Pods that run at the same time."""
_SHUTDOWN_SECONDS = 30.0
_TOO_MANY = "0/1 nodes are available: 1 Too many pods."
_NO_MATCH = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
_LOST = "the process that ran the pod is gone, and the pod's own with it"
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LABELS: Mapping[str, str] = {
    "kubernetes.io/hostname": rendering.NODE,
    "kubernetes.io/os": sys.platform,
    "kubernetes.io/arch": _MACHINES.get(platform.machine(), platform.machine()),
}


class Kubelet:
    """Runs the pods of a store, and keeps as many of them as its Deployments say."""

    def __init__(
        self,
        store: stores.Store,
        *,
        home: Path,
        issue: ground.Issue,
        environment: Mapping[str, str],
        capacity: int = CAPACITY,
    ) -> None:
        inherited = rendering.inherited(environment, programs=os.path.dirname(sys.executable))
        self._ground = ground.Ground(store=store, home=home, issue=issue, environment=inherited)
        self._store = store
        self._capacity = capacity
        self._notices = notices.Notices(store)
        self._pods: dict[str, lifecycle.LocalPod] = {}
        """Those that have been begun, until their objects are gone."""
        self._queue: collections.OrderedDict[str, manifest.Pod] = collections.OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._chores: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Until cancelled; then it asks all processes to end, and waits for them."""
        found = await asyncio.to_thread(leftovers.kill, self._ground.home)
        if found:
            log.info("left_over_processes_killed", count=found)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(deployments.Deployments(self._store).run())
                tasks.create_task(self._follow())
        finally:
            await self._shut_down()

    async def log(self, pod: stores.Json, wanted: wanted_settings.LogRequest) -> AsyncGenerator[bytes]:
        """The log of one container. Raises `InvalidInput` where there is no such container or it has not started."""
        chosen = logrequests.read(manifest.read(pod), wanted, self._ground)
        local = self._pods.get(chosen.uid)
        writer = local.log_of(chosen.container) if local and not wanted.previous else None
        pieces = logs.read(chosen.folder, chosen.start, chosen.part, now=self._ground.clock(), log=writer)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _follow(self) -> None:
        """Sees all pods, and then every change; again from the start where changes were missed."""
        while True:
            version = self._store.version
            self._see_all(self._store.listed("pods"))
            try:
                async with aclosing(self._store.watch("pods", since=version)) as events:
                    async for event in events:
                        if event.change is stores.Change.DELETED:
                            self._forget(event.body["metadata"]["uid"])
                        else:
                            self._see(event.body)
            except stores.TooOld:
                continue

    def _see_all(self, bodies: list[stores.Json]) -> None:
        there = {body["metadata"]["uid"] for body in bodies}
        folders = {path.name for path in (self._ground.home / "pods").glob("*")}
        for uid in (folders | set(self._pods) | set(self._queue)) - there:
            self._forget(uid)
        for body in bodies:
            self._see(body)

    def _see(self, body: stores.Json) -> None:
        """One pod as it is now. What somebody made of its status must not end the node."""
        try:
            self._look_at(body)
        except Exception:
            log.exception("pod_not_understood", namespace=body["metadata"]["namespace"], pod=body["metadata"]["name"])

    def _look_at(self, body: stores.Json) -> None:
        uid = body["metadata"]["uid"]
        try:
            pod = manifest.read(body)
        except errors.InvalidInput as error:
            if (body.get("status") or {}).get("phase") != "Failed":
                refused = statuses.refused("InvalidPod", str(error), now=self._ground.clock())
                self._start_chore(self._write_of(body, refused))
            return
        if pod.metadata.deletion_timestamp:
            self._end(pod)
        elif uid not in self._pods and not pod.is_over:
            self._place(pod, body)

    def _place(self, pod: manifest.Pod, body: stores.Json) -> None:
        """Finds out whether a pod that does not run here can."""
        uid = pod.metadata.uid
        if pod.status.start_time and pod.spec.restart_policy == "Never":
            self._start_chore(self._write_of(body, self._lost(pod, body)))
        elif why := _obstacle(pod):
            self._start_chore(self._hold(body, *why))
        elif uid not in self._queue:
            self._queue[uid] = pod
            self._admit()
            if uid in self._queue:
                self._start_chore(self._hold(body, "Unschedulable", _TOO_MANY))

    def _admit(self) -> None:
        while self._queue and len(self._running) < self._capacity:
            uid, pod = self._queue.popitem(last=False)
            local = lifecycle.LocalPod(pod, self._ground)
            self._pods[uid] = local
            task = asyncio.create_task(self._run(local))
            self._running[uid] = task
            self._start_chore(self._notices.image_ignored(pod))

    async def _run(self, local: lifecycle.LocalPod) -> None:
        pod = local.pod
        try:
            await local.run()
        except Exception as error:
            log.exception("pod_run_failed", namespace=pod.metadata.namespace, pod=pod.metadata.name)
            local.stop(0)
            refused = statuses.refused("NodeError", str(error), now=self._ground.clock())
            self._start_chore(self._write(_key(pod), pod.metadata.uid, refused))
        del self._running[pod.metadata.uid]
        self._admit()
        body = self._store.get(_key(pod))
        if body is None or body["metadata"]["uid"] != pod.metadata.uid:
            volumes.remove(self._ground.folder(pod.metadata.uid))
        elif body["metadata"].get("deletionTimestamp"):
            await self._remove(pod)

    def _end(self, pod: manifest.Pod) -> None:
        """A pod that is to go: its processes first, its object after them."""
        uid = pod.metadata.uid
        self._queue.pop(uid, None)
        if uid in self._running:
            grace = pod.metadata.deletion_grace_period_seconds
            self._pods[uid].stop(pod.spec.termination_grace_period_seconds if grace is None else grace)
        else:
            self._start_chore(self._remove(pod))

    def _forget(self, uid: str) -> None:
        """The object is gone. What still runs is killed."""
        self._queue.pop(uid, None)
        local = self._pods.pop(uid, None)
        if local is not None and uid in self._running:
            local.stop(0)
        else:
            volumes.remove(self._ground.folder(uid))

    async def _remove(self, pod: manifest.Pod) -> None:
        try:
            await self._store.delete(_key(pod), uid=pod.metadata.uid)
        except (errors.NotFound, errors.Conflict):
            return

    async def _hold(self, body: stores.Json, reason: str, message: str) -> None:
        before = body.get("status") or {}
        await self._write_of(body, statuses.unscheduled(reason, message, before=before, now=self._ground.clock()))

    async def _write_of(self, body: stores.Json, status: stores.Json) -> None:
        metadata = body["metadata"]
        await self._write(stores.Key("pods", metadata["namespace"], metadata["name"]), metadata["uid"], status)

    async def _write(self, key: stores.Key, uid: str, status: stores.Json) -> None:
        try:
            await self._store.update_status(key, status, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return

    def _lost(self, pod: manifest.Pod, body: stores.Json) -> stores.Json:
        """What is said of a pod that an earlier process of the node began."""
        now = self._ground.clock()
        began = instants.read(pod.status.start_time, "status.startTime")
        return statuses.status(pod, statuses.lost_life(pod, began, _LOST, now=now), before=body["status"], now=now)

    async def _shut_down(self) -> None:
        """As a kubelet does when its machine is shut down: a run that has to be started anew says why."""
        self._queue.clear()
        for local in [pod for uid, pod in self._pods.items() if uid in self._running]:
            grace = min(local.pod.spec.termination_grace_period_seconds, _SHUTDOWN_SECONDS)
            once = local.pod.spec.restart_policy == "Never"
            local.stop(grace, reason=statuses.NODE_SHUTDOWN if once else "", message=_SHUTDOWN if once else "")
        left = [*self._running.values(), *self._chores]
        if left:
            await asyncio.wait(left)

    def _start_chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._finish_chore)

    def _finish_chore(self, task: asyncio.Task[Any]) -> None:
        self._chores.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("node_chore_failed", error=f"{type(error).__name__}: {error}")


def maker(home: Path, environment: Mapping[str, str]) -> Callable[[stores.Store, accounts.Accounts], Kubelet]:
    """Makes the kubelet of an API server. `environment` is that of whoever started it; it keeps its things in `home`."""

    def make(store: stores.Store, known: accounts.Accounts) -> Kubelet:
        return Kubelet(store, home=home, issue=credentials.issuer(store, known), environment=environment)

    return make


def _obstacle(pod: manifest.Pod) -> tuple[str, str] | None:
    """Why the pod has no place, whatever else runs."""
    if pod.spec.scheduling_gates:
        return "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
    if any(LABELS.get(label) != value for label, value in pod.spec.node_selector.items()):
        return "Unschedulable", _NO_MATCH
    return None


def _key(pod: manifest.Pod) -> stores.Key:
    return stores.Key("pods", pod.metadata.namespace, pod.metadata.name)
