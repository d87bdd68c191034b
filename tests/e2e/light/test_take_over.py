"""A claimed run whose replica is gone, and no pod of it: who holds the shard next decides by the job's delivery."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.support import jobs, light, postgres, sweeping

from clockhand.domain import pods, spec, states
from clockhand.engine import replica, sweep
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database, migrations

PATIENCE = 90.0
OWNER = "k8s/default"


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        yield running


@pytest.fixture
async def db() -> AsyncIterator[database.Database]:
    with postgres.server() as server:
        opened = database.Database(server.url(), size=8, name="test")
        await opened.open()
        await migrations.apply(opened)
        async with opened.transaction() as connection:
            await jobs.make_partitions(connection)
        yield opened
        await opened.close()


async def left_claimed(db: database.Database, delivery: spec.Delivery) -> uuid.UUID:
    """A run that some replica claimed and then died: no pod, and nobody holds its shard."""
    async with db.transaction() as connection:
        job = await jobs.make_job(
            connection, jobs.plan(delivery=delivery), owner=OWNER, name=f"job-{uuid.uuid4().hex[:6]}"
        )
        return await jobs.make_run(connection, job, states.RunState.CLAIMED)


async def outcome(db: database.Database, run_id: uuid.UUID) -> Any:
    """The row of the run once it is over."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        async with db.transaction() as connection:
            rows = await jobs.query(connection, "SELECT * FROM run_history WHERE run_id = %s", run_id)
        if rows:
            return rows[0]
        await asyncio.sleep(0.1)
    pytest.fail("the run is not over")


async def taken_over(cluster: light.LightCluster, db: database.Database, run_id: uuid.UUID) -> Any:
    """What becomes of the run when a replica takes everything over."""
    stop = asyncio.Event()
    async with clients.connect(await connections.find(str(cluster.kubeconfig))) as client:
        one = replica.Replica(db, client, name="heir", lease=5)
        work = asyncio.create_task(one.run(stop))
        try:
            return await outcome(db, run_id)
        finally:
            stop.set()
            await work


def pods_of(cluster: light.LightCluster, run_id: uuid.UUID) -> list[str]:
    found = cluster.api.call("GET", "/api/v1/namespaces/default/pods")["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if pod["metadata"].get("annotations", {}).get("clockhand.dev/run-id") == str(run_id)
    ]


async def test_at_most_once_never_starts_what_may_have_run(cluster: light.LightCluster, db: database.Database) -> None:
    run_id = await left_claimed(db, spec.Delivery.AT_MOST_ONCE)
    over = await taken_over(cluster, db, run_id)
    assert (over.state, over.reason, over.attempt) == ("Unknown", "OutcomeUnseen", 1)
    assert await asyncio.to_thread(pods_of, cluster, run_id) == []


async def test_at_least_once_starts_the_same_attempt(cluster: light.LightCluster, db: database.Database) -> None:
    run_id = await left_claimed(db, spec.Delivery.AT_LEAST_ONCE)
    over = await taken_over(cluster, db, run_id)
    assert (over.state, over.attempt) == ("Succeeded", 1)
    assert len(await asyncio.to_thread(pods_of, cluster, run_id)) == 1


async def test_a_pod_that_never_goes_is_lost_with_its_node(cluster: light.LightCluster, db: database.Database) -> None:
    run_id = await left_claimed(db, spec.Delivery.AT_LEAST_ONCE)
    async with db.transaction() as connection:
        [row] = await jobs.query(connection, "SELECT job_id, job_name, shard FROM live_runs WHERE run_id = %s", run_id)
    name = await asyncio.to_thread(stuck_pod, cluster, run_id, row)
    async with clients.connect(await connections.find(str(cluster.kubeconfig))) as client:
        heir = sweeping.Sweeping(db, client)
        await heir.see("default", name)
        for seconds, state in ((0.0, states.RunState.CLAIMED), (sweep.LOST_SECONDS + 31, states.RunState.RETRYING)):
            heir.time += seconds
            await heir.sweeper.run_once(synced=True)
            await heir.observer.run_once()
            async with db.transaction() as connection:
                assert await jobs.state_of(connection, run_id) == (state,)


def stuck_pod(cluster: light.LightCluster, run_id: uuid.UUID, row: Any) -> str:
    """A pod of the run that is being deleted and does not go, as on a node that was cut off."""
    name = pods.pod_name(row.job_name, run_id, 1)
    marks = {"run-id": run_id, "job-uid": row.job_id, "attempt": 1, "token": jobs.TOKEN, "shard": row.shard}
    path = "/api/v1/namespaces/default/pods"
    cluster.api.call("POST", path, {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {pods.MANAGED_BY_LABEL: pods.MANAGED_BY},
            "annotations": {f"clockhand.dev/{key}": str(value) for key, value in marks.items()},
            "finalizers": ["test.clockhand.dev/keep"],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "any"}], "nodeName": "nowhere"},
    })  # fmt: skip
    cluster.api.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 30})
    return name
