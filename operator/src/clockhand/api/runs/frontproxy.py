"""Who is asking: the front API server speaking for a user, or a client with a token of its own.

Identity headers are worth nothing by themselves: anybody who can reach the port could name any user in them. They count
only on a connection whose client certificate was signed by the request-header CA (the TLS context trusts no other) and has
an allowed common name. Authorisation is asked for here too, for every call on data, although the front server has already
given its own: a mistake in the trust set up between the two would otherwise open everything. The answer is kept for ten
seconds.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from aiohttp import web

from clockhand import errors
from clockhand.api import reviews
from clockhand.api.runs import status
from clockhand.kube import access, aggregation

MASTERS = "system:masters"
V = TypeVar("V")


class Gatekeeper:
    """Names the user of a request, and refuses what they may not do."""

    def __init__(self, asked: reviews.Reviews) -> None:
        self._reviews = asked
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
