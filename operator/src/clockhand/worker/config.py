"""What a worker is told from outside: read once, at the start, with every mistake told at the same time."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping

from clockhand import brokers, errors
from clockhand.environment import Reader, one_of, read, seconds, url, variable, whole

_POOL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]")


class Settings(brokers.Brokers, frozen=True, kw_only=True):
    """What a worker is told from outside. Durations are in seconds."""

    api_url: str = "http://clockhand-api.clockhand-system:8080"
    """The API that it takes runs from."""
    pool: str
    """Its pool, as namespace/name or tenant/name."""
    token_file: str | None = None
    """The file of its credential, read again every few seconds: projected tokens are replaced."""
    token: str | None = None
    """The credential itself, where there is no file. Never logged."""
    worker_name: str
    """Its name in runs and logs; unique by its random tail."""
    concurrency: int = 10
    """Attempts at the same time."""
    handlers: str | None = None
    """The worker of your code as module:name, such as mailers.app:worker."""
    exec_commands: str | None = None
    """The file of the commands that the handler exec may run (YAML: name to argument list); None: no such handler."""
    http_hosts: str | None = None
    """The file of the hosts that the handler http may call (YAML: hosts, networks); None: no such handler."""
    http_keys: str | None = None
    """A folder with a file for each key that the handler http signs with, named as the key's id."""
    grace_seconds: float = 30.0
    """How long running attempts may go on after SIGTERM."""
    listen: str | None = None
    """The address that it serves at; None: all of them."""
    health_port: int = 8081
    """/healthz, /readyz and /metrics; 0 picks a free one."""
    log_format: str = "json"
    """json or text."""


def from_environment(environment: Mapping[str, str], *, pool: str | None = None) -> Settings:
    """Settings from the `CLOCKHAND_*` variables, `pool` where they name none; raises InvalidInput with every mistake."""
    values, mistakes = read(environment, _READERS)
    values.setdefault("worker_name", f"{_own_host()}-{secrets.token_hex(4)}")
    if pool is not None:
        values.setdefault("pool", pool)
    told = [field for field in ("token_file", "token") if field in values]
    if "pool" not in values and not any(mistake.startswith(variable("pool")) for mistake in mistakes):
        mistakes.append(f"{variable('pool')}: missing; name the pool, such as team-a/mailers")
    if len(told) != 1:
        mistakes.append(f"{variable('token_file')}: set it or {variable('token')}, and not both")
    mistakes += brokers.mistakes(values)
    if mistakes:
        raise errors.InvalidInput("", "; ".join(mistakes))
    return Settings(**values)


def _own_host() -> str:
    return _NOT_IN_NAMES.sub("-", socket.gethostname()).strip("-.")[:64] or "worker"


def _pool(text: str) -> str:
    if not _POOL.fullmatch(text):
        raise ValueError(f"{text!r} is not a pool such as team-a/mailers")
    return text


def _worker_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", text):
        raise ValueError(f"{text!r} is not a name of letters, digits, dots and dashes")
    return text


def _reference(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError(f"{text!r} is not a reference such as mailers.app:worker")
    return text


_READERS: Mapping[str, Reader] = {
    "api_url": url,
    "pool": _pool,
    "token_file": str,
    "token": str,
    "worker_name": _worker_name,
    "concurrency": whole(1, 1000),
    "handlers": _reference,
    "exec_commands": str,
    "http_hosts": str,
    "http_keys": str,
    **brokers.READERS,
    "grace_seconds": seconds(0, 3600),
    "listen": str,
    "health_port": whole(0, 65535),
    "log_format": one_of("json", "text"),
}
