"""What became of every pod, by the record of the API server's own storage and not by what an operator believes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support import etcd

from clockhand.domain import observed

_OVER = ("Succeeded", "Failed")


@dataclass
class Pod:
    """The life of one pod, by its uid."""

    uid: str
    namespace: str
    name: str
    run_id: str
    attempt: int
    token: str
    phase: str = "Pending"
    gone: bool = False
    asked_alive: bool = False
    """It was to be deleted, or went, before its containers had ended."""

    @property
    def over(self) -> bool:
        return self.phase in _OVER

    def __str__(self) -> str:
        marks = ("/asked" if self.asked_alive else "") + ("/gone" if self.gone else "")
        return f"{self.name}:{self.phase}{marks}"

    @property
    def disrupted(self) -> bool:
        """It was taken away before it could succeed; one that succeeds while it is being deleted has done its work."""
        return self.asked_alive and self.phase != "Succeeded"

    @property
    def failed(self) -> bool:
        """Its container failed by itself."""
        return self.phase == "Failed" and not self.asked_alive


class Recorder:
    """Every pod of a cluster, from the first write on."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()

    def note(self, write: etcd.Write) -> None:
        """Takes note of one write."""
        thing = write.object or write.before
        assert thing is not None, f"the storage no longer knows what {write.key} was"
        self.note_object(thing, gone=write.object is None)

    def note_object(self, thing: Mapping[str, Any], *, gone: bool) -> None:
        """Takes note of a pod as it is now, or was last."""
        with self._lock:
            pod = self._pods.setdefault(thing["metadata"]["uid"], _new(thing))
            # the first report of an end is the one that counts: a fake node that is told to stop may correct itself later
            was_over = pod.over
            if (gone or "deletionTimestamp" in thing["metadata"]) and not was_over:
                pod.asked_alive = True
            pod.phase = _phase(thing.get("status", {})) or pod.phase
            if pod.over and not was_over and _ended_before_it_was_asked(thing):
                pod.asked_alive = False
            pod.gone = pod.gone or gone

    def note_absent(self, namespace: str, there: set[str]) -> None:
        """Takes note that pods of a namespace which are not among `there` are gone."""
        with self._lock:
            for pod in self._pods.values():
                pod.gone = pod.gone or (pod.namespace == namespace and pod.uid not in there)

    def pods(self, run_ids: frozenset[str]) -> list[Pod]:
        """Those that say they belong to one of these runs."""
        with self._lock:
            return [pod for pod in self._pods.values() if pod.run_id in run_ids]

    def of_namespace(self, namespace: str) -> list[Pod]:
        with self._lock:
            return [pod for pod in self._pods.values() if pod.namespace == namespace]


def _phase(status: Mapping[str, Any]) -> str:
    """As the containers have it: a busy kubelet may say Running of a pod whose containers have ended long ago."""
    ends = [one.get("state", {}).get("terminated") for one in status.get("containerStatuses", ())]
    if ends and all(ends):
        return "Failed" if any(end["exitCode"] for end in ends) else "Succeeded"
    return str(status.get("phase", ""))


def _ended_before_it_was_asked(thing: Mapping[str, Any]) -> bool:
    """A kubelet tells late: the end of a container may be reported after a deletion that came later."""
    meta = thing["metadata"]
    ends = [one.get("state", {}).get("terminated") for one in thing.get("status", {}).get("containerStatuses", ())]
    if "deletionTimestamp" not in meta or not ends or not all(ends):
        return False
    grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    asked = datetime.fromisoformat(meta["deletionTimestamp"]) - grace
    finished = [datetime.fromisoformat(end["finishedAt"]) for end in ends if end.get("finishedAt")]
    return len(finished) == len(ends) and max(finished) < asked


def _new(thing: Mapping[str, Any]) -> Pod:
    meta = thing["metadata"]
    marks = meta.get("annotations", {})
    return Pod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        run_id=marks.get(observed.RUN_ID, ""),
        attempt=int(marks.get(observed.ATTEMPT, "0")),
        token=marks.get(observed.TOKEN, ""),
    )
