"""Which workers have fallen silent, and whether that is to be believed.

A worker's leases lapse together: what it was given last counts for all, so that whoever fell silent with several runs is
not taken for one who had a single run. If most workers of a pool fall silent at the same time, it is more likely that they
could not be heard: their pool waits one lease longer, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

AT_ONCE = timedelta(seconds=10)
FEWEST = 4
"""Workers of which so many must fall silent for it to be most of a pool."""


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A worker's open attempts; `worker` is None for messages of the pool that nobody has started."""

    pool: str
    worker: str | None
    held: int
    last_lease: datetime
    """When the last of the leases ends or ended."""
    lapsed: int
    forgotten: int
    """Of the lapsed ones those that were over one lease ago: a worker that lives does not know of them."""
    overdue: int
    """Past the time-out of an attempt."""
    lease: int
    heartbeat: int
    rescue_from: datetime
    """Leases that lapsed are left alone until then."""

    @property
    def at_once(self) -> timedelta:
        """What counts as the same time: a worker that is heard is further from the end of its leases."""
        return min(AT_ONCE, timedelta(seconds=(self.lease - self.heartbeat) / 2))

    def is_silent(self, now: datetime) -> bool:
        """Whether every lease has lapsed."""
        return self.last_lease <= now

    def falls_silent(self, now: datetime) -> bool:
        """Whether it is silent or about to be, since the pool last waited longer."""
        return self.rescue_from < self.last_lease <= now + self.at_once


@dataclasses.dataclass(frozen=True, slots=True)
class Lapsed:
    """The workers of a pool whose lapsed attempts are to be rescued, and which of them held one attempt alone."""

    pool: str
    workers: Collection[str]
    alone: Collection[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """What is to be done now; the pools of `doubtful` are to wait one lease longer.

    `overdue` names by pool the workers that have an attempt past its time-out.
    """

    lapsed: list[Lapsed] = dataclasses.field(default_factory=list)
    doubtful: list[str] = dataclasses.field(default_factory=list)
    overdue: dict[str, Collection[str]] = dataclasses.field(default_factory=dict)


def decide(standings: Iterable[Standing], *, now: datetime) -> Decided:
    """Whose attempts are to be rescued at `now`, pool by pool."""
    decided = Decided()
    for pool, members in _by_pool(standings).items():
        if late := [one.worker for one in members if one.worker is not None and one.overdue]:
            decided.overdue[pool] = late
        if not any(one.lapsed for one in members) or members[0].rescue_from > now:
            continue
        lapsed = [one for one in members if one.lapsed and (one.is_silent(now) or one.forgotten or one.worker is None)]
        if _most(members, now):
            decided.doubtful.append(pool)
        elif lapsed:
            workers = [one.worker for one in lapsed if one.worker is not None]
            alone = [one.worker for one in lapsed if one.worker is not None and one.held == 1]
            decided.lapsed.append(Lapsed(pool, workers, frozenset(alone)))
    return decided


def _most(members: Collection[Standing], now: datetime) -> bool:
    workers = [one for one in members if one.worker is not None]
    falling = sum(one.falls_silent(now) for one in workers)
    return falling >= FEWEST and 2 * falling > len(workers)


def _by_pool(standings: Iterable[Standing]) -> dict[str, list[Standing]]:
    pools: dict[str, list[Standing]] = {}
    for one in standings:
        pools.setdefault(one.pool, []).append(one)
    return pools
