"""How many requests an owner may make in a second, in each API process."""

from __future__ import annotations

import time
from collections.abc import Callable

from clockhand.api import problems

MOST_KEPT = 4_096


class Rates:
    """Buckets that fill at the rate of their owner and hold a second's worth. `rate_of`: None for no limit."""

    def __init__(self, rate_of: Callable[[str], float | None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate_of = rate_of
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, owner: str) -> None:
        """Counts one request; 429 where there have been too many."""
        rate = self._rate_of(owner)
        if rate is None:
            return
        now = self._monotonic()
        most = max(rate, 1.0)
        level, since = self._buckets.get(owner, (most, now))
        level = min(most, level + (now - since) * rate)
        if level < 1.0:
            sentence = f"{owner} may make {rate:g} requests a second (requestsPerSecond of the limits)"
            raise problems.Problem(429, sentence, retry_after=(1.0 - level) / rate if rate else 60.0)
        self._make_room(now)
        self._buckets[owner] = (level - 1.0, now)

    def _make_room(self, now: float) -> None:
        """A bucket that nobody took from for a second is full, as is one that is not kept."""
        if len(self._buckets) >= MOST_KEPT:
            self._buckets = {owner: kept for owner, kept in self._buckets.items() if now - kept[1] < 1.0}
