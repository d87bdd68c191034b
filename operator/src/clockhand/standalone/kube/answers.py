"""Answers: objects in the form that a client asked for, refusals, and what is said of an object that was deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from clockhand.api.runs import negotiate, status
from clockhand.standalone.kube import kinds, tables
from clockhand.standalone.kube.targets import Target

Json = dict[str, Any]
JSON = "application/json"


def answer(body: Any, *, code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    """A JSON answer."""
    response = web.Response(status=code, body=msgspec.json.encode(body), content_type=JSON)
    for text in warnings:
        shown = "".join(one if one.isprintable() else "?" for one in text)
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def failed(failure: status.Failure) -> web.Response:
    """A refusal as an answer."""
    body = failure.body()
    if not body["details"]:
        del body["details"]
    return answer(body, code=failure.code)


def farewell(target: Target, last: Json, shape: negotiate.Shape) -> Json:
    """The object where it is still on its way out, else a Status that names it."""
    meta = last["metadata"]
    is_leaving = meta.get("deletionTimestamp") and (meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"))
    if is_leaving or target.kind is kinds.PODS:
        return shaped(target.kind, last, shape)
    group = {"group": target.kind.group} if target.kind.group else {}
    details = {"name": target.name, **group, "kind": target.kind.plural, "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def shaped(kind: kinds.Kind, body: Json, shape: negotiate.Shape) -> Json:
    """One object."""
    match shape.form:
        case negotiate.Form.TABLE:
            return tables.table(kind, [body], shape, {"resourceVersion": body["metadata"].get("resourceVersion", "")})
        case negotiate.Form.METADATA:
            return tables.metadata_object(body, shape.version)
    return body


def listed(kind: kinds.Kind, bodies: Sequence[Json], shape: negotiate.Shape, metadata: Json) -> Json:
    """A list of objects."""
    match shape.form:
        case negotiate.Form.TABLE:
            return tables.table(kind, bodies, shape, metadata)
        case negotiate.Form.METADATA:
            items = [tables.metadata_object(body, shape.version) for body in bodies]
            named = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{shape.version}"}
            return {**named, "metadata": metadata, "items": items}
    return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": list(bodies)}


def shape_of(request: web.Request) -> negotiate.Shape:
    """The form that a request asks for."""
    return negotiate.shape_of(request.headers.get("Accept", ""), request.query.get("includeObject"))
