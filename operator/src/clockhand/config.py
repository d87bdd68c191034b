"""Environment to settings, once, at the start: every mistake is reported at the same time, by the variable's name.

Nothing below the command line reads the environment.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

from clockhand import brokers, errors
from clockhand.environment import Reader, names, one_of, read, seconds, switch, variable, whole

__all__ = ["Settings", "from_environment", "variable"]


class Settings(brokers.Brokers, frozen=True, kw_only=True):
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
    """A kubeconfig file, for which the extra `kubeconfig` is needed; None means the service account of the pod."""
    shard_lease: float = 10.0
    """How long a replica holds its shards without renewing; it renews at a third of that."""
    pod_launches: int = 64
    """Pod creations in flight at most; the limit adapts below it."""
    retention_days: int = 30
    """How long ended runs are kept, in whole weeks rounded up."""
    listen: str | None = None
    """The address that it serves at; None: all of them."""
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
    """The REST API, and that for workers."""
    rest_pool: int = 4
    """Connections at most for the REST API, beside the others, for each process that serves it."""
    limits: str | None = None
    """The administrator's file of limits (YAML), read again whenever it changes."""
    api_url: str = "http://clockhand-api.clockhand-system:8080"
    """Where the workers of a WorkerPool find the API."""
    worker_image: str = "clockhand-worker"
    """The image of a WorkerPool that names none."""
    own_namespace: str = "clockhand-system"
    """Where the runs API runs, and keeps the Secret of its certificate."""
    log_format: str = "json"
    """json or text."""
    kafka_partitions: int = 12
    """Of a topic that is created; no more workers of a pool than that take runs from it at a time."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from the `CLOCKHAND_*` variables; raises InvalidInput that names every wrong or missing one."""
    values, mistakes = read(environment, _READERS)
    values.setdefault("replica", f"{socket.gethostname()}-{secrets.token_hex(3)}")
    if "database_url" not in values:
        mistakes.append(f"{variable('database_url')}: missing; give a libpq URI such as postgresql://host/clockhand")
    if ("runs_tls_cert" in values) != ("runs_tls_key" in values):
        mistakes.append(
            f"{variable('runs_tls_cert')}: needs {variable('runs_tls_key')} beside it, and the other way round"
        )
    mistakes += brokers.mistakes(values)
    if mistakes:
        raise errors.InvalidInput("", "; ".join(mistakes))
    return Settings(**values)


_READERS: Mapping[str, Reader] = {
    "database_url": str,
    "database_pool": whole(2, 200),
    "database_session_options": switch,
    "replica": str,
    "namespaces": names,
    "kubeconfig": str,
    "shard_lease": seconds(2, 120),
    "pod_launches": whole(1, 1000),
    "retention_days": whole(1, 3650),
    "listen": str,
    "health_port": whole(0, 65535),
    "runs_port": whole(0, 65535),
    "runs_service": str,
    "runs_tls_cert": str,
    "runs_tls_key": str,
    "api_port": whole(0, 65535),
    "rest_pool": whole(1, 200),
    "limits": str,
    **brokers.READERS,
    "kafka_partitions": whole(1, 10_000),
    "api_url": str,
    "worker_image": str,
    "own_namespace": str,
    "log_format": one_of("json", "text"),
}
