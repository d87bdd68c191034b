"""One reader of the change log for all watchers of this process.

It reads only while somebody watches, once a second, and hands each watcher the same events; a watcher that does not keep up
is cut off rather than kept in memory. Events are levels, not edges: a run that moved three times in a second gives one event
with its latest state.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Hashable, Sequence
from datetime import datetime

import structlog

from clockhand import errors, metrics
from clockhand.domain import ids, instants
from clockhand.store import changes, database, listing

POLL_SECONDS = 1.0
BACKLOG_EVENTS = 20_000
_CHANGES_AT_ONCE = 50_000
CHUNK = 2_000
"""Changes read by one statement, and what is handed at once to each of those who have missed some."""
log = structlog.get_logger(__name__)


class Event:
    """A run as it is after the change `number`; encodings are kept, for many watchers want the same one."""

    __slots__ = ("created", "encodings", "number", "run")

    def __init__(self, number: int, run: listing.Run, *, created: bool) -> None:
        self.number = number
        self.run = run
        self.created = created
        self.encodings: dict[Hashable, bytes] = {}


class Batch:
    """Events in the order of their numbers; nothing up to `through` is missing."""

    __slots__ = ("at", "epoch", "events", "through")

    def __init__(self, epoch: int, through: int, events: Sequence[Event], at: datetime) -> None:
        self.epoch = epoch
        self.through = through
        self.events = events
        self.at = at


class Lagging(Exception):
    """The reader was too slow, or the log was cut under it: it must list anew."""


class Closed(Exception):
    """The process is going away."""


class Subscription:
    """The batches after number `start`, for one watcher."""

    def __init__(self, epoch: int, start: int) -> None:
        self.epoch = epoch
        self.start = start
        self._batches: deque[Batch] = deque()
        self._waiting = 0
        self._end: type[Exception] | None = None
        self._changed = asyncio.Event()

    async def next(self, seconds: float) -> Batch | None:
        """The next batch; None if none came within `seconds`. Raises Lagging or Closed."""
        if not self._batches and self._end is None:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._changed.wait()
        if self._end is not None:
            raise self._end
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._waiting -= len(batch.events)
        return batch

    def put(self, batch: Batch) -> None:
        self._waiting += len(batch.events)
        if self._waiting > BACKLOG_EVENTS:
            self.end(Lagging)
            return
        self._batches.append(batch)
        self._changed.set()

    def end(self, why: type[Exception]) -> None:
        if why is Lagging and self._end is None:
            metrics.RUNS_WATCHES_CUT.inc()
        self._end = self._end or why
        self._batches.clear()
        self._changed.set()


class Feed:
    """The shared reader. `run` is its loop; `join` makes a subscription."""

    def __init__(self, db: database.Database, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._db = db
        self._poll_seconds = poll_seconds
        self._subscriptions: set[Subscription] = set()
        self._wanted = asyncio.Event()
        self._joining = asyncio.Lock()
        self._epoch = 0
        self._cursor = 0
        self._closed = False

    @property
    def watchers(self) -> int:
        return len(self._subscriptions)

    async def join(self) -> Subscription:
        """A subscription to every batch from now on."""
        async with self._joining:
            if not self._subscriptions:
                async with self._db.transaction() as connection:
                    standing = await changes.newest(connection)
                self._epoch, self._cursor = standing.epoch, standing.newest
            subscription = Subscription(self._epoch, self._cursor)
            self._subscriptions.add(subscription)
            metrics.RUNS_WATCHES.set(len(self._subscriptions))
            self._wanted.set()
        if self._closed:
            subscription.end(Closed)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        metrics.RUNS_WATCHES.set(len(self._subscriptions))
        if not self._subscriptions:
            self._wanted.clear()

    def close(self) -> None:
        """Ends every watch; new ones end at once."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.end(Closed)

    async def run(self) -> None:
        """Polls while somebody watches; failures are waited out: a watch that hears nothing would not know why."""
        while True:
            await self._wanted.wait()
            try:
                await self.run_once()
            except errors.ClockhandError as error:
                log.warning("changes_unreadable", error=str(error))
            except Exception:
                log.exception("changes_unreadable")
            await asyncio.sleep(self._poll_seconds)

    async def run_once(self) -> None:
        """Reads what is new and hands it out."""
        async with self._db.transaction() as connection:
            await listing.hold_still(connection)
            standing = await changes.newest(connection)
            if standing.epoch != self._epoch or standing.newest < self._cursor:
                self._cut(standing)
            elif standing.newest > self._cursor:
                await self._read(connection, standing)
        if standing.pending:
            await changes.number_pending(self._db)

    async def _read(self, connection: database.Connection, standing: changes.Standing) -> None:
        batch = await _batch_of(connection, self._cursor, standing=standing, most=_CHANGES_AT_ONCE)
        if batch is None:
            self._cut(standing)
            return
        self._cursor = batch.through
        for subscription in self._subscriptions:
            subscription.put(batch)

    def _cut(self, standing: changes.Standing) -> None:
        self._epoch, self._cursor = standing.epoch, standing.newest
        for subscription in self._subscriptions:
            subscription.end(Lagging)


async def missed(db: database.Database, subscription: Subscription, *, after: int) -> AsyncIterator[Batch]:
    """What changed after number `after`, up to the start of `subscription`. Raises Lagging where nobody knows any more.

    Little at a time: unlike what comes later, it is each reader's own, for as long as that takes to send it.
    """
    while after < subscription.start:
        async with db.transaction() as connection:
            await listing.hold_still(connection)
            standing = await changes.newest(connection)
            batch = await _batch_of(connection, after, standing=standing, most=CHUNK)
        if batch is None or standing.epoch != subscription.epoch or batch.through == after:
            raise Lagging
        yield batch
        after = batch.through
    if after > subscription.start:
        async with db.transaction() as connection:
            standing = await changes.newest(connection)
        if after > standing.newest:
            raise Lagging


async def _batch_of(
    connection: database.Connection, after: int, *, standing: changes.Standing, most: int
) -> Batch | None:
    """About `most` changes after number `after`, one event a run; None where the log no longer reaches back so far."""
    if not await changes.is_kept(connection, after, standing=standing):
        return None
    last: dict[uuid.UUID, int] = {}
    first_seen: dict[uuid.UUID, datetime] = {}
    through = after
    while through < standing.newest and through - after < most:
        found = await changes.read_after(connection, through, rows=CHUNK)
        if not found:
            break
        for change in found:
            last[change.run_id] = change.number
            first_seen.setdefault(change.run_id, change.at)
        through = found[-1].number
    return Batch(standing.epoch, through, await _events(connection, last, first_seen), standing.at)


async def _events(
    connection: database.Connection, last: dict[uuid.UUID, int], first_seen: dict[uuid.UUID, datetime]
) -> Sequence[Event]:
    events = []
    wanted = list(last)
    for begin in range(0, len(wanted), CHUNK):
        for run in await listing.by_ids(connection, wanted[begin : begin + CHUNK]):
            # a run is made in the transaction that logs its first change, whose time it has to the millisecond
            created = ids.whole_ms(first_seen[run.run_id]) - run.created_at < instants.MILLISECOND
            events.append(Event(last[run.run_id], run, created=created))
    return sorted(events, key=lambda event: event.number)
