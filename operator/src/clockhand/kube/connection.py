"""Which API server to talk to, and as whom.

In the cluster that is a handful of files that rotate; they are read here, so that the operator does not
carry the official client's memory (some 20 MiB) for them. Outside, a kubeconfig can name plug-ins, inline
certificates and merged files; the official client knows all of that and is imported only then.
"""

from __future__ import annotations

import collections.abc
import os
import pathlib
import ssl
import time
import typing
from dataclasses import dataclass

import aiohttp

from clockhand import errors

SERVICE_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_TIMEOUT_SECONDS = 10.0
CONNECT_TIMEOUT_SECONDS = 5.0
_TOKEN_FRESH_SECONDS = 60.0
_KEEP_ALIVE_SECONDS = 60.0


class Bearer(typing.Protocol):
    """Where the `Authorization` header comes from."""

    async def header(self) -> str: ...

    def discard(self) -> None:
        """The server did not take the last header: read it anew at the next call."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server and one identity."""

    server: str
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    bearer: Bearer | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None


class FileBearer:
    """A projected token: the kubelet replaces the file long before the token in it expires."""

    def __init__(self, path: pathlib.Path, *, clock: collections.abc.Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._header = ""
        self._read_at: float | None = None

    async def header(self) -> str:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= _TOKEN_FRESH_SECONDS:
            self._header = f"Bearer {_read_text(self._path)}"
            self._read_at = now
        return self._header

    def discard(self) -> None:
        self._read_at = None


class KubeconfigBearer:
    """A kubeconfig's token, asked for again every minute as its plug-in or token file may give a new one."""

    def __init__(
        self,
        load: collections.abc.Callable[[], collections.abc.Awaitable[str]],
        header: str,
        *,
        clock: collections.abc.Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._clock = clock
        self._header = header
        self._read_at: float | None = clock()

    async def header(self) -> str:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= _TOKEN_FRESH_SECONDS:
            self._header = await self._load()
            self._read_at = now
        return self._header

    def discard(self) -> None:
        self._read_at = None


def in_cluster(
    environment: collections.abc.Mapping[str, str] = os.environ, *, directory: pathlib.Path = SERVICE_ACCOUNT
) -> Connection:
    """The API server of the cluster this process runs in, as its service account."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise errors.InvalidInput("", "this process does not run in a cluster: give it a kubeconfig")
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    _read_text(directory / "token")
    return Connection(
        server=f"https://{authority}",
        ca_file=str(directory / "ca.crt"),
        bearer=FileBearer(directory / "token"),
    )


async def from_kubeconfig(path: str, *, context: str | None = None, allow_insecure: bool = False) -> Connection:
    """The cluster and user of `path` (which may be a list of files, as `KUBECONFIG` is)."""
    try:
        from kubernetes.aio import client, config  # heavy, and not needed in a cluster
    except ImportError as error:
        message = "no kubeconfig can be read without the Kubernetes client: install clockhand[kubeconfig]"
        raise errors.InvalidInput("kubeconfig", message) from error
    settings = client.Configuration()

    async def load() -> str:
        try:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                path, context=context, client_configuration=settings, persist_config=False
            )
        except (config.ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
            raise errors.InvalidInput("kubeconfig", f"{path} cannot be used: {error}") from error
        return str(settings.api_key.get("BearerToken") or "")

    header = await load()
    _demand_safety(settings.host, verified=bool(settings.verify_ssl), allow_insecure=allow_insecure)
    return Connection(
        server=settings.host.rstrip("/"),
        ca_file=settings.ssl_ca_cert,
        client_certificate=settings.cert_file,
        client_key=settings.key_file,
        bearer=KubeconfigBearer(load, header) if header else None,
        verify=bool(settings.verify_ssl),
        server_name=settings.tls_server_name,
        proxy=settings.proxy,
    )


async def find(kubeconfig: str | None, environment: collections.abc.Mapping[str, str] = os.environ) -> Connection:
    """A given kubeconfig, else `KUBECONFIG`, else the cluster around us, else the user's own kubeconfig."""
    named = kubeconfig or environment.get("KUBECONFIG")
    if named:
        return await from_kubeconfig(named)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    return await from_kubeconfig("~/.kube/config")


async def find_if_any(
    kubeconfig: str | None, environment: collections.abc.Mapping[str, str] = os.environ
) -> Connection | None:
    """The same for those who can do without: None where nothing names a cluster and this process has no account in one."""
    named = kubeconfig or environment.get("KUBECONFIG")
    if not named and not (environment.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists()):
        return None
    return await find(kubeconfig, environment)


def open_session(
    connection: Connection,
    call_seconds: float = CALL_TIMEOUT_SECONDS,
    *,
    middlewares: collections.abc.Sequence[aiohttp.ClientMiddlewareType] = (),
) -> aiohttp.ClientSession:
    """A session with a keep-alive pool; call it on the event loop that will use it, and close it there."""
    connector = aiohttp.TCPConnector(
        ssl=_tls(connection), limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ttl_dns_cache=30
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "clockhand", "Accept": "application/json", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=call_seconds, sock_connect=CONNECT_TIMEOUT_SECONDS),
        proxy=connection.proxy,
        middlewares=middlewares,
    )


def _tls(connection: Connection) -> ssl.SSLContext | bool:
    if not connection.server.startswith("https:"):
        return False
    context = ssl.create_default_context(cafile=connection.ca_file)
    if not connection.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_certificate:
        context.load_cert_chain(connection.client_certificate, connection.client_key)
    return context


def _demand_safety(server: str, *, verified: bool, allow_insecure: bool) -> None:
    if allow_insecure or (verified and server.startswith("https:")):
        return
    raise errors.InvalidInput(
        "kubeconfig", f"{server} is not verified by TLS; allow an insecure connection to use it all the same"
    )


def _read_text(path: pathlib.Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise errors.Unavailable(f"the service account's token cannot be read: {error}") from error
    if not text:
        raise errors.Unavailable(f"the service account's token in {path} is empty")
    return text
