"""Objects of our own kinds, and namespaces, at the API server, as plain JSON: what they mean is read elsewhere."""

from __future__ import annotations

import collections.abc
import typing
from dataclasses import dataclass

import msgspec

from clockhand.domain import flat
from clockhand.kube import client as clients
from clockhand.kube import failures

GROUP_PATH = "/apis/clockhand.dev/v1alpha1"
SCHEDULED_JOBS, WORKER_POOLS, JOB_CLASSES = "scheduledjobs", "workerpools", "jobclasses"
PAGE = 500
_FIELD_MANAGER = {"fieldManager": "clockhand"}

Json = dict[str, typing.Any]
T = typing.TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of a listing; every page of one listing has the same version."""

    items: tuple[Json, ...]
    resource_version: str


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[Json, ...] | None = None


class _Phase(msgspec.Struct, frozen=True):
    phase: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    status: _Phase = _Phase()


_OBJECT = msgspec.json.Decoder(_Object)
_LIST = msgspec.json.Decoder(_List)
_ANY = msgspec.json.Decoder(Json)
_NAMESPACE = msgspec.json.Decoder(_Namespace)


class Objects:
    """Objects of one resource of our group."""

    def __init__(self, client: clients.Client, resource: str = SCHEDULED_JOBS) -> None:
        self._client = client
        self._resource = resource

    async def list_pages(
        self, namespace: str | None = None, *, metadata_only: bool = False
    ) -> collections.abc.AsyncGenerator[ObjectPage]:
        """All objects, page by page. `Expired`: begin anew; `NotFound`: the resource itself is not there."""
        query = {"limit": str(PAGE)}
        accept = clients.METADATA_LIST if metadata_only else "application/json"
        while True:
            answer = await self._client.get(self._path(namespace), query=query, accept=accept)
            page = _read(_LIST, answer)
            yield ObjectPage(page.items or (), page.metadata.resource_version)
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def get(self, namespace: str | None, name: str) -> Json:
        """The object; `namespace` is None for a resource that has none."""
        return _read(_ANY, await self._client.get(self._path(namespace, name)))

    async def patch_status(
        self,
        namespace: str,
        name: str,
        status: collections.abc.Mapping[str, typing.Any],
        *,
        uid: str,
        resource_version: str | None = None,
    ) -> str:
        """Make `status` the status of the object of this uid; returns its new version.

        `ApiConflict` where the name has another uid by now or, if given, the version is not current. A JSON patch,
        because the API server ignores a uid in a merge patch of a status.
        """
        shown = {field: value for field, value in status.items() if value is not None}
        steps: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
        if resource_version is not None:
            steps.append({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version})
        steps.append({"op": "add", "path": "/status", "value": shown})
        try:
            answer = await self._client.write(
                "PATCH",
                f"{self._path(namespace, name)}/status",
                clients.encode(steps),
                query=_FIELD_MANAGER,
                headers={**clients.METADATA_ONLY, **clients.JSON_PATCH},
            )
        except failures.ApiInvalid as error:
            raise (error if error.status.causes else failures.ApiConflict(error.status)) from error
        return _OBJECT.decode(answer).metadata.resource_version

    async def delete(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None) -> None:
        """Delete this very object: `NotFound` or `ApiConflict` where it is not there any more.

        `ApiConflict` also where, if given, the version is not current.
        """
        conditions = {"uid": uid} if resource_version is None else {"uid": uid, "resourceVersion": resource_version}
        body = clients.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions})
        await self._client.write("DELETE", self._path(namespace, name), body, headers=clients.METADATA_ONLY)

    def _path(self, namespace: str | None, name: str | None = None) -> str:
        place = "" if namespace is None else f"/namespaces/{clients.path_part(namespace)}"
        path = f"{GROUP_PATH}{place}/{self._resource}"
        return path if name is None else f"{path}/{clients.path_part(name)}"


def _read(decoder: msgspec.json.Decoder[T], answer: bytes) -> T:
    """An object nested too deep to be decoded must not hide the others of its page."""
    try:
        return decoder.decode(answer)
    except RecursionError:
        return decoder.decode(flat.flatten(answer))


async def namespace_phase(client: clients.Client, name: str) -> str:
    """`Active` or `Terminating`; `NotFound` where it is gone."""
    answer = await client.get(f"/api/v1/namespaces/{clients.path_part(name)}")
    return _NAMESPACE.decode(answer).status.phase
