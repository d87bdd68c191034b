"""Label and field selectors, as they stand in a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any

from clockhand.api.runs import status

Json = dict[str, Any]
Matches = Callable[[Json], bool]
_SET = re.compile(r"(?P<key>[^\s,()!=]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")
_TERM = re.compile(r"(?P<key>[^\s,()!=]+)\s*(?P<word>==|=|!=)\s*(?P<value>[^\s,()!=]*)")
_BARE = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s,()!=]+)")


def everything(_: Json) -> bool:
    return True


def parse(labels: str | None, fields: str | None, *, known: Container[str] | None = None) -> Matches:
    """What both selectors let through; 400 for one that cannot be read, or names a field that is not among `known`."""
    tests = [*_labels(labels or ""), *_fields(fields or "", known)]
    if not tests:
        return everything
    return lambda body: all(test(body) for test in tests)


def _labels(text: str) -> list[Matches]:
    tests: list[Matches] = []
    rest = text.strip()
    while rest:
        found = _SET.match(rest) or _TERM.match(rest) or _BARE.match(rest)
        after = rest[found.end() :].lstrip() if found else ""
        if found is None or (after and not after.startswith(",")):
            raise status.bad_request(f"unable to parse requirement: {text!r} is no label selector")
        tests.append(_on_labels(found.groupdict()))
        rest = after[1:].lstrip()
    return tests


def _on_labels(parts: Mapping[str, str]) -> Matches:
    key = parts["key"]
    if "values" in parts:
        values = {value.strip() for value in parts["values"].split(",")}
    elif "value" in parts:
        values = {parts["value"]}
    else:
        wanted = not parts["not"]
        return lambda body: (key in _labels_of(body)) is wanted
    wanted = parts["word"] in ("in", "=", "==")
    return lambda body: (_labels_of(body).get(key) in values) is wanted


def _labels_of(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


def _fields(text: str, known: Container[str] | None) -> list[Matches]:
    tests: list[Matches] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = re.fullmatch(r"(?P<path>[\w.]+)\s*(?P<word>==|=|!=)\s*(?P<value>.*)", part)
        if found is None:
            raise status.bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        if known is not None and found["path"] not in known:
            raise status.bad_request(f"field label not supported: {found['path']}")
        tests.append(_on_field(found["path"].split("."), found["value"], wanted=found["word"] != "!="))
    return tests


def _on_field(path: list[str], value: str, *, wanted: bool) -> Matches:
    def test(body: Json) -> bool:
        found: Any = body
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        shown = str(found).lower() if isinstance(found, bool) else "" if found is None else str(found)
        return (shown == value) is wanted

    return test
