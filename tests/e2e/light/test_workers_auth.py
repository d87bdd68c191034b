"""Tokens of service accounts at the API for workers: a real API server judges them, asked with the rights that we ship."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import light, manifests, postgres, workers_api
from tests.support.kubectl import Kubectl

from clockhand.api import reviews
from clockhand.domain import protocol
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database, migrations

PATIENCE_SECONDS = 90.0
TEAM, OTHER = "team-a", "team-b"


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        kubectl.apply(manifests.namespace(), *manifests.objects(*manifests.RIGHTS))
        for team in (TEAM, OTHER):
            kubectl.create_namespace(team).run("create", "serviceaccount", workers_api.ACCOUNT)
        yield running


@pytest.fixture
async def db() -> AsyncIterator[database.Database]:
    with postgres.server() as server:
        opened = database.Database(server.url(await asyncio.to_thread(server.new_database)), size=4, name="test")
        await opened.open()
        await migrations.apply(opened)
        await workers_api.make_pool(opened)
        yield opened
        await opened.close()


def token(cluster: light.LightCluster, *options: str, team: str = TEAM, account: str = workers_api.ACCOUNT) -> str:
    answer = Kubectl(cluster.kubeconfig, team).run("create", "token", account, *options)
    return answer.out.strip()


@contextlib.asynccontextmanager
async def asking(cluster: light.LightCluster, folder: Path) -> AsyncIterator[reviews.Reviews]:
    """Reviews as the API asks for them in a cluster: as its own account, and nothing kept from before."""
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (folder / "token").write_text(token(cluster, team="clockhand-system", account="clockhand-api"))
    port = str(urllib.parse.urlsplit(cluster.url).port)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    async with clients.connect(connections.in_cluster(environment, directory=folder), call_seconds=3.0) as client:
        yield reviews.ApiServerReviews(client, (protocol.AUDIENCE,))


async def test_whose_token_gets_in(cluster: light.LightCluster, db: database.Database, tmp_path: Path) -> None:
    audience = f"--audience={protocol.AUDIENCE}"
    own = token(cluster, audience)
    async with asking(cluster, tmp_path) as asked, workers_api.served(db, asked=asked) as api:
        expected = {
            own: 200,
            token(cluster): 401,
            token(cluster, "--audience=other"): 401,
            token(cluster, audience, account="default"): 403,
            token(cluster, audience, team=OTHER): 403,
            f"{own[:-4]}AAAA": 401,
        }
        for secret, status in expected.items():
            assert (await api.caller(secret).call("claim")).status == status
        other = api.caller(token(cluster, audience, team=OTHER))
        assert (await other.call("claim", place=OTHER)).status == 404, "its own namespace has no such pool"


async def test_a_token_dies_with_its_pod(cluster: light.LightCluster, db: database.Database, tmp_path: Path) -> None:
    kubectl = Kubectl(cluster.kubeconfig, TEAM)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "annotations": {"test.clockhand.dev/outcome": "stuck"}},
        "spec": {"serviceAccountName": workers_api.ACCOUNT, "containers": [{"name": "main", "image": "any"}]},
    }
    kubectl.apply(pod)
    bound = token(cluster, f"--audience={protocol.AUDIENCE}", "--bound-object-kind=Pod", "--bound-object-name=worker")
    async with asking(cluster, tmp_path) as asked, workers_api.served(db, asked=asked) as api:
        worker = api.caller(bound)
        assert (await worker.call("claim")).status == 200
        await asyncio.to_thread(kubectl.run, "delete", "pod", "worker", "--force", "--grace-period=0")
        # we keep answers for ten seconds, and so does the API server
        async with asyncio.timeout(PATIENCE_SECONDS):
            status = 200
            while status == 200:
                await asyncio.sleep(0.5)
                status = (await worker.call("claim")).status
        assert status == 401


async def test_nobody_new_gets_in_while_the_api_server_is_away(
    cluster: light.LightCluster, db: database.Database, tmp_path: Path
) -> None:
    known, new = (token(cluster, f"--audience={protocol.AUDIENCE}", f"--duration={hours}h") for hours in (1, 2))
    async with asking(cluster, tmp_path) as asked, workers_api.served(db, asked=asked) as api:
        assert (await api.caller(known).call("claim")).status == 200
        static = await api.worker()
        await asyncio.to_thread(cluster.stop_apiserver)
        try:
            refused = await api.caller(new).call("claim")
            assert (refused.status, "Retry-After" in refused.headers) == (503, True)
            assert (await static.call("claim")).status == 200, "a static token is none of its business"
        finally:
            await asyncio.to_thread(cluster.start_apiserver)
        assert (await api.caller(new).call("claim")).status == 200
