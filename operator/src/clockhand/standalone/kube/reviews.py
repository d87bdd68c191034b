"""Questions that are asked by creating an object: whose a token is, who may do what, a token for a service account."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

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
KINDS = {plural: schema.rpartition(".")[2] for plural, schema in SCHEMAS.items()}
TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def answer(plural: str, body: Json, known: accounts.Accounts, user: access.User) -> Json:
    """The review with its answer."""
    spec = body.get("spec") or {}
    match plural:
        case "tokenreviews":
            found = _token_review(spec, known)
        case "selfsubjectreviews":
            found = {"userInfo": _shown(user)}
        case "subjectaccessreviews":
            found = _decided(tuple(spec.get("groups") or ()))
        case "selfsubjectaccessreviews":
            found = _decided(user.groups)
        case _:
            is_allowed = accounts.decide(user.groups).allowed
            found = {"resourceRules": [_EVERYTHING] if is_allowed else [], "nonResourceRules": [], "incomplete": False}
    named = {"kind": KINDS[plural], "apiVersion": f"{SCHEMAS[plural].split('.')[3]}.k8s.io/v1"}
    return {**body, **named, "metadata": body.get("metadata") or {}, "status": found}


def token_request(account: Json, body: Json, known: accounts.Accounts) -> Json:
    """The request with its token."""
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds") or accounts.USUAL_SECONDS
    if not accounts.LEAST_SECONDS <= seconds <= accounts.MOST_SECONDS:
        raise status.bad_request("spec.expirationSeconds: may not specify a duration less than 10 minutes")
    audiences = list(spec.get("audiences") or [accounts.AUDIENCE])
    token, expires = known.token(account, audiences, seconds)
    until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {key: account["metadata"][key] for key in ("name", "namespace")}
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {**named, "creationTimestamp": metadata.now()},
        "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": until},
    }


def _token_review(spec: Json, known: accounts.Accounts) -> Json:
    found = known.user_of(str(spec.get("token") or ""), spec.get("audiences") or ())
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
