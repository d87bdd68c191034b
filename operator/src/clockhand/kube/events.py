"""Events at the API server. What they cost does not count against the flow of pods: they are few, and may be lost."""

from __future__ import annotations

import collections.abc
import typing
from dataclasses import dataclass
from datetime import datetime

from clockhand.domain import instants
from clockhand.kube import client as clients

COMPONENT = "clockhand-operator"
NOTE_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """One event, which may stand for several of one reason: the last one's note, and how many they are."""

    name: str
    regarding: Regarding
    type: str
    reason: str
    note: str
    first: datetime
    last: datetime
    count: int = 1


class Events:
    """Makes events, and changes those that it made."""

    def __init__(self, client: clients.Client, *, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def create(self, event: Event) -> None:
        """Raises `ApiConflict` where there is one of this name."""
        await self._client.aside("POST", _path(event.regarding.namespace), clients.encode(self._body(event)))

    async def repeat(self, event: Event) -> None:
        """Shows what came after it in an event that is there; raises `NotFound` where it has been forgotten."""
        change = {
            "count": event.count,
            "lastTimestamp": instants.rfc3339(event.last),
            "message": event.note[:NOTE_LIMIT],
        }
        path = f"{_path(event.regarding.namespace)}/{clients.path_part(event.name)}"
        await self._client.aside("PATCH", path, clients.encode(change), headers=clients.MERGE_PATCH)

    def _body(self, event: Event) -> collections.abc.Mapping[str, typing.Any]:
        about = event.regarding
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.note[:NOTE_LIMIT],
            "count": event.count,
            "firstTimestamp": instants.rfc3339(event.first),
            "lastTimestamp": instants.rfc3339(event.last),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance[:128],
        }


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{clients.path_part(namespace)}/events"
