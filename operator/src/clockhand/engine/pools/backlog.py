"""Queued runs for the workers that wait: owners in turn, within every cap, one transaction for all who wait in a pool."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from clockhand.domain import turns
from clockhand.engine import limits
from clockhand.engine.pools import desk as desks
from clockhand.store import database, pools

MOST_RUNS = 1_000
"""Given away in one transaction."""
_MOST_OWNERS = 1_000


@dataclasses.dataclass(slots=True)
class _Turns:
    """Where a pool's turns ended: among its handlers, and among the owners of each of them."""

    handler: turns.Turn = dataclasses.field(default_factory=turns.Turn)
    owners: dict[str, turns.Turn] = dataclasses.field(default_factory=dict)


class Backlog:
    """Looks into the queues of pools for those who wait at a desk."""

    def __init__(self, db: database.Database, desk: desks.Desk, file: limits.LimitsFile) -> None:
        self._db = db
        self._desk = desk
        self._file = file
        self._turns: dict[str, _Turns] = {}
        self._held_back: set[str] = set()

    async def run_once(self, pool: str) -> int:
        """Gives Queued runs of `pool` to those who wait; returns how many. A queue that has more for them stays marked."""
        asked = self._desk.sitting(pool)
        rooms = _rooms(asked)
        if not rooms:
            return 0
        with self._desk.handing() as handing:
            async with self._db.transaction() as connection:
                now = await database.now(connection)
                shares = await self._shares(connection, pool, rooms, total=sum(seat.room for seat in asked))
                found, given = await self._give(connection, handing, pool=pool, shares=shares, now=now)
        short = {handler for handler, count in _by_handler(shares).items() if found[handler] < count}
        self._desk.found_empty([(pool, handler) for handler in short])
        if any(share.handler not in short for share in shares):
            self._desk.mark(pool)
            return given
        for seat in asked:
            seat.looked.set()
        return given

    def ended(self) -> None:
        """Says that attempts have ended: where a cap held runs back, it may not any more."""
        for pool in self._held_back:
            self._desk.mark(pool)
        self._held_back.clear()

    async def _shares(
        self, connection: database.Connection, pool: str, rooms: Mapping[str, int], *, total: int
    ) -> Sequence[pools.Share]:
        """How many runs each owner is given for each handler."""
        turn = self._turns.setdefault(pool, _Turns())
        starts = {handler: turn.owners.get(handler, turns.Turn()).owner for handler in rooms}
        spans, current = self._desk.settings_of(pool).spans, self._file.current
        waiting = await pools.waiting(connection, pool=pool, starts=starts, spans=spans, limit=_MOST_OWNERS)
        self._desk.found_empty([(pool, handler) for handler in rooms if handler not in waiting])
        owners = {owner for found in waiting.values() for owner in found}
        room = await limits.room(connection, current, owners=owners, pools=[pool] if owners else ())
        if room.owners or room.pools:
            self._held_back.add(pool)
        most = max(0, min(total, MOST_RUNS, room.pools.get(pool, total)))
        return _divided(turn, waiting, rooms, total=most, owners=room.owners, weight=current.weight)

    async def _give(
        self,
        connection: database.Connection,
        handing: desks.Handing,
        *,
        pool: str,
        shares: Sequence[pools.Share],
        now: datetime,
    ) -> tuple[Counter[str], int]:
        """How many runs were there for each handler, and how many were given away."""
        if not shares:
            return Counter(), 0
        seats: dict[uuid.UUID, desks.Seat] = {}
        locked = await pools.lock_queued(connection, pool=pool, shares=shares)
        for row in locked:
            if (seat := handing.take(pool, row.handler)) is not None:
                seats[row.run_id] = seat
        assignments = [pools.Assignment(run_id, seat.worker) for run_id, seat in seats.items()]
        lease = self._desk.settings_of(pool).lease_seconds
        given = await pools.assign(connection, assignments, lease=lease, now=now)
        for run in given:
            handing.give(seats[run.run_id], run, now=now)
        return Counter(row.handler for row in locked), len(given)


def _by_handler(shares: Sequence[pools.Share]) -> Mapping[str, int]:
    wanted: Counter[str] = Counter()
    for share in shares:
        wanted[share.handler] += share.count
    return wanted


def _rooms(seats: Sequence[desks.Seat]) -> Mapping[str, int]:
    """By handler, for how many runs somebody waits; a place counts for each handler of its seat."""
    rooms: dict[str, int] = {}
    for seat in seats:
        for handler in seat.handlers if seat.room else ():
            rooms[handler] = rooms.get(handler, 0) + seat.room
    return rooms


def _divided(
    turn: _Turns,
    waiting: Mapping[str, Sequence[str]],
    rooms: Mapping[str, int],
    *,
    total: int,
    owners: Mapping[str, int],
    weight: Callable[[str], int],
) -> Sequence[pools.Share]:
    """Handlers in turn, then the owners that wait for each; `owners` is how many more some of them may have."""
    handlers = turns.rotated(list(waiting), last=turn.handler, weight=_once)
    by_handler, turn.handler = turns.shares(handlers, total=total, weight=_once, most=rooms, last=turn.handler)
    left = {owner: max(0, room) for owner, room in owners.items()}
    shares = []
    for handler, count in by_handler.items():
        last = turn.owners.get(handler, turns.Turn())
        in_turn = turns.rotated(waiting[handler], last=last, weight=weight)
        given, turn.owners[handler] = turns.shares(in_turn, total=count, weight=weight, most=left, last=last)
        for owner, number in given.items():
            if owner in left:
                left[owner] -= number
            shares.append(pools.Share(handler, owner, number))
    return shares


def _once(_: str) -> int:
    return 1
