"""Which processes an installation without a cluster has: those of one with a cluster, and what stands in for that."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from clockhand import errors
from clockhand.standalone import credentials, files, kubeconfig, postgres, told, tree
from clockhand.standalone import home as homes

LOOPBACK = "127.0.0.1"
KUBECONFIG = "operator-kubeconfig"
"""That of Clockhand's own processes, in the data directory."""
_SHARD_LEASE = "5"
_WORKER_GRACE = 10.0
_PATIENCE = 20.0
_CLUSTER_PATIENCE = 45.0
_ASK_SECONDS = 2.0
_NOT_GIVEN = (20_000, 32_000)
_OURS = ("CLOCKHAND_", "KUBE", "PG")


@dataclass(frozen=True, slots=True)
class Ports:
    """Of loopback: three that people know, and those that the processes have among themselves."""

    rest: int
    database: int
    probes: Mapping[str, int]
    """Of each process, by its name."""

    @property
    def cluster(self) -> int:
        return self.rest + 1

    @property
    def health(self) -> int:
        return self.rest + 2

    @staticmethod
    def choose(rest: int) -> Ports:
        """Those that follow from the first one. Raises InvalidInput that names one which is taken."""
        for port in range(rest, rest + 3):
            _check(port)
        database, *probes = _free(5)
        return Ports(rest, database, dict(zip(("cluster", "operator", "api", "worker"), probes, strict=True)))


class Parts:
    """How each process is started, for the data directory `home` and with the user's own `environment`."""

    def __init__(
        self, home: homes.Home, ports: Ports, session: aiohttp.ClientSession, environment: Mapping[str, str]
    ) -> None:
        self._home = home
        self._ports = ports
        self._session = session
        self._others = {name: value for name, value in environment.items() if not name.startswith(_OURS)}

    def database(self, server: postgres.Server) -> tree.Part:
        async def is_ready(pid: int) -> bool:
            return server.is_ready(pid)

        return tree.Part(
            name="postgres",
            command=server.command,
            environment={**self._others, "LC_ALL": "C"},
            folder=server.folder,
            is_ready=is_ready,
            user=server.user,
            held=server.held,
            quiet_into=server.log_file,
            drain=signal.SIGINT,  # does not wait for connections to be closed
            at_once=signal.SIGQUIT,
            patience=60.0,
        )

    def cluster(self, server: postgres.Server, served: kubeconfig.Certificate) -> tree.Part:
        settings = told.Told(
            data_dir=str(self._home.path("cluster")),
            port=self._ports.cluster,
            health_port=self._ports.probes["cluster"],
            certificate=str(served.certificate),
            key=str(served.key),
            tokens=credentials.users(self._home),
            database_url=server.url,
            durable=self._home.durable,
        )
        path = self._home.path("cluster.json")
        told.write(path, settings)
        return self._part("cluster", {}, arguments=("local-cluster", str(path)), patience=_CLUSTER_PATIENCE)

    def operator(self, server: postgres.Server) -> tree.Part:
        return self._part("operator", self._server(server))

    def api(self, server: postgres.Server) -> tree.Part:
        return self._part("api", {**self._server(server), "api_port": f"{self._ports.rest}"})

    def worker(self, secret: credentials.Secret) -> tree.Part:
        settings = {
            "api_url": self.url,
            "pool": f"{credentials.OWNER.partition('/')[2]}/{credentials.POOL}",
            "token_file": str(secret.file),
            "worker_name": "dev",
            "handlers": "clockhand.standalone.handlers:worker",
            "exec_commands": str(self._home.path(files.COMMANDS)),
            "http_hosts": str(self._home.path(files.HOSTS)),
            "grace_seconds": f"{_WORKER_GRACE}",
        }
        return self._part("worker", settings)

    @property
    def url(self) -> str:
        """Where REST is."""
        return f"http://{LOOPBACK}:{self._ports.rest}"

    def _server(self, server: postgres.Server) -> Mapping[str, str]:
        return {
            "database_url": server.url,
            "shard_lease": _SHARD_LEASE,
            "limits": str(self._home.path(files.LIMITS)),
            "api_url": self.url,
            "kubeconfig": str(self._home.path(KUBECONFIG)),
        }

    def _part(
        self, name: str, settings: Mapping[str, str], *, arguments: Sequence[str] = (), patience: float = _PATIENCE
    ) -> tree.Part:
        port = self._ports.probes[name]
        given = {"listen": LOOPBACK, "log_format": "text", "health_port": f"{port}", **settings}

        async def is_ready(_: int) -> bool:
            return await self._answers(port)

        return tree.Part(
            name=name,
            # -P: a module in the folder where somebody stands is not ours
            command=[sys.executable, "-P", "-m", "clockhand", *(arguments or (name,))],
            environment={**self._others, **{f"CLOCKHAND_{key.upper()}": value for key, value in given.items()}},
            folder=self._home.root,
            is_ready=is_ready,
            patience=patience,
        )

    async def _answers(self, port: int) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
            async with self._session.get(f"http://{LOOPBACK}:{port}/readyz", timeout=timeout) as answer:
                return answer.status == 200
        return False


def _check(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            sentence = (
                f"the port {port} of {LOOPBACK} cannot be had ({error.strerror}): name another one, and two above it"
            )
            raise errors.InvalidInput("--port", sentence) from error


def _free(count: int) -> list[int]:
    """Ports that nobody listens on now, and from which nobody connects by chance.

    A client that keeps trying a port that the system may give to it ends up connected to itself while its server is away.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(*_NOT_GIVEN)
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((LOOPBACK, port))
                found.append(port)
    return found
