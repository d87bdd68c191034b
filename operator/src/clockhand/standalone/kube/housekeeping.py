"""What the controllers of a cluster do for everybody: what an object owned goes with it, a namespace goes with all that is
in it, and events are forgotten after an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from clockhand import errors
from clockhand.api.runs import status
from clockhand.standalone.kube import kinds, objects
from clockhand.standalone.kube import store as stores

Json = dict[str, Any]
_PAUSE_SECONDS = 60.0
_KEPT = timedelta(hours=1)
log = structlog.get_logger(__name__)


class Housekeeping:
    """Follows all changes, and looks at everything when it begins."""

    def __init__(self, verbs: objects.Objects) -> None:
        self._objects = verbs
        self._store = verbs.store
        self._owned: dict[str, set[stores.Key]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._follow()
            except stores.TooOld:
                continue
            except (errors.ClockhandError, status.Failure) as error:
                log.warning("housekeeping_failed", error=str(error))
                await asyncio.sleep(1.0)
            except Exception:  # no object is worth the end of all others
                log.exception("housekeeping_failed")
                await asyncio.sleep(1.0)

    async def _follow(self) -> None:
        version = self._store.version
        await self._see_all()
        async with aclosing(self._store.watch_or_wait("", since=version, pause=_PAUSE_SECONDS)) as events:
            async for event in events:
                if event is None:
                    await self._forget_events()
                else:
                    await self._see(event)

    async def _see_all(self) -> None:
        self._owned.clear()
        there: set[str] = set()
        for key, body in self._everything():
            there.add(body["metadata"]["uid"])
            self._note(key, body)
        for uid in self._owned.keys() - there:
            await self._remove_owned(uid)
        for body in self._store.listed(kinds.NAMESPACES.resource):
            await self._finish_namespace(body["metadata"]["name"])

    def _everything(self) -> Iterator[tuple[stores.Key, Json]]:
        for resource in list(self._store.resources()):
            for body in self._store.listed(resource):
                meta = body["metadata"]
                yield stores.Key(resource, meta.get("namespace", ""), meta["name"]), body

    async def _see(self, event: stores.Event) -> None:
        if event.change is stores.Change.DELETED:
            for owner in event.body["metadata"].get("ownerReferences") or ():
                self._owned.get(owner["uid"], set()).discard(event.key)
            await self._remove_owned(event.body["metadata"]["uid"])
            await self._finish_namespace(event.key.namespace)
        else:
            self._note(event.key, event.body)
            if event.key.resource == kinds.NAMESPACES.resource:
                await self._finish_namespace(event.key.name)

    def _note(self, key: stores.Key, body: Json) -> None:
        for owner in body["metadata"].get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], set()).add(key)

    async def _remove_owned(self, uid: str) -> None:
        for key in self._owned.pop(uid, set()):
            body = self._store.get(key)
            owners = {owner["uid"] for owner in (body or {}).get("metadata", {}).get("ownerReferences") or ()}
            if body is not None and uid in owners:
                await self._delete(key, body)

    async def _finish_namespace(self, name: str) -> None:
        """Empties a namespace that is to go, and lets it go once it is empty."""
        home = self._store.get(stores.Key(kinds.NAMESPACES.resource, "", name)) if name else None
        if home is None or not home["metadata"].get("deletionTimestamp"):
            return
        inside = [(key, body) for key, body in self._everything() if key.namespace == name]
        for key, body in inside:
            if not body["metadata"].get("deletionTimestamp"):
                await self._delete(key, body)
        if not inside:
            with suppress(errors.NotFound, errors.Conflict):
                key = stores.Key(kinds.NAMESPACES.resource, "", name)
                await self._store.delete(key, uid=home["metadata"]["uid"])

    async def _delete(self, key: stores.Key, body: Json) -> None:
        with suppress(status.Failure):
            removal = objects.Removal(uid=body["metadata"]["uid"])
            await self._objects.delete(kinds.BY_RESOURCE[key.resource], key, removal)

    async def _forget_events(self) -> None:
        oldest = (datetime.now(UTC) - _KEPT).strftime("%Y-%m-%dT%H:%M:%SZ")
        for body in self._store.listed(kinds.EVENTS.resource):
            meta = body["metadata"]
            if (body.get("lastTimestamp") or meta["creationTimestamp"]) < oldest:
                await self._delete(stores.Key(kinds.EVENTS.resource, meta["namespace"], meta["name"]), body)
