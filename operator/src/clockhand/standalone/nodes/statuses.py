"""The status of a pod as a kubelet writes it, made of what is known of its containers: no look at a process or a clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from clockhand.domain import instants
from clockhand.standalone.nodes import manifest, rendering

IMAGE_IGNORED = "clockhand.dev/ImageIgnored"
DEADLINE_EXCEEDED, NODE_LOST, NODE_SHUTDOWN = "DeadlineExceeded", "NodeLost", "Terminated"
CRASH_LOOP = "CrashLoopBackOff"
_MESSAGE_LIMIT = 4096
_FIRST_BACKOFF, _LONGEST_BACKOFF, _FORGIVEN_AFTER = 10.0, 300.0, timedelta(minutes=10)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not started, or not again yet."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    started_at: datetime
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """`code` as a shell counts it: 128 and the signal for a process that a signal ended."""

    code: int
    reason: str
    finished_at: datetime
    started_at: datetime | None = None
    message: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a container. `ready` counts while it runs."""

    name: str
    image: str = ""
    state: Waiting | Running | Ended = field(default_factory=Waiting)
    last: Ended | None = None
    restarts: int = 0
    ready: bool = False
    is_sidecar: bool = False

    @property
    def has_succeeded(self) -> bool:
        return isinstance(self.state, Ended) and self.state.code == 0


@dataclass(frozen=True, slots=True)
class Life:
    """A pod's containers, and what ended it where that was none of them."""

    started_at: datetime
    containers: Sequence[Record]
    init_containers: Sequence[Record] = ()
    reason: str = ""
    message: str = ""


def ended(code: int, *, started_at: datetime, finished_at: datetime, pid: int, message: str = "") -> Ended:
    """How a process ended, by its return code: negative where a signal ended it."""
    number = code if code >= 0 else 128 - code
    reason = "Completed" if number == 0 else "Error"
    return Ended(number, reason, finished_at, started_at, message[:_MESSAGE_LIMIT], pid)


def not_started(sentence: str, *, reason: str, now: datetime) -> Ended:
    """A container whose process could not be started at all."""
    return Ended(128, reason, now, now, sentence[:_MESSAGE_LIMIT])


def lost(now: datetime) -> Ended:
    """The end of a process that was there before this one, and of which nothing more is known."""
    return Ended(137, "ContainerStatusUnknown", now, None, "nothing is known of the process any more")


def lost_life(pod: manifest.Pod, started_at: datetime, message: str, *, now: datetime) -> Life:
    """A pod of which no container is there any more."""
    gone = {
        one.name: replace(one, state=lost(now), last=None, restarts=max(0, one.restarts - 1))
        for one in at_first(pod, now=now)
    }
    mains = [gone[one.name] for one in pod.spec.containers]
    return Life(started_at, mains, [gone[one.name] for one in pod.spec.init_containers], NODE_LOST, message)


def at_first(pod: manifest.Pod, *, now: datetime) -> Iterator[Record]:
    """The containers before any is started here; one that ran under an earlier process of the node did so before."""
    status = pod.status
    before = {one.name: one.restart_count for one in (*status.init_container_statuses, *status.container_statuses)}
    waiting = Waiting("PodInitializing" if pod.spec.init_containers else "ContainerCreating")
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = Record(container.name, container.image, waiting, is_sidecar=container.is_sidecar)
        if container.name in before and status.start_time:
            record = replace(record, last=lost(now), restarts=before[container.name] + 1)
        yield record


def backoff(record: Record) -> float:
    """How many seconds to wait before a container that has ended is started once more."""
    end = record.state
    ran_long = isinstance(end, Ended) and end.started_at and end.finished_at - end.started_at >= _FORGIVEN_AFTER
    if record.restarts == 0 or ran_long:
        return 0.0
    return min(_FIRST_BACKOFF * 2.0 ** min(record.restarts - 1, 10), _LONGEST_BACKOFF)


def phase(pod: manifest.Pod, life: Life) -> str:
    """The one word for the pod."""
    if life.reason:
        return "Failed"
    initial = [one for one in life.init_containers if not one.is_sidecar]
    if pod.spec.restart_policy == "Never" and any(isinstance(one.state, Ended) and one.state.code for one in initial):
        return "Failed"
    if not all(one.has_succeeded for one in initial):
        return "Pending"
    if all(isinstance(one.state, Ended) for one in life.containers) and not pod.restarts_always:
        return _outcome(pod, life)
    untouched = any(isinstance(one.state, Waiting) and one.last is None for one in life.containers)
    return "Pending" if untouched else "Running"


def _outcome(pod: manifest.Pod, life: Life) -> str:
    if all(one.has_succeeded for one in life.containers):
        return "Succeeded"
    return "Failed" if pod.spec.restart_policy == "Never" else "Running"


def status(pod: manifest.Pod, life: Life, *, before: Mapping[str, Any], now: datetime) -> Json:
    """The whole status. `before` is the one that it takes the place of: what did not change keeps its time."""
    word = phase(pod, life)
    found: Json = {
        "phase": word,
        "conditions": _dated(_conditions(pod, life, word), before.get("conditions") or (), now),
        "hostIP": rendering.ADDRESS,
        "hostIPs": [{"ip": rendering.ADDRESS}],
        "podIP": rendering.ADDRESS,
        "podIPs": [{"ip": rendering.ADDRESS}],
        "startTime": instants.rfc3339(life.started_at),
        "qosClass": before.get("qosClass", "BestEffort"),
        "containerStatuses": [_container(one) for one in life.containers],
    }
    if life.init_containers:
        found["initContainerStatuses"] = [_container(one) for one in life.init_containers]
    if life.reason:
        found |= {"reason": life.reason, "message": life.message}
    return found


def unscheduled(reason: str, message: str, *, before: Mapping[str, Any], now: datetime) -> Json:
    """The status of a pod that is not begun, and why."""
    condition = _condition("PodScheduled", False, reason, message)
    return {**before, "phase": "Pending", "conditions": _dated([condition], before.get("conditions") or (), now)}


def refused(reason: str, message: str, *, now: datetime) -> Json:
    """The status of a pod that nothing can be made of."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": instants.rfc3339(now)}


def _conditions(pod: manifest.Pod, life: Life, word: str) -> list[Json]:
    initial = [one for one in life.init_containers if not one.is_sidecar]
    incomplete = [one.name for one in initial if not one.has_succeeded]
    unready = [one.name for one in life.containers if not one.ready]
    running = any(isinstance(one.state, Running) for one in (*life.containers, *life.init_containers))
    if incomplete:
        said = f"containers with incomplete status: [{' '.join(incomplete)}]"
        initialized = _condition("Initialized", False, "ContainersNotInitialized", said)
    else:
        initialized = _condition("Initialized", True, "PodCompleted" if word == "Succeeded" else "")
    names = sorted({one.image for one in life.containers if one.image})
    ignored = f"{', '.join(names) or 'no image'}: not used; commands run as processes of this machine"
    return [
        _condition("PodReadyToStartContainers", running),
        initialized,
        _readiness("Ready", word, unready),
        _readiness("ContainersReady", word, unready),
        _condition("PodScheduled", True),
        _condition(IMAGE_IGNORED, True, "NoContainers", ignored),
    ]


def _readiness(kind: str, word: str, unready: Sequence[str]) -> Json:
    if word in ("Succeeded", "Failed"):
        return _condition(kind, False, "PodCompleted" if word == "Succeeded" else "PodFailed")
    if unready:
        said = f"containers with unready status: [{' '.join(unready)}]"
        return _condition(kind, False, "ContainersNotReady", said)
    return _condition(kind, True)


def _condition(kind: str, good: bool, reason: str = "", message: str = "") -> Json:
    condition: Json = {"type": kind, "status": "True" if good else "False"}
    return condition | {name: text for name, text in (("reason", reason), ("message", message)) if text}


def _dated(conditions: Sequence[Json], before: Sequence[Mapping[str, Any]], now: datetime) -> list[Json]:
    since = {(one.get("type"), one.get("status")): one.get("lastTransitionTime") for one in before}
    return [
        {**one, "lastTransitionTime": since.get((one["type"], one["status"])) or instants.rfc3339(now)}
        for one in conditions
    ]


def _container(record: Record) -> Json:
    return {
        "name": record.name,
        "image": record.image,
        "imageID": "",
        "restartCount": record.restarts,
        "ready": record.ready,
        "started": isinstance(record.state, Running),
        "state": _state(record.state),
        "lastState": {} if record.last is None else _state(record.last),
    } | _identity(record.state)


def _identity(state: Waiting | Running | Ended) -> Json:
    pid = None if isinstance(state, Waiting) else state.pid
    return {} if pid is None else {"containerID": f"process://{pid}"}


def _state(state: Waiting | Running | Ended) -> Json:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(started_at):
            return {"running": {"startedAt": instants.rfc3339(started_at)}}
    found: Json = {
        "exitCode": state.code,
        "reason": state.reason,
        "startedAt": instants.rfc3339(state.started_at) if state.started_at else None,
        "finishedAt": instants.rfc3339(state.finished_at),
        "message": state.message or None,
        **_identity(state),
    }
    return {"terminated": {name: value for name, value in found.items() if value is not None}}
