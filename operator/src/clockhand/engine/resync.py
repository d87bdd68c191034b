"""The mirror's second pair of eyes: a complete listing compared with the rows.

It finds what no watch reports: objects deleted while nobody watched, and whatever the watch missed. A job is deleted only
on proof. Its object is missing from a complete listing at version V, the row is not newer than V, and the object's own
GET says that it is gone. Where most objects vanish at once a second listing has to agree, and where the resource itself
is gone nothing is deleted: firing stops and the rows stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import structlog

from clockhand import errors
from clockhand.domain import sightings
from clockhand.engine import mirror, parking
from clockhand.kube import failures, objects
from clockhand.store import database, duties, mirroring

log = structlog.get_logger(__name__)

SMALL = 20
MASS = 0.5
_PAGE = 5_000
_CALLS_AT_ONCE = 8
_CONFIRM_SECONDS = 5.0

T = TypeVar("T")


@dataclass(slots=True)
class _Listing:
    """Every uid that is there, and the version of the listing by owner (None: all namespaces in one)."""

    uids: set[UUID] = field(default_factory=set)
    versions: dict[str | None, int] = field(default_factory=dict)

    def misses(self, row: mirroring.Listed) -> bool:
        version = self.versions.get(None, self.versions.get(row.owner, 0))
        return row.job_id not in self.uids and row.resource_version <= version


class Resync:
    """Compares the watched namespaces (none named: all) with the rows."""

    def __init__(
        self,
        db: database.Database,
        calls: objects.Objects,
        store: mirror.Mirror,
        *,
        namespaces: Sequence[str] = (),
        confirm_seconds: float = _CONFIRM_SECONDS,
    ) -> None:
        self._db = db
        self._calls = calls
        self._mirror = store
        self._namespaces = tuple(namespaces)
        self._confirm_seconds = confirm_seconds

    async def run_once(self, held: duties.Held, *, full: bool = True) -> bool:
        """One comparison. False where the resource itself is gone and firing was stopped.

        `full` lists whole objects: the way to begin. Later metadata will do, and what changed is asked for by name.
        """
        listing = await self._served(held, full=full)
        if listing is None:
            stopped = await self._mirror.stop_all(held)
            log.error("resource_gone", jobs_stopped=stopped)
            return False
        missing, known = await self._missing(listing)
        if known >= SMALL and len(missing) > MASS * known:
            log.warning("mass_deletion_seen", missing=len(missing), known=known)
            await asyncio.sleep(self._confirm_seconds)
            again = await self._list(held, full=full)
            missing = [row for row in missing if again.misses(row)]
            listing = again
        await self._delete(held, missing, listing)
        return True

    async def _served(self, held: duties.Held, *, full: bool) -> _Listing | None:
        """A listing, or None where two tries a while apart say that there is no such resource."""
        try:
            return await self._list(held, full=full)
        except errors.NotFound:
            await asyncio.sleep(self._confirm_seconds)
        try:
            return await self._list(held, full=full)
        except errors.NotFound:
            return None

    async def _list(self, held: duties.Held, *, full: bool) -> _Listing:
        listing = _Listing()
        for namespace in self._namespaces or (None,):
            await self._list_one(held, namespace, listing, full=full)
        return listing

    async def _list_one(self, held: duties.Held, namespace: str | None, listing: _Listing, *, full: bool) -> None:
        owner = None if namespace is None else f"k8s/{namespace}"
        while True:
            try:
                async for page in self._calls.list_pages(namespace, metadata_only=not full):
                    listing.versions[owner] = int(page.resource_version)
                    seen = list(_readable(page.items))
                    listing.uids.update(one.uid for one in seen)
                    await self._mirror.store(held, seen if full else await self._fetch_changed(seen))
                return
            except failures.Expired:
                log.info("listing_expired", namespace=namespace)

    async def _fetch_changed(self, heads: Sequence[sightings.Sighting]) -> Sequence[sightings.Sighting]:
        """The objects whose rows are missing or older; deletions are not among them."""
        async with self._db.transaction() as connection:
            known = await mirroring.known(connection, [head.uid for head in heads])
        changed = [head for head in heads if _differs(head, known.get(head.uid))]
        found = await _all(self._fetch(head) for head in changed)
        return [seen for seen in found if seen is not None]

    async def _fetch(self, head: sightings.Sighting) -> sightings.Sighting | None:
        try:
            return sightings.from_object(await self._calls.get(head.namespace, head.name))
        except errors.NotFound:
            return None

    async def _missing(self, listing: _Listing) -> tuple[list[mirroring.Listed], int]:
        """Rows without an object, and how many rows there are."""
        missing: list[mirroring.Listed] = []
        known, after = 0, mirroring.Place()
        owners = [f"k8s/{namespace}" for namespace in self._namespaces] or None
        while True:
            async with self._db.transaction() as connection:
                page = await mirroring.page(connection, after=after, owners=owners, size=_PAGE)
            known += len(page)
            missing += [row for row in page if listing.misses(row)]
            if len(page) < _PAGE:
                return missing, known
            after = page[-1].place

    async def _delete(self, held: duties.Held, missing: Sequence[mirroring.Listed], listing: _Listing) -> None:
        for start in range(0, len(missing), mirror.BATCH):
            batch = missing[start : start + mirror.BATCH]
            await self._mirror.store(held, await _all(self._look(row, listing) for row in batch))

    async def _look(self, row: mirroring.Listed, listing: _Listing) -> sightings.Sighting:
        """The object's own GET has the last word."""
        namespace = row.owner.removeprefix("k8s/")
        try:
            raw = await self._calls.get(namespace, row.name)
        except errors.NotFound:
            return _gone(row, listing)
        now_there = sightings.from_object(raw)
        return now_there if now_there.uid == row.job_id else _gone(row, listing)


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> Sequence[T]:
    """The results of all calls, a few at a time."""
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def one(call: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))


def _differs(head: sightings.Sighting, known: mirroring.Known | None) -> bool:
    return (
        known is None
        or known.resource_version < head.resource_version
        or (known.parked == parking.RESOURCE_GONE and not known.deleted)
    )


def _readable(items: Iterable[objects.Json]) -> Iterable[sightings.Sighting]:
    for item in items:
        try:
            yield sightings.from_object(item)
        except errors.InvalidInput as error:
            log.error("object_unreadable", error=str(error))


def _gone(row: mirroring.Listed, listing: _Listing) -> sightings.Sighting:
    version = listing.versions.get(None, listing.versions.get(row.owner, 0))
    return sightings.Sighting(
        uid=row.job_id,
        owner=row.owner,
        name=row.name,
        generation=0,
        resource_version=max(version, row.resource_version),
        created_at=sightings.NEVER,
        deleted=True,
    )
