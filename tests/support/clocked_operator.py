"""A whole replica as a process of its own that a test may kill. Its API server cannot be reached: runs stay Claimed."""

from __future__ import annotations

import asyncio
import sys

from clockhand.engine import replica
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database

LEASE = 3.0
NOBODY = connections.Connection(server="http://127.0.0.1:1")


async def main(url: str, name: str) -> None:
    """Runs until it is killed."""
    db = database.Database(url, size=4, name=name)
    await db.open()
    async with clients.connect(NOBODY) as client:
        await replica.Replica(db, client, name=name, lease=LEASE).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
