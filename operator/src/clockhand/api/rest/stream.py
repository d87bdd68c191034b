"""`/v1/runs:stream`: what becomes of runs, as server-sent events.

An event shows a run as it is now, not each move that it made; there is one a second for a run at most. Its id is a place in
the change log of the installation, from which a client goes on that lost its connection.
"""

from __future__ import annotations

import collections
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

import msgspec

from clockhand import errors
from clockhand.api import problems
from clockhand.api.rest import asked, routes, runs, shown
from clockhand.api.runs import feed
from clockhand.domain import resources, tokens
from clockhand.store import changes, database

HEARTBEAT_SECONDS = 10.0
MOST = 1_000
MOST_OF_OWNER = 100
_RETRY = b"retry: 1000\n"
_RESET = b"event: reset\ndata: {}\n"
_PIECE_BYTES = 256 * 1024
_LONGEST_ID = 19
_LAST = routes.Parameter("Last-Event-ID", str | None, "Goes on behind this event, within 15 minutes of it.")


class Streams:
    """The streams of this process, over one reader of the change log."""

    def __init__(
        self,
        db: database.Database,
        shared: feed.Feed,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        most_of_owner: int = MOST_OF_OWNER,
    ) -> None:
        self._db = db
        self._feed = shared
        self._heartbeat_seconds = heartbeat_seconds
        self._most_of_owner = most_of_owner
        self._of_owners: collections.Counter[str] = collections.Counter()

    def all(self) -> Sequence[routes.Route]:
        """The one call."""
        return (
            routes.Route(
                method="GET",
                path="/v1/runs:stream",
                name="streamRuns",
                summary="What becomes of runs from now on, as server-sent events.",
                role=tokens.Role.VIEWER,
                right=runs.right("watch"),
                handle=self.stream,
                gives={200: resources.Run},
                answers_as=routes.EVENTS,
                query=(asked.JOB, asked.STATE),
                headers=(_LAST,),
            ),
        )

    async def stream(self, call: routes.Call) -> routes.Stream:
        """Events for as long as the caller listens and may."""
        if self._feed.watchers >= MOST or self._of_owners[call.owner] >= self._most_of_owner:
            raise problems.unavailable("there are too many streams already")
        return routes.Stream(self._chunks(call))

    async def _chunks(self, call: routes.Call) -> AsyncGenerator[bytes, None]:
        self._of_owners[call.owner] += 1
        try:
            subscription = await self._feed.join()
            try:
                stream = _Stream(self._db, subscription, call, heartbeat_seconds=self._heartbeat_seconds)
                async for chunk in stream.begun():
                    yield chunk
                async for chunk in stream.followed():
                    yield chunk
            finally:
                self._feed.leave(subscription)
        except (feed.Lagging, feed.Closed, errors.ClockhandError):
            return  # whoever comes again goes on behind the last event, or is told to begin anew
        finally:
            self._of_owners[call.owner] -= 1


class _Stream:
    """One client's."""

    def __init__(
        self, db: database.Database, subscription: feed.Subscription, call: routes.Call, *, heartbeat_seconds: float
    ) -> None:
        self._db = db
        self._subscription = subscription
        self._call = call
        self._heartbeat_seconds = heartbeat_seconds
        self._reached = subscription.start

    async def begun(self) -> AsyncIterator[bytes]:
        """What was missed since the client's last event, or word that nobody knows; then where the stream stands."""
        last, reset = self._call.headers.get("Last-Event-ID"), b""
        yield _RETRY
        if last is not None:
            try:
                self._reached = _number(last, self._subscription.epoch)
                async for batch in feed.missed(self._db, self._subscription, after=self._reached):
                    for piece in self._pieces(batch):
                        yield piece
            except feed.Lagging:
                self._reached, reset = self._subscription.start, _RESET
        yield reset + self._place()

    async def followed(self) -> AsyncIterator[bytes]:
        """What happens from now on, until the caller may not see it any more."""
        beat = time.monotonic() + self._heartbeat_seconds
        while True:
            batch = await self._subscription.next(beat - time.monotonic())
            if batch is not None:
                for piece in self._pieces(batch):
                    yield piece
            if time.monotonic() >= beat:
                if not await self._call.still_allowed():
                    return
                beat = time.monotonic() + self._heartbeat_seconds
                yield b": still here\n" + self._place()

    def _pieces(self, batch: feed.Batch) -> Iterator[bytes]:
        """The events of a batch, some together."""
        lines: list[bytes] = []
        size = 0
        for event in batch.events:
            run = event.run
            if event.number > self._reached and run.owner == self._call.owner and asked.concerns(self._call.query, run):
                lines.append(_encoded(event, batch.epoch))
                size += len(lines[-1])
            if size > _PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)
        self._reached = max(self._reached, batch.through)

    def _place(self) -> bytes:
        """Where the stream stands; by itself it is no event: clients keep it without telling anybody."""
        return _id(self._subscription.epoch, self._reached)


def _encoded(event: feed.Event, epoch: int) -> bytes:
    """Once for all who want it."""
    if "event" not in event.encodings:
        data = msgspec.json.encode(shown.run(event.run))
        event.encodings["event"] = b"event: run\ndata: " + data + b"\n" + _id(epoch, event.number)
    return event.encodings["event"]


def _id(epoch: int, number: int) -> bytes:
    """The last line of an event."""
    return b"id: %d\n\n" % changes.version(epoch, number)


def _number(last: str, epoch: int) -> int:
    """The place in the log; Lagging where it is none of this epoch."""
    if not (last.isascii() and last.isdigit() and len(last) <= _LONGEST_ID):
        raise feed.Lagging
    of, number = changes.parts(int(last))
    if of != epoch:
        raise feed.Lagging
    return number
