"""The worker of a pool and the SDK for handlers: it speaks HTTP with the API and needs nothing else of Clockhand.

::

    worker = Worker(pool="mailers")

    @worker.handler("email.send")
    async def send(run: Run) -> None: ...
"""

from clockhand.errors import Stale, Unavailable
from clockhand.worker.sdk import Fail, RetryAfter, Run
from clockhand.worker.worker import Worker

__all__ = ["Fail", "RetryAfter", "Run", "Stale", "Unavailable", "Worker"]
