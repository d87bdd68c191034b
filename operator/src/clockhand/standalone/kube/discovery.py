"""Which groups, versions and resources there are: document by document, and in one for clients that ask for all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from clockhand.api.runs import discovery as of_runs
from clockhand.standalone.kube import kinds

Json = dict[str, Any]
VERSION: Json = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+clockhand",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The release of Kubernetes whose answers these are."""
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
REVIEWS: dict[str, Sequence[tuple[str, str]]] = {
    AUTHENTICATION: (("tokenreviews", "TokenReview"), ("selfsubjectreviews", "SelfSubjectReview")),
    AUTHORIZATION: (
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
}
_SUBRESOURCE_VERBS = {"log": ["get"], "token": ["create"], "finalize": ["update"]}
_OTHER_KINDS = {
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "token": {"group": AUTHENTICATION, "version": "v1", "kind": "TokenRequest"},
}


def legacy_versions(address: str) -> Json:
    """`/api`."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def group_list() -> Json:
    """`/apis`."""
    groups = [_group(name, versions) for name, versions in _groups() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*groups, *of_runs.API_GROUP_LIST["groups"]]}


def group(name: str) -> Json | None:
    """`/apis/GROUP`."""
    found = dict(_groups()).get(name)
    return None if found is None or not name else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)}


def resource_list(path: str) -> Json | None:
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    found = [one for kind in kinds.ALL if kind.path == path for one in _resources(kind)]
    name = path.split("/")[1]
    if path == f"apis/{name}/v1":
        found += [
            {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
            for plural, kind in REVIEWS.get(name, ())
        ]
    if not found:
        return None
    version = path.removeprefix("apis/").removeprefix("api/")
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": found}


def document(*, legacy: bool) -> Json:
    """`/api` or `/apis` for a client that asks for everything at once."""
    items = [
        {"metadata": {"name": name} if name else {}, "versions": [_version_document(name, one) for one in versions]}
        for name, versions in _groups()
        if legacy is (name == "")
    ]
    more = [] if legacy else of_runs.DOCUMENT["items"]
    return {**of_runs.DOCUMENT, "items": [*items, *more]}


def _groups() -> Iterator[tuple[str, list[str]]]:
    for name, members in itertools.groupby(kinds.ALL, key=lambda kind: kind.group):
        yield name, sorted({kind.version for kind in members})
    yield from ((name, ["v1"]) for name in REVIEWS)


def _group(name: str, versions: Sequence[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: kinds.Kind) -> Iterator[Json]:
    short = {"shortNames": list(kind.short_names)} if kind.short_names else {}
    categories = {"categories": list(kind.categories)} if kind.categories else {}
    named = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    yield {**named, "verbs": list(kind.verbs), **short, **categories}
    for name in kind.subresources:
        other = _OTHER_KINDS.get(name, {})
        verbs = _SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"])
        part = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind}
        yield {**part, **other, "verbs": verbs}


def _version_document(name: str, version: str) -> Json:
    found = [kind for kind in kinds.ALL if (kind.group, kind.version) == (name, version)]
    reviews = [
        {
            "resource": plural,
            "responseKind": {"group": name, "version": version, "kind": kind},
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create"],
        }
        for plural, kind in REVIEWS.get(name, ())
    ]
    return {"version": version, "freshness": "Current", "resources": [*map(_resource_document, found), *reviews]}


def _resource_document(kind: kinds.Kind) -> Json:
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    parts = [
        {
            "subresource": name,
            "responseKind": _OTHER_KINDS.get(name, own),
            "verbs": _SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]),
        }
        for name in kind.subresources
    ]
    made: Json = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
        "subresources": parts,
    }
    return {key: value for key, value in made.items() if value != []}
