"""What kubectl reads before it explains a kind, edits it, or leaves the checking of fields to the server."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from clockhand.api.runs import openapi as of_runs
from clockhand.standalone.kube import discovery, kinds, patches

Json = dict[str, Any]
_PREFIX = "#/components/schemas/"
_INFO = {"title": "Clockhand's small Kubernetes API", "version": discovery.VERSION["gitVersion"]}


@functools.cache
def index() -> bytes:
    """`/openapi/v3`."""
    paths = {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted({kind.path for kind in kinds.ALL})}
    return msgspec.json.encode({"paths": {**paths, **of_runs.V3_INDEX["paths"]}})


@functools.cache
def group_version(path: str) -> bytes | None:
    """`/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`; None where there is no such thing."""
    if path == of_runs.V3_PATH:
        return msgspec.json.encode(of_runs.V3)
    found = [kind for kind in kinds.ALL if kind.path == path]
    if not found:
        return None
    paths = {url: operations for kind in found for url, operations in _paths(kind)}
    schemas = {name: kinds.definitions()[name] for name in sorted(_closure([kind.schema for kind in found]))}
    body = {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
    return msgspec.json.encode(body)


@functools.cache
def swagger() -> bytes:
    """`/openapi/v2` in JSON."""
    text = msgspec.json.encode(dict(kinds.definitions())).replace(_PREFIX.encode(), b"#/definitions/")
    return msgspec.json.encode({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": msgspec.Raw(text)})


def _paths(kind: kinds.Kind) -> Iterator[tuple[str, Json]]:
    where = "namespaces/{namespace}/" if kind.namespaced else ""
    url = f"/{kind.path}/{where}{kind.plural}"
    place = [_parameter("namespace", "path")] if kind.namespaced else []
    checks = [_parameter("dryRun"), _parameter("fieldManager"), _parameter("fieldValidation")]
    selecting = [_parameter("labelSelector"), _parameter("fieldSelector"), _parameter("limit"), _parameter("continue")]
    collection: Json = {"parameters": place, "get": _operation(kind, "list", *selecting)}
    one: Json = {"parameters": [*place, _parameter("name", "path")], "get": _operation(kind, "get")}
    if "create" in kind.verbs:
        collection["post"] = {**_operation(kind, "post", *checks), "requestBody": _body(kind, "*/*")}
        one["put"] = {**_operation(kind, "put", *checks), "requestBody": _body(kind, "*/*")}
        one["delete"] = _operation(kind, "delete", _parameter("dryRun"))
        types = [patches.STEPS, patches.MERGE, *([] if kind.custom else [patches.STRATEGIC])]
        one["patch"] = {**_operation(kind, "patch", *checks), "requestBody": _body(kind, *types)}
    yield url, collection
    yield f"{url}/{{name}}", one


def _operation(kind: kinds.Kind, action: str, *parameters: Json) -> Json:
    content = {"application/json": {"schema": {"$ref": f"{_PREFIX}{kind.schema}"}}}
    return {
        "operationId": f"{action}{kind.group.partition('.')[0].title()}{kind.version.title()}{kind.kind}",
        "parameters": list(parameters),
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }


def _body(kind: kinds.Kind, *types: str) -> Json:
    return {"content": {one: {"schema": {"$ref": f"{_PREFIX}{kind.schema}"}} for one in types}, "required": True}


def _parameter(name: str, place: str = "query") -> Json:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string", "uniqueItems": True}}


def _closure(names: list[str]) -> set[str]:
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += references(kinds.definitions()[name])
    return found


def references(value: Any) -> Iterator[str]:
    """The names of the definitions that a schema refers to."""
    if isinstance(value, list):
        for one in value:
            yield from references(one)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(_PREFIX)
        for one in value.values():
            yield from references(one)
