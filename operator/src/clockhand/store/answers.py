"""Answers that are kept under a key of their owner, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer to a request of this digest."""

    owner: str
    key: str
    digest: bytes
    status: int
    location: str | None
    body: str


Named = Sequence[tuple[str, str]]
"""Owners and keys."""


async def lock(connection: database.Connection, keys: Named) -> Sequence[bool]:
    """Which of the keys are the caller's until its transaction ends; the others are somebody's at this moment."""
    return [row.locked for row in await database.fetch(connection, "answers.lock", _columns(keys))]


async def kept(connection: database.Connection, keys: Named, *, since: datetime) -> Mapping[int, Kept]:
    """What was kept later than `since`, by the place of its key."""
    rows = await database.fetch(connection, "answers.kept", {**_columns(keys), "since": since})
    return {row.number - 1: Kept(row.owner, row.key, row.digest, row.status, row.location, row.body) for row in rows}


async def keep(connection: database.Connection, answers: Sequence[Kept], *, now: datetime) -> None:
    """Keeps answers; the caller has the locks of their keys."""
    if answers:
        parameters = {
            **_columns([(one.owner, one.key) for one in answers]),
            "digests": [one.digest for one in answers],
            "statuses": [one.status for one in answers],
            "locations": [one.location for one in answers],
            "bodies": [one.body for one in answers],
            "now": now,
        }
        await database.execute(connection, "answers.keep", parameters)


def _columns(keys: Named) -> dict[str, Any]:
    return {"owners": [owner for owner, _ in keys], "keys": [key for _, key in keys]}
