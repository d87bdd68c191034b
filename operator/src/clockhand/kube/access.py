"""Who is asking, and may they? Both are the API server's to say, and an API process asks it."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass

import msgspec

from clockhand.kube import client as clients

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class User(msgspec.Struct, frozen=True):
    """An authenticated user, as the API server or its front proxy names them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Action:
    """What someone wants to do; an empty name or subresource means none in particular."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    version: str = "*"


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True, rename="camel"):
    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_TOKEN = msgspec.json.Decoder(_TokenReview)
_ACCESS = msgspec.json.Decoder(_AccessReview)


async def review_token(client: clients.Client, token: str, audiences: collections.abc.Sequence[str]) -> User | None:
    """The token's user; None if it is not valid for one of these audiences (empty: the API server's own)."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": list(audiences)},
    }
    status = _TOKEN.decode(await client.ask(_TOKEN_REVIEWS, clients.encode(body))).status
    if not status.authenticated or (audiences and not set(audiences) & set(status.audiences)):
        return None
    return status.user


async def review_access(client: clients.Client, user: User, action: Action) -> Decision:
    """Whether this user may do this, by the cluster's own rules."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": {
                "verb": action.verb,
                "group": action.group,
                "version": action.version,
                "resource": action.resource,
                "subresource": action.subresource,
                "namespace": action.namespace,
                "name": action.name,
            },
        },
    }
    status = _ACCESS.decode(await client.ask(_ACCESS_REVIEWS, clients.encode(body))).status
    return Decision(status.allowed and not status.denied, status.reason or status.evaluation_error)
