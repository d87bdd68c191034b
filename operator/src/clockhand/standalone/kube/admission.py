"""From what a client sends to what is stored: unknown fields, defaults, and every check, with the API server's answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhand.api.runs import status
from clockhand.standalone.kube import causes, kinds, metadata, pods, rules, schema

Json = dict[str, Any]
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_GO_TYPES: Mapping[str, str] = {"boolean": "bool", "integer": "number"}


@dataclass(frozen=True, slots=True)
class Wish:
    """How a write is meant: whether to store it, what to do about unknown fields, and who writes."""

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = ""
    is_patch: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """An object that was read, and what its writer is to be told."""

    body: Json
    warnings: tuple[str, ...] = ()


def read(kind: kinds.Kind, body: Any, wish: Wish) -> Admitted:
    """The object as its kind knows it: known fields alone, with defaults. Raises 400 for what is no object of the kind."""
    unrecognized = f"the object provided is unrecognized (must be of type {kind.kind})"
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise status.bad_request(f"{unrecognized}: write a JSON object with metadata")
    if kind.custom is not None and not body.get("kind"):
        raise status.bad_request(f"{unrecognized}: Object 'Kind' is missing")
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if body.setdefault(field, wanted) != wanted:
            what = "API version" if field == "apiVersion" else "kind"
            raise status.bad_request(
                f"the {what} in the data ({body[field]}) does not match the expected {what} ({wanted})"
            )
    body = {**body, "metadata": _without_nulls(body.get("metadata") or {})}
    published = kinds.definitions()[kind.schema]
    warnings = _unknown(kind, body, published, wish)
    # Go reads the metadata of a custom object by itself, and the whole of the others
    typed = ("metadata", kinds.definitions()[kinds.META]) if kind.custom is not None else ("", published)
    known = _known(kind, body, published)
    wrong = next(_wrong_types(known["metadata"] if typed[0] else known, typed[1], typed[0]), None)
    if wrong is not None:
        raise _unreadable(kind, body, wish, wrong)
    return Admitted(_defaulted(kind, known), warnings)


def check(kind: kinds.Kind, body: Json) -> None:
    """Raises 422 with all that is wrong with an object that was read."""
    found = [*metadata.mistakes(body["metadata"]), *_mistakes(kind, body)]
    if kind.custom is not None:
        found += _of_rules(kind, body, found)
    if found:
        raise causes.failure(kind, body["metadata"].get("name", ""), found)


def _known(kind: kinds.Kind, body: Json, published: Json) -> Json:
    if kind.custom is None:
        found: Json = schema.pruned(_without_nulls(body), published)
        return found
    meta = schema.pruned(body["metadata"], kinds.definitions()[kinds.META])
    return {**schema.pruned(body, kinds.structural(kind)), "metadata": meta}


def _unknown(kind: kinds.Kind, body: Json, published: Json, wish: Wish) -> tuple[str, ...]:
    if wish.validation == "Ignore":
        return ()
    found = sorted(f'unknown field "{path}"' for path in schema.unknown_fields(body, published))
    if found and wish.validation == "Strict":
        raise _unreadable(kind, body, wish, f"strict decoding error: {', '.join(found)}")
    return tuple(found)


def _wrong_types(value: Json, described: Json, path: str) -> Iterator[str]:
    """The fields of which Go could not make what they are, in its words."""
    for cause in _resolved_mistakes(value, described, path):
        if cause.reason == causes.MISTYPED:
            yield _in_go(cause) if cause.wanted else cause.message


def _in_go(cause: causes.Cause) -> str:
    found, field = _GO_TYPES.get(cause.found, cause.found), re.sub(r"\[\d+\]", "", cause.field)
    return f"json: cannot unmarshal {found} into Go struct field {field} of type {cause.wanted}"


def _resolved_mistakes(value: Any, described: Json, path: str) -> Iterator[causes.Cause]:
    """Those that a schema with references finds."""
    described = schema.resolved(described)
    if isinstance(value, dict) and described.get("type", "object") == "object":
        for name in described.get("required", ()):
            if name not in value:
                yield causes.required(f"{path}.{name}" if path else name)
        for name, inner in value.items():
            found = described.get("properties", {}).get(name) or described.get("additionalProperties")
            if isinstance(found, dict):
                yield from _resolved_mistakes(inner, found, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and described.get("type", "array") == "array":
        for place, inner in enumerate(value):
            yield from _resolved_mistakes(inner, described.get("items", {}), f"{path}[{place}]")
    else:
        yield from schema.mistakes(value, described, path)


def _mistakes(kind: kinds.Kind, body: Json) -> Iterator[causes.Cause]:
    if kind.custom is not None:
        yield from _resolved_mistakes(body["metadata"], kinds.definitions()[kinds.META], "metadata")
        yield from schema.mistakes(body, kinds.structural(kind))
        return
    yield from _resolved_mistakes(body, kinds.definitions()[kind.schema], "")
    if kind is kinds.PODS:
        yield from pods.mistakes(body.get("spec", {}))
    elif kind is kinds.DEPLOYMENTS:
        yield from pods.mistakes(body["spec"]["template"]["spec"], "spec.template.spec")


def _of_rules(kind: kinds.Kind, body: Json, found: list[causes.Cause]) -> list[causes.Cause]:
    if any(cause.blocking for cause in found):
        return [causes.invalid(causes.ROOT, None, _UNCHECKED)]
    return list(rules.broken(body, kinds.structural(kind)))


def _defaulted(kind: kinds.Kind, body: Json) -> Json:
    if kind.custom is not None:
        filled: Json = schema.defaulted(body, kinds.structural(kind))
        return filled
    spec = body.get("spec") or {}
    if kind is kinds.PODS:
        return {**body, "spec": pods.of_its_own(pods.defaulted(spec))}
    if kind is kinds.DEPLOYMENTS:
        return {**body, "spec": pods.deployment(spec)}
    if kind.kind == "Secret":
        return _secret(body)
    return body


def _secret(body: Json) -> Json:
    texts = {key: base64.b64encode(text.encode()).decode() for key, text in (body.get("stringData") or {}).items()}
    kept = {key: value for key, value in body.items() if key != "stringData"}
    if texts or "data" in body:
        kept["data"] = {**(body.get("data") or {}), **texts}
    return {"type": "Opaque", **kept}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _unreadable(kind: kinds.Kind, body: Json, wish: Wish, why: str) -> status.Failure:
    if not wish.is_patch:
        return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
    cause = causes.invalid("patch", causes.text_of(body), why)
    listed = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return status.Failure(422, "Invalid", f' "" is invalid: patch: {cause.message}', details={"causes": [listed]})
