"""What is there from the start: namespaces, the definitions of our kinds, and the service that shows runs."""

from __future__ import annotations

import uuid
from typing import Any

from clockhand.api.runs import group as runs
from clockhand.domain import definition
from clockhand.standalone.kube import admission, kinds, metadata, objects
from clockhand.standalone.kube import store as stores

Json = dict[str, Any]


async def sow(verbs: objects.Objects) -> None:
    """Makes what is missing, and brings definitions of an older release up to date."""
    for name in kinds.LASTING_NAMESPACES:
        if verbs.store.get(stores.Key(kinds.NAMESPACES.resource, "", name)) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await verbs.create(kinds.NAMESPACES, "", body, admission.Wish())
    for namespace in verbs.store.listed(kinds.NAMESPACES.resource):
        if verbs.lacks_account(namespace):
            await verbs.create_account(namespace["metadata"]["name"])
    for kind in kinds.ALL:
        if kind.custom is not None:
            await _put(verbs.store, kinds.DEFINITIONS, _definition(kind.custom))
    await _put(verbs.store, kinds.API_SERVICES, _service())


async def _put(store: stores.Store, kind: kinds.Kind, body: Json) -> None:
    key = stores.Key(kind.resource, "", body["metadata"]["name"])
    known = store.get(key)
    if known is None:
        own = {"uid": str(uuid.uuid4()), "creationTimestamp": metadata.now(), "generation": 1}
        await store.create(key, {**body, "metadata": {**body["metadata"], **own}})
    else:
        await store.change(key, lambda old: {**body, "metadata": old["metadata"], "status": old["status"]})


def _definition(resource: definition.Resource) -> Json:
    built: Any = definition.build(resource)
    conditions = [_condition("NamesAccepted", "NoConflicts"), _condition("Established", "InitialNamesAccepted")]
    spec = {**built["spec"], "conversion": {"strategy": "None"}}
    state = {
        "conditions": conditions,
        "acceptedNames": spec["names"],
        "storedVersions": [definition.VERSION],
    }
    return {**built, "spec": spec, "status": state}


def _service() -> Json:
    spec = {"group": runs.GROUP, "version": runs.VERSION, "groupPriorityMinimum": 1000, "versionPriority": 15}
    return {
        "apiVersion": kinds.API_SERVICES.api_version,
        "kind": kinds.API_SERVICES.kind,
        "metadata": {"name": runs.API_SERVICE},
        "spec": spec,
        "status": {"conditions": [_condition("Available", "Local")]},
    }


def _condition(kind: str, reason: str) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": metadata.now()}
