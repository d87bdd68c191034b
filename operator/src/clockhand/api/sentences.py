"""What the decoder finds wrong, said as it is said of the fields of a job."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from clockhand.domain import documents

_TYPES = {
    "object": "an object",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
_TYPE = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<given>\w+)`")
_BOUND = re.compile(r"Expected `(?:int|float)(?: \| null)?` (?P<sign>[<>]=) (?P<bound>\S+)")
_MISSING = re.compile(r"Object missing required field `[^`]*`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def of_decoder(said: str, known: tuple[str, ...] = ()) -> str:
    """A sentence for a message without its place, the message itself where it is clear; `known`: the fields there."""
    if found := _TYPE.fullmatch(said):
        wanted = " or ".join(_TYPES.get(one, one) for one in found["wanted"].split(" | "))
        given = "a boolean" if found["given"] == "bool" else _TYPES.get(found["given"], found["given"])
        return f"must be {wanted}, not {given}"
    if found := _BOUND.fullmatch(said):
        return f"must be at {'least' if found['sign'] == '>=' else 'most'} {found['bound']}"
    if _MISSING.fullmatch(said):
        return "is missing: write it"
    if found := _UNKNOWN.fullmatch(said):
        return documents.unknown(found["name"], known) if known else "is not a known field: leave it out"
    return said


def fields_of(takes: Any) -> tuple[str, ...]:
    """The names of the fields of a body of this type, as they are written in JSON; none where any may be there."""
    if isinstance(takes, type) and issubclass(takes, msgspec.Struct):
        return tuple(field.encode_name for field in msgspec.structs.fields(takes))
    return ()
