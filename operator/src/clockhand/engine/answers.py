"""Answers that are kept under an Idempotency-Key, so that a request which is sent again has no second effect.

An answer is stored in the transaction of the effect that it speaks of: either both are there, or the next request with
that key is the first one. A lock on the key that nobody waits for tells a request apart that is being served right now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from clockhand.store import database


@dataclass(frozen=True, slots=True)
class Key:
    """An Idempotency-Key, and a digest of the request that it came with."""

    text: str
    digest: bytes

    @classmethod
    def of(cls, text: str, *, method: str, path: str, body: bytes) -> Key:
        """The key of a request."""
        return cls(text, hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).digest())


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; `body` is JSON text. `version` is of the one job that it shows, where it has just been made."""

    status: int
    body: str
    location: str | None = None
    version: int | None = None


Act = Callable[[database.Connection, datetime], Awaitable[Answer]]


async def once(db: database.Database, *, owner: str, key: Key | None, act: Act) -> Answer:
    """What `act` answers in a transaction of its own, given the database's time, or what it answered to this key before.

    Raises Conflict where a request with this key is being served, InvalidInput where the key came with another one. An
    error of `act` is not kept: nothing came of it.
    """
    raise NotImplementedError
