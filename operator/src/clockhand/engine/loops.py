"""Loops that never end on an error, only with their process: it is logged, counted, and the step tried again later."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable

import structlog

from clockhand import errors, metrics

log = structlog.get_logger(__name__)

Step = Callable[[], Awaitable[float]]

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.2, 5.0


class Rounds:
    """Whether the loops of a process have gone round lately, for its liveness probe.

    Until they do it lives: whoever waits for the schema of its database is not to be restarted.
    """

    def __init__(self, lease: float) -> None:
        self._patience = max(60.0, 6 * lease)
        self._last: float | None = None

    def begin(self) -> None:
        """Told before anything is asked of a database: one that is away is no reason to restart a process."""
        self._last = time.monotonic()

    def alive(self) -> bool:
        """Whether this process is not to be restarted."""
        return self._last is None or time.monotonic() - self._last < self._patience


async def forever(name: str, step: Step) -> None:
    """Runs `step` until cancelled; it returns the seconds to wait before the next time, jittered by a tenth.

    An error of ours (a database or an API server that cannot answer) is one line in the log; any other is a mistake in the
    code and comes with its trace. Neither ends the loop.
    """
    failed = 0
    while True:
        try:
            wait = await step()
            failed = 0
        except errors.ClockhandError as error:
            failed += 1
            log.warning("step_failed", loop=name, error=str(error), failed=failed)
        except Exception:
            failed += 1
            log.exception("step_failed", loop=name, failed=failed)
        if failed:
            metrics.LOOP_ERRORS.labels(loop=name).inc()
            wait = min(_FIRST_BACKOFF * 2.0 ** min(failed, 10), _LONGEST_BACKOFF)
        await asyncio.sleep(wait * random.uniform(0.9, 1.1))


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
