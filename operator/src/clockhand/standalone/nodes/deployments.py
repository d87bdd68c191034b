"""Keeps the pods of Deployments, which belong to them directly: there are no ReplicaSets here."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from contextlib import aclosing
from datetime import timedelta

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import instants
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import ground, rollout

log = structlog.get_logger(__name__)

RESOURCE = "deployments.apps"
_HASH_LABEL = "pod-template-hash"
_GATHER_SECONDS = 0.05
_AGAIN_SECONDS = 1.0
_USUAL_GRACE = 30


class Deployments:
    """The controller. Whatever changes, it looks at all of them: there are few."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (RESOURCE, "pods"):
                tasks.create_task(self._listen(resource))
            while True:
                self._news.clear()
                try:
                    await self.step()
                except errors.ClockhandError as error:
                    log.warning("deployments_not_settled", error=str(error))
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                await self._news.wait()
                await asyncio.sleep(_GATHER_SECONDS)

    async def step(self) -> None:
        """Brings the pods of every Deployment one step nearer to what it says."""
        pods = [pod for pod in self._store.listed("pods") if _controller(pod) is not None]
        for deployment in self._store.listed(RESOURCE):
            metadata = deployment["metadata"]
            try:
                await self._settle(deployment, [pod for pod in pods if _controller(pod) == metadata["uid"]])
            except (KeyError, TypeError, ValueError) as error:  # its spec is whatever somebody wrote
                log.warning("deployment_not_understood", deployment=metadata["name"], error=repr(error))

    async def _listen(self, resource: str) -> None:
        while True:
            try:
                async with aclosing(self._store.watch(resource, since=self._store.version)) as events:
                    self._news.set()
                    async for _ in events:
                        self._news.set()
            except stores.TooOld:
                continue

    async def _settle(self, deployment: stores.Json, pods: list[stores.Json]) -> None:
        digest = _digest(deployment)
        members = [_member(pod, digest) for pod in pods]
        paused = deployment["metadata"].get("deletionTimestamp") or deployment["spec"].get("paused")
        planned = rollout.plan(rollout.read(deployment["spec"]), members)
        if not paused:
            for _ in range(planned.create):
                await self._create(deployment, digest)
            for pod in pods:
                if pod["metadata"]["uid"] in planned.delete:
                    await _retire(self._store, pod)
        await self._say(deployment, members)

    async def _say(self, deployment: stores.Json, members: list[rollout.Member]) -> None:
        key = stores.Key(RESOURCE, deployment["metadata"]["namespace"], deployment["metadata"]["name"])
        status = rollout.status(deployment, members, now=instants.rfc3339(ground.utc_now()))
        try:
            await self._store.update_status(key, status, uid=deployment["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            return

    async def _create(self, deployment: stores.Json, digest: str) -> None:
        owner, template = deployment["metadata"], deployment["spec"]["template"]
        given = template.get("metadata") or {}
        name = f"{owner['name'][:40]}-{digest}-{secrets.token_hex(3)}"
        key = stores.Key("pods", owner["namespace"], name)
        reference = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": owner["name"],
            "uid": owner["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {
            **ground.metadata(key, now=instants.rfc3339(ground.utc_now())),
            "labels": {**(given.get("labels") or {}), _HASH_LABEL: digest},
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [reference],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        await self._store.create(key, {**body, "status": {"phase": "Pending", "qosClass": "BestEffort"}})


async def _retire(store: stores.Store, pod: stores.Json) -> None:
    """Deletes a pod as a call of the API would: with its time of grace."""
    metadata = pod["metadata"]
    grace = int(pod["spec"].get("terminationGracePeriodSeconds", _USUAL_GRACE))
    deadline = instants.rfc3339(ground.utc_now() + timedelta(seconds=grace))

    def leave(known: stores.Json) -> stores.Json:
        own = known["metadata"]
        if own["uid"] != metadata["uid"] or own.get("deletionTimestamp"):
            return known
        going = {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
        return {**known, "metadata": {**own, **going}}

    try:
        await store.change(stores.Key("pods", metadata["namespace"], metadata["name"]), leave)
    except errors.NotFound:
        return


def _controller(pod: stores.Json) -> str | None:
    """The uid of the Deployment that the pod belongs to."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((one["uid"] for one in owners if one.get("controller") and one.get("kind") == "Deployment"), None)


def _digest(deployment: stores.Json) -> str:
    text = msgspec.json.encode(deployment["spec"]["template"], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:10]


def _member(pod: stores.Json, digest: str) -> rollout.Member:
    metadata, status = pod["metadata"], pod.get("status") or {}
    conditions = status.get("conditions") or ()
    return rollout.Member(
        uid=metadata["uid"],
        current=(metadata.get("labels") or {}).get(_HASH_LABEL) == digest,
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions),
        created=metadata["creationTimestamp"],
        over=status.get("phase") in ("Succeeded", "Failed"),
        going=bool(metadata.get("deletionTimestamp")),
    )
