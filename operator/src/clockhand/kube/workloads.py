"""What the operator keeps for a pool, at the API server: applied by the server, under a field manager of its own."""

from __future__ import annotations

import collections.abc
import typing

import msgspec

from clockhand import errors
from clockhand.domain import observed
from clockhand.kube import client as clients

_FIELD_MANAGER = "clockhand-pools"
_APPLY: collections.abc.Mapping[str, str] = {
    **clients.METADATA_ONLY,
    "Content-Type": "application/apply-patch+yaml",
}
_RESOURCES: collections.abc.Mapping[str, str] = {
    "Deployment": "apis/apps/v1/{where}deployments",
    "ServiceAccount": "api/v1/{where}serviceaccounts",
    "ConfigMap": "api/v1/{where}configmaps",
    "PodDisruptionBudget": "apis/policy/v1/{where}poddisruptionbudgets",
}
KINDS = tuple(_RESOURCES)
_SOME_PODS = 20

Json = dict[str, typing.Any]


class Owner(msgspec.Struct, frozen=True):
    uid: str = ""
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    owner_references: tuple[Owner, ...] = ()

    @property
    def controller(self) -> str:
        """The uid of the object to which this one belongs; empty where there is none."""
        return next((owner.uid for owner in self.owner_references if owner.controller), "")


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class DeploymentCondition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    ready_replicas: int = 0
    conditions: tuple[DeploymentCondition, ...] = ()


class Deployment(msgspec.Struct, frozen=True):
    """As much of one as is looked at."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: DeploymentStatus = DeploymentStatus()


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Deployments(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[Deployment, ...] | None = None


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[observed.Pod, ...] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: Meta


_DEPLOYMENTS = msgspec.json.Decoder(_Deployments)
_PODS = msgspec.json.Decoder(_Pods)
_OBJECT = msgspec.json.Decoder(_Object)


class Workloads:
    """The calls. An object that is another's is never touched: its name is taken."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client

    async def deployments(self, namespace: str | None, *, selector: str) -> collections.abc.Sequence[Deployment]:
        """All that the selector finds, in one namespace or in all."""
        query = {"labelSelector": selector, "limit": "500"}
        found: list[Deployment] = []
        while True:
            page = _DEPLOYMENTS.decode(await self._client.get(_path("Deployment", namespace), query=query))
            found += page.items or ()
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_

    async def pods(self, namespace: str, *, selector: str) -> collections.abc.Sequence[observed.Pod]:
        """Some of the pods that the selector finds, for what they say of all."""
        query = {"labelSelector": selector, "limit": str(_SOME_PODS)}
        path = f"/api/v1/namespaces/{clients.path_part(namespace)}/pods"
        return _PODS.decode(await self._client.get(path, query=query)).items or ()

    async def apply(self, body: Json) -> int:
        """Makes the object what `body` says, and returns its generation; Conflict where it belongs to somebody else."""
        kind, metadata = body["kind"], body["metadata"]
        owner = metadata["ownerReferences"][0]["uid"]
        known = await self._find(kind, metadata["namespace"], metadata["name"])
        if known is not None and known.controller != owner:
            raise errors.Conflict(f"there is a {kind} {metadata['name']} already that does not belong to the pool")
        # what is ours is put right by force; what comes into being at this moment by another hand is not
        query = {"fieldManager": _FIELD_MANAGER, "force": "true" if known else "false"}
        path = _path(kind, metadata["namespace"], metadata["name"])
        answer = await self._client.write("PATCH", path, clients.encode(body), query=query, headers=_APPLY)
        return _OBJECT.decode(answer).metadata.generation

    async def delete(self, kind: str, namespace: str, name: str, *, owner: str) -> None:
        """Deletes what belongs to `owner`; nothing happens where it does not, or is not there."""
        known = await self._find(kind, namespace, name)
        if known is None or known.controller != owner:
            return
        body = clients.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": known.uid}})
        await self._client.write("DELETE", _path(kind, namespace, name), body)

    async def _find(self, kind: str, namespace: str, name: str) -> Meta | None:
        accept = clients.METADATA_ONLY["Accept"]
        try:
            return _OBJECT.decode(await self._client.get(_path(kind, namespace, name), accept=accept)).metadata
        except errors.NotFound:
            return None


def _path(kind: str, namespace: str | None, name: str = "") -> str:
    where = "" if namespace is None else f"namespaces/{clients.path_part(namespace)}/"
    path = "/" + _RESOURCES[kind].format(where=where)
    return f"{path}/{clients.path_part(name)}" if name else path
