"""Users of the cluster at the REST API: a real API server says who they are and what they may, asked with our own rights."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support import light, manifests, objects, workers_api
from tests.support.kubectl import Kubectl

from clockhand.api import reviews
from clockhand.domain import protocol
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import classes, database

TEAM, OTHER = "team-a", "team-b"
PATIENCE_SECONDS = 60.0
JOB = {"schedule": "0 2 * * *", "handler": "email.send"}
WITH_POD = {"schedule": "0 2 * * *", "template": {"spec": {"containers": [{"name": "main", "image": "any"}]}}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        kubectl.apply(manifests.namespace(), *manifests.objects(*manifests.RIGHTS))
        for team in (TEAM, OTHER):
            kubectl.create_namespace(team)
        within = Kubectl(running.kubeconfig, TEAM)
        for name in ("viewer", "editor", "nobody"):
            within.run("create", "serviceaccount", name)
        for name, roles in (("viewer", ("viewer",)), ("editor", ("viewer", "editor"))):
            for role in roles:
                account = f"--serviceaccount={TEAM}:{name}"
                within.run("create", "rolebinding", f"{name}-{role}", f"--clusterrole=clockhand-{role}", account)
        yield running


@contextlib.asynccontextmanager
async def serving(
    cluster: light.LightCluster, db: database.Database, folder: Path
) -> AsyncIterator[workers_api.Served]:
    """The API as it asks in a cluster: as its own account."""
    own = Kubectl(cluster.kubeconfig, "clockhand-system").run("create", "token", "clockhand-api")
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (folder / "token").write_text(own.out.strip())
    port = str(urllib.parse.urlsplit(cluster.url).port)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    async with clients.connect(connections.in_cluster(environment, directory=folder), call_seconds=3.0) as client:
        asked = reviews.ApiServerReviews(client, (protocol.AUDIENCE,))
        async with workers_api.served(db, asked=asked) as api:
            yield api


def token(cluster: light.LightCluster, account: str, *options: str) -> str:
    return Kubectl(cluster.kubeconfig, TEAM).run("create", "token", account, *options).out.strip()


async def test_each_may_what_its_rights_in_the_namespace_say(
    cluster: light.LightCluster, db: database.Database, tmp_path: Path
) -> None:
    audience = f"--audience={protocol.AUDIENCE}"
    viewer, editor, nobody = (token(cluster, name, audience) for name in ("viewer", "editor", "nobody"))
    async with serving(cluster, db, tmp_path) as api:
        assert (await api.caller(token(cluster, "editor")).send("GET", "/v1/jobs")).status == 401
        made = await api.caller(editor).post("/v1/jobs", JOB)
        assert (made.status, made.json["owner"]) == (201, f"k8s/{TEAM}"), made.text
        one = f"/v1/jobs/{made.json['id']}"
        for secret, read, changed in ((viewer, 200, 403), (editor, 200, 200), (nobody, 403, 403)):
            caller = api.caller(secret)
            assert (await caller.send("GET", one)).status == read
            assert (await caller.send("GET", "/v1/runs")).status == read
            assert (await caller.send("PATCH", one, {"priority": 1})).status == changed
            assert (await caller.send("GET", f"{one}?namespace={OTHER}")).status == 403
        audit = await api.caller(viewer).send("GET", "/v1/audit")
        assert {entry["actor"] for entry in audit.json["items"]} == {f"system:serviceaccount:{TEAM}:editor"}


async def test_a_template_takes_the_right_to_create_pods(
    cluster: light.LightCluster, db: database.Database, tmp_path: Path
) -> None:
    editor = token(cluster, "editor", f"--audience={protocol.AUDIENCE}")
    async with serving(cluster, db, tmp_path) as api:
        caller = api.caller(editor)
        assert (await caller.post("/v1/jobs", WITH_POD)).status == 403
        team = Kubectl(cluster.kubeconfig, TEAM)
        await asyncio.to_thread(team.run, "create", "role", "pods", "--verb=create", "--resource=pods")
        account = f"--serviceaccount={TEAM}:editor"
        await asyncio.to_thread(team.run, "create", "rolebinding", "pods", "--role=pods", account)
        # what was answered is kept for ten seconds
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (made := await caller.post("/v1/jobs", WITH_POD)).status == 403:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        assert made.status == 201, made.text


async def test_a_run_of_a_class_takes_the_right_to_use_it(
    cluster: light.LightCluster, db: database.Database, tmp_path: Path
) -> None:
    spec = {"namespaces": [TEAM], "template": WITH_POD["template"], "allow": ["Args"]}
    async with db.transaction() as connection:
        await classes.store(connection, [classes.Class("batch", json.dumps(spec), b"hash")])
    editor = token(cluster, "editor", f"--audience={protocol.AUDIENCE}")
    of_class = {"schedule": "0 2 * * *", "run": {"class": "batch"}}
    async with serving(cluster, db, tmp_path) as api:
        caller = api.caller(editor)
        refused = await caller.post("/v1/jobs", of_class)
        assert (refused.status, "may use the JobClass batch" in refused.text) == (403, True)
        use = objects.role("use-batch", ("clockhand.dev", "jobclasses", ["use"]))
        team = Kubectl(cluster.kubeconfig, TEAM)
        await asyncio.to_thread(team.apply, {**use, "rules": [{**use["rules"][0], "resourceNames": ["batch"]}]})
        account = f"--serviceaccount={TEAM}:editor"
        await asyncio.to_thread(team.run, "create", "rolebinding", "use-batch", "--role=use-batch", account)
        # what was answered is kept for ten seconds
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (made := await caller.post("/v1/jobs", of_class)).status == 403:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        assert made.status == 201, made.text
        one = f"/v1/jobs/{made.json['id']}"
        edited = await caller.send("PATCH", one, {"run": {"args": ["all"]}})
        assert (edited.status, edited.json["run"]) == (200, {"class": "batch", "args": ["all"]})
        assert (await caller.post("/v1/jobs", {**of_class, "run": {"class": "other"}})).status == 403
        many = await caller.post("/v1/jobs:batch", [of_class, {**of_class, "run": {"class": "other"}}, JOB])
        assert [item.get("error", {}).get("status") for item in many.json["items"]] == [None, 403, None]
