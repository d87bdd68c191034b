"""Pods at the API server: create, look, delete, list and watch, decoded as far as Clockhand reads them."""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import random
from dataclasses import dataclass

import msgspec

from clockhand import errors
from clockhand.domain import observed, texts
from clockhand.kube import client as clients
from clockhand.kube import failures, streams

PAGE = 500
STALL_SECONDS = 70.0
LOG_LIMIT_BYTES = 65536
_LOG_LINES = 2048
_WATCH_SECONDS = (540, 660)
_GONE = 410

Wants = collections.abc.Callable[[observed.Marks], bool]


@dataclass(frozen=True, slots=True)
class CreatedPod:
    uid: str
    resource_version: str


class Deletion(enum.Enum):
    """How a deletion went; none of these is a failure."""

    REQUESTED = "requested"
    GONE = "gone"
    OTHER_UID = "another pod has the name"


class Change(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event of a watch; `pod` is None for a bookmark and for a pod that the caller does not want."""

    change: Change
    resource_version: str
    pod: observed.Pod | None


class Head(msgspec.Struct, frozen=True, rename="camel"):
    """As much of a listed pod as tells whose it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: observed.Marks | None = None

    @property
    def marks(self) -> observed.Marks:
        return self.annotations or observed.NO_MARKS


@dataclass(frozen=True, slots=True)
class PodPage:
    """A page of a listing: the wanted pods, and the heads of all, wanted or not."""

    pods: tuple[observed.Pod, ...]
    heads: tuple[Head, ...]
    resource_version: str


class _HeadObject(msgspec.Struct, frozen=True):
    metadata: Head = Head()


class _EventHead(msgspec.Struct, frozen=True):
    type: str
    object: _HeadObject


class _PodEvent(msgspec.Struct, frozen=True):
    object: observed.Pod


class _ErrorEvent(msgspec.Struct, frozen=True):
    object: failures.Status


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


_POD = msgspec.json.Decoder(observed.Pod)
_HEAD = msgspec.json.Decoder(_HeadObject)
_EVENT_HEAD = msgspec.json.Decoder(_EventHead)
_POD_EVENT = msgspec.json.Decoder(_PodEvent)
_ERROR_EVENT = msgspec.json.Decoder(_ErrorEvent)
_LIST = msgspec.json.Decoder(_List)


def everything(_: observed.Marks) -> bool:
    return True


class Pods:
    """The pod calls of one client."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client

    def capacity(self) -> int:
        return self._client.capacity()

    async def create(
        self, namespace: str, body: bytes, *, still: collections.abc.Callable[[], bool] = clients.always
    ) -> CreatedPod:
        """`ApiConflict` with `already_exists` where the name is taken, `Uncertain` if the answer was lost.

        Sends nothing and raises `Stale` where `still` says no at the last moment.
        """
        answer = await self._client.write(
            "POST",
            _path(namespace),
            body,
            query={"fieldValidation": "Ignore"},
            headers=clients.METADATA_ONLY,
            still=still,
        )
        head = _HEAD.decode(answer).metadata
        return CreatedPod(head.uid, head.resource_version)

    async def dry_run(self, namespace: str, body: bytes) -> None:
        """Ask whether the API server would take this pod; unknown fields are errors here. Stores nothing."""
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        await self._client.ask(_path(namespace), body, query=query)

    async def get(self, namespace: str, name: str) -> observed.Pod:
        return _POD.decode(await self._client.get(_path(namespace, name)))

    async def delete(self, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None) -> Deletion:
        """Delete this very pod; one of the same name with another uid stays."""
        options: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = clients.encode(options)
        try:
            await self._client.write("DELETE", _path(namespace, name), body, headers=clients.METADATA_ONLY)
        except errors.NotFound:
            return Deletion.GONE
        except failures.ApiConflict:
            return Deletion.OTHER_UID
        return Deletion.REQUESTED

    async def list_pages(
        self, selector: str, namespace: str | None = None, *, wants: Wants = everything
    ) -> collections.abc.AsyncGenerator[PodPage]:
        """All pods of a selector, page by page; `Expired`: it took too long and must begin anew."""
        query = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            page = _LIST.decode(await self._client.get(_path(namespace), query=query))
            yield _read_page(page, wants)
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def watch(
        self,
        resource_version: str,
        *,
        selector: str,
        namespace: str | None = None,
        wants: Wants = everything,
        patience: streams.Patience | None = None,
    ) -> collections.abc.AsyncGenerator[PodEvent]:
        """Events after `resource_version`. Ends when the server ends it: call again with the last version.

        Raises `Expired` (list again), `Stalled` (silence), `Unavailable` (connection or server).
        """
        query = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
        }
        lines = self._client.watch(_path(namespace), query, patience or streams.Patience(STALL_SECONDS))
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield read_event(line, wants)

    async def log_tail(self, namespace: str, name: str, container: str, limit_bytes: int = LOG_LIMIT_BYTES) -> str:
        """The end of a container's log as clean text; empty where the container has never started."""
        query = {"container": container, "tailLines": str(_LOG_LINES)}
        try:
            async with self._client.stream(f"{_path(namespace, name)}/log", query=query) as response:
                tail = await streams.tail(response.content, limit_bytes)
        except failures.ApiInvalid:
            return ""
        return texts.tail(tail.decode("utf-8", "replace"), limit_bytes)


def read_event(line: bytes, wants: Wants) -> PodEvent:
    """Two steps, so that another shard's event costs the decoding of a few fields only."""
    event = _EVENT_HEAD.decode(line)
    if event.type == "ERROR":
        raise _stream_failure(_ERROR_EVENT.decode(line).object)
    change = Change(event.type)
    head = event.object.metadata
    wanted = change is not Change.BOOKMARK and wants(head.marks)
    return PodEvent(change, head.resource_version, _POD_EVENT.decode(line).object if wanted else None)


def _read_page(page: _List, wants: Wants) -> PodPage:
    heads = []
    pods = []
    for item in page.items or ():
        head = _HEAD.decode(item).metadata
        heads.append(head)
        if wants(head.marks):
            pods.append(_POD.decode(item))
    return PodPage(tuple(pods), tuple(heads), page.metadata.resource_version)


def _stream_failure(status: failures.Status) -> errors.ClockhandError:
    if status.code == _GONE or status.reason in ("Expired", "Gone"):
        return failures.Expired(status.message)
    return errors.Unavailable(f"the watch failed: {status.message}")


def _path(namespace: str | None, name: str | None = None) -> str:
    if namespace is None:
        return "/api/v1/pods"
    path = f"/api/v1/namespaces/{clients.path_part(namespace)}/pods"
    return path if name is None else f"{path}/{clients.path_part(name)}"
