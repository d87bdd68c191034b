"""Queued runs are claimed for pods: owners in turn, none beyond its cap, and no more than can be launched.

An owner's turn is decided before any of its runs is read, so that a backlog costs the others nothing, and an owner at its
cap is stepped over together with all that waits of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from clockhand import tracing
from clockhand.domain import limits as domain
from clockhand.domain import turns
from clockhand.engine import limits
from clockhand.store import claiming, database, runs

_WINDOW = 512
"""Queues that one claim looks at. Where there are more, the next one goes on with those behind them."""


class Claims:
    """Claims of one replica, which keep in mind whose turn it is."""

    def __init__(self, file: limits.LimitsFile) -> None:
        self._file = file
        self._after = claiming.BEGINNING
        self._turn = turns.Turn()

    async def take(
        self, connection: database.Connection, *, holder: runs.Holder, limit: int, now: datetime
    ) -> Sequence[runs.Claim]:
        """Claims up to `limit` runs of the holder's shards, all that there are where they are fewer and have no cap."""
        began = tracing.now()
        caps = self._file.current
        found = await claiming.waiting(connection, holder=holder, after=self._after, limit=_WINDOW)
        if len(found) == _WINDOW:
            self._after = found[-1]
        queues = _by_owner(found, last=self._turn, caps=caps)
        room = dict((await limits.room(connection, caps, owners=queues)).owners)
        claims: list[runs.Claim] = []
        while queues and len(claims) < limit:
            given, self._turn = turns.shares(
                list(queues), total=limit - len(claims), weight=caps.weight, most=room, last=self._turn
            )
            if not given:
                break
            shares = _spread(given, queues)
            new = await claiming.claim(connection, shares, holder=holder, now=now)
            _settle(queues, room, shares, new)
            claims += new
        if claims:
            tracing.batch_over("claim", began=began, attributes={"clockhand.runs": len(claims)})
        return claims


def _by_owner(
    found: Sequence[claiming.Queue], *, last: turns.Turn, caps: domain.Limits
) -> dict[str, list[claiming.Queue]]:
    """The queues of each owner, in the order in which owners have their turns."""
    order = turns.rotated({queue.owner for queue in found}, last=last, weight=caps.weight)
    queues: dict[str, list[claiming.Queue]] = {owner: [] for owner in order}
    for queue in found:
        queues[queue.owner].append(queue)
    return queues


def _spread(given: Mapping[str, int], queues: Mapping[str, Sequence[claiming.Queue]]) -> Mapping[claiming.Queue, int]:
    """What an owner is given is spread evenly over its queues."""
    shares = {}
    for owner, total in given.items():
        own = queues[owner]
        for number, queue in enumerate(own):
            if share := (total + len(own) - 1 - number) // len(own):
                shares[queue] = share
    return shares


def _settle(
    queues: dict[str, list[claiming.Queue]],
    room: dict[str, int],
    shares: Mapping[claiming.Queue, int],
    claims: Sequence[runs.Claim],
) -> None:
    """Leaves what may have more: queues that gave all they were asked for, of owners that have room."""
    left = dict(shares)
    for claim in claims:
        left[claiming.Queue(claim.shard, claim.owner)] -= 1
        if claim.owner in room:
            room[claim.owner] -= 1
    for owner in list(queues):
        queues[owner] = [queue for queue in queues[owner] if not left.get(queue)]
        if not queues[owner] or room.get(owner) == 0:
            del queues[owner]
