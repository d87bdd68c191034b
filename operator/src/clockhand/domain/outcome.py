"""What a pod's status says about the attempt it carries.

The exit code of the main container is the outcome, whatever its sidecars do. Everything that the cluster
did to the pod (eviction, preemption, a lost node, a deletion) is a disruption and no fault of the job; only
where neither is known do the pod's own phase and reason decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from clockhand.domain import observed

_DISRUPTED_REASONS = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "NodeAffinity",
        "NodeUnreachable",
        "Preempting",
        "Preempted",
        "Shutdown",
        "Terminated",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
_NODE_IS_FULL = "OutOf"
_LOST_CONTAINER = "ContainerStatusUnknown"
_DEADLINE = "DeadlineExceeded"
_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Pending:
    """Not started. `gated`: held back on purpose, that time does not count. No `reason` while all is well."""

    gated: bool = False
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Succeeded:
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str
    exit_code: int | None
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Disrupted:
    reason: str
    message: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


Observation = Pending | Running | Succeeded | Failed | Disrupted


def main_container_of(pod: observed.Pod) -> str:
    """The annotated container, else the first."""
    chosen = pod.metadata.marks.default_container
    names = [container.name for container in pod.spec.containers]
    return chosen if chosen in names or not names else names[0]


def classify(pod: observed.Pod, main_container: str | None = None) -> Observation:
    """What is known of the attempt from this state of its pod alone."""
    state = _state_of(pod, main_container or main_container_of(pod))
    if state.terminated is not None:
        return _ended(pod, state.terminated)
    if pod.status.phase == "Succeeded":
        return Succeeded(pod.status.start_time)
    if pod.status.phase == "Failed":
        return _failed_unseen(pod)
    if state.running is not None:
        return Running(state.running.started_at)
    return _pending(pod, state.waiting)


def started_at_of(pod: observed.Pod) -> datetime | None:
    """When the main container of an attempt that is over began, by the kubelet's clock; None where it never did."""
    ended = _state_of(pod, main_container_of(pod)).terminated
    return ended.started_at if ended else None


def _state_of(pod: observed.Pod, name: str) -> observed.ContainerState:
    for status in pod.status.container_statuses:
        if status.name == name:
            return status.state
    return observed.NO_STATE


def _ended(pod: observed.Pod, end: observed.Terminated) -> Observation:
    if end.exit_code == 0:
        return Succeeded(end.started_at, end.finished_at)
    if end.reason == "OOMKilled":
        return _failure(end, "OOMKilled", end.message)
    if pod.status.reason == _DEADLINE:
        return _failure(end, _DEADLINE, pod.status.message)
    cause = _disruption(pod) or _lost(end) or _deleted_before(pod, end)
    if cause is not None:
        reason, message = cause
        return Disrupted(reason, message[:_MESSAGE_LIMIT], end.exit_code, end.started_at, end.finished_at)
    return _failure(end, end.reason or "Error", end.message)


def _failure(end: observed.Terminated, reason: str, message: str) -> Failed:
    return Failed(reason, end.exit_code, message[:_MESSAGE_LIMIT], end.started_at, end.finished_at)


def _failed_unseen(pod: observed.Pod) -> Observation:
    """The pod is over and the main container never ended before our eyes, mostly because it never began."""
    if pod.status.reason == _DEADLINE:
        return Failed(_DEADLINE, None, pod.status.message[:_MESSAGE_LIMIT])
    cause = _disruption(pod)
    if cause is not None:
        return Disrupted(cause[0], cause[1][:_MESSAGE_LIMIT])
    broken = _broken_init_container(pod)
    if broken is not None:
        return broken
    if pod.metadata.deletion_timestamp is not None:
        return Disrupted("Deleted", "the pod was deleted before its main container started")
    return Failed(pod.status.reason or "PodFailed", None, pod.status.message[:_MESSAGE_LIMIT])


def _disruption(pod: observed.Pod) -> tuple[str, str] | None:
    """The cluster's own word that it took the pod away."""
    reason = pod.status.reason
    if reason in _DISRUPTED_REASONS or reason.startswith(_NODE_IS_FULL):
        return reason, pod.status.message
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return condition.reason or "DisruptionTarget", condition.message
    return None


def _lost(end: observed.Terminated) -> tuple[str, str] | None:
    """The kubelet makes an exit code up when it no longer knows the container, as after a node's restart."""
    return (_LOST_CONTAINER, end.message) if end.reason == _LOST_CONTAINER else None


def _deleted_before(pod: observed.Pod, end: observed.Terminated) -> tuple[str, str] | None:
    """A container that failed before anybody asked for the deletion failed by itself."""
    deadline = pod.metadata.deletion_timestamp
    if deadline is None:
        return None
    asked_at = deadline - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    if end.finished_at is not None and end.finished_at < asked_at:
        return None
    return "Deleted", "the pod was deleted while it ran"


def _broken_init_container(pod: observed.Pod) -> Failed | None:
    sidecars = {one.name for one in pod.spec.init_containers if one.restart_policy == "Always"}
    for status in pod.status.init_container_statuses:
        end = status.state.terminated
        if end is not None and end.exit_code != 0 and status.name not in sidecars:
            what = f"init container {status.name}: {end.reason or 'Error'}, exit code {end.exit_code}"
            return _failure(end, "InitContainerFailed", f"{what}. {end.message}".strip())
    return None


def _pending(pod: observed.Pod, waiting: observed.Waiting | None) -> Pending:
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Pending(True, "SchedulingGated", f"held by {gates}")
    for reason in (_init_trouble(pod), _named(waiting), _unscheduled(pod)):
        if reason is not None:
            return Pending(False, reason[0], reason[1][:_MESSAGE_LIMIT])
    return Pending()


def _named(waiting: observed.Waiting | None) -> tuple[str, str] | None:
    """Starting up is no trouble; every other reason for waiting is."""
    if waiting is None or waiting.reason in ("", "ContainerCreating", "PodInitializing"):
        return None
    return waiting.reason, waiting.message


def _init_trouble(pod: observed.Pod) -> tuple[str, str] | None:
    for status in pod.status.init_container_statuses:
        trouble = _named(status.state.waiting)
        if trouble is not None:
            return trouble
    return None


def _unscheduled(pod: observed.Pod) -> tuple[str, str] | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "Unschedulable", condition.message
    return None
