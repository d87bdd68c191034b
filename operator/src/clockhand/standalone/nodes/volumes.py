"""Volumes as folders: what their files hold, and where a container finds them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clockhand import errors
from clockhand.standalone.nodes import manifest, rendering


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that holds a credential of the pod's service account, and is written anew before that ends."""

    path: str
    audience: str
    seconds: int


def contents(pod: manifest.Pod, found: rendering.Objects) -> Mapping[str, bytes]:
    """The files of all volumes by their path below the pod's folder of volumes, but for credentials."""
    files: dict[str, bytes] = {}
    for volume in pod.spec.volumes:
        for path, value in _files(pod, volume, found):
            files[f"{volume.name}/{_inner(path)}"] = value
    return files


def tokens(pod: manifest.Pod) -> Sequence[TokenFile]:
    """The credentials that projected volumes ask for."""
    return [
        TokenFile(f"{volume.name}/{_inner(token.path)}", token.audience, token.expiration_seconds)
        for volume in pod.spec.volumes
        for source in volume.sources
        if (token := source.service_account_token) is not None
    ]


def folders(pod: manifest.Pod, container: manifest.Container, root: Path) -> Mapping[str, str]:
    """Where each path is that the container mounts."""
    known = {volume.name: volume for volume in pod.spec.volumes}
    found: dict[str, str] = {}
    for mount in container.volume_mounts:
        volume = known.get(mount.name)
        if volume is None:
            raise errors.InvalidInput("volumeMounts", f"there is no volume {mount.name!r}")
        base = Path(volume.host_path.path) if volume.host_path else root / volume.name
        found[mount.mount_path] = str(base / _inner(mount.sub_path) if mount.sub_path else base)
    return found


def write(files: Mapping[str, bytes], root: Path) -> None:
    """Writes the files below `root`, each whole or not at all."""
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_name(f".{path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(value)
        partial.replace(path)


def prepare(pod: manifest.Pod, root: Path) -> None:
    """Makes the folders, and in empty ones those that containers mount by a path below them."""
    scratch = {volume.name for volume in pod.spec.volumes if volume.is_scratch}
    for volume in pod.spec.volumes:
        if volume.host_path is None:
            (root / volume.name).mkdir(parents=True, exist_ok=True, mode=0o700)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for mount in container.volume_mounts:
            if mount.sub_path and mount.name in scratch:
                (root / mount.name / _inner(mount.sub_path)).mkdir(parents=True, exist_ok=True, mode=0o700)


def remove(folder: Path) -> None:
    """Removes a folder and all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _files(pod: manifest.Pod, volume: manifest.Volume, found: rendering.Objects) -> Iterator[tuple[str, bytes]]:
    for content in volume.contents:
        for kind, keys in (("ConfigMap", content.config_map), ("Secret", content.secret)):
            if keys is not None:
                given = rendering.data(found, kind, keys.target, optional=keys.optional)
                yield from _chosen(f"{kind} {keys.target}", given, keys.items, optional=keys.optional)
        for item in content.downward_api.items if content.downward_api else ():
            if item.field_ref is not None:
                yield item.path, rendering.field(pod, item.field_ref.field_path).encode()


def _chosen(
    what: str, given: Mapping[str, bytes], items: Sequence[manifest.Item], *, optional: bool
) -> Iterator[tuple[str, bytes]]:
    if not items:
        yield from given.items()
    for item in items:
        if item.key in given:
            yield item.path, given[item.key]
        elif not optional:
            raise errors.NotFound(f"{what} has no key {item.key}")


def _inner(path: str) -> PurePosixPath:
    """`path` as one that stays where it is put."""
    inner = PurePosixPath(path)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise errors.InvalidInput("volumes", f"{path!r} does not stay in its volume")
    return inner
