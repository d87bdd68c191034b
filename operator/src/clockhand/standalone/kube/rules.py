"""The rules that stand in our definitions, evaluated as the API server does: in CEL, by the library of its authors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from cel_expr_python import cel

from clockhand.standalone.kube import causes, schema

Json = dict[str, Any]
_RULES = "x-kubernetes-validations"
# the one conversion in our rules that can fail, as the API server's library says it
_NO_TIMESTAMP = "type conversion error from 'string' to 'google.protobuf.Timestamp' evaluating rule"


def broken(value: Any, described: Json, path: str = "") -> Iterator[causes.Cause]:
    """The rules that a value does not keep: its own ones first, then those of what is in it."""
    if value is None:
        return
    for rule in described.get(_RULES, ()):
        cause = _broken(value, rule, path)
        if cause is not None:
            yield cause
    for name, inner, found in _inside(value, described):
        yield from broken(inner, found, f"{path}{name}".removeprefix("."))


def _inside(value: Any, described: Json) -> Iterator[tuple[str, Any, Json]]:
    if isinstance(value, dict):
        properties = described.get("properties", {})
        yield from ((f".{name}", value[name], found) for name, found in properties.items() if name in value)
        if rest := described.get("additionalProperties"):
            yield from ((f"[{name}]", inner, rest) for name, inner in value.items() if name not in properties)
    elif isinstance(value, list):
        items = described.get("items", {})
        yield from ((f"[{place}]", inner, items) for place, inner in enumerate(value))


def _broken(value: Any, rule: Json, path: str) -> causes.Cause | None:
    answer = _compiled(rule["rule"]).eval(data={"self": value})
    if answer.value() is True:
        return None
    field = f"{path}{rule.get('fieldPath', '')}" or causes.ROOT
    message = rule["message"]
    if answer.type() == cel.Type.ERROR:
        return causes.invalid(field, schema.type_name(value), f"{_NO_TIMESTAMP}: {message}")
    if isinstance(value, dict | list):
        return causes.Cause(field, "FieldValueInvalid", f"Invalid value: {message}")
    return causes.invalid(field, value, message)


@functools.cache
def _compiled(rule: str) -> cel.Expression:
    return _environment().compile(rule)


@functools.cache
def _environment() -> cel.Env:
    return cel.NewEnv(variables={"self": cel.Type.DYN})
