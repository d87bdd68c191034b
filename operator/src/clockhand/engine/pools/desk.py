"""Where workers wait for runs: the claims that this process has not answered yet.

Whoever makes or finds runs takes seats for them in `handing`, stores the attempts in a transaction, and the seats are
served once it has committed. Nothing here is true by itself: what a worker was given is in the rows, and a claim whose
seat was lost with this process finds it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime

from clockhand import errors, metrics
from clockhand.domain import states
from clockhand.engine import limits
from clockhand.store import assigned, pools

_BUSY_SECONDS, _COMING_SECONDS = 0.25, 0.1
_LEAST = 50


class Seat:
    """A claim that waits. `worker` None: for messages, which carry runs to whoever presents their token."""

    __slots__ = ("closed", "done", "doubtful", "handlers", "looked", "pool", "reserved", "room", "runs", "worker")

    def __init__(self, pool: str, *, worker: str | None, handlers: Collection[str], room: int) -> None:
        self.pool = pool
        self.worker = worker
        self.handlers = tuple(handlers)
        self.room = room
        self.reserved = 0
        """Places that a transaction under way has taken."""
        self.runs: list[assigned.Assigned] = []
        self.doubtful = False
        """A commit was uncertain: the rows say what the worker was given."""
        self.closed = False
        self.looked = asyncio.Event()
        """Set once the queue has been looked into for it."""
        self.done: asyncio.Future[Sequence[assigned.Assigned]] = asyncio.get_running_loop().create_future()


class Handing:
    """The seats that one transaction takes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._taken: dict[Seat, int] = {}
        self._given: dict[Seat, list[assigned.Assigned]] = {}
        self._late: list[float] = []

    def take(self, pool: str, handler: str) -> Seat | None:
        """A place for one run: each waiting worker in turn."""
        seat = self._desk.next_seat(pool, handler)
        if seat is not None:
            self._taken[seat] = self._taken.get(seat, 0) + 1
        return seat

    def give(self, seat: Seat, run: assigned.Assigned, *, now: datetime) -> None:
        """Says what the transaction has stored for a seat that it took."""
        self._given.setdefault(seat, []).append(run)
        if run.attempt == 1 and run.kind != states.RunKind.BACKFILL:
            self._late.append((now - run.scheduled_at).total_seconds())

    def settle(self, *, kept: bool, doubtful: bool = False) -> None:
        """Serves the seats if what was stored is `kept`; gives them back otherwise."""
        for seat, count in self._taken.items():
            given = self._given.get(seat, []) if kept else []
            self._desk.settle(seat, count, given, doubtful=doubtful)
        for seconds in self._late if kept else ():
            metrics.LATENESS.observe(seconds)


@dataclasses.dataclass(slots=True)
class _Waiting:
    """Who waits for runs of one pool: all of them, and by handler in the order of their turns."""

    settings: pools.Settings
    seats: dict[Seat, None] = dataclasses.field(default_factory=dict)
    lines: dict[str, OrderedDict[Seat, None]] = dataclasses.field(default_factory=dict)
    backed_up: set[str] = dataclasses.field(default_factory=set)
    """Handlers for which runs are queued, as far as is known here."""
    served_at: float = float("-inf")

    def line_up(self, seat: Seat) -> None:
        self.seats[seat] = None
        for handler in seat.handlers:
            line = self.lines.setdefault(handler, OrderedDict())
            line[seat] = None
            if seat.worker is None:  # messages come first: workers that read them claim for what those do not bring
                line.move_to_end(seat, last=False)

    def leave(self, seat: Seat) -> None:
        self.seats.pop(seat, None)
        for handler in seat.handlers:
            line = self.lines.get(handler, OrderedDict())
            line.pop(seat, None)
            if not line:
                self.lines.pop(handler, None)

    def next(self, handler: str) -> Seat | None:
        line = self.lines.get(handler)
        while line:
            seat = next(iter(line))
            if seat.room:
                if seat.worker is not None:
                    line.move_to_end(seat)
                return seat
            del line[seat]  # lined up again where a place is given back
        return None


class Desk:
    """The waiting claims of one process, and what is known of the queues that they wait for."""

    def __init__(
        self, file: limits.LimitsFile | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._monotonic = monotonic
        self._moved = asyncio.Event()
        self._pools: dict[str, _Waiting] = {}
        self._empty: set[pools.Pair] = set()
        self._marked: set[str] = set()
        self._open = True
        self.marked = asyncio.Event()
        """Set while some queue should be looked into for somebody who waits."""

    def sit(self, settings: pools.Settings, *, worker: str | None, handlers: Collection[str], room: int) -> Seat:
        """A seat for a claim; await its `done`. Raises Unavailable once the desk is closed."""
        if not self._open:
            raise errors.Unavailable("this process is stopping", 1.0)
        seat = Seat(settings.pool, worker=worker, handlers=dict.fromkeys(handlers), room=room)
        waiting = self._pools.setdefault(seat.pool, _Waiting(settings))
        waiting.settings = settings
        waiting.line_up(seat)
        self._moved.set()
        if any((seat.pool, handler) not in self._empty for handler in seat.handlers):
            self.mark(seat.pool)
        else:
            seat.looked.set()
        return seat

    def rise(self, seat: Seat) -> None:
        """Takes nothing more for this seat; `done` follows once no transaction holds a place of it."""
        seat.closed = True
        self._end_if_over(seat)

    def close(self) -> None:
        """Ends every claim that waits, and refuses new ones."""
        self._open = False
        for seat in [seat for waiting in self._pools.values() for seat in waiting.seats]:
            self.rise(seat)

    @contextlib.contextmanager
    def handing(self) -> Iterator[Handing]:
        """Around a transaction that gives runs to seats. Where its commit is uncertain, the rows will tell."""
        handing = Handing(self)
        try:
            yield handing
        except BaseException as error:
            handing.settle(kept=False, doubtful=isinstance(error, errors.Uncertain))
            raise
        handing.settle(kept=True)

    async def appetite(self, most: int) -> int:
        """How many runs to make at once, up to `most`: as many as are waited for, while workers come back for more.

        A run that is queued is written twice, and those that are due after it then are too, until the queue is empty.
        Where workers keep coming, the moment until the next one does is worth it.
        """
        lately = self._monotonic() - _BUSY_SECONDS
        busy = [waiting for waiting in self._pools.values() if waiting.served_at >= lately]
        if not busy:
            return most
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COMING_SECONDS):
                while any(waiting.backed_up for waiting in busy) or not self._room():
                    self._moved.clear()
                    await self._moved.wait()
        room = self._room()
        return min(most, max(room, _LEAST)) if room else most

    def _room(self) -> int:
        return sum(seat.room for waiting in self._pools.values() for seat in waiting.seats)

    def hands_over(self, pool: str, handler: str, owner: str) -> bool:
        """Whether a run that has just become due may go to a waiting worker at once, past the queue.

        Where a cap has to be counted, the queue does that.
        """
        waiting = self._pools.get(pool)
        if waiting is None or not waiting.lines.get(handler) or not waiting.settings.allows(owner):
            return False
        if self._file is None:
            return True
        current = self._file.current
        return current.owner_cap(owner) is None and current.pool_cap(pool) is None

    def next_seat(self, pool: str, handler: str) -> Seat | None:
        """Takes a place of the worker whose turn it is; for `Handing`."""
        seat = self._pools[pool].next(handler)
        if seat is not None:
            seat.room -= 1
            seat.reserved += 1
        return seat

    def settle(self, seat: Seat, count: int, given: Sequence[assigned.Assigned], *, doubtful: bool) -> None:
        """Ends what a transaction held of a seat: `count` places, of which `given` were filled; for `Handing`."""
        back = count - len(given)
        seat.reserved -= count
        seat.room += back
        seat.runs += given
        seat.doubtful |= doubtful
        if not self._end_if_over(seat) and back:
            self._pools[seat.pool].line_up(seat)

    def settings_of(self, pool: str) -> pools.Settings:
        """How a pool that somebody has waited for is set up."""
        return self._pools[pool].settings

    def sitting(self, pool: str) -> Sequence[Seat]:
        """Those who wait for runs of a pool."""
        return list(self._pools[pool].seats) if pool in self._pools else []

    def spans(self) -> pools.Spans:
        """What somebody waits for, and of which owners."""
        return {
            (pool, name): waiting.settings.spans
            for pool, waiting in self._pools.items()
            for name, line in waiting.lines.items()
            if line
        }

    def mark(self, pool: str) -> None:
        """Says that a pool's queue may have something for those who wait."""
        self._marked.add(pool)
        self.marked.set()

    def queued(self, pairs: Collection[pools.Pair]) -> None:
        """Says that runs for `pairs` are queued, and marks the queues that somebody waits for."""
        self._empty.difference_update(pairs)
        for pool, handler in pairs:
            if (waiting := self._pools.get(pool)) is not None:
                waiting.backed_up.add(handler)
                if waiting.lines.get(handler):
                    self.mark(pool)

    def mark_all(self) -> None:
        """Says that runs are queued for somebody, nobody knows for whom."""
        self._empty.clear()
        for pool, waiting in self._pools.items():
            if waiting.seats:
                self.mark(pool)

    def found_empty(self, pairs: Collection[pools.Pair]) -> None:
        """Says that nothing was queued for `pairs` just now."""
        self._empty.update(pairs)
        for pool, handler in pairs:
            self._pools[pool].backed_up.discard(handler)
        self._moved.set()

    def looked(self, pairs: Collection[pools.Pair], queued: Collection[pools.Pair]) -> None:
        """Replaces what is known of empty queues by a look at `pairs`: any other may have filled since the last one."""
        self._empty = set(pairs) - set(queued)
        for waiting in self._pools.values():
            waiting.backed_up.clear()
        self.queued(queued)

    def take_marks(self) -> Sequence[str]:
        """The pools whose queues are to be looked into for somebody who waits, each once."""
        marked = [pool for pool in self._marked if pool in self._pools and self._pools[pool].seats]
        self._marked.clear()
        self.marked.clear()
        return marked

    def _end_if_over(self, seat: Seat) -> bool:
        """A seat that was given something takes no more: its worker is to have that at once."""
        if not (seat.closed or seat.doubtful or seat.runs):
            return False
        self._pools[seat.pool].leave(seat)
        seat.looked.set()
        if seat.reserved == 0 and not seat.done.done():
            if seat.runs:
                self._pools[seat.pool].served_at = self._monotonic()
                metrics.RUNS_CLAIMED.inc(len(seat.runs))
            seat.done.set_result(seat.runs)
        return True
