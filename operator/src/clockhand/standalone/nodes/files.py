"""The folder of a pod: its volumes, its credentials, and what a container may write besides."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import structlog

from clockhand import errors
from clockhand.standalone.kube import store as stores
from clockhand.standalone.nodes import ground, manifest, rendering, volumes

log = structlog.get_logger(__name__)

_RENEW_AFTER = 0.7
_MESSAGE_BYTES = 4096


class Files:
    """Of one pod, while it runs."""

    def __init__(self, pod: manifest.Pod, its: ground.Ground) -> None:
        self._pod = pod
        self._ground = its
        self._folder = its.folder(pod.metadata.uid)
        self._volumes = self._folder / "volumes"

    def paths(self, container: manifest.Container) -> rendering.Paths:
        """Where the paths are that the container mounts; that of its last message is one of them."""
        mounted = volumes.folders(self._pod, container, self._volumes)
        return rendering.Paths({**mounted, container.termination_message_path: str(self._message_of(container))})

    def work(self, container: manifest.Container) -> Path:
        """The folder that a container starts in, where it names none."""
        folder = self._folder / "work" / container.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def objects(self) -> rendering.Objects:
        """The config maps and secrets that the pod speaks of, as they are now."""
        namespace = self._pod.metadata.namespace
        found: dict[tuple[str, str], Mapping[str, bytes]] = {}
        for kind, name in rendering.references(self._pod):
            body = self._ground.store.get(stores.Key(f"{kind.lower()}s", namespace, name))
            if body is not None:
                found[kind, name] = _data(kind, body)
        return found

    def prepare(self, container: manifest.Container, found: rendering.Objects) -> None:
        """Writes the volumes, and an empty last message."""
        volumes.prepare(self._pod, self._volumes)
        volumes.write(volumes.contents(self._pod, found), self._volumes)
        message = self._message_of(container)
        message.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        message.write_bytes(b"")

    def message(self, container: manifest.Container) -> str:
        """What the container left to be said of its end."""
        try:
            with self._message_of(container).open("rb") as file:
                return file.read(_MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            return ""

    async def keep_tokens(self) -> None:
        """Writes the credentials anew, each time before they end; returns where there are none."""
        wanted = volumes.tokens(self._pod)
        while wanted:
            await asyncio.sleep(min(one.seconds for one in wanted) * _RENEW_AFTER)
            try:
                self.write_tokens()
            except (errors.ClockhandError, OSError) as error:
                log.warning("pod_tokens_not_renewed", pod=self._pod.metadata.name, error=str(error))

    def write_tokens(self) -> None:
        """Writes each credential once."""
        spec, namespace = self._pod.spec, self._pod.metadata.namespace
        for one in volumes.tokens(self._pod):
            token = self._ground.issue(namespace, spec.service_account_name, audience=one.audience, seconds=one.seconds)
            volumes.write({one.path: token.encode()}, self._volumes)

    def clear(self) -> None:
        """What the processes had, once they are over; the logs stay with the pod's object."""
        for name in ("volumes", "work", "messages"):
            volumes.remove(self._folder / name)

    def _message_of(self, container: manifest.Container) -> Path:
        return self._folder / "messages" / container.name


def _data(kind: str, body: stores.Json) -> Mapping[str, bytes]:
    encoded = dict(body.get("data" if kind == "Secret" else "binaryData") or {})
    plain = {} if kind == "Secret" else {key: str(value).encode() for key, value in (body.get("data") or {}).items()}
    return plain | {key: _decoded(value) for key, value in encoded.items()}


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(str(value))
    except binascii.Error:
        return b""
