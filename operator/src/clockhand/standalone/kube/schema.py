"""Schemas as the API server reads them: which fields there are, what they are by default, and what their values must be."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clockhand.standalone.kube import causes, kinds

Json = dict[str, Any]
_PREFIX = "#/components/schemas/"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT64 = 1 << 63
_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_SUFFIX = "|[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+"
_EMPTY: Json = {}


def resolved(schema: Json) -> Json:
    """The schema itself, where this one only refers to it."""
    while True:
        reference = schema.get("$ref") or next((one["$ref"] for one in schema.get("allOf", ()) if "$ref" in one), None)
        if reference is None:
            return schema
        schema = kinds.definitions()[reference.removeprefix(_PREFIX)]


def unknown_fields(value: Any, schema: Json, path: str = "") -> Iterator[str]:
    """The paths of fields that the schema does not have."""
    schema = resolved(schema)
    if isinstance(value, dict):
        for name, inner in value.items():
            found = _field(schema, name)
            if found is not None:
                yield from unknown_fields(inner, found, _under(path, name))
            elif _is_closed(schema):
                yield _under(path, name)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from unknown_fields(inner, schema.get("items", _EMPTY), f"{path}[{place}]")


def pruned(value: Any, schema: Json) -> Any:
    """The value without fields that the schema does not have."""
    schema = resolved(schema)
    if isinstance(value, dict):
        kept: Json = {}
        for name, inner in value.items():
            found = _field(schema, name)
            if found is not None:
                kept[name] = pruned(inner, found)
            elif not _is_closed(schema):
                kept[name] = inner
        return kept
    if isinstance(value, list):
        return [pruned(inner, schema.get("items", _EMPTY)) for inner in value]
    return value


def defaulted(value: Any, schema: Json) -> Any:
    """The value with its defaults; a null counts as absent where there is a default and null is no value."""
    if isinstance(value, list):
        return [defaulted(inner, schema.get("items", _EMPTY)) for inner in value]
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, found in schema.get("properties", _EMPTY).items():
        is_absent = name not in filled or (filled[name] is None and not found.get("nullable"))
        if is_absent and "default" in found:
            filled[name] = copy.deepcopy(found["default"])
    return {
        name: inner if (found := _field(schema, name)) is None else defaulted(inner, found)
        for name, inner in filled.items()
    }


def mistakes(value: Any, schema: Json, path: str = "") -> Iterator[causes.Cause]:
    """What the schema has against a value, fields in the schema's order."""
    if value is None and schema.get("nullable"):
        return
    wrong_type = _wrong_type(value, schema, path)
    if wrong_type is not None:
        yield wrong_type
        if schema["type"] == "integer" and isinstance(value, float):
            yield causes.invalid(causes.ROOT, "", f"Checked value must be of type integer with format int64 in {path}")
    if "enum" in schema and value not in schema["enum"]:
        yield causes.unsupported(path, value, schema["enum"])
    if wrong_type is None:
        yield from _CHECKS.get(type(value), _nothing)(value, schema, path)


def _of_object(value: Json, schema: Json, path: str) -> Iterator[causes.Cause]:
    for name in schema.get("required", ()):
        if name not in value:
            yield causes.required(_under(path, name))
    if len(value) > (most := schema.get("maxProperties", len(value))):
        yield causes.too_many(path, len(value), most)
    if len(value) < (least := schema.get("minProperties", 0)):
        yield causes.invalid(path, len(value), f"{path} in body should have at least {least} properties")
    known = schema.get("properties", _EMPTY)
    for name in [*(name for name in known if name in value), *(name for name in value if name not in known)]:
        found = _field(schema, name)
        if found is not None:
            yield from mistakes(value[name], found, _under(path, name))


def _of_list(value: list[Any], schema: Json, path: str) -> Iterator[causes.Cause]:
    if len(value) > (most := schema.get("maxItems", len(value))):
        yield causes.too_many(path, len(value), most)
    if len(value) < (least := schema.get("minItems", 0)):
        yield causes.invalid(path, len(value), f"{path} in body should have at least {least} items")
    for place, inner in enumerate(value):
        yield from mistakes(inner, schema.get("items", _EMPTY), f"{path}[{place}]")


def _of_text(value: str, schema: Json, path: str) -> Iterator[causes.Cause]:
    if "oneOf" in schema and schema.get("format") != "int-or-string":
        yield from _of_quantity(value, path)
    if len(value) > (most := schema.get("maxLength", len(value))):
        yield causes.too_long(path, most)
    if len(value) < (least := schema.get("minLength", 0)):
        yield causes.invalid(path, value, f"{path} in body should be at least {least} chars long")


def _of_quantity(value: str, path: str) -> Iterator[causes.Cause]:
    """Such as 500m or 1Gi: the one text of which Kubernetes publishes no pattern."""
    found = re.fullmatch(_QUANTITY, value)
    if found is None:
        yield causes.Cause(path, causes.MISTYPED, f"quantities must match the regular expression '{_QUANTITY}'")
    elif not re.fullmatch(_SUFFIX, found[2]):
        yield causes.Cause(path, causes.MISTYPED, "unable to parse quantity's suffix")


def _of_number(value: float, schema: Json, path: str) -> Iterator[causes.Cause]:
    if value > (most := schema.get("maximum", value)):
        yield causes.invalid(path, value, f"{path} in body should be less than or equal to {most}")
    if value < (least := schema.get("minimum", value)):
        yield causes.invalid(path, value, f"{path} in body should be greater than or equal to {least}")


def _nothing(value: Any, schema: Json, path: str) -> Iterator[causes.Cause]:
    yield from ()


_CHECKS: Mapping[type, Callable[[Any, Json, str], Iterator[causes.Cause]]] = {
    dict: _of_object,
    list: _of_list,
    str: _of_text,
    int: _of_number,
    float: _of_number,
}


def _wrong_type(value: Any, schema: Json, path: str) -> causes.Cause | None:
    wanted: str = schema.get("type", "")
    if not wanted or _is_of(value, wanted):
        return None
    found = type_name(value)
    if wanted == "integer" and isinstance(value, float):
        found, wanted = "float64", schema.get("format", wanted)
    return causes.mistyped(path, found, wanted)


def _is_of(value: Any, wanted: str) -> bool:
    match wanted:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[wanted])


_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool}


def type_name(value: Any) -> str:
    """What JSON calls the type of a value."""
    names: Sequence[tuple[type, str]] = (
        (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"),
    )  # fmt: skip
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _field(schema: Json, name: str) -> Json | None:
    found: Json | None = schema.get("properties", _EMPTY).get(name)
    if found is None and isinstance(schema.get("additionalProperties"), dict):
        return schema["additionalProperties"]  # type: ignore[no-any-return]
    return found


def _is_closed(schema: Json) -> bool:
    return "properties" in schema and not schema.get(_PRESERVE)


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
