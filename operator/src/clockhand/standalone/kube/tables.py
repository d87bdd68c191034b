"""Objects as rows: the cells that kubectl prints, made by the server as in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clockhand.api.runs import negotiate
from clockhand.domain import definition, spans
from clockhand.standalone.kube import kinds

Json = dict[str, Any]
_UNKNOWN = "<unknown>"
_NONE = "<none>"
Cell = Callable[[Json], Any]
Column = tuple[str, str, int, Cell]


def table(
    kind: kinds.Kind, bodies: Iterable[Json], shape: negotiate.Shape, metadata: Json, *, columns: bool = True
) -> Json:
    """A Table of objects, with what belongs to each row beside its cells as `shape` says."""
    chosen = _columns(kind)
    described = [
        {"name": name, "type": form, "format": "name" if place == 0 else "", "description": "", "priority": priority}
        for place, (name, form, priority, _) in enumerate(chosen)
    ]
    rows = [{"cells": [cell(body) for *_, cell in chosen], **_beside(body, shape)} for body in bodies]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{shape.version}",
        "metadata": metadata,
        "columnDefinitions": described if columns else None,
        "rows": rows,
    }


def metadata_object(body: Json, version: str) -> Json:
    """An object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": body["metadata"],
    }


def _beside(body: Json, shape: negotiate.Shape) -> Json:
    match shape.include:
        case negotiate.Include.METADATA:
            return {"object": metadata_object(body, shape.version)}
        case negotiate.Include.OBJECT:
            return {"object": body}
    return {}


def _columns(kind: kinds.Kind) -> Sequence[Column]:
    name: Column = ("Name", "string", 0, lambda body: body["metadata"]["name"])
    if kind.custom is not None:
        return [name, *_custom(kind.custom)]
    own = _COLUMNS.get(kind.kind, ())
    return [name, *(one for one in own if one[2] == 0), _AGE, *(one for one in own if one[2] != 0)]


def _custom(resource: definition.Resource) -> Iterable[Column]:
    for priority, columns in enumerate((resource.columns, resource.wide_columns)):
        yield from ((name, form, priority, _at(path, form)) for name, form, path, _ in columns)


def _at(path: str, form: str) -> Cell:
    names = path.strip(".").split(".")

    def cell(body: Json) -> Any:
        found: Any = body
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            return None
        if form == "date":
            return age(str(found))
        return msgspec.json.encode(found).decode() if isinstance(found, list | dict) else found

    return cell


def age(text: str | None) -> str:
    """How long ago an instant was, as kubectl says it."""
    try:
        past = datetime.now(UTC) - datetime.fromisoformat(text or "")
    except ValueError:
        return _UNKNOWN
    return "<invalid>" if past < timedelta(seconds=-1) else spans.human(past)


def _age(body: Json) -> str:
    return age(body["metadata"].get("creationTimestamp"))


_AGE: Column = ("Age", "string", 0, _age)


def _ready(body: Json) -> str:
    containers = body["spec"].get("containers", ())
    ready = sum(bool(one.get("ready")) for one in body.get("status", {}).get("containerStatuses", ()))
    return f"{ready}/{len(containers)}"


def _pod_status(body: Json) -> str:
    state = body.get("status", {})
    if body["metadata"].get("deletionTimestamp") and state.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    shown = str(state.get("reason") or state.get("phase") or "Unknown")
    for one in reversed(state.get("containerStatuses", ())):
        waiting, ended = one.get("state", {}).get("waiting"), one.get("state", {}).get("terminated")
        if waiting and waiting.get("reason"):
            shown = waiting["reason"]
        elif ended:
            shown = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    return shown


def _restarts(body: Json) -> str:
    return str(sum(one.get("restartCount", 0) for one in body.get("status", {}).get("containerStatuses", ())))


def _status(name: str) -> Cell:
    return lambda body: body.get("status", {}).get(name, 0)


def _deployment_ready(body: Json) -> str:
    return f"{body.get('status', {}).get('readyReplicas', 0)}/{body['spec'].get('replicas', 1)}"


def _containers(body: Json) -> Sequence[Json]:
    found: Sequence[Json] = body["spec"]["template"]["spec"].get("containers", ())
    return found


def _entries(*fields: str) -> Cell:
    return lambda body: sum(len(body.get(field) or ()) for field in fields)


def _text(path: str, default: str = _NONE) -> Cell:
    find = _at(path, "string")
    return lambda body: find(body) or default


def _seen(body: Json) -> str:
    last = (body.get("series") or {}).get("lastObservedTime") or body.get("lastTimestamp") or body.get("eventTime")
    return age(last or body["metadata"].get("creationTimestamp"))


def _about(body: Json) -> str:
    involved = body.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _node_status(body: Json) -> str:
    conditions = body.get("status", {}).get("conditions", ())
    is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return "Ready" if is_ready else "NotReady"


_COLUMNS: Mapping[str, Sequence[Column]] = {
    "Pod": (
        ("Ready", "string", 0, _ready),
        ("Status", "string", 0, _pod_status),
        ("Restarts", "string", 0, _restarts),
        ("IP", "string", 1, _text(".status.podIP")),
        ("Node", "string", 1, _text(".spec.nodeName")),
    ),
    "Namespace": (("Status", "string", 0, _text(".status.phase")),),
    "Node": (("Status", "string", 0, _node_status), ("Version", "string", 0, _text(".status.nodeInfo.kubeletVersion"))),
    "ConfigMap": (("Data", "string", 0, _entries("data", "binaryData")),),
    "Secret": (("Type", "string", 0, _text(".type")), ("Data", "string", 0, _entries("data"))),
    "ServiceAccount": (("Secrets", "string", 0, _entries("secrets")),),
    "Event": (
        ("Last Seen", "string", 0, _seen),
        ("Type", "string", 0, _text(".type", "")),
        ("Reason", "string", 0, _text(".reason", "")),
        ("Object", "string", 0, _about),
        ("Message", "string", 0, _text(".message", "")),
    ),
    "Deployment": (
        ("Ready", "string", 0, _deployment_ready),
        ("Up-to-date", "string", 0, _status("updatedReplicas")),
        ("Available", "string", 0, _status("availableReplicas")),
        ("Containers", "string", 1, lambda body: ",".join(one["name"] for one in _containers(body))),
        ("Images", "string", 1, lambda body: ",".join(one.get("image", "") for one in _containers(body))),
    ),
    "ReplicaSet": (
        ("Desired", "string", 0, lambda body: body["spec"].get("replicas", 1)),
        ("Current", "string", 0, _status("replicas")),
        ("Ready", "string", 0, _status("readyReplicas")),
    ),
    "PodDisruptionBudget": (
        ("Min Available", "string", 0, _text(".spec.minAvailable", "N/A")),
        ("Max Unavailable", "string", 0, _text(".spec.maxUnavailable", "N/A")),
        ("Allowed Disruptions", "string", 0, _status("disruptionsAllowed")),
    ),
    "Lease": (("Holder", "string", 0, _text(".spec.holderIdentity")),),
    "CustomResourceDefinition": (("Created At", "string", 0, _text(".metadata.creationTimestamp")),),
    "APIService": (("Service", "string", 0, lambda body: "Local"), ("Available", "string", 0, lambda body: "True")),
}
