"""What is measured of the installation as a whole, by the one replica that has the duty `prune`: no other one has to pay.

Nothing is counted that may be millions: a look at live runs ends after so many of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

from clockhand import metrics
from clockhand.domain import states
from clockhand.store import database, survey

EVERY = 60.0
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
            seen = await survey.look(connection)
        _tell_live(seen.live)
        metrics.OLDEST_TRANSACTION.set(seen.horizon_seconds)
        metrics.HORIZON_LAG.set(seen.horizon_transactions)
        if seen.weeks is None:
            metrics.PARTITIONS_AHEAD.set(0)
        else:
            metrics.PARTITIONS_AHEAD.set((seen.weeks.end - seen.now).total_seconds())
            # a partition goes when all of its week is too old
            overdue = seen.now - self._kept - (seen.weeks.oldest + 2 * _WEEK)
            metrics.RETENTION_OVERDUE.set(max(overdue.total_seconds(), 0))
        return EVERY


def _tell_live(found: Sequence[survey.Live]) -> None:
    blocked: Counter[str] = Counter()
    for state in states.LIVE - {states.RunState.BLOCKED}:
        for mode in _MODES.values():
            metrics.LIVE_RUNS.labels(state=state.value, mode=mode).set(0)
    waits = dict.fromkeys(_MODES.values(), 0.0)
    for one in found:
        mode = _MODES[one.pooled]
        if one.state == states.RunState.BLOCKED:
            blocked[one.reason or ""] += one.runs
        else:
            metrics.LIVE_RUNS.labels(state=one.state, mode=mode).set(one.runs)
        if one.state == states.RunState.QUEUED:
            waits[mode] = one.oldest
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
