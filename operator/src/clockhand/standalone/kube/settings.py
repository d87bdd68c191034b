"""What the small API server is told, and how it learns whose a token is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which part of a container's log somebody wants; the times and the number of lines are as kubectl sends them."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    timestamps: bool = False


class Kubelet(Protocol):
    """Who runs the pods of the store."""

    async def run(self) -> None:
        """Until cancelled; processes that it started end with it."""

    def log(self, pod: Json, wanted: LogRequest) -> AsyncGenerator[bytes]:
        """The log of one container. Raises `InvalidInput` where there is no such container or it has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`tokens` are bearer tokens and the users that they stand for; the key of service accounts' tokens is in `data_dir`."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int
    certificate: Path
    key: Path
    tokens: Mapping[str, str] = field(repr=False)
    database_url: str = field(repr=False)
    durable: bool = True
    retention_days: int = 30
