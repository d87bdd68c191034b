"""What the aggregated API is called. A group of its own: a group version is either a CRD's or an aggregated server's."""

from __future__ import annotations

GROUP = "runs.clockhand.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Run"
LIST_KIND = "RunList"
RESOURCE = "runs"
SINGULAR = "run"
API_SERVICE = f"{VERSION}.{GROUP}"
# `delete` beside list and watch would make garbage collector, quota and namespace deletion read every run
VERBS = ("create", "get", "list", "watch")
SUBRESOURCES = {"cancel": "create", "retry": "create", "log": "get"}
OWNER_PREFIX = "k8s/"


def owner_of(namespace: str) -> str:
    """The owner that a namespace is in the tables."""
    return f"{OWNER_PREFIX}{namespace}"


def namespace_of(owner: str) -> str:
    """The namespace of an owner of this API."""
    return owner.removeprefix(OWNER_PREFIX)
