"""Watches: what happens to the objects of a collection, line by line, for as long as somebody listens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from clockhand.api.runs import negotiate
from clockhand.standalone.kube import selection, tables
from clockhand.standalone.kube import store as stores
from clockhand.standalone.kube.targets import Target

Json = dict[str, Any]
_BOOKMARK_SECONDS = 30.0
_USUAL_SECONDS = (1800, 3600)
_MOST_DIGITS = 15
_INITIAL_END = "k8s.io/initial-events-end"
Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is watched, from where on, and how it is shown. `since` is None for a watch that begins with what there is."""

    target: Target
    matches: selection.Matches
    shape: negotiate.Shape
    since: int | None
    seconds: float
    bookmarks: bool
    marks_start: bool


def wish_of(target: Target, matches: selection.Matches, shape: negotiate.Shape, query: Mapping[str, str]) -> Wish:
    """The wish in a query."""
    marks_start = query.get("sendInitialEvents") == "true"
    since = _number(query.get("resourceVersion", ""))
    return Wish(
        target=target,
        matches=matches,
        shape=shape,
        since=None if marks_start else since or None,
        seconds=_number(query.get("timeoutSeconds", "")) or random.randint(*_USUAL_SECONDS),
        bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
        marks_start=marks_start,
    )


def _number(text: str) -> int:
    """The whole number that a text is; 0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0


class Watch:
    """One watch over the store. `run` ends when its time is over, and with an ERROR line where changes are not kept."""

    def __init__(self, store: stores.Store, wish: Wish, write: Write) -> None:
        self._store = store
        self._wish = wish
        self._write = write
        self._is_first = True

    async def run(self) -> None:
        """Until the client goes away or the time is over."""
        try:
            async with asyncio.timeout(self._wish.seconds):
                await self._follow(await self._begin())
        except stores.TooOld as error:
            body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410}
            await self._send("ERROR", {**body, "reason": "Expired", "message": str(error)})
        except TimeoutError:
            return

    async def _begin(self) -> int:
        if self._wish.since is not None:
            return self._wish.since
        version, target = self._store.version, self._wish.target
        for body in self._store.listed(target.kind.resource, target.namespace):
            if self._wish.matches(body):
                await self._show("ADDED", body)
        if self._wish.marks_start:
            await self._mark(version, {_INITIAL_END: "true"})
        return version

    async def _follow(self, since: int) -> None:
        async with aclosing(self._events(since)) as events:
            async for event in events:
                if event is not None:
                    await self._tell(event)
                elif self._wish.bookmarks:
                    await self._mark(self._store.version, {})

    def _events(self, since: int) -> AsyncGenerator[stores.Event | None]:
        target = self._wish.target
        return self._store.watch_or_wait(target.kind.resource, target.namespace, since=since, pause=_BOOKMARK_SECONDS)

    async def _tell(self, event: stores.Event) -> None:
        """What a change is to somebody who sees only what the selectors let through."""
        was = event.before is not None and self._wish.matches(event.before)
        is_there = event.change is not stores.Change.DELETED and self._wish.matches(event.body)
        if is_there:
            await self._show("MODIFIED" if was else "ADDED", event.body)
        elif was:
            await self._show("DELETED", event.body)

    async def _show(self, change: str, body: Json) -> None:
        shape = self._wish.shape
        match shape.form:
            case negotiate.Form.TABLE:
                metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
                body = tables.table(self._wish.target.kind, [body], shape, metadata, columns=self._is_first)
            case negotiate.Form.METADATA:
                body = tables.metadata_object(body, shape.version)
        self._is_first = False
        await self._send(change, body)

    async def _mark(self, version: int, annotations: Mapping[str, str]) -> None:
        kind, shape = self._wish.target.kind, self._wish.shape
        metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        match shape.form:
            case negotiate.Form.TABLE:
                body = tables.table(kind, [], shape, metadata, columns=False)
            case negotiate.Form.METADATA:
                body = tables.metadata_object({"metadata": metadata}, shape.version)
            case _:
                body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        await self._send("BOOKMARK", body)

    async def _send(self, change: str, body: Json) -> None:
        await self._write(msgspec.json.encode({"type": change, "object": body}) + b"\n")
