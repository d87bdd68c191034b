"""Failures as `Status` objects: kubectl prints their message, and clients act on code and reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clockhand import errors
from clockhand.api.runs import group

Json = dict[str, Any]


class Failure(Exception):
    """An answer other than success."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = dict(details or {})
        self.retry_after = retry_after
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    def body(self) -> Json:
        """The `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> Failure:
    return Failure(401, "Unauthorized", message)


def forbidden(user: str, what: str, why: str) -> Failure:
    return Failure(403, "Forbidden", f'User "{user}" cannot {what}{f": {why}" if why else ""}')


def not_found(name: str) -> Failure:
    message = f'{group.RESOURCE}.{group.GROUP} "{name}" not found'
    return Failure(404, "NotFound", message, details=_about(name))


def no_such_path(path: str) -> Failure:
    return Failure(404, "NotFound", f"the server could not find the requested resource: {path}")


def method_not_allowed(what: str) -> Failure:
    return Failure(405, "MethodNotAllowed", what)


def conflict(name: str, why: str) -> Failure:
    message = f'Operation cannot be fulfilled on {group.RESOURCE}.{group.GROUP} "{name}": {why}'
    return Failure(409, "Conflict", message, details=_about(name))


def already_exists(name: str) -> Failure:
    message = f'{group.RESOURCE}.{group.GROUP} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, details=_about(name))


def expired(message: str) -> Failure:
    return Failure(410, "Expired", message)


def invalid(name: str, causes: Sequence[tuple[str, str]]) -> Failure:
    """Each cause is (field path, sentence)."""
    said = ", ".join(f"{field}: {sentence}" for field, sentence in causes)
    message = f'{group.KIND}.{group.GROUP} "{name}" is invalid: {said}'
    listed = [{"reason": "FieldValueInvalid", "message": sentence, "field": field} for field, sentence in causes]
    details = {**_about(name), "kind": group.KIND, "causes": listed}
    return Failure(422, "Invalid", message, details=details)


def busy() -> Failure:
    return Failure(429, "TooManyRequests", "too many requests are under way; try again shortly", retry_after=1)


def unavailable(why: str) -> Failure:
    # no Retry-After: clients would silently try ten times over before a person sees why
    return Failure(503, "ServiceUnavailable", f"runs cannot be read or changed now: {why}")


def of_error(error: errors.ClockhandError, name: str = "") -> Failure:
    """What one of our own errors is to a client."""
    match error:
        case errors.InvalidInput():
            return invalid(name, [(error.field, error.sentence)])
        case errors.NotFound():
            return Failure(404, "NotFound", str(error), details=_about(name))
        case errors.Conflict() | errors.Stale():
            return conflict(name, str(error))
        case errors.Refused():
            return Failure(403, "Forbidden", str(error), details=_about(name))
        case errors.Uncertain():
            return Failure(504, "Timeout", f"it may or may not have been done; look before repeating it: {error}")
    return unavailable(str(error))


def success(name: str) -> Json:
    """Done. Without a uid in it, kubectl does not wait for the object to go."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": _about(name),
    }


def _about(name: str) -> Json:
    about = {"group": group.GROUP, "kind": group.RESOURCE}
    return {"name": name, **about} if name else about
