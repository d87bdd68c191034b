"""Reads what kubectl sends as protobuf: `kubectl create` of kinds that it knows itself, `auth can-i`, `create token`.

Only requests come this way, and are few; answers are JSON, which every client takes too. The numbers of fields are those
of `wire.json`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from clockhand import errors
from clockhand.standalone.kube import kinds

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_PACKAGES = "k8s.io.apimachinery.pkg."
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Json = dict[str, Any]


def decode(body: bytes, kind: str) -> Json:
    """The object as JSON would say it. `kind` is the name of its message in `wire.json`."""
    if not body.startswith(_MAGIC):
        raise errors.InvalidInput("", "the body is not protobuf as Kubernetes writes it")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        type_meta = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
        message = _message(envelope.get(2, b""), kind)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, struct.error) as error:
        raise errors.InvalidInput("", f"the body cannot be read as protobuf: {error}") from error
    return {"apiVersion": type_meta.get(1, ""), "kind": type_meta.get(2, ""), **message}


def message_of(schema: str) -> str:
    """The message of a definition: `io.k8s.api.core.v1.Pod` is `k8s.io.api.core.v1.Pod` in protobuf."""
    return f"k8s.io.{schema.removeprefix('io.k8s.')}"


def _message(data: bytes, name: str) -> Json:
    special = _SPECIAL.get(name)
    numbers = kinds.wire()[name]
    made: Json = {}
    for number, raw in _fields(data):
        if str(number) not in numbers:
            continue
        field, kind, mode = numbers[str(number)]
        value = _entry(raw, kind) if mode == "map" else _value(raw, kind)
        if field == "":
            made.update(value)
        elif mode == "many":
            made.setdefault(field, []).append(value)
        elif mode == "map":
            made.setdefault(field, {}).update(value)
        elif value not in ("", None):  # Go writes empty texts, which JSON leaves out
            made[field] = value
    return special(made) if special is not None else made


def _entry(raw: Any, kind: str) -> Json:
    parts = dict(_fields(raw))
    return {parts.get(1, b"").decode(): _value(parts.get(2, b""), kind)}


def _value(raw: Any, kind: str) -> Any:
    match kind:
        case "string":
            return raw.decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "bool":
            return bool(raw)
        case "int32" | "int64":
            return raw - (1 << 64) if raw >= 1 << 63 else raw
        case "double":
            return struct.unpack("<d", raw)[0]
    return _message(raw, kind)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, form = key >> 3, key & 7
        if form == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        length, place = _varint(data, place) if form == _BYTES else ({_FIXED64: 8, _FIXED32: 4}[form], place)
        if place + length > len(data):
            raise ValueError("it ends too early")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _time(parts: Json) -> str | None:
    return datetime.fromtimestamp(parts["seconds"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if parts else None


def _int_or_string(parts: Json) -> Any:
    return parts.get("strVal", "") if parts.get("type") else parts.get("intVal", 0)


_SPECIAL: Mapping[str, Callable[[Json], Any]] = {
    f"{_PACKAGES}apis.meta.v1.Time": _time,
    f"{_PACKAGES}apis.meta.v1.MicroTime": _time,
    f"{_PACKAGES}apis.meta.v1.FieldsV1": lambda parts: None,
    f"{_PACKAGES}api.resource.Quantity": lambda parts: parts.get("string", "0"),
    f"{_PACKAGES}util.intstr.IntOrString": _int_or_string,
}
