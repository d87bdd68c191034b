"""What is wrong with an object, in the words of the Kubernetes API server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from clockhand.api.runs import status
from clockhand.standalone.kube import kinds

Json = dict[str, Any]
ROOT = "<nil>"
MISTYPED = "FieldValueTypeInvalid"
_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", MISTYPED}
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong. Of a value of another type than is wanted, both types are named too."""

    field: str
    reason: str
    message: str
    found: str = ""
    wanted: str = ""

    @property
    def blocking(self) -> bool:
        """Whether it keeps the rules of a definition from being looked at."""
        return self.reason in _BLOCKING


def required(field: str, sentence: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value{f': {sentence}' if sentence else ''}")


def invalid(field: str, value: object, sentence: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {text_of(value)}: {sentence}")


def mistyped(field: str, found: str, wanted: str) -> Cause:
    message = f'Invalid value: "{found}": {field} in body must be of type {wanted}: "{found}"'
    return Cause(field, MISTYPED, message, found, wanted)


def unsupported(field: str, value: object, supported: Iterable[object]) -> Cause:
    known = ", ".join(map(text_of, supported))
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {text_of(value)}: supported values: {known}")


def too_long(field: str, most: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def too_many(field: str, found: int, most: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {found}: must have at most {most} items")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {text_of(value)}")


def missing(field: str, value: object) -> Cause:
    return Cause(field, "FieldValueNotFound", f"Not found: {text_of(value)}")


def text_of(value: object) -> str:
    """A value as Go prints it in a message."""
    if value is None:
        return "null"
    return msgspec.json.encode(value).decode()


def failure(kind: kinds.Kind, name: str, found: Sequence[Cause]) -> status.Failure:
    """The refusal of an object for all of its causes."""
    said = [f"{cause.field}: {cause.message}" for cause in found]
    message = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details: Json = {"name": name, "kind": kind.kind}
    if kind.group:
        details["group"] = kind.group
    details["causes"] = [{"reason": one.reason, "message": one.message, "field": one.field} for one in found]
    return status.Failure(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {message}', details=details)
