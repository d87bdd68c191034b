"""How many replicas an object wants, as the one small object that `kubectl scale` reads and writes."""

from __future__ import annotations

from typing import Any

import msgspec

from clockhand.standalone.kube import kinds

Json = dict[str, Any]


def shown(kind: kinds.Kind, body: Json) -> Json:
    """The Scale of an object."""
    meta, state = body["metadata"], body.get("status") or {}
    labels = (body["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = state.get("selector") or ",".join(f"{key}={value}" for key, value in labels.items())
    named = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    replicas = body["spec"].get("replicas")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": named,
        "spec": {} if replicas is None else {"replicas": replicas},
        "status": {"replicas": state.get("replicas", 0), **({"selector": selector} if selector else {})},
    }


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """As much of a Scale as is taken from a client."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


def set_on(body: Json, wanted: Wanted) -> Json:
    """The object with the replicas of a Scale, and with its version where it names one."""
    version = wanted.metadata.resource_version
    meta = {**body["metadata"], **({"resourceVersion": version} if version else {})}
    return {**body, "metadata": meta, "spec": {**body["spec"], "replicas": wanted.spec.replicas}}
