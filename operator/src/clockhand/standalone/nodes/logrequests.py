"""Which log somebody means who asks for one as kubectl does, or a sentence why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from clockhand import errors
from clockhand.standalone.kube import settings
from clockhand.standalone.nodes import ground, logs, manifest


@dataclass(frozen=True, slots=True)
class Chosen:
    """A log, by the container that it is of and the start that it is from, and what is wanted of it."""

    uid: str
    container: str
    folder: Path
    start: int
    part: logs.Wanted


def read(pod: manifest.Pod, wanted: settings.LogRequest, its: ground.Ground) -> Chosen:
    """Raises `InvalidInput` where there is no such container, or it has not started."""
    container, name = _container(pod, wanted.container), pod.metadata.name
    folder = its.logs(pod.metadata.uid, container)
    starts = logs.starts(folder)
    if not starts:
        raise errors.InvalidInput("", f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
    if wanted.previous and len(starts) < 2:
        raise errors.InvalidInput("", f'previous terminated container "{container}" in pod "{name}" not found')
    part = logs.Wanted(
        tail_lines=wanted.tail_lines,
        limit_bytes=wanted.limit_bytes,
        since=None if wanted.since_seconds is None else timedelta(seconds=wanted.since_seconds),
        timestamps=wanted.timestamps,
        follow=wanted.follow and not wanted.previous,
    )
    return Chosen(pod.metadata.uid, container, folder, starts[-2 if wanted.previous else -1], part)


def _container(pod: manifest.Pod, wanted: str) -> str:
    name = pod.metadata.name
    names = [one.name for one in (*pod.spec.containers, *pod.spec.init_containers)]
    if wanted:
        if wanted not in names:
            raise errors.InvalidInput("", f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(pod.spec.containers) > 1:
        choices = " ".join(one.name for one in pod.spec.containers)
        raise errors.InvalidInput("", f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    return names[0]
