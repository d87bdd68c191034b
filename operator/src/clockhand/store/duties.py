"""Duties: work that one replica at a time does for the whole installation, such as the mirror.

A duty is a lease with a generation. Losing it must never depend on noticing the loss: whoever writes under a duty names
its generation in the same transaction (`hold`), so a replica that slept through a take-over writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from clockhand import errors
from clockhand.store import database

MIRROR = "mirror"
PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Held:
    """A duty in the hands of `replica`, as of `generation`."""

    duty: str
    replica: str
    generation: int


async def take(connection: database.Connection, duty: str, *, replica: str, lease: timedelta) -> Held | None:
    """The duty, if it was free or its lease had run out."""
    row = await database.fetch_one(connection, "duties.take", {"duty": duty, "replica": replica, "lease": lease})
    return Held(duty, replica, row.generation) if row else None


async def renew(connection: database.Connection, held: Held, *, lease: timedelta) -> int:
    """Keeps the duty for another `lease`; raises Stale where another replica has it. Returns the newest spec there is."""
    renewed = await database.fetch_one(connection, "duties.renew", {**_parameters(held), "lease": lease})
    if renewed is None:
        raise errors.Stale(f"the duty {held.duty} has another holder")
    return renewed.newest_spec or 0


async def resign(connection: database.Connection, held: Held) -> None:
    """Frees the duty at once; nothing happens where another replica has it."""
    await database.execute(connection, "duties.resign", _parameters(held))


async def hold(connection: database.Connection, held: Held) -> None:
    """Keeps others from taking the duty until this transaction ends; raises Stale where one already has."""
    parameters = {"duty": held.duty, "generation": held.generation}
    if await database.fetch_one(connection, "duties.hold", parameters) is None:
        raise errors.Stale(f"the duty {held.duty} has another holder")


def _parameters(held: Held) -> dict[str, object]:
    return {"duty": held.duty, "replica": held.replica, "generation": held.generation}
