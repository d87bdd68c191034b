"""Pools with `dispatch: Kafka`: a claim of each handler waits at the desk for messages, as a worker's claim would.

What it is given is published. While the brokers cannot be used no such claim waits: runs are queued then, and workers find
them by polling. What was not acknowledged goes back to the queue at once; what was lost later, when its lease is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence

import structlog

from clockhand import errors, metrics
from clockhand.domain import protocol
from clockhand.engine import loops
from clockhand.engine.pools import desk as desks
from clockhand.engine.pools import kafka
from clockhand.store import assigned, database, leases, pools
from clockhand.store import kafka as rows

log = structlog.get_logger(__name__)

WINDOW = 1_000
"""Messages of a handler that nobody has started, at most: what is beyond them waits in the queue, in its order."""
_LOOK_EVERY, _LOOK_WITHOUT_BROKERS = 5.0, 60.0
_CHECK_EVERY, _CHECK_WHILE_WRONG = 30.0, 5.0
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 30.0
_COUNT_EVERY, _COUNT_IN_A_RUSH = 1.0, 0.1
_OLD = 1 / 3
"""Of a lease: messages that nobody has started by then are not being read, or by workers that are full."""


@dataclasses.dataclass(slots=True)
class Flow:
    """How many messages of a handler may be on their way: none while they are not read, and then one, two, four."""

    window: int
    unstarted: int = 0
    """As counted last, and what was published since."""
    old: bool = False
    """Some of it had waited too long: if less is left next time, it was rescued and not read."""
    rests_until: float = float("-inf")

    @property
    def rests(self) -> bool:
        return time.monotonic() < self.rests_until

    @property
    def is_tight(self) -> bool:
        """Whether it is worth a look soon how many have been started."""
        return not self.rests and 0 < self.window // 2 < self.unstarted

    def follow(self, count: int, *, old: bool, rest: float, most: int) -> None:
        """Takes over what was counted. What is read by nobody is left to workers that poll, for `rest` seconds."""
        if old:
            self.window, self.rests_until = 1, time.monotonic() + rest
        elif count < self.unstarted and not self.old:
            self.window = min(2 * self.window, most)
        self.unstarted, self.old = count, old


class Dispatch:
    """The standing claims of one process. `publisher` is its connection to the brokers."""

    def __init__(
        self,
        db: database.Database,
        desk: desks.Desk,
        publisher: kafka.Publisher,
        *,
        replica: str,
        window: int = WINDOW,
    ) -> None:
        self._db = db
        self._desk = desk
        self._publisher = publisher
        self._replica = replica
        self._window = window
        self._pools: dict[str, rows.Dispatched] = {}
        self._broken: str | None = None
        """What is wrong with the connection."""
        self._wrong: dict[str, str] = {}
        """What is wrong with a topic."""
        self._failed = 0
        self._connect_at = self._check_at = float("-inf")
        self._seats: dict[pools.Pair, tuple[desks.Seat, pools.Settings]] = {}
        self._flows: dict[pools.Pair, Flow] = {}
        self._sends: set[asyncio.Task[None]] = set()
        self._look_now, self._count_now = asyncio.Event(), asyncio.Event()

    @property
    def look_every(self) -> float:
        """Seconds between looks, each of one query. Without brokers there is nothing to do but to tell pools so."""
        return _LOOK_EVERY if self._publisher.has_brokers else _LOOK_WITHOUT_BROKERS

    def steps(self) -> Mapping[str, loops.Step]:
        """The loops by name, for `loops.forever`."""
        return {"kafka": self.look, "window": self.count}

    async def look(self) -> float:
        """Learns which pools there are, keeps the connection, and has a claim wait for each handler that can be served."""
        await self._read()
        topics = _topics(self._pools.values())
        if topics and not self._publisher.is_open:
            await self._connect()
        if self._publisher.is_open and time.monotonic() >= self._check_at:
            await self._prepare(topics)
        self._stand()
        await self._show()
        waits = self._connect_at - time.monotonic() if topics and not self._publisher.is_open else self.look_every
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(waits, self.look_every)):
                await self._look_now.wait()
        self._look_now.clear()
        return 0.0

    async def count(self) -> float:
        """Counts what nobody has started, while there is some: the window moves on with that."""
        await self._count_now.wait()
        before = {pair: flow.unstarted for pair, flow in self._flows.items()}
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            found = await rows.unstarted(connection, {pool for pool, _ in before}, now=now)
        for pair, flow in self._flows.items():
            count, oldest = found.get(pair, (0, 0.0))
            lease = self._pools[pair[0]].settings.lease_seconds
            since = flow.unstarted - before.get(pair, 0)
            flow.follow(count + since, old=oldest > _OLD * lease, rest=lease, most=self._window)
        self._stand()
        if not any(flow.unstarted for flow in self._flows.values()):
            self._count_now.clear()
        return _COUNT_IN_A_RUSH if any(flow.is_tight for flow in self._flows.values()) else _COUNT_EVERY

    async def close(self) -> None:
        """Takes nothing more, publishes what was taken, and ends the connection."""
        self._pools.clear()
        self._flows.clear()
        self._stand()
        while self._sends:
            await asyncio.wait(self._sends)
        await self._publisher.close()

    async def _read(self) -> None:
        async with self._db.transaction() as connection:
            found = {one.settings.pool: one for one in await rows.dispatched(connection)}
        if _topics(found.values()) != _topics(self._pools.values()):
            self._check_at = float("-inf")
        self._pools = found
        self._flows = {pair: flow for pair, flow in self._flows.items() if pair[0] in found}

    async def _connect(self) -> None:
        if time.monotonic() < self._connect_at:
            return
        try:
            await self._publisher.open()
        except errors.Unavailable as error:
            self._fail(str(error))
        else:
            self._check_at = float("-inf")

    async def _prepare(self, topics: Collection[str]) -> None:
        try:
            self._wrong = dict(await self._publisher.prepare(topics))
        except errors.Unavailable as error:
            self._fail(str(error))
            await self._publisher.close()
            return
        if self._broken is not None:
            log.info("kafka_is_back")
        self._broken = None
        self._check_at = time.monotonic() + (_CHECK_WHILE_WRONG if self._wrong else _CHECK_EVERY)

    def _fail(self, error: str) -> None:
        """Lets runs be polled for until the brokers can be reached again."""
        if self._broken is None:
            log.warning("kafka_failed", error=error)
        self._broken = error
        self._connect_at = time.monotonic() + min(_FIRST_BACKOFF * 2.0**self._failed, _LONGEST_BACKOFF)
        self._failed = min(self._failed + 1, 10)
        self._stand()

    def _stand(self) -> None:
        """Has claims wait for whatever can be published now, and no others."""
        served = {} if self._broken or not self._publisher.is_open else self._served()
        for pair, (seat, settings) in list(self._seats.items()):
            if settings != served.get(pair):
                del self._seats[pair]
                self._desk.rise(seat)
        for pair, settings in served.items():
            self._sit(pair, settings)

    def _served(self) -> Mapping[pools.Pair, pools.Settings]:
        return {
            (pool, handler): one.settings
            for pool, one in self._pools.items()
            for handler in one.handlers
            if protocol.topic_of(handler) not in self._wrong and not self._flow((pool, handler)).rests
        }

    def _flow(self, pair: pools.Pair) -> Flow:
        return self._flows.setdefault(pair, Flow(self._window))

    def _sit(self, pair: pools.Pair, settings: pools.Settings) -> None:
        flow = self._flow(pair)
        room = flow.window - flow.unstarted
        if pair in self._seats or room <= 0:
            return
        with contextlib.suppress(errors.Unavailable):  # the desk is closed: this process is stopping
            seat = self._desk.sit(settings, worker=None, handlers=(pair[1],), room=room)
            self._seats[pair] = seat, settings
            # not awaited: a claim that rises may be given runs all the same, by a transaction that had taken its places
            seat.done.add_done_callback(lambda done: self._take(pair, seat, done.result()))

    def _take(self, pair: pools.Pair, seat: desks.Seat, runs: Sequence[assigned.Assigned]) -> None:
        if runs:
            if pair in self._flows:
                self._flows[pair].unstarted += len(runs)
                self._count_now.set()
            task = asyncio.create_task(self._publish(pair, runs))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
        if pair in self._seats and self._seats[pair][0] is seat:
            del self._seats[pair]
            self._stand()

    async def _publish(self, pair: pools.Pair, runs: Sequence[assigned.Assigned]) -> None:
        unsent = await self._publisher.send(pair[0], runs)
        if not unsent:
            self._failed = 0
        metrics.KAFKA_MESSAGES.labels(outcome="acknowledged").inc(len(runs) - len(unsent))
        if unsent:
            metrics.KAFKA_MESSAGES.labels(outcome="failed").inc(len(unsent))
            await self._take_back(pair, unsent)

    async def _take_back(self, pair: pools.Pair, unsent: Sequence[kafka.Unsent]) -> None:
        """Queues what was not sent, for workers that poll."""
        passing = [one for one in unsent if one.passing]
        if passing:
            self._fail(passing[0].error)
        else:
            self._wrong[protocol.topic_of(pair[1])] = unsent[0].error
            self._check_at = time.monotonic() + _CHECK_EVERY
            self._stand()
        await self._release(pair, [one.run for one in unsent])
        if passing:
            await self._publisher.close()
        self._look_now.set()

    async def _release(self, pair: pools.Pair, runs: Sequence[assigned.Assigned]) -> None:
        attempts = [leases.Attempt(run.run_id, run.token, pair[0], None) for run in runs]
        try:
            async with self._db.transaction() as connection:
                await leases.release(connection, attempts)
        except errors.ClockhandError as error:  # they are queued when their leases are over
            log.warning("unsent_runs_left", pool=pair[0], count=len(runs), error=str(error))
        self._desk.queued([pair])

    async def _show(self) -> None:
        wrong = {pool: self._error_of(one) for pool, one in self._pools.items()}
        changed = {
            pool: error
            for pool, error in wrong.items()
            if self._pools[pool].settings.kafka_error != (error and f"{self._replica}: {error}")
        }
        if changed:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                await rows.show(connection, changed, replica=self._replica, now=now)

    def _error_of(self, pool: rows.Dispatched) -> str | None:
        if not pool.handlers:
            return "the pool lists no handlers, so that it has no topics"
        wrong = (self._error_with(pool.settings.pool, handler) for handler in pool.handlers)
        return self._broken or next((error for error in wrong if error), None)

    def _error_with(self, pool: str, handler: str) -> str | None:
        topic, flow = protocol.topic_of(handler), self._flows.get((pool, handler))
        if flow is not None and flow.window == 1 < self._window:
            return f"messages on {topic} are not read in time: its workers are full, or do not reach the brokers"
        return self._wrong.get(topic)


def _topics(found: Collection[rows.Dispatched]) -> frozenset[str]:
    return frozenset(protocol.topic_of(handler) for pool in found for handler in pool.handlers)
