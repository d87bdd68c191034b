"""Events for people: that a template's image is not used, said once for each job, where `kubectl describe` shows it."""

from __future__ import annotations

import secrets

from clockhand import errors
from clockhand.domain import definition, instants, observed, pods
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import ground, manifest

_SOURCE = "clockhand-local-node"
_IGNORED = "without a cluster the template's images are not used: its commands run as processes of this machine"


class Notices:
    """Told to the objects that make pods. Each hears it once while this process lasts."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._told: set[str] = set()

    async def image_ignored(self, pod: manifest.Pod) -> None:
        """Says so to the ScheduledJob that `pod` is of."""
        name, uid = pod.metadata.labels.get(pods.JOB_LABEL), pod.metadata.annotations.get(observed.JOB_UID)
        if not name or not uid or uid in self._told:
            return
        self._told.add(uid)
        about = {
            "apiVersion": f"{definition.GROUP}/{definition.VERSION}",
            "kind": "ScheduledJob",
            "namespace": pod.metadata.namespace,
            "name": name,
            "uid": uid,
        }
        await self._write(about, "ImageIgnored", _IGNORED)

    async def _write(self, about: stores.Json, reason: str, message: str) -> None:
        now = instants.rfc3339(ground.utc_now())
        key = stores.Key("events", about["namespace"], f"{about['name']}.{secrets.token_hex(8)}")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": ground.metadata(key, now=now),
            "involvedObject": about,
            "type": "Normal",
            "reason": reason,
            "message": message,
            "source": {"component": _SOURCE},
            "reportingComponent": _SOURCE,
            "reportingInstance": _SOURCE,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._store.create(key, body)
        except errors.Conflict:
            return
