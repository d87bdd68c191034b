"""What a Kubernetes API server's refusals mean, translated in one place.

The caller must tell a full quota (wait) from a forbidden pod (stop) from a dying namespace (end the run),
and an answer that proves nothing happened from one that leaves it open. The API server says these apart
only in prose and causes, so the reading of them is kept here and nowhere else.
"""

from __future__ import annotations

import enum
import re

import msgspec

from clockhand import errors

_TEXT_LIMIT = 2000
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_DECIDED_BEFORE_STORING = ("failed calling webhook", "failed to call webhook")


class Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The `Status` object of an unsuccessful answer."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.details.causes if self.details else ()


class Refusal(enum.StrEnum):
    """Why the API server will not do it; each value asks for another reaction."""

    UNAUTHENTICATED = "Unauthenticated"
    RIGHTS = "Forbidden"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    QUOTA = "QuotaExceeded"
    POD_SECURITY = "PodSecurity"
    POLICY = "AdmissionDenied"
    WEBHOOK_DOWN = "WebhookUnavailable"
    UNSUPPORTED = "Unsupported"


class ApiRefused(errors.Refused):
    """The API server refused and stored nothing."""

    def __init__(self, status: Status, refusal: Refusal) -> None:
        super().__init__(status.message or f"the API server answered {status.code}")
        self.status = status
        self.refusal = refusal

    @property
    def reason(self) -> str:
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.status.causes


class ApiConflict(errors.Conflict):
    """409: `reason` is `AlreadyExists` or `Conflict`."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status

    @property
    def reason(self) -> str:
        return self.status.reason

    @property
    def already_exists(self) -> bool:
        return self.status.reason == "AlreadyExists"


class ResourceMissing(errors.NotFound):
    """404 for the kind of object, not for one object: its definition is not installed."""


class Expired(errors.Conflict):
    """410: the resource version is too old; list again without one."""


class ApiInvalid(errors.InvalidInput):
    """400 or 422: the object itself is wrong; `field` and `sentence` name the first cause."""

    def __init__(self, status: Status) -> None:
        first = status.causes[0] if status.causes else Cause()
        super().__init__(first.field or _unknown_field(status.message), first.message or status.message)
        self.status = status


class Unsettled(errors.Uncertain):
    """A write was sent and its effect is unknown: a time-out, a lost connection, or a 5xx."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Stalled(errors.Unavailable):
    """A watch has been silent for longer than a healthy server can be."""


def _unknown_field(message: str) -> str:
    """A misspelt field is named in the text alone."""
    found = _UNKNOWN_FIELD.search(message)
    return found[1] if found else ""


_STATUS = msgspec.json.Decoder(Status)


def read_status(code: int, body: bytes) -> Status:
    """The `Status` in `body`; proxies answer with other things, which become its message."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status(message=body[:_TEXT_LIMIT].decode("utf-8", "replace").strip())
    return Status(code, status.reason, status.message[:_TEXT_LIMIT], status.details)


def translate(status: Status, *, write: bool, retry_after: float | None = None) -> errors.ClockhandError:
    """The error for an unsuccessful answer; `write` says whether a 5xx leaves open what happened."""
    code = status.code
    if code == 404:
        return _not_found(status)
    if code == 409:
        return ApiConflict(status)
    if code == 410:
        return Expired(status.message)
    refusal = refusal_of(status)
    if refusal is not None:
        return ApiRefused(status, refusal)
    if code in (400, 422):
        return ApiInvalid(status)
    return _overload(status, write, retry_after)


def _not_found(status: Status) -> errors.NotFound:
    named = status.details is not None and status.details.name
    return errors.NotFound(status.message) if named else ResourceMissing(status.message)


def _overload(status: Status, write: bool, retry_after: float | None) -> errors.ClockhandError:
    sentence = f"the API server answered {status.code}: {status.message}"
    if write and status.code != 429:
        return Unsettled(sentence, retry_after)
    return errors.Unavailable(sentence, retry_after)


def refusal_of(status: Status) -> Refusal | None:
    """None where the answer is no refusal but a wrong object or an overloaded server."""
    if status.code == 401:
        return Refusal.UNAUTHENTICATED
    if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
        return Refusal.NAMESPACE_TERMINATING
    by_text = _refusal_by_text(status.message)
    if by_text is not None:
        return by_text
    if status.code == 403:
        return Refusal.POLICY
    if 400 <= status.code < 500 and status.code not in (400, 408, 422, 429):
        return Refusal.UNSUPPORTED
    return None


def _refusal_by_text(message: str) -> Refusal | None:
    if "exceeded quota" in message:
        return Refusal.QUOTA
    if "violates PodSecurity" in message:
        return Refusal.POD_SECURITY
    if any(text in message for text in _DECIDED_BEFORE_STORING):
        return Refusal.WEBHOOK_DOWN
    if "admission webhook" in message or "AdmissionPolicy '" in message:
        return Refusal.POLICY
    if 'User "' in message and '" cannot ' in message:
        return Refusal.RIGHTS
    return None
