"""Environment to settings, once, at the start: every mistake is reported at the same time, by the variable's name.

Nothing below the command line reads the environment.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from clockhand import errors


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a Clockhand process is told from outside. Durations are in seconds."""

    database_url: str
    """libpq connection string or URI. Never logged."""
    database_pool: int = 8
    """Connections at most, for each process."""
    database_session_options: bool = True
    """False behind a pooler in transaction mode, which refuses options at connect."""
    replica: str
    """This process's name in leases; unique by its random tail, so that a restarted pod is another holder."""
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty means all of them."""
    kubeconfig: str | None = None
    """A kubeconfig file; None means the service account of the pod."""
    shard_lease: float = 10.0
    """How long a replica holds its shards without renewing; it renews at a third of that."""
    pod_launches: int = 64
    """Pod creations in flight at most; the limit adapts below it."""
    retention_days: int = 30
    """How long ended runs are kept, in whole weeks rounded up."""
    health_port: int = 8081
    """/healthz, /readyz and /metrics; 0 picks a free one."""
    runs_port: int = 10250
    """The aggregated API for runs."""
    runs_service: str = "clockhand-runs"
    """The Service (and the Secret's stem) of the aggregated API."""
    runs_tls_cert: str | None = None
    """A certificate file (PEM) to serve runs with; None: one is made and kept in the Secret."""
    runs_tls_key: str | None = None
    """The key file of that certificate."""
    api_port: int = 8080
    """The API for clients and workers."""
    limits: str | None = None
    """The administrator's file of limits (YAML), read again whenever it changes."""
    kafka: str | None = None
    """Kafka brokers as host:port, separated by commas, for pools with dispatch: Kafka."""
    api_url: str = "http://clockhand-api.clockhand-system:8080"
    """Where the workers of a WorkerPool find the API."""
    worker_image: str = "clockhand-worker"
    """The image of a WorkerPool that names none."""
    own_namespace: str = "clockhand-system"
    """Where this process runs."""
    log_format: str = "json"
    """json or text."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from the `CLOCKHAND_*` variables; raises InvalidInput that names every wrong or missing one."""
    values: dict[str, Any] = {"replica": f"{socket.gethostname()}-{secrets.token_hex(3)}"}
    mistakes = []
    for field, read in _READERS.items():
        text = environment.get(variable(field))
        if text is None or text == "":
            continue
        try:
            values[field] = read(text)
        except ValueError as error:
            mistakes.append(f"{variable(field)}: {error}")
    if "database_url" not in values:
        mistakes.append(f"{variable('database_url')}: missing; give a libpq URI such as postgresql://host/clockhand")
    if ("runs_tls_cert" in values) != ("runs_tls_key" in values):
        mistakes.append(
            f"{variable('runs_tls_cert')}: needs {variable('runs_tls_key')} beside it, and the other way round"
        )
    if mistakes:
        raise errors.InvalidInput("", "; ".join(mistakes))
    return Settings(**values)


def variable(field: str) -> str:
    """The environment variable of a setting."""
    return f"CLOCKHAND_{field.upper()}"


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return read


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ValueError(f"{text!r} is not a number of seconds from {low:g} to {high:g}")
        return value

    return read


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


_READERS: Mapping[str, Callable[[str], object]] = {
    "database_url": str,
    "database_pool": _whole(2, 200),
    "database_session_options": _switch,
    "replica": str,
    "namespaces": _names,
    "kubeconfig": str,
    "shard_lease": _seconds(2, 120),
    "pod_launches": _whole(1, 1000),
    "retention_days": _whole(1, 3650),
    "health_port": _whole(0, 65535),
    "runs_port": _whole(0, 65535),
    "runs_service": str,
    "runs_tls_cert": str,
    "runs_tls_key": str,
    "api_port": _whole(0, 65535),
    "limits": str,
    "kafka": str,
    "api_url": str,
    "worker_image": str,
    "own_namespace": str,
    "log_format": _one_of("json", "text"),
}
