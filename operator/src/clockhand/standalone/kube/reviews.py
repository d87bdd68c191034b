"""Questions that are asked by creating an object: whose a token is, who may do what, a token for a service account."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from clockhand.api.runs import status
from clockhand.kube import access
from clockhand.standalone.kube import accounts, metadata

Json = dict[str, Any]
SCHEMAS = {
    "tokenreviews": "io.k8s.api.authentication.v1.TokenReview",
    "selfsubjectreviews": "io.k8s.api.authentication.v1.SelfSubjectReview",
    "subjectaccessreviews": "io.k8s.api.authorization.v1.SubjectAccessReview",
    "selfsubjectaccessreviews": "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
}
TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    audiences: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    expiration_seconds: int | None = None


class _Review(msgspec.Struct, frozen=True):
    spec: _Spec | None = None
    metadata: Json | None = None


def answer(plural: str, body: Any, known: accounts.Accounts, user: access.User) -> Json:
    """The review with its answer."""
    review = _read(body)
    spec = review.spec or _Spec()
    match plural:
        case "tokenreviews":
            found = _token_review(spec, known)
        case "selfsubjectreviews":
            found = {"userInfo": _shown(user)}
        case "subjectaccessreviews":
            found = _decided(spec.groups or ())
        case "selfsubjectaccessreviews":
            found = _decided(user.groups)
        case _:
            is_allowed = accounts.decide(user.groups).allowed
            found = {"resourceRules": [_EVERYTHING] if is_allowed else [], "nonResourceRules": [], "incomplete": False}
    *_, family, version, kind = SCHEMAS[plural].split(".")
    named = {"kind": kind, "apiVersion": f"{family}.k8s.io/{version}"}
    return {**body, **named, "metadata": review.metadata or {}, "status": found}


def token_request(account: Json, body: Any, known: accounts.Accounts) -> Json:
    """The request with its token."""
    spec = _read(body).spec or _Spec()
    seconds = spec.expiration_seconds or accounts.USUAL_SECONDS
    if not accounts.LEAST_SECONDS <= seconds <= accounts.MOST_SECONDS:
        raise status.bad_request("spec.expirationSeconds: may not specify a duration less than 10 minutes")
    audiences = spec.audiences or (accounts.AUDIENCE,)
    token, expires = known.token(account, audiences, seconds)
    until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {key: account["metadata"][key] for key in ("name", "namespace")}
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**named, "creationTimestamp": metadata.now()},
        "spec": {"audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": until},
    }


def _read(body: Any) -> _Review:
    try:
        return msgspec.convert(body, _Review)
    except msgspec.ValidationError as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from error


def _token_review(spec: _Spec, known: accounts.Accounts) -> Json:
    found = known.user_of(spec.token or "", spec.audiences or ())
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    user, audiences = found
    return {"authenticated": True, "user": _shown(user), "audiences": audiences}


def _decided(groups: tuple[str, ...]) -> Json:
    decision = accounts.decide(groups)
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _shown(user: access.User) -> Json:
    shown: Json = {"username": user.username, "groups": list(user.groups)}
    return {**shown, "uid": user.uid} if user.uid else shown
