"""How many workers a scaled pool should have: more while runs wait too long, fewer once some have nothing to do.

Up by what waits, at most doubled, and then not again before what was asked for can have come. Down only to what was needed
at most over a while, and never to less than half at once: a pause between two bursts is no reason to end warm workers.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from clockhand.domain.workerpool import PoolSpec

PACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to do: runs that wait, since when one of them does, and runs that workers have."""

    backlog: int
    oldest_seconds: float
    running: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How many workers are wanted, and what is remembered for the next decision. Instants are monotonic seconds."""

    wanted: int
    raised_at: float = -math.inf
    spare_from: float | None = None  # since when fewer would have done
    needed: int = 0  # at most, since then


def next_scale(spec: PoolSpec, scale: Scale, load: Load, *, now: float) -> Scale:
    """The decision at `now`."""
    wanted = _within(spec, scale.wanted)
    if _is_late(spec, wanted, load):
        more = _more(spec, wanted, load) if now - scale.raised_at >= PACE_SECONDS else wanted
        return Scale(more, now if more > wanted else scale.raised_at)
    needed = _within(spec, math.ceil((load.backlog + load.running) / spec.concurrency))
    if needed >= wanted:
        return Scale(wanted, scale.raised_at)
    if scale.spare_from is None:
        return Scale(wanted, scale.raised_at, now, needed)
    needed = max(needed, scale.needed)
    if now - scale.spare_from >= spec.scale_down_after_seconds:
        return Scale(max(needed, wanted // 2), scale.raised_at)
    return dataclasses.replace(scale, wanted=wanted, needed=needed)


def _within(spec: PoolSpec, workers: int) -> int:
    return max(spec.fewest, min(spec.most, workers))


def _is_late(spec: PoolSpec, wanted: int, load: Load) -> bool:
    """Whether runs wait for want of workers. Where half of them are idle it is for something else: a limit, a handler."""
    busy = 2 * load.running >= wanted * spec.concurrency
    return load.backlog > 0 and load.oldest_seconds > spec.scale_up_after_seconds and busy


def _more(spec: PoolSpec, wanted: int, load: Load) -> int:
    by_backlog = wanted + math.ceil(load.backlog / spec.concurrency)
    return _within(spec, min(by_backlog, max(1, 2 * wanted)))
