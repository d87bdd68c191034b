"""What the parts of a node share: the store, the folders, the clock, and whose credentials a pod is given."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from clockhand.standalone.kube import store as stores


class Issue(Protocol):
    """Makes a token of a service account for a pod."""

    def __call__(self, namespace: str, account: str, *, audience: str, seconds: int) -> str: ...


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """`environment` is what each process inherits; `home` is the node's own folder."""

    store: stores.Store
    home: Path
    issue: Issue
    environment: Mapping[str, str]
    clock: Callable[[], datetime] = utc_now

    def folder(self, uid: str) -> Path:
        """Of one pod."""
        return self.home / "pods" / uid

    def logs(self, uid: str, container: str) -> Path:
        return self.folder(uid) / "logs" / container


def metadata(key: stores.Key, *, now: str) -> stores.Json:
    """Of an object that is made here."""
    return {"name": key.name, "namespace": key.namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now}
