"""Answers that are kept under an Idempotency-Key, so that a request which is sent again has no second effect.

An answer is stored in the transaction of the effect that it speaks of: either both are there, or the next request with
that key is the first one. A lock on the key that nobody waits for tells a request apart that is being served right now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from clockhand import errors
from clockhand.domain import resources
from clockhand.store import answers as rows
from clockhand.store import database

KEPT_FOR = timedelta(seconds=resources.KEY_SECONDS)
_AGAIN_SECONDS = 1.0


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
Owned = tuple[str, Key]
"""A key of an owner."""


async def once(db: database.Database, *, owner: str, key: Key | None, act: Act) -> Answer:
    """What `act` answers in a transaction of its own, given the database's time, or what it answered to this key before.

    Raises Conflict where a request with this key is being served, InvalidInput where the key came with another one. An
    error of `act` is not kept: nothing came of it.
    """
    async with db.transaction() as connection:
        now = await database.now(connection)
        if key is None:
            return await act(connection, now)
        [known] = await recall(connection, [(owner, key)], now=now)
        if isinstance(known, errors.ClockhandError):
            raise known
        if known is not None:
            return known
        answer = await act(connection, now)
        await keep(connection, [((owner, key), answer)], now=now)
        return answer


async def recall(
    connection: database.Connection, keys: Sequence[Owned], *, now: datetime
) -> Sequence[Answer | errors.ClockhandError | None]:
    """What was answered to each key, or why nothing is; None: its request is the first, and nobody else's meanwhile."""
    if not keys:
        return ()
    named = [(owner, key.text) for owner, key in keys]
    locked = await rows.lock(connection, named)
    kept = await rows.kept(connection, named, since=now - KEPT_FOR)
    seen: set[tuple[str, str]] = set()
    found: list[Answer | errors.ClockhandError | None] = []
    for place, (_, key) in enumerate(keys):
        if not locked[place] or named[place] in seen:
            sentence = "a request with this Idempotency-Key is being served: send it again later"
            found.append(errors.Conflict(sentence, retry_after=_AGAIN_SECONDS))
        else:
            found.append(_known(kept.get(place), key))
        seen.add(named[place])
    return found


async def keep(connection: database.Connection, answered: Sequence[tuple[Owned, Answer]], *, now: datetime) -> None:
    """Keeps what is answered to keys that `recall` found nothing for."""
    kept = [
        rows.Kept(owner, key.text, key.digest, answer.status, answer.location, answer.body)
        for (owner, key), answer in answered
    ]
    await rows.keep(connection, kept, now=now)


def _known(kept: rows.Kept | None, key: Key) -> Answer | errors.ClockhandError | None:
    if kept is None:
        return None
    if kept.digest != key.digest:
        sentence = "the Idempotency-Key was used for another request: use another one for this request"
        return errors.InvalidInput("", sentence)
    return Answer(kept.status, kept.body, kept.location)
