"""Whether the database's clock has jumped, told by a process's own monotonic clock.

Database time decides what is due, so a clock that leaps ahead would fire everything at once. Each process projects
database time by its monotonic clock and holds every reading against that. A difference of more than 30 s is a step: it is
stored, and until somebody confirms it, or it is undone or ten minutes old, the installation keeps the time that it had.
A clock that runs fast or slow is followed; only leaps count.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

TOLERANCE = timedelta(seconds=30)
LASTS = timedelta(minutes=10)
_NO_STEP = timedelta()
_SLEW = 0.1  # chrony slews by a twelfth at most
_SLEW_FOR = 30.0
_DRIFT = 0.001
_AWAKE = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """What the installation knows of its database's clock. Without `step` the clock is trusted."""

    step: timedelta | None = None
    noticed_at: datetime | None = None
    """Of the newest step that was seen; by the clock after it."""

    def time_at(self, clock: datetime) -> datetime:
        """The installation's time: what the clock shows, less a step that nobody has confirmed."""
        return clock - (self.step or _NO_STEP)

    def ends_at(self) -> datetime | None:
        """When the step is believed, by the clock after it; None while there is none."""
        return self.noticed_at + LASTS if self.step is not None and self.noticed_at is not None else None

    def is_void(self, clock: datetime) -> bool:
        """Whether the clock went back behind the step while nobody looked: what is known of the step is worth nothing."""
        return self.step is not None and self.noticed_at is not None and clock < self.noticed_at - TOLERANCE

    def with_jump(self, jump: timedelta) -> timedelta | None:
        """The step after one more jump; None where that leaves the clock about where it was."""
        total = (self.step or _NO_STEP) + jump
        return total if abs(total) > TOLERANCE else None


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The database's clock, read at an unknown instant between two of this process's monotonic clock."""

    clock: datetime
    stored: Stored
    before: float
    after: float


@dataclasses.dataclass(frozen=True, slots=True)
class Projection:
    """The installation's time less the monotonic clock: between `low` and `high` seconds when looked at `at`."""

    low: float
    high: float
    at: float
    stored: Stored
    since: float
    """The monotonic instant from which on nothing but drift was seen."""


def observe(projection: Projection | None, reading: Reading) -> tuple[Projection, timedelta]:
    """Holds a reading against what is projected; returns the next projection, and the jump to be stored, if any.

    After a jump the projection stays: once the jump is stored, the installation's time goes on as projected.
    """
    fresh = _fresh(reading)
    if projection is None and reading.stored.is_void(reading.clock):
        without = Stored(None, reading.stored.noticed_at)
        return _fresh(dataclasses.replace(reading, stored=without)), -(reading.stored.step or _NO_STEP)
    if projection is None:
        return fresh, _NO_STEP
    grown = _grown(projection, fresh)
    if not _leapt(grown, fresh):
        return _narrowed(grown, fresh), _NO_STEP
    if reading.stored == projection.stored:
        return projection, _whole(_apart(projection, fresh))
    return _since_told(projection, grown, fresh)


def _since_told(projection: Projection, grown: Projection, fresh: Projection) -> tuple[Projection, timedelta]:
    """The installation knows more of the clock than at the last reading, and its time is not where it was projected."""
    step = fresh.stored.step
    if not _leapt(grown, fresh, shift=(step or _NO_STEP) - (projection.stored.step or _NO_STEP)):
        # the clock itself went on: a step was believed, or is older than this process. Else it is one that nobody but a
        # machine saw which had been suspended
        refuted = step is not None and fresh.at - projection.since > _AWAKE
        return (projection, -(step or _NO_STEP)) if refuted else (fresh, _NO_STEP)
    if fresh.at - projection.at < _AWAKE:
        return projection, _whole(_apart(projection, fresh))
    return fresh, _NO_STEP  # a step came, and was believed, while this process slept


def signed(step: timedelta | None) -> str:
    """Such as +1:00:00; Python writes -1 s as one day less 86,399 s."""
    step = step or _NO_STEP
    return f"{'-' if step < timedelta() else '+'}{abs(step)}"


def _fresh(reading: Reading) -> Projection:
    time = reading.stored.time_at(reading.clock).timestamp()
    return Projection(time - reading.after, time - reading.before, reading.after, reading.stored, reading.before)


def _grown(projection: Projection, fresh: Projection) -> Projection:
    """What the two clocks may have drifted apart meanwhile: much in a short time, little in a long one."""
    elapsed = abs(fresh.at - projection.at)
    drift = _SLEW * min(elapsed, _SLEW_FOR) + _DRIFT * max(elapsed - _SLEW_FOR, 0)
    return dataclasses.replace(projection, low=projection.low - drift, high=projection.high + drift)


def _narrowed(grown: Projection, fresh: Projection) -> Projection:
    low, high = max(grown.low, fresh.low), min(grown.high, fresh.high)
    if low > high:  # a jump too small to count: followed no faster than a drift is, so that many of them do count
        low, high = grown.low, grown.high
    return Projection(low, high, fresh.at, fresh.stored, grown.since)


def _apart(projected: Projection, fresh: Projection, *, shift: timedelta = _NO_STEP) -> float:
    low, high = fresh.low + shift.total_seconds(), fresh.high + shift.total_seconds()
    return low - projected.high if low > projected.high else min(high - projected.low, 0.0)


def _leapt(grown: Projection, fresh: Projection, *, shift: timedelta = _NO_STEP) -> bool:
    return abs(_apart(grown, fresh, shift=shift)) > TOLERANCE.total_seconds()


def _whole(seconds: float) -> timedelta:
    """In whole milliseconds, as every instant is."""
    return timedelta(milliseconds=round(seconds * 1000))
