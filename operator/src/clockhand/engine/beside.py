"""Beside a backlog: owners take turns, so that nobody who has few jobs due waits behind one that has many.

Due jobs are found in the order of time, and there a small owner's lie behind all that a big one had due before them. So
while more is due than one batch takes, whatever becomes due is looked at once, by its owner, and each batch begins with some
of each owner in turn.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from clockhand.store import database, firing

_FEW = 64
"""Jobs of one owner that are remembered at a time; what it has beyond them waits with the backlog."""
_LOOKED_AT = 1_000
"""Of each shard, in one look: what else is due there waits with the backlog."""
_OVERLAP = timedelta(milliseconds=250)
"""A job that is due at once becomes visible somewhat later."""
_SHARED_FOR = timedelta(seconds=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


class Beside:
    """What is fired beside one backlog, from when it is noticed until it is gone."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, dict[uuid.UUID, None]] = OrderedDict()
        """The jobs of each owner; the one whose turn is next is the first."""
        self._since = _NEVER
        self._found = False
        self._shared_until = _NEVER
        self.shared = False
        """Whether jobs of more than one owner have become due lately."""

    async def first(
        self, connection: database.Connection, *, shards: Collection[int], before: datetime, most: int
    ) -> Sequence[uuid.UUID]:
        """Up to `most` jobs of `shards` that do not wait for the end of the backlog. They are named once."""
        found = await firing.due_by_owner(
            connection, shards=shards, since=self._since, before=before, few=_FEW, most=_LOOKED_AT
        )
        self._found = bool(found)
        self._since = before - _OVERLAP
        for owner, job_ids in found:
            waiting = self._waiting.setdefault(owner, {})
            waiting |= dict.fromkeys(job_ids[: _FEW - len(waiting)])
        return self._taken(most)

    def saw(self, owners: Collection[str], *, now: datetime) -> None:
        """Learns whose jobs a batch had. A backlog of many owners of which no more becomes due is nobody's to wait for."""
        if self._found and len(owners) > 1:
            self._shared_until = now + _SHARED_FOR
        self.shared = now < self._shared_until

    def _taken(self, most: int) -> Sequence[uuid.UUID]:
        """One of each owner in turn."""
        taken: list[uuid.UUID] = []
        while self._waiting and len(taken) < most:
            owner, waiting = self._waiting.popitem(last=False)
            job_id = next(iter(waiting))
            del waiting[job_id]
            taken.append(job_id)
            if waiting:
                self._waiting[owner] = waiting
        return taken
