"""Objects go with what they belong to, as a cluster's garbage collector sees to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta

import structlog

from clockhand import errors
from clockhand.domain import instants
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import ground

log = structlog.get_logger(__name__)

_OWNERS = ("scheduledjobs.clockhand.dev", "workerpools.clockhand.dev", "deployments.apps", "replicasets.apps")
_GATHER_SECONDS = 0.05
_AGAIN_SECONDS = 1.0
_USUAL_GRACE = 30


class Collector:
    """Looks for objects whose owners are all gone, once at first and after each deletion of one that may own others."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in _OWNERS:
                tasks.create_task(self._listen(resource))
            while True:
                self._news.clear()
                try:
                    await self.step()
                except errors.Unavailable as error:
                    log.warning("orphans_not_removed", error=str(error))
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                await self._news.wait()
                await asyncio.sleep(_GATHER_SECONDS)

    async def step(self) -> None:
        """Removes the orphans that there are."""
        for key, body in list(self._orphans()):
            await retire(self._store, key, body)

    def _orphans(self) -> Iterator[tuple[stores.Key, stores.Json]]:
        everything = {resource: self._store.listed(resource) for resource in self._store.resources()}
        there = {body["metadata"]["uid"] for bodies in everything.values() for body in bodies}
        for resource, bodies in everything.items():
            for body in bodies:
                metadata = body["metadata"]
                owners = metadata.get("ownerReferences") or ()
                if owners and not any(owner.get("uid") in there for owner in owners):
                    yield stores.Key(resource, metadata.get("namespace", ""), metadata["name"]), body

    async def _listen(self, resource: str) -> None:
        while True:
            try:
                async with aclosing(self._store.watch(resource, since=self._store.version)) as events:
                    self._news.set()
                    async for event in events:
                        if event.change is stores.Change.DELETED:
                            self._news.set()
            except stores.TooOld:
                continue


async def retire(store: stores.Store, key: stores.Key, body: stores.Json) -> None:
    """Deletes an object as a call of the API would: a pod that has a place gets its time of grace."""
    uid = body["metadata"]["uid"]
    grace = int((body.get("spec") or {}).get("terminationGracePeriodSeconds", _USUAL_GRACE))
    deadline = instants.rfc3339(ground.utc_now() + timedelta(seconds=grace))

    def leave(known: stores.Json) -> stores.Json:
        metadata = known["metadata"]
        if metadata["uid"] != uid or metadata.get("deletionTimestamp"):
            return known
        going = {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
        return {**known, "metadata": {**metadata, **going}}

    try:
        if key.resource == "pods":
            await store.change(key, leave)
        else:
            await store.delete(key, uid=uid)
    except (errors.NotFound, errors.Conflict):
        return
