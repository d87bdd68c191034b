"""Who is asking: the front API server speaking for a user, or a client with a token of its own.

Identity headers are worth nothing by themselves: anybody who can reach the port could name any user in them. They count
only on a connection whose client certificate was signed by the request-header CA (the TLS context trusts no other) and has
an allowed common name. Authorisation is asked for here too, for every call on data, although the front server has already
given its own: a mistake in the trust set up between the two would otherwise open everything. The answer is kept for ten
seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from aiohttp import web

from clockhand import errors
from clockhand.api.runs import status
from clockhand.kube import access, aggregation
from clockhand.kube import client as clients

KEEP_SECONDS = 10.0
MASTERS = "system:masters"
_ENTRIES = 4_096
V = TypeVar("V")


class Reviews(Protocol):
    """What the API server knows about tokens and rights."""

    async def user_of(self, token: str) -> access.User | None: ...

    async def decide(self, user: access.User, action: access.Action) -> access.Decision: ...


class ApiServerReviews:
    """TokenReview and SubjectAccessReview, each answer kept for ten seconds."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client
        self._users: _Kept[access.User | None] = _Kept()
        self._decisions: _Kept[access.Decision] = _Kept()

    async def user_of(self, token: str) -> access.User | None:
        # the digest, so that no token lies about in memory longer than its request
        key = hashlib.sha256(token.encode()).digest()
        return await self._users.get(key, lambda: access.review_token(self._client, token, ()))

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        extra = tuple(sorted((key, tuple(values)) for key, values in user.extra.items()))
        key = (user.username, user.uid, user.groups, extra, action)
        return await self._decisions.get(key, lambda: access.review_access(self._client, user, action))


class Gatekeeper:
    """Names the user of a request, and refuses what they may not do."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews
        self.trust: aggregation.FrontProxy | None = None

    async def authenticate(self, request: web.Request) -> access.User:
        """The user; 401 where nobody vouches for one."""
        if self.is_front_proxy(request):
            return self._named(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise status.unauthorized()
        user = await _asked(self._reviews.user_of(token.strip()))
        if user is None or not user.username:
            raise status.unauthorized()
        return user

    async def authorize(self, user: access.User, action: access.Action) -> None:
        """Returns if the user may; 403 otherwise."""
        if MASTERS in user.groups:
            return
        decision = await _asked(self._reviews.decide(user, action))
        if not decision.allowed:
            raise status.forbidden(user.username, _described(action), decision.reason)

    def is_front_proxy(self, request: web.Request) -> bool:
        """Whether the connection itself proves that the front API server is at its other end."""
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if not certificate or self.trust is None:
            return False
        allowed = self.trust.allowed_names
        return not allowed or bool(set(allowed) & set(_common_names(certificate)))

    def _named(self, request: web.Request) -> access.User:
        assert self.trust is not None
        name = next((found for header in self.trust.username_headers if (found := request.headers.get(header))), "")
        if not name:
            raise status.unauthorized()
        groups = [group for header in self.trust.group_headers for group in request.headers.getall(header, [])]
        return access.User(
            username=name,
            uid=request.headers.get("X-Remote-Uid", ""),
            groups=tuple(groups),
            extra=_extra(request, self.trust.extra_prefixes),
        )


class _Kept(Generic[V]):
    """Answers for ten seconds; callers that ask the same thing at the same time wait for one question."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[float, asyncio.Future[V]]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        now = time.monotonic()
        kept = self._answers.get(key)
        if kept is None or now - kept[0] > KEEP_SECONDS:
            self._make_room(now)
            kept = (now, asyncio.ensure_future(ask()))
            self._answers[key] = kept
        try:
            return await asyncio.shield(kept[1])
        except errors.ClockhandError:
            if self._answers.get(key) is kept:
                del self._answers[key]
            raise

    def _make_room(self, now: float) -> None:
        if len(self._answers) >= _ENTRIES:
            fresh = {key: kept for key, kept in self._answers.items() if now - kept[0] <= KEEP_SECONDS}
            self._answers = fresh if len(fresh) < _ENTRIES else {}


async def _asked(question: Awaitable[V]) -> V:
    try:
        return await question
    except errors.ClockhandError as error:
        raise status.Failure(
            500, "InternalError", f"the API server could not be asked about this user: {error}"
        ) from error


def _common_names(certificate: Mapping[str, Any]) -> list[str]:
    subject = certificate.get("subject", ())
    return [value for part in subject for key, value in part if key == "commonName"]


def _extra(request: web.Request, prefixes: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for header, value in request.headers.items():
        for prefix in prefixes:
            if header.lower().startswith(prefix.lower()):
                key = urllib.parse.unquote(header[len(prefix) :]).lower()
                found.setdefault(key, []).append(value)
    return found


def _described(action: access.Action) -> str:
    what = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    return f'{action.verb} resource "{what}" in API group "{action.group}" {where}'
