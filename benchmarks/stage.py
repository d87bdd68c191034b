"""The stage of a measurement: a real control plane with fake nodes, a real PostgreSQL that syncs its log, and the product's
own processes with the rights that an installation gives them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from benchmarks import crowd, report, statements, usage
from psycopg import rows
from tests.support import installation, light, postgres

from clockhand.kube import client as clients

POSTGRES = {**statements.SETTINGS, "fsync": "on", "synchronous_commit": "on"}
_PAUSE = 0.25
_SHOWN_OF_LOG = 3_000


class Stage:
    """What a suite works with. `installed` starts and stops the product's processes."""

    def __init__(
        self,
        cluster: light.LightCluster,
        server: postgres.PostgresServer,
        installed: installation.Processes,
        client: clients.Client,
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.installed = installed
        self.client = client
        self.statements = statements.Counter(server.url("clockhand"))

    def meter(self, operators: Sequence[str]) -> usage.Meter:
        """CPU by part."""
        parts: dict[str, Sequence[int]] = {
            "operators": [self.installed.pid(name) for name in operators],
            "postgres": [self.server.pid],
            "apiserver+etcd": [self.cluster.pid("kube-apiserver"), self.cluster.pid("etcd")],
            "scheduler+kwok": [self.cluster.pid("kube-scheduler"), self.cluster.pid("kwok")],
            "controller-manager": [self.cluster.pid("kube-controller-manager")],
        }
        return usage.Meter({name: pids for name, pids in parts.items() if pids})

    async def ask(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Rows of one query, as named tuples; marked so that it is not counted."""
        url = self.server.url("clockhand")
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, row_factory=rows.namedtuple_row, cursor_factory=psycopg.AsyncClientCursor
        ) as connection:
            cursor = await connection.execute(f"/* benchmarks/ */ {query}".encode(), parameters)
            return await cursor.fetchall()

    async def until(
        self, what: str, query: str, parameters: Mapping[str, Any] | None = None, *, seconds: float
    ) -> None:
        """Returns when the query's single value is true."""
        try:
            async with asyncio.timeout(seconds):
                while not (await self.ask(query, parameters))[0][0]:  # noqa: ASYNC110 (it changes elsewhere)
                    await asyncio.sleep(_PAUSE)
        except TimeoutError:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}") from None

    async def now(self) -> datetime:
        """Database time."""
        instant: datetime = (await self.ask("SELECT now()"))[0][0]
        return instant

    async def memory(self, operators: Sequence[str]) -> list[Sequence[report.Value]]:
        """Rows (replica, MiB held, MiB at most) of these processes."""
        found = await self.ask("SELECT holder FROM duty_leases WHERE duty = 'mirror' AND expires_at > now()")
        holder = str(found[0].holder) if found else ""
        pids = {name: self.installed.pid(name) for name in operators}
        return [
            (f"{name} (mirror)" if holder.startswith(name) else name, usage.rss_mib(pid), usage.peak_rss_mib(pid))
            for name, pid in pids.items()
        ]


@contextlib.asynccontextmanager
async def standing(*, operators: int, settings: light.LightSettings | None = None) -> AsyncIterator[Stage]:
    """Everything from nothing, and nothing afterwards. With no operators, the suite starts them itself."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(light.LightCluster(settings or light.LightSettings(nodes=4)))
        server = await asyncio.to_thread(postgres.PostgresServer, settings=POSTGRES)
        stack.callback(server.stop)
        installed = installation.Processes(cluster, server)
        stack.callback(installed.close)
        try:
            await asyncio.to_thread(installed.install, operators=operators)
            client = await stack.enter_async_context(crowd.connected(str(cluster.kubeconfig)))
            yield Stage(cluster, server, installed, client)
        except BaseException:
            _show_logs(installed)
            raise


def _show_logs(installed: installation.Processes) -> None:
    """What the processes said, before it is taken away with them."""
    for path in sorted(installed.log("any").parent.glob("*.log")):
        print(f"--- {path.name}\n{path.read_text(errors='replace')[-_SHOWN_OF_LOG:]}", file=sys.stderr)
