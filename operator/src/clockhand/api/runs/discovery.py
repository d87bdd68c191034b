"""Discovery documents, from constants alone: while they cannot be had, no namespace of the cluster can be deleted.

So nothing here may depend on Postgres or on anything else that can fail.
"""

from __future__ import annotations

from typing import Any

from clockhand.api.runs import group

Json = dict[str, Any]
_VERSION: Json = {"groupVersion": group.API_VERSION, "version": group.VERSION}
_GVK: Json = {"group": group.GROUP, "version": group.VERSION, "kind": group.KIND}

API_GROUP: Json = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": group.GROUP,
    "versions": [_VERSION],
    "preferredVersion": _VERSION,
}

API_GROUP_LIST: Json = {
    "kind": "APIGroupList",
    "apiVersion": "v1",
    "groups": [{key: value for key, value in API_GROUP.items() if key not in ("kind", "apiVersion")}],
}

RESOURCES: Json = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": group.API_VERSION,
    "resources": [
        {
            "name": group.RESOURCE,
            "singularName": group.SINGULAR,
            "namespaced": True,
            "kind": group.KIND,
            "verbs": list(group.VERBS),
        },
        *(
            {
                "name": f"{group.RESOURCE}/{name}",
                "singularName": "",
                "namespaced": True,
                "kind": group.KIND,
                "verbs": [verb],
            }
            for name, verb in group.SUBRESOURCES.items()
        ),
    ],
}

DOCUMENT: Json = {
    "kind": "APIGroupDiscoveryList",
    "apiVersion": "apidiscovery.k8s.io/v2",
    "metadata": {},
    "items": [
        {
            "metadata": {"name": group.GROUP, "creationTimestamp": None},
            "versions": [
                {
                    "version": group.VERSION,
                    "freshness": "Current",
                    "resources": [
                        {
                            "resource": group.RESOURCE,
                            "responseKind": _GVK,
                            "scope": "Namespaced",
                            "singularResource": group.SINGULAR,
                            "verbs": list(group.VERBS),
                            "subresources": [
                                {"subresource": name, "responseKind": _GVK, "verbs": [verb]}
                                for name, verb in group.SUBRESOURCES.items()
                            ],
                        }
                    ],
                }
            ],
        }
    ],
}
