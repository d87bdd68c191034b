"""How often something may be done: a bucket that fills by time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """A bucket of writes that fills at `per_second`; what it lends beyond its content is paid back first."""

    def __init__(self, per_second: float, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._content = float(most)
        self._at = clock()

    def left(self) -> int:
        """How many writes may be made now."""
        now = self._clock()
        self._content = min(self._most, self._content + (now - self._at) * self._per_second)
        self._at = now
        return max(0, int(self._content))

    def spend(self, count: int) -> None:
        """Takes out `count`; a debt is bounded, or a mass of urgent news would silence all other for long."""
        self._content = max(float(-self._most), self._content - count)
