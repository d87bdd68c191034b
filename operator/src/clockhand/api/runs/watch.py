"""A watch: what changed, as a stream of events, from a place in the change log on.

Of all that selectors can be about only the state of a run changes; the rest stays as it was made. So only a watch that
selects by state has to remember which runs it has shown.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from clockhand.api.runs import feed, group, lists, negotiate, objects, selection, status, table
from clockhand.domain import states
from clockhand.store import changes, database, listing

BOOKMARK_SECONDS = 60.0
LEAST_SECONDS, MOST_SECONDS = 1_800, 3_600
_REMEMBERED = 50_000
_WRITE_SECONDS = 30.0
_WRITE_BYTES = 256 * 1024
_LIVE = frozenset(str(state) for state in states.LIVE)
INITIAL_END = "k8s.io/initial-events-end"
Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asked for. `after` is the resourceVersion to go on from; None: begin with what there is."""

    chosen: selection.Selection
    shape: negotiate.Shape
    after: int | None
    seconds: float
    bookmarks: bool
    marks_initial_end: bool


def wish_of(chosen: selection.Selection, shape: negotiate.Shape, query: dict[str, str]) -> Wish:
    """The wish of a request; 400 or 422 where its parameters contradict each other."""
    initial = _flag(query, "sendInitialEvents")
    bookmarks = bool(_flag(query, "allowWatchBookmarks"))
    match = query.get("resourceVersionMatch", "")
    if initial is not None and match != "NotOlderThan":
        raise status.invalid(
            "", [("resourceVersionMatch", "sendInitialEvents requires resourceVersionMatch=NotOlderThan")]
        )
    if initial is None and match:
        raise status.invalid("", [("resourceVersionMatch", "is for a watch with sendInitialEvents only")])
    version = _version(query.get("resourceVersion", ""))
    after = None if initial or (version == 0 and initial is None) else version
    return Wish(chosen, shape, after, _seconds(query), bookmarks, bool(initial) and bookmarks)


class Watch:
    """One client's stream."""

    def __init__(self, db: database.Database, shared: feed.Feed, wish: Wish, write: Write) -> None:
        self._db = db
        self._feed = shared
        self._wish = wish
        self._write = write
        self._shown: set[uuid.UUID] = set()
        self._number = 0
        self._epoch = 0
        self._has_columns = False

    async def run(self) -> None:
        """Streams until the time is up, the client lags behind or the process ends; raises on a lost client."""
        subscription = await self._feed.join()
        try:
            await self._start(subscription)
            await self._follow(subscription)
        except feed.Lagging:
            await self._error(status.expired("too old resource version: list again"))
        except status.Failure as failure:
            await self._error(failure)
        except feed.Closed:
            pass
        finally:
            self._feed.leave(subscription)

    async def _start(self, subscription: feed.Subscription) -> None:
        if self._wish.after is None:
            await self._send_initial()
        else:
            self._epoch, self._number = changes.parts(self._wish.after)
            if self._epoch != subscription.epoch:
                raise feed.Lagging
            if self._wish.chosen.by_state:
                await self._remember()
            async for batch in feed.missed(self._db, subscription, after=self._number):
                await self._send_batch(batch)
        if self._epoch != subscription.epoch:
            raise feed.Lagging
        await self._put(b"")  # a client waits for the headers even where nothing has happened yet

    async def _send_initial(self) -> None:
        async for page in self._pages(self._wish.chosen):
            if not self._number:
                self._epoch, self._number = changes.parts(page.version)
            for run in page.runs:
                await self._send("ADDED", run, number=self._number, now=page.now)
                self._note(run)
        if self._wish.marks_initial_end:
            await self._bookmark({INITIAL_END: "true"})

    async def _remember(self) -> None:
        live = dataclasses.replace(self._wish.chosen, states=self._wish.chosen.states & _LIVE)
        async for page in self._pages(live):
            for run in page.runs:
                self._note(run)

    async def _pages(self, chosen: selection.Selection) -> AsyncIterator[lists.Page]:
        token, given = "", 0
        while True:
            async with self._db.transaction() as connection:
                page = await lists.page(connection, chosen, limit=0, token=token)
            yield page
            token, given = page.token, given + len(page.runs)
            if not token:
                return
            if given > _REMEMBERED:
                raise status.expired("too many runs match to watch them all: narrow the selectors")

    async def _follow(self, subscription: feed.Subscription) -> None:
        clock = time.monotonic
        end = clock() + self._wish.seconds
        bookmark = clock() + BOOKMARK_SECONDS
        while (now := clock()) < end:
            if now >= bookmark:
                bookmark = now + BOOKMARK_SECONDS
                if self._wish.bookmarks:
                    await self._bookmark({})
            batch = await subscription.next(min(end, bookmark) - now)
            if batch is not None:
                await self._send_batch(batch)

    async def _send_batch(self, batch: feed.Batch) -> None:
        lines: list[bytes] = []
        size = 0
        for event in batch.events:
            kind = self._kind(event) if event.number > self._number else None
            if kind is not None:
                lines.append(self._line_of(kind, event, batch.at))
                size += len(lines[-1])
            if size > _WRITE_BYTES:
                await self._put(b"".join(lines))
                lines, size = [], 0
        if lines:
            await self._put(b"".join(lines))
        self._number = max(self._number, batch.through)

    def _kind(self, event: feed.Event) -> str | None:
        """The type of the event for this watch; None where it is none of its business."""
        chosen, run = self._wish.chosen, event.run
        if chosen.impossible or not chosen.concerns(run):
            return None
        if not chosen.by_state:
            return "ADDED" if event.created else "MODIFIED"
        known = run.run_id in self._shown
        if run.state in chosen.states:
            self._note(run)
            return "MODIFIED" if known else "ADDED"
        self._shown.discard(run.run_id)
        return "DELETED" if known or _may_have_been_over(run) else None

    def _note(self, run: listing.Run) -> None:
        if self._wish.chosen.by_state and run.state not in ("Succeeded", listing.SKIPPED):
            self._shown.add(run.run_id)
            if len(self._shown) > _REMEMBERED:
                raise status.expired("too many runs match to watch them all: narrow the selectors")

    def _line_of(self, kind: str, event: feed.Event, now: datetime) -> bytes:
        shape = self._wish.shape
        if shape.form is negotiate.Form.TABLE and not self._has_columns:
            line = self._encoded(kind, event.run, number=event.number, now=now)
            self._has_columns = True
            return line
        key = (kind, shape)
        if key not in event.encodings:
            event.encodings[key] = self._encoded(kind, event.run, number=event.number, now=now)
        return event.encodings[key]

    async def _send(self, kind: str, run: listing.Run, *, number: int, now: datetime) -> None:
        await self._put(self._encoded(kind, run, number=number, now=now))
        self._has_columns = True

    def _encoded(self, kind: str, run: listing.Run, *, number: int, now: datetime) -> bytes:
        version = changes.version(self._epoch, number)
        return _line(kind, self._shaped(run, version, now))

    def _shaped(self, run: listing.Run, version: int, now: datetime) -> Any:
        shape = self._wish.shape
        match shape.form:
            case negotiate.Form.TABLE:
                return table.table([run], shape, version=version, now=now, columns=not self._has_columns)
            case negotiate.Form.METADATA:
                return objects.metadata_object(run, version, api=shape.version)
        return objects.run_object(run, version)

    async def _bookmark(self, annotations: dict[str, str]) -> None:
        version = changes.version(self._epoch, self._number)
        metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        await self._put(_line("BOOKMARK", _bookmark_object(self._wish.shape, metadata)))

    async def _error(self, failure: status.Failure) -> None:
        await self._put(_line("ERROR", failure.body()))

    async def _put(self, line: bytes) -> None:
        async with asyncio.timeout(_WRITE_SECONDS):
            await self._write(line)


def _bookmark_object(shape: negotiate.Shape, metadata: dict[str, Any]) -> dict[str, Any]:
    match shape.form:
        case negotiate.Form.TABLE:
            # kubectl reads the annotations of a table's bookmark from its one row
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            row = {"cells": [""] * len(table.COLUMN_DEFINITIONS), "object": partial}
            return {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{shape.version}",
                "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "columnDefinitions": None,
                "rows": [row],
            }
        case negotiate.Form.METADATA:
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{shape.version}",
                "metadata": metadata,
            }
    return {"kind": group.KIND, "apiVersion": group.API_VERSION, "metadata": metadata}


def _may_have_been_over(run: listing.Run) -> bool:
    """Whether it looks redriven: it may have been shown as Dead, say, before this watch began."""
    return run.state == states.RunState.QUEUED and run.attempt > 0 and not run.failures and not run.disruptions


def _line(kind: str, body: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def _flag(query: dict[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text is None or text == "":
        return None
    if text.lower() not in ("true", "false", "1", "0"):
        raise status.bad_request(f"{name}: {text!r} is neither true nor false")
    return text.lower() in ("true", "1")


def _version(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise status.bad_request(f"resourceVersion: {text!r} is not a number")
    return int(text)


def _seconds(query: dict[str, str]) -> float:
    text = query.get("timeoutSeconds", "")
    if not text:
        return float(random.randint(LEAST_SECONDS, MOST_SECONDS))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise status.bad_request(f"timeoutSeconds: {text!r} is not a whole number of seconds")
    wanted = int(text)
    return float(min(wanted, MOST_SECONDS)) if wanted else float(random.randint(LEAST_SECONDS, MOST_SECONDS))
