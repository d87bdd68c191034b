"""What the worker of the benchmark runs: a handler that does nothing but notice when it was called.

`clockhand worker` loads it as CLOCKHAND_HANDLERS=benchmarks.pool.handler:worker. What it noticed goes to standard output, as
with the peers; the lateness of each run goes with it.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import NoReturn

import msgspec

from clockhand.worker import Run, Worker

_OWNER = "rest/bench"
"""Of the pool; runs of others are told of apart, too."""
_TELL_EVERY_SECONDS = 0.05
worker = Worker(pool="bench/jobs")


class _Noticed:
    def __init__(self) -> None:
        self.first = 0.0
        self.late: collections.deque[float] = collections.deque()
        self.guests: collections.deque[float] = collections.deque()

    def tell(self) -> NoReturn:
        handled = 0
        while True:
            time.sleep(_TELL_EVERY_SECONDS)
            if count := len(self.late):
                handled += count
                late = [self.late.popleft() for _ in range(count)]
                guests = [self.guests.popleft() for _ in range(len(self.guests))]
                told = {"at": time.time(), "first": self.first, "handled": handled, "late": late, "guests": guests}
                print(msgspec.json.encode(told).decode(), flush=True)


_noticed = _Noticed()
threading.Thread(target=_noticed.tell, daemon=True).start()


@worker.handler("work")
async def work(run: Run) -> None:
    now = time.time()
    _noticed.first = _noticed.first or now
    late = now - run.scheduled_at.timestamp()
    if run.owner != _OWNER:
        _noticed.guests.append(late)
    _noticed.late.append(late)
