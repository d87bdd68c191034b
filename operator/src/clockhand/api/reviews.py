"""What the API server knows of tokens and rights: TokenReview and SubjectAccessReview, each answer kept for ten seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from clockhand.api import kept, lanes
from clockhand.kube import access
from clockhand.kube import client as clients

_TOKENS_AT_ONCE = 8
"""And as many of strangers: who tries tokens must not keep the API server busy."""


class Reviews(Protocol):
    """Says whose a token is, and what they may do."""

    async def user_of(self, token: str) -> access.User | None: ...

    async def decide(self, user: access.User, action: access.Action) -> access.Decision: ...


class ApiServerReviews:
    """The API server's own answers. Tokens must be meant for one of `audiences` (none: for the API server itself)."""

    def __init__(self, client: clients.Client, audiences: Sequence[str] = ()) -> None:
        self._client = client
        self._audiences = audiences
        self._lanes = lanes.Lanes(_TOKENS_AT_ONCE)
        self._users: kept.Kept[access.User | None] = kept.Kept()
        self._decisions: kept.Kept[access.Decision] = kept.Kept()

    async def user_of(self, token: str) -> access.User | None:
        # the digest, so that no token lies about in memory longer than its request
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.knows(key)
        return await self._users.get(key, lambda: self._review(token, known=known))

    async def _review(self, token: str, *, known: bool) -> access.User | None:
        async with self._lanes.turn(known=known):
            return await access.review_token(self._client, token, self._audiences)

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        extra = tuple(sorted((key, tuple(values)) for key, values in user.extra.items()))
        key = (user.username, user.uid, user.groups, extra, action)
        return await self._decisions.get(key, lambda: access.review_access(self._client, user, action))
