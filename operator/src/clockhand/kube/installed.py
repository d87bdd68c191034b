"""What is installed in the cluster, who we are there, and what we may do: for whoever finds out why something is amiss."""

from __future__ import annotations

import typing
from collections.abc import Mapping

import msgspec

from clockhand.kube import access
from clockhand.kube import client as clients

Json = Mapping[str, typing.Any]
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_SELF_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _Who(msgspec.Struct, frozen=True, rename="camel"):
    user_info: access.User = access.User()


class _Self(msgspec.Struct, frozen=True):
    status: _Who = _Who()


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Allowed = _Allowed()


async def version(client: clients.Client) -> str:
    """The release of the API server."""
    return msgspec.json.decode(await client.get("/version"), type=_Version).git_version


async def whoami(client: clients.Client) -> str:
    """As whom the API server knows us."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.ask(_SELF, clients.encode(body))
    return msgspec.json.decode(answer, type=_Self).status.user_info.username


async def may_i(client: clients.Client, action: access.Action) -> bool:
    """Whether we may do this; everybody may ask that of themselves."""
    attributes = {
        "verb": action.verb,
        "group": action.group,
        "resource": action.resource,
        "subresource": action.subresource,
        "namespace": action.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.decode(await client.ask(_SELF_ACCESS, clients.encode(body)), type=_Review).status.allowed


async def definition(client: clients.Client, name: str) -> Json:
    """A CustomResourceDefinition."""
    return await _get(client, f"{_DEFINITIONS}/{name}")


async def api_service(client: clients.Client, name: str) -> Json:
    """An APIService."""
    return await _get(client, f"{_API_SERVICES}/{name}")


async def policy(client: clients.Client, name: str) -> tuple[Json, Json]:
    """A ValidatingAdmissionPolicy, and the binding of the same name."""
    found = await _get(client, f"{_ADMISSION}/validatingadmissionpolicies/{name}")
    return found, await _get(client, f"{_ADMISSION}/validatingadmissionpolicybindings/{name}")


async def _get(client: clients.Client, path: str) -> Json:
    found: Json = msgspec.json.decode(await client.get(path))
    return found
