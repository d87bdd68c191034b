"""The OpenAPI document: made of the table of routes, the types that are sent and shown, and the table of fields."""

from __future__ import annotations

import http
import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from clockhand.api import problems
from clockhand.api.rest import jobschema, parameters, routes
from clockhand.domain import protocol, resources

Json = dict[str, Any]
PATH = "/openapi.json"
_REF = "#/components/schemas/{name}"
_WORKER_REF = "#/components/schemas/Worker{name}"
_TO_SCHEMA = re.compile(r'"#/components/schemas/([^"]+)"')
_ALWAYS = (400, 401, 403, 422, 429, 500, 503)
"""What any call may be answered."""
_WITH_BODY = (408, 413, 415)
_WITH_KEY = (409,)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_KEY = "A text of the caller's own: within a day the same request with the same key has one effect and one answer."
_PARTS: Mapping[str, str] = {
    "id": "The id, a UUID.",
    "ns": "The namespace of the pool, or the tenant.",
    "pool": "The name of the pool.",
}
_ABOUT = """Jobs that run on schedules: each time one falls due there is exactly one run, with an id that stays the same over
retries. Every call carries a token. What goes wrong is told by a problem document (RFC 9457)."""
Call = tuple[str, str, type, type]
_POOL_CALLS: Sequence[Call] = (
    (
        "claim",
        "Waits for runs and gives them to a worker, each with a token.",
        protocol.ClaimRequest,
        protocol.ClaimAnswer,
    ),
    ("heartbeat", "Renews the leases of a worker.", protocol.HeartbeatRequest, protocol.HeartbeatAnswer),
    ("report", "Ends attempts.", protocol.ReportRequest, protocol.ReportAnswer),
    ("start", "Begins runs whose tokens came by message.", protocol.StartRequest, protocol.StartAnswer),
)


def document(table: Sequence[routes.Route]) -> Json:
    """What the API is, for programs."""
    of_type, components = _schemas(list(_types(table)), _REF)
    of_worker, of_workers = _schemas([kind for call in _POOL_CALLS for kind in call[2:]], _WORKER_REF)
    paths: dict[str, Json] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of_type)
    for call in _POOL_CALLS:
        paths[f"/v1/pools/{{ns}}/{{pool}}/{call[0]}"] = {"post": _pool_operation(call, of_worker)}
    named = {f"Worker{name}": schema for name, schema in of_workers.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Clockhand", "version": importlib.metadata.version("clockhand"), "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _used(paths, {**components, **jobschema.of(components["Job"]), **named}),
        },
    }


def _schemas(types: Sequence[Any], template: str) -> tuple[Mapping[str, Json], Mapping[str, Json]]:
    """The schema of each type by how it is written, and what those refer to by name."""
    schemas, components = msgspec.json.schema_components(types, ref_template=template, schema_hook=_hook)
    return dict(zip(map(repr, types), schemas, strict=True)), components


def _used(paths: Json, schemas: Json) -> Json:
    """Those that a path leads to."""
    found: set[str] = set()
    pending: list[object] = [paths]
    while pending:
        names = set(_TO_SCHEMA.findall(msgspec.json.encode(pending.pop()).decode())) - found
        found |= names
        pending += (schemas[name] for name in names)
    return {name: schemas[name] for name in sorted(found)}


def _hook(kind: type) -> Json:
    """Of what msgspec knows no schema for: any JSON."""
    if kind is not object:
        raise NotImplementedError(kind)
    return {"description": "Any JSON."}


def _types(table: Sequence[routes.Route]) -> Iterator[Any]:
    yield from (resources.Job, resources.Problem)
    seen = {repr(resources.Job), repr(resources.Problem)}
    for route in table:
        of_query = (one.type for one in (*route.query, *route.headers, parameters.NAMESPACE))
        for kind in (route.takes, *route.gives.values(), *of_query):
            if kind is not None and repr(kind) not in seen:
                seen.add(repr(kind))
                yield kind


def _operation(route: routes.Route, of_type: Mapping[str, Json]) -> Json:
    operation: Json = {
        "operationId": route.name,
        "tags": [_tag(route.path)],
        "summary": route.summary,
        "description": f"For the role {route.role}, and above. A user of the cluster needs {_right(route.right)}.",
        "parameters": [*_of_path(route.path), *_of_query(route, of_type), *_of_headers(route, of_type)],
        "responses": {**_good(route, of_type), **_bad(route)},
    }
    if route.takes is not None:
        content = {media_type: {"schema": of_type[repr(route.takes)]} for media_type in route.media_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _pool_operation(call: Call, of_type: Mapping[str, Json]) -> Json:
    name, summary, takes, gives = call
    path = "/v1/pools/{ns}/{pool}/" + name
    failures = (*_ALWAYS, *_WITH_BODY, 404)
    return {
        "operationId": f"{name}Runs" if name in ("claim", "start") else name,
        "tags": ["workers"],
        "summary": summary,
        "description": "For workers: with a static token of the pool, or that of its service account.",
        "parameters": _of_path(path),
        "requestBody": {"required": True, "content": {routes.JSON: {"schema": of_type[repr(takes)]}}},
        "responses": {
            "200": {"description": "OK", "content": {routes.JSON: {"schema": of_type[repr(gives)]}}},
            **{str(status): _problem(status) for status in sorted(failures) if status not in (415, 429)},
        },
    }


def _tag(path: str) -> str:
    return "runs" if "/runs" in path or path.endswith((":run", ":backfill")) else path.split("/")[2].partition(":")[0]


def _right(right: routes.Right) -> str:
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    return f"the right to {right.verb} {resource} ({right.group})"


def _of_path(path: str) -> Sequence[Json]:
    form = {"id": {"type": "string", "format": "uuid"}}
    return [
        {"name": name, "in": "path", "required": True, "description": _PARTS[name], "schema": form.get(name, _NAME)}
        for name in _PLACEHOLDER.findall(path)
    ]


_NAME: Json = {"type": "string"}


def _of_query(route: routes.Route, of_type: Mapping[str, Json]) -> Sequence[Json]:
    return [_parameter(one, "query", of_type) for one in (*route.query, parameters.NAMESPACE)]


def _of_headers(route: routes.Route, of_type: Mapping[str, Json]) -> Sequence[Json]:
    found = [_parameter(one, "header", of_type) for one in route.headers]
    if route.method == "POST":
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        found.append({"name": "Idempotency-Key", "in": "header", "description": _KEY, "schema": schema})
    return found


def _parameter(one: routes.Parameter, place: str, of_type: Mapping[str, Json]) -> Json:
    schema = _without_null(of_type[repr(one.type)])
    if one.default not in (None, ()):
        schema = {**schema, "default": one.default}
    return {"name": one.name, "in": place, "description": one.text, "schema": schema}


def _without_null(schema: Json) -> Json:
    """Nothing is sent for None: it is the parameter that is left out."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _good(route: routes.Route, of_type: Mapping[str, Json]) -> Json:
    answers: Json = {}
    for status, gives in route.gives.items():
        answer: Json = {"description": http.HTTPStatus(status).phrase}
        if gives is not None:
            answer["content"] = {route.answers_as.partition(";")[0]: {"schema": of_type[repr(gives)]}}
        answers[str(status)] = answer
    return answers


def _bad(route: routes.Route) -> Json:
    failures = {*_ALWAYS, *route.fails}
    if route.method not in ("GET", "DELETE"):
        failures |= {*_WITH_BODY, *(_WITH_KEY if route.method == "POST" else ())}
    return {str(status): _problem(status) for status in sorted(failures)}


def _problem(status: int) -> Json:
    content: Json = {problems.MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
    if status == http.HTTPStatus.BAD_REQUEST:
        content["text/plain"] = {
            "schema": {"type": "string", "description": "Of what is no HTTP, or a path beyond 8 KiB."}
        }
    return {"description": http.HTTPStatus(status).phrase, "content": content}
