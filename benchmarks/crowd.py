"""Many objects at once, made and watched by a client that costs little beside what is measured."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from clockhand import errors
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import flow, streams

SCHEDULED_JOBS = "/apis/clockhand.dev/v1alpha1/namespaces/{namespace}/scheduledjobs"
CRON_JOBS = "/apis/batch/v1/namespaces/{namespace}/cronjobs"
PODS = "/api/v1/namespaces/{namespace}/pods"
LABEL = "benchmark.example/round"
_AT_ONCE = 48
_UNLIMITED = flow.FlowSettings(initial_in_flight=_AT_ONCE, max_in_flight=_AT_ONCE, writes_per_second=1e6, burst=1e6)
_BACKGROUND = b'{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}'


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Object


_EVENT = msgspec.json.Decoder(_Event)
_LIST = msgspec.json.Decoder(_Object)


@contextlib.asynccontextmanager
async def connected(kubeconfig: str) -> AsyncIterator[clients.Client]:
    """A client whose flow holds nothing back."""
    connection = await connections.from_kubeconfig(kubeconfig)
    async with clients.connect(connection, _UNLIMITED, call_seconds=60) as client:
        yield client


async def create_all(client: clients.Client, path: str, objects: Iterable[Mapping[str, Any]]) -> float:
    """Creates objects, each in its own namespace under `path`; returns objects a second."""
    waiting = collections.deque(objects)
    count, began = len(waiting), time.monotonic()

    async def work() -> None:
        while waiting:
            body = waiting.popleft()
            where = path.format(namespace=body["metadata"]["namespace"])
            await client.write("POST", where, clients.encode(body), headers=clients.METADATA_ONLY)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work())
    return count / (time.monotonic() - began)


async def create_namespaces(client: clients.Client, names: Iterable[str]) -> None:
    """Namespaces in which pods may be made at once."""
    for name in names:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.write("POST", "/api/v1/namespaces", clients.encode(body))
        while not await _there(client, f"/api/v1/namespaces/{name}/serviceaccounts/default"):  # noqa: ASYNC110 (it changes elsewhere)
            await asyncio.sleep(0.05)


async def delete_all(client: clients.Client, paths: Collection[str], namespaces: Collection[str]) -> None:
    """Takes away what was made under these paths, and returns when none of it is left."""
    for path in (path.format(namespace=namespace) for path in paths for namespace in namespaces):
        while await _any(client, path):
            with contextlib.suppress(errors.Uncertain, errors.Unavailable):  # asked for again until it is empty
                await client.write("DELETE", path, _BACKGROUND)
            await asyncio.sleep(0.5)


class Sightings:
    """When each pod with a label value was first seen, by the clock of this machine."""

    def __init__(self, client: clients.Client, value: str) -> None:
        self._client = client
        self._selector = f"{LABEL}={value}"
        self.seen: dict[tuple[str, str], float] = {}
        self.broken_off = 0

    def lateness(self, due: datetime) -> list[float]:
        """Seconds from `due` to the sighting, for each pod."""
        return [at - due.timestamp() for at in self.seen.values()]

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Notes pods for the length of the block."""
        answer = await self._client.get("/api/v1/pods", query={"labelSelector": self._selector, "limit": "1"})
        version = _LIST.decode(answer).metadata.resource_version
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._follow(version))
            yield
            watching.cancel()

    async def _follow(self, version: str) -> None:
        """The server may end a watch at any time, and does so when it is busy: go on from the last event."""
        query = {"watch": "1", "labelSelector": self._selector, "allowWatchBookmarks": "true"}
        while True:
            query["resourceVersion"] = version
            lines = self._client.watch("/api/v1/pods", query, streams.Patience(3600))
            async with contextlib.aclosing(lines):
                async for line in lines:
                    version = self._note(_EVENT.decode(line))
            self.broken_off += 1

    def _note(self, event: _Event) -> str:
        if event.type == "ERROR":
            raise errors.Unavailable("the watch lost its place: lateness would be wrong")
        if event.type == "ADDED":
            self.seen[(event.object.metadata.namespace, event.object.metadata.name)] = time.time()
        return event.object.metadata.resource_version


def template(value: str) -> dict[str, Any]:
    """A pod template for fake nodes; `value` is found again on its pods."""
    return {
        "metadata": {"labels": {LABEL: value}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work:1"}]},
    }


def scheduled_job(name: str, namespace: str, *, schedule: str, value: str) -> dict[str, Any]:
    return {
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "ScheduledJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedule": schedule, "template": template(value)},
    }


def cron_job(name: str, namespace: str, *, schedule: str, value: str) -> dict[str, Any]:
    job = {"spec": {"template": template(value)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedule": schedule, "timeZone": "Etc/UTC", "jobTemplate": job},
    }


async def _there(client: clients.Client, path: str) -> bool:
    try:
        await client.get(path)
    except errors.NotFound:
        return False
    return True


async def _any(client: clients.Client, path: str) -> bool:
    answer = await client.get(path, query={"limit": "1"})
    return bool(msgspec.json.decode(answer)["items"])
