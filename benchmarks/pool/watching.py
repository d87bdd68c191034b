"""`python -m benchmarks.pool.watching URL`: follows the change log as the runs API does for `kubectl get runs -w`.

The reader is the runs API's own; what it would write to each watcher is not part of it.
"""

from __future__ import annotations

import asyncio
import sys

from clockhand.api.runs import feed
from clockhand.store import database

_PATIENCE_SECONDS = 60.0


async def main(url: str) -> None:
    db = database.Database(url, size=2, name="watch")
    await db.open()
    reader = feed.Feed(db)
    async with asyncio.TaskGroup() as tasks:
        subscription = await reader.join()
        tasks.create_task(reader.run())
        while True:
            await subscription.next(_PATIENCE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
