"""The objects of the small API server: all of them in memory, each change in a SQLite file before anybody hears of it.

One number counts the changes; it is an object's `resourceVersion`, and goes on where it was after a new start. The last
changes are kept for watches: who asks for older ones is told to list again.

Objects that come out of here are shared: whoever changes one copies it first.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from clockhand import errors

Json = dict[str, Any]
KEPT_CHANGES = 5_000
_SCHEMA = """
create table if not exists objects (
  resource text not null, namespace text not null, name text not null, version integer not null, body blob not null,
  primary key (resource, namespace, name)
) without rowid;
create table if not exists counter (only_row integer primary key check (only_row = 1), version integer not null);
insert or ignore into counter values (1, 1);
"""


@dataclass(frozen=True, slots=True)
class Key:
    """Where an object is: the resource is `pods`, or with a group `deployments.apps`. Of the cluster: no namespace."""

    resource: str
    namespace: str
    name: str


class Change(enum.StrEnum):
    """What became of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `body` is the object after it; of a deleted one the last state, with the version of the deletion."""

    change: Change
    key: Key
    version: int
    body: Json
    before: Json | None


class AlreadyThere(errors.Conflict):
    """An object of this name exists."""


class TooOld(errors.Conflict):
    """The changes since that version are not kept any more: list again."""


class Store:
    """Objects by key. Reading is immediate, writing waits for the disk."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="objects")
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._file.execute("pragma journal_mode = wal")
        self._file.execute(f"pragma synchronous = {'full' if durable else 'off'}")
        self._file.executescript(_SCHEMA)
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        for resource, namespace, name, body in self._file.execute(
            "select resource, namespace, name, body from objects"
        ):
            self._of(resource)[namespace, name] = msgspec.json.decode(body)
        self._version: int = self._file.execute("select version from counter").fetchone()[0]
        self._oldest = self._version
        self._changes: collections.deque[Event] = collections.deque()
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()

    @property
    def version(self) -> int:
        """The number of the last change."""
        return self._version

    def get(self, key: Key) -> Json | None:
        """The object, if it is there."""
        return self._of(key.resource).get((key.namespace, key.name))

    def listed(self, resource: str, namespace: str = "") -> list[Json]:
        """Those of a namespace, or all; in the order of their names."""
        found = self._of(resource)
        keys = sorted(key for key in found if not namespace or key[0] == namespace)
        return [found[key] for key in keys]

    def resources(self) -> Iterable[str]:
        """Of what there are objects."""
        return [resource for resource, found in self._objects.items() if found]

    async def create(self, key: Key, body: Json) -> Json:
        """Stores a new object and returns it with its version; `AlreadyThere` where the name is taken."""

        async def in_turn() -> Json:
            async with self._turn:
                if self.get(key) is not None:
                    raise AlreadyThere(f"{key.resource} {key.name!r} already exists")
                return await self._write(Change.ADDED, key, body, None)

        return await _to_its_end(in_turn())

    async def change(self, key: Key, edit: Callable[[Json], Json | None]) -> Json:
        """Stores what `edit` makes of the object, which nobody else changes meanwhile; None: it is to be deleted.

        What `edit` returns unchanged stays as it is, without a new version. Raises what `edit` raises, and `NotFound`.
        """

        async def in_turn() -> Json:
            async with self._turn:
                before = self.get(key)
                if before is None:
                    raise errors.NotFound(f"{key.resource} {key.name!r} not found")
                after = edit(before)
                if after is None:
                    return await self._write(Change.DELETED, key, before, before)
                if after == before:
                    return before
                return await self._write(Change.MODIFIED, key, after, before)

        return await _to_its_end(in_turn())

    async def update_status(self, key: Key, status: Mapping[str, Any], *, uid: str) -> Json:
        """Makes `status` the status of the object of this uid; `Conflict` where another one has its name."""

        def edit(body: Json) -> Json:
            _check_uid(body, uid)
            return {**body, "status": dict(status)}

        return await self.change(key, edit)

    async def delete(self, key: Key, *, uid: str) -> Json:
        """Takes this very object away, at once and whatever it waits for; returns its last state."""

        def edit(body: Json) -> None:
            _check_uid(body, uid)

        return await self.change(key, edit)

    async def watch(self, resource: str, namespace: str = "", *, since: int) -> AsyncGenerator[Event]:
        """The changes after `since`, endlessly; `TooOld` where they are not kept, also later for a reader that is slow."""
        async with aclosing(self.watch_or_wait(resource, namespace, since=since)) as events:
            async for event in events:
                if event is not None:
                    yield event

    async def watch_or_wait(
        self, resource: str, namespace: str = "", *, since: int, pause: float | None = None
    ) -> AsyncGenerator[Event | None]:
        """The same, of all resources where none is named, and a None when nothing has come for `pause` seconds."""
        while True:
            news = self._news
            for event in self._since(since):
                since = event.version
                if resource in ("", event.key.resource) and namespace in ("", event.key.namespace):
                    yield event
            try:
                async with asyncio.timeout(pause):
                    await news.wait()
            except TimeoutError:
                yield None

    async def close(self) -> None:
        """After the write that is under way."""
        async with self._turn:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._file.close)
        self._disk.shutdown()

    def _of(self, resource: str) -> dict[tuple[str, str], Json]:
        return self._objects.setdefault(resource, {})

    def _since(self, version: int) -> list[Event]:
        if not self._oldest <= version <= self._version:
            raise TooOld(f"too old resource version: {version} ({self._oldest})")
        newer = len(self._changes) - (self._version - version)
        return [self._changes[place] for place in range(max(0, newer), len(self._changes))]

    async def _write(self, change: Change, key: Key, body: Json, before: Json | None) -> Json:
        version = self._version + 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._save, change, key, version, body)
        except sqlite3.Error as error:
            raise errors.Unavailable(f"the objects cannot be written: {error}") from error
        self._note(Event(change, key, version, body, before))
        return body

    def _note(self, event: Event) -> None:
        found = self._of(event.key.resource)
        if event.change is Change.DELETED:
            del found[event.key.namespace, event.key.name]
        else:
            found[event.key.namespace, event.key.name] = event.body
        self._version = event.version
        self._changes.append(event)
        if len(self._changes) > KEPT_CHANGES:
            self._oldest = self._changes.popleft().version
        waiting, self._news = self._news, asyncio.Event()
        waiting.set()

    def _save(self, change: Change, key: Key, version: int, body: Json) -> None:
        where = (key.resource, key.namespace, key.name)
        self._file.execute("begin immediate")
        try:
            if change is Change.DELETED:
                self._file.execute("delete from objects where resource = ? and namespace = ? and name = ?", where)
            else:
                row = (*where, version, msgspec.json.encode(body))
                self._file.execute("insert or replace into objects values (?, ?, ?, ?, ?)", row)
            self._file.execute("update counter set version = ?", (version,))
            self._file.execute("commit")
        except BaseException:
            self._file.execute("rollback")
            raise


async def _to_its_end(write: Coroutine[Any, Any, Json]) -> Json:
    """Though the caller goes away: what the disk has been told must be known here as well."""
    return await asyncio.shield(asyncio.create_task(write))


def _check_uid(body: Json, uid: str) -> None:
    metadata = body["metadata"]
    if metadata["uid"] != uid:
        raise errors.Conflict(f"{metadata['name']!r} has the uid {metadata['uid']}, not {uid}")
