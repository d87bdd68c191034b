"""What is measured of the installation as a whole, by the one replica that has the duty `prune`: no other one has to pay.

Nothing is counted that may be millions: a look at live runs ends after so many of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from clockhand import metrics
from clockhand.domain import states
from clockhand.store import database, survey

EVERY = 30.0
_LOOK_EVERY = 2.0
_WEEK = timedelta(weeks=1)
_MODES = {False: "pod", True: "pool"}


class Survey:
    """Looks while `is_mine` says that this replica is the one; what it has measured is forgotten when it is not."""

    def __init__(self, db: database.Database, *, retention_days: int, is_mine: Callable[[], bool]) -> None:
        self._db = db
        self._kept = timedelta(days=retention_days)
        self._is_mine = is_mine

    async def step(self) -> float:
        """One look where it is this replica's; returns seconds until the next."""
        if not self._is_mine():
            _forget()
            return _LOOK_EVERY
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            live = await survey.live(connection)
            horizon = await survey.horizon(connection)
            weeks = await survey.weeks(connection)
        _tell_live(live, now)
        metrics.OLDEST_TRANSACTION.set(horizon.seconds)
        metrics.HORIZON_LAG.set(horizon.transactions)
        if weeks is None:
            metrics.PARTITIONS_AHEAD.set(0)
        else:
            metrics.PARTITIONS_AHEAD.set((weeks.end - now).total_seconds())
            # a partition goes when all of its week is too old
            overdue = now - self._kept - (weeks.oldest + 2 * _WEEK)
            metrics.RETENTION_OVERDUE.set(max(overdue.total_seconds(), 0))
        return EVERY


def _tell_live(rows: Sequence[Any], now: datetime) -> None:
    blocked: Counter[str] = Counter()
    for state in states.LIVE:
        for mode in _MODES.values():
            metrics.LIVE_RUNS.labels(state=state.value, mode=mode).set(0)
    waits = dict.fromkeys(_MODES.values(), 0.0)
    for row in rows:
        mode = _MODES[row.pooled]
        if row.state == states.RunState.BLOCKED:
            blocked[row.reason or ""] += row.runs
        else:
            metrics.LIVE_RUNS.labels(state=row.state, mode=mode).set(row.runs)
        if row.state == states.RunState.QUEUED:
            waits[mode] = max((now - row.oldest).total_seconds(), 0)
    for reason in (states.Reason.JOB_LIMIT, states.Reason.GROUP_LIMIT, *blocked):
        metrics.BLOCKED_RUNS.labels(reason=str(reason)).set(blocked[reason])
    for mode, seconds in waits.items():
        metrics.OLDEST_QUEUED.labels(mode=mode).set(seconds)


def _forget() -> None:
    for labelled in (metrics.LIVE_RUNS, metrics.BLOCKED_RUNS, metrics.OLDEST_QUEUED):
        labelled.clear()
    for gauge in (
        metrics.OLDEST_TRANSACTION,
        metrics.HORIZON_LAG,
        metrics.PARTITIONS_AHEAD,
        metrics.RETENTION_OVERDUE,
    ):
        gauge.set(metrics.UNKNOWN)
