"""From a real API server to the rows, by kopf's watch and by the mirror's own listing; and back into the status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import kubeapi, light, objects

from clockhand.controller import duty, watch
from clockhand.domain import workloads as pool_workloads
from clockhand.engine import (
    events,
    expiry,
    inbox,
    jobclasses,
    mirror,
    parking,
    poolnews,
    resync,
    status,
    templates,
    workerpools,
    workforce,
)
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import events as event_calls
from clockhand.kube import flow, pods, workloads
from clockhand.kube import objects as calls
from clockhand.store import database, duties

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0
LEASE = timedelta(seconds=3)
POOL_DEFAULTS = pool_workloads.Defaults("clockhand-worker", "http://api")
FAST = flow.FlowSettings(64, 64, writes_per_second=1e5, burst=1e5)
MERGE = "application/merge-patch+json"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "scheduledjobs.clockhand.dev"


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        define(running.api)
        yield running


@dataclass
class Replica:
    """The parts of an operator that this file is about."""

    db: database.Database
    client: clients.Client
    objects: calls.Objects
    mirror: mirror.Mirror
    resync: resync.Resync
    templates: templates.Templates
    kubeconfig: Path
    namespaces: tuple[str, ...] = ()

    def duty(self, name: str, make_watch: duty.MakeWatch | None = None) -> duty.MirrorDuty:
        return duty.MirrorDuty(
            self.db,
            replica=name,
            lease=LEASE,
            parts=duty.Parts(self.mirror, self.resync, self.templates, self.pools(), self.classes()),
            make_watch=make_watch or self.make_watch,
        )

    def make_watch(self, box: inbox.Inbox) -> watch.Watch:
        return watch.Watch(box, kubeconfig=str(self.kubeconfig), namespaces=self.namespaces, pool_seen=lambda: None)

    def pools(self) -> workerpools.WorkerPools:
        staff = workforce.Workforce(workloads.Workloads(self.client), POOL_DEFAULTS)
        listed = calls.Objects(self.client, calls.WORKER_POOLS)
        news = poolnews.PoolNews(events.Recorder(event_calls.Events(self.client, instance="mirror")))
        return workerpools.WorkerPools(
            self.db, listed, staff, news=news, turn=self.mirror.turn, namespaces=self.namespaces
        )

    def classes(self) -> jobclasses.JobClasses:
        catalogue = jobclasses.Catalogue(self.db, calls.Objects(self.client, calls.JOB_CLASSES))
        return jobclasses.JobClasses(self.db, catalogue, self.templates, turn=self.mirror.turn)

    async def take(self) -> duties.Held:
        async with self.db.transaction() as connection:
            held = await duties.take(connection, duties.MIRROR, replica="hand", lease=timedelta(minutes=5))
        assert held
        return held


@contextlib.asynccontextmanager
async def replica(
    db: database.Database, kubeconfig: Path, *, namespaces: tuple[str, ...] = ()
) -> AsyncIterator[Replica]:
    connection = await connections.from_kubeconfig(str(kubeconfig))
    async with clients.connect(connection, FAST) as client:
        checked = templates.Templates(db, pods.Pods(client))
        mirrored = mirror.Mirror(db, checked)
        listed = calls.Objects(client)
        compared = resync.Resync(db, listed, mirrored, namespaces=namespaces, confirm_seconds=0.1)
        yield Replica(db, client, listed, mirrored, compared, checked, kubeconfig, namespaces)


@pytest.fixture
async def alone(db: database.Database, cluster: light.LightCluster) -> AsyncIterator[Replica]:
    """A replica that does nothing by itself."""
    async with replica(db, cluster.kubeconfig) as parts:
        yield parts


@pytest.fixture
async def serving(alone: Replica) -> AsyncIterator[duty.MirrorDuty]:
    """The duty, held and watching."""
    async with running(alone.duty("one")) as served:
        yield served


@contextlib.asynccontextmanager
async def running(served: duty.MirrorDuty) -> AsyncIterator[duty.MirrorDuty]:
    task = asyncio.create_task(served.run())
    try:
        await until("the watch", lambda: served.watching)
        yield served
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def define(api: kubeapi.KubeApi) -> None:
    """Installs the definition and waits until it is served."""
    api.call("POST", DEFINITION, yaml.safe_load((ROOT / "crds/scheduledjob.yaml").read_text()))
    deadline = time.monotonic() + PATIENCE
    while not api.answers("/apis/clockhand.dev/v1alpha1/scheduledjobs"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Team:
    """One namespace's objects, by plain calls."""

    def __init__(self, api: kubeapi.KubeApi, labels: dict[str, str] | None = None) -> None:
        self.api = api
        self.name = f"team-{uuid.uuid4().hex[:8]}"
        self.owner = f"k8s/{self.name}"
        self.path = f"/apis/clockhand.dev/v1alpha1/namespaces/{self.name}/scheduledjobs"
        metadata = {"name": self.name, "labels": labels or {}}
        api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    async def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self._call("POST", self.path, body)

    async def patch(self, job: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._call("PATCH", f"{self.path}/{job}", body)

    async def delete(self, job: str) -> None:
        await self._call("DELETE", f"{self.path}/{job}")

    async def get(self, job: str) -> dict[str, Any]:
        return await self._call("GET", f"{self.path}/{job}")

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        kind = MERGE if method == "PATCH" else "application/json"
        answer: dict[str, Any] = await asyncio.to_thread(self.api.call, method, path, body, content_type=kind)
        return answer


@pytest.fixture
def team(cluster: light.LightCluster) -> Team:
    return Team(cluster.api)


async def until(what: str, condition: Callable[[], Any]) -> Any:
    """The first truthy value of `condition`, awaited if need be; the bound only ends a failing test."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


async def row(db: database.Database, team: Team, job: str) -> Any:
    """The newest row of that name, None where there is none."""
    async with db.transaction() as connection:
        cursor = await connection.execute(
            "SELECT j.*, s.conditions, s.dirty_at, s.written_at FROM jobs j JOIN job_status s USING (job_id) "
            "WHERE owner = %s AND name = %s ORDER BY deleted_at IS NOT NULL, resource_version DESC LIMIT 1",
            (team.owner, job),
        )
        return await cursor.fetchone()


async def mirrored(db: database.Database, team: Team, job: str, good: Callable[[Any], bool] = bool) -> Any:
    async def found() -> Any:
        stored = await row(db, team, job)
        return stored if stored is not None and good(stored) else None

    return await until(f"{job} in the database", found)


def condition(stored: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((one for one in stored if one["type"] == kind), {})


async def test_the_watch_brings_every_change(db: database.Database, team: Team, serving: duty.MirrorDuty) -> None:
    made = await team.apply(objects.job("nightly", labels={"tier": "gold"}))
    stored = await mirrored(db, team, "nightly")
    assert str(stored.job_id) == made["metadata"]["uid"]
    assert stored.labels == {"tier": "gold"}
    await team.patch("nightly", {"spec": {"schedule": "0 3 * * *"}})
    await mirrored(db, team, "nightly", lambda job: job.generation == 2 and job.next_run_at.hour == 3)
    await team.patch("nightly", {"spec": {"suspend": True}})
    await mirrored(db, team, "nightly", lambda job: job.suspended and job.next_run_at is None)
    await team.patch("nightly", {"spec": {"suspend": False}})
    await mirrored(db, team, "nightly", lambda job: not job.suspended and job.next_run_at is not None)
    await team.patch("nightly", {"metadata": {"labels": {"tier": "lead"}}})
    await mirrored(db, team, "nightly", lambda job: job.labels == {"tier": "lead"} and job.generation == 4)
    await team.delete("nightly")
    await mirrored(db, team, "nightly", lambda job: job.deleted_at is not None)
    again = await team.apply(objects.job("nightly"))
    await mirrored(db, team, "nightly", lambda job: str(job.job_id) == again["metadata"]["uid"])


async def test_the_watch_leaves_no_mark_on_objects(db: database.Database, team: Team, serving: duty.MirrorDuty) -> None:
    await team.apply(objects.job("nightly"))
    await mirrored(db, team, "nightly")
    metadata = (await team.get("nightly"))["metadata"]
    assert "annotations" not in metadata
    assert "finalizers" not in metadata


async def test_an_object_that_waits_for_a_finalizer_fires_no_more(
    db: database.Database, team: Team, serving: duty.MirrorDuty
) -> None:
    body = objects.job("kept")
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await team.apply(body)
    await mirrored(db, team, "kept")
    await team.delete("kept")
    await mirrored(db, team, "kept", lambda job: job.deleted_at is not None)
    await team.patch("kept", {"metadata": {"finalizers": None}})


async def test_what_the_schema_cannot_see_becomes_a_condition(
    db: database.Database, team: Team, alone: Replica, serving: duty.MirrorDuty
) -> None:
    await team.apply(objects.job("zone", timeZone="Mars/Base"))
    await team.apply(objects.job("wrapped", schedule="0 22-2 * * *"))
    await team.apply(objects.job("nul", payload={"text": "a\x00b"}))
    await team.apply(objects.job("fine"))
    writer = status.StatusWriter(db, alone.objects)
    expected = {"zone": "InvalidTimeZone", "wrapped": "InvalidSchedule", "nul": "InvalidSpec"}
    for name, reason in expected.items():
        stored = await mirrored(db, team, name)
        assert stored.next_run_at is None
        await writer.run_once(range(256))
        shown = (await team.get(name))["status"]
        ready = condition(shown["conditions"], "Ready")
        assert (ready["status"], ready["reason"]) == ("False", reason)
        assert ready["message"].startswith("spec.")
        assert shown["observedGeneration"] == 1
    assert (await mirrored(db, team, "fine")).next_run_at is not None


async def test_an_object_too_deep_to_decode_stops_alone(
    db: database.Database, team: Team, alone: Replica, serving: duty.MirrorDuty
) -> None:
    # no encoder here could make it
    deep = json.dumps(objects.job("deep", payload="@")).replace('"@"', "[" * 3_000 + "]" * 3_000)
    await alone.client.write("POST", team.path, deep.encode())
    await team.apply(objects.job("next"))
    await mirrored(db, team, "next")
    stored = await mirrored(db, team, "deep")
    assert "nested" in stored.parked
    held = serving.held
    assert held
    assert await alone.resync.run_once(held)
    assert serving.watching
    await team.delete("deep")
    await mirrored(db, team, "deep", lambda job: job.deleted_at is not None)


async def test_a_template_is_shown_to_the_api_server(
    db: database.Database, team: Team, serving: duty.MirrorDuty
) -> None:
    misspelt, invalid = objects.template("true"), objects.template("true")
    misspelt["spec"]["containers"][0]["imagee"] = "any"
    invalid["spec"]["containers"][0]["name"] = "Not A Name"
    await team.apply(objects.job("misspelt", misspelt))
    await team.apply(objects.job("invalid", invalid))
    await team.apply(objects.job("fine"))
    for name, word in {"misspelt": "imagee", "invalid": "name"}.items():
        stored = await mirrored(db, team, name, lambda job: bool(job.parked))
        assert stored.next_run_at is None
        verdict, ready = condition(stored.conditions, "TemplateValid"), condition(stored.conditions, "Ready")
        assert verdict["status"] == ready["status"] == "False"
        assert ready["reason"] == "TemplateInvalid"
        assert word in ready["message"]

    def is_valid(job: Any) -> bool:
        return condition(job.conditions, "TemplateValid").get("status") == "True"

    assert (await mirrored(db, team, "fine", is_valid)).next_run_at is not None
    await team.patch("misspelt", {"spec": objects.job("any")["spec"]})
    repaired = await mirrored(db, team, "misspelt", lambda job: job.generation == 2 and is_valid(job))
    assert repaired.parked is None
    assert repaired.next_run_at is not None
    await team.apply(objects.job("again", misspelt))
    stored = await mirrored(db, team, "again", lambda job: bool(job.parked))
    assert condition(stored.conditions, "TemplateValid")["status"] == "False"


async def test_a_refusal_that_may_pass_stops_nothing(
    db: database.Database, cluster: light.LightCluster, serving: duty.MirrorDuty
) -> None:
    team = Team(cluster.api, {"pod-security.kubernetes.io/enforce": "restricted"})
    body = objects.template("true")
    body["spec"]["hostNetwork"] = True
    await team.apply(objects.job("bold", body))
    stored = await mirrored(
        db, team, "bold", lambda job: condition(job.conditions, "TemplateValid").get("status") == "Unknown"
    )
    assert condition(stored.conditions, "TemplateValid")["reason"] == "PodSecurity"
    assert stored.parked is None
    assert stored.next_run_at is not None


@pytest.mark.parametrize("full", [True, False])
async def test_a_listing_finds_what_went_while_nobody_watched(
    db: database.Database, team: Team, alone: Replica, full: bool
) -> None:
    held = await alone.take()
    for name in ("stays", "goes", "replaced"):
        await team.apply(objects.job(name))
    assert await alone.resync.run_once(held, full=full)
    await team.delete("goes")
    await team.delete("replaced")
    again = await team.apply(objects.job("replaced"))
    await team.patch("stays", {"spec": {"priority": 7}})
    assert await alone.resync.run_once(held, full=full)
    assert (await mirrored(db, team, "goes")).deleted_at is not None
    assert (await mirrored(db, team, "stays")).generation == 2
    assert str((await mirrored(db, team, "replaced")).job_id) == again["metadata"]["uid"]
    async with db.transaction() as connection:
        cursor = await connection.execute(
            "SELECT count(*) AS n FROM jobs WHERE owner = %s AND deleted_at IS NULL", (team.owner,)
        )
        [count] = await cursor.fetchall()
    assert count.n == 2


async def test_what_goes_between_the_listing_and_the_watch_is_found(
    db: database.Database, team: Team, alone: Replica
) -> None:
    """kopf never tells what was deleted before it listed."""
    await team.apply(objects.job("gap"))

    def make_watch(box: inbox.Inbox) -> watch.Watch:
        team.api.call("DELETE", f"{team.path}/gap")
        return alone.make_watch(box)

    async with running(alone.duty("one", make_watch)):
        await mirrored(db, team, "gap", lambda job: job.deleted_at is not None)


async def test_a_row_newer_than_the_listing_is_kept(db: database.Database, team: Team, alone: Replica) -> None:
    held = await alone.take()
    await team.apply(objects.job("ahead"))
    assert await alone.resync.run_once(held)
    stored = await mirrored(db, team, "ahead")
    await team.delete("ahead")
    async with db.transaction() as connection:
        await connection.execute(
            "UPDATE jobs SET resource_version = 1::bigint << 60 WHERE job_id = %s", (stored.job_id,)
        )
    assert await alone.resync.run_once(held)
    assert (await mirrored(db, team, "ahead")).deleted_at is None


async def test_the_status_is_written_once_and_comes_back_as_nothing(
    db: database.Database, team: Team, alone: Replica, serving: duty.MirrorDuty
) -> None:
    await team.apply(objects.job("shown", schedule="0 4 * * *"))
    before = await mirrored(
        db, team, "shown", lambda job: condition(job.conditions, "TemplateValid").get("status") == "True"
    )
    writer = status.StatusWriter(db, alone.objects, pause=timedelta(0))
    await writer.run_once([before.shard])
    shown = await team.get("shown")
    assert shown["status"]["nextRunTime"].endswith("T04:00:00Z")
    assert shown["status"]["active"] == 0
    assert condition(shown["status"]["conditions"], "Ready")["status"] == "True"
    version = int(shown["metadata"]["resourceVersion"])
    after = await mirrored(db, team, "shown", lambda job: job.resource_version == version)
    assert (after.spec_id, after.dirty_at) == (before.spec_id, None)
    assert await writer.run_once([before.shard]) == 0
    async with db.transaction() as connection:
        await connection.execute("UPDATE job_status SET dirty_at = now() WHERE job_id = %s", (before.job_id,))
    assert await writer.run_once([before.shard]) == 0, "nothing to show that is not shown"
    assert (await team.get("shown"))["metadata"]["resourceVersion"] == str(version)


async def test_an_expired_object_goes_unless_it_is_another_than_was_seen(
    db: database.Database, team: Team, alone: Replica
) -> None:
    held = await alone.take()
    for name in ("goes", "edited", "made-again", "gone"):
        await team.apply(
            objects.job(name, schedule=None, at="2026-01-01T00:00:00Z", suspend=True, ttlSecondsAfterFinished=0)
        )
    assert await alone.resync.run_once(held)
    async with db.transaction() as connection:
        # as a replica leaves them that has fired and ended their one run
        await connection.execute("UPDATE jobs SET suspended = false, next_slot_at = NULL, next_run_at = NULL")
    await team.patch("edited", {"spec": {"at": "2037-01-01T00:00:00Z", "suspend": False}})
    for name in ("made-again", "gone"):
        await team.delete(name)
    again = await team.apply(objects.job("made-again"))

    expiring = expiry.Expiry(db, alone.objects)
    assert await expiring.run_once(range(256)) == 1
    with pytest.raises(kubeapi.ApiError) as gone:
        await team.get("goes")
    assert gone.value.status == 404
    assert (await team.get("edited"))["spec"]["at"] == "2037-01-01T00:00:00Z"
    assert (await team.get("made-again"))["metadata"]["uid"] == again["metadata"]["uid"]
    assert await expiring.run_once(range(256)) == 0, "not again at once"

    assert await alone.resync.run_once(held)
    assert (await mirrored(db, team, "goes")).deleted_at is not None
    assert (await mirrored(db, team, "edited")).expires_at is None


async def test_a_status_without_an_object_is_let_go(db: database.Database, team: Team, alone: Replica) -> None:
    held = await alone.take()
    await team.apply(objects.job("short"))
    assert await alone.resync.run_once(held)
    await team.delete("short")
    stored = await mirrored(db, team, "short")
    await status.StatusWriter(db, alone.objects, pause=timedelta(0)).run_once([stored.shard])
    stored = await mirrored(db, team, "short")
    assert (stored.dirty_at, stored.written_at) == (None, None)


async def test_another_replica_takes_over(
    db: database.Database, cluster: light.LightCluster, team: Team, alone: Replica
) -> None:
    async with replica(db, cluster.kubeconfig) as other:
        second = other.duty("two")
        async with running(alone.duty("one")) as first:
            waiting = asyncio.create_task(second.run())
            await team.apply(objects.job("before"))
            await mirrored(db, team, "before")
            assert first.watching
            assert not second.watching
        await team.apply(objects.job("after"))
        await mirrored(db, team, "after")
        assert second.watching
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


async def test_who_is_robbed_of_the_duty_stops_watching(
    db: database.Database, alone: Replica, serving: duty.MirrorDuty
) -> None:
    async with db.transaction() as connection:
        await connection.execute(
            "UPDATE duty_leases SET holder = 'thief', generation = generation + 1, expires_at = now() + interval '1 day'"
        )
    await until("the watch to end", lambda: not serving.watching)


async def test_the_watch_outlives_the_api_server(
    db: database.Database, cluster: light.LightCluster, team: Team, serving: duty.MirrorDuty
) -> None:
    await asyncio.to_thread(cluster.stop_apiserver)
    await asyncio.to_thread(cluster.start_apiserver)
    await until("the API server", lambda: asyncio.to_thread(cluster.api.answers, "/readyz"))
    await team.apply(objects.job("later"))
    await mirrored(db, team, "later")


async def test_one_namespace_with_the_least_rights_and_a_token(
    db: database.Database, cluster: light.LightCluster, team: Team, tmp_path: Path
) -> None:
    elsewhere = Team(cluster.api)
    kubeconfig = await asyncio.to_thread(narrow_account, cluster, team.name, tmp_path)
    async with (
        replica(db, kubeconfig, namespaces=(team.name,)) as parts,
        running(parts.duty("narrow")),
    ):
        await elsewhere.apply(objects.job("other"))
        await team.apply(objects.job("mine"))
        await mirrored(db, team, "mine")
        await team.patch("mine", {"spec": {"priority": 3}})
        await mirrored(db, team, "mine", lambda job: job.generation == 2)
        assert await row(db, elsewhere, "other") is None


def narrow_account(cluster: light.LightCluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig with a service account's token, which may watch ScheduledJobs in one namespace and make pods there."""
    api, base = cluster.api, f"/api/v1/namespaces/{namespace}/serviceaccounts"
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    jobs = ("clockhand.dev", "scheduledjobs", ["get", "list", "watch"])
    api.call("POST", base, {"metadata": {"name": "narrow"}})
    api.call("POST", f"{rights}/roles", objects.role("narrow", jobs, ("", "pods", ["create"])))
    user = f"system:serviceaccount:{namespace}:narrow"
    api.call("POST", f"{rights}/rolebindings", objects.grant(user, "Role", "narrow"))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = api.call("POST", f"{base}/narrow/token", request)["status"]["token"]
    file = folder / "narrow.kubeconfig"
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": cluster.url, "certificate-authority": str(cluster.ca)}}],
        "users": [{"name": "it", "user": {"token": token}}],
    }
    file.write_text(json.dumps(text))
    return file


async def test_most_objects_gone_at_once_is_confirmed_and_then_believed(
    db: database.Database, team: Team, alone: Replica
) -> None:
    held = await alone.take()
    names = [f"job-{number}" for number in range(resync.SMALL)]
    for name in names:
        await team.apply(objects.job(name))
    assert await alone.resync.run_once(held)
    for name in names:
        await team.delete(name)
    assert await alone.resync.run_once(held)
    assert all([(await mirrored(db, team, name)).deleted_at is not None for name in names])


async def test_without_the_resource_firing_stops_and_the_rows_stay(
    db: database.Database, cluster: light.LightCluster, team: Team, alone: Replica
) -> None:
    held = await alone.take()
    await team.apply(objects.job("orphan"))
    assert await alone.resync.run_once(held)
    await asyncio.to_thread(cluster.api.call, "DELETE", f"{DEFINITION}/{NAME}")
    path = "/apis/clockhand.dev/v1alpha1/scheduledjobs"
    try:
        await until("the resource to go", lambda: not cluster.api.answers(path))
        assert not await alone.resync.run_once(held)
        stored = await mirrored(db, team, "orphan")
        assert stored.deleted_at is None
        assert stored.next_run_at is None
        assert stored.parked == parking.RESOURCE_GONE
    finally:
        await asyncio.to_thread(define, cluster.api)
    again = await team.apply(objects.job("orphan"))
    assert await alone.resync.run_once(held)
    back = await mirrored(db, team, "orphan", lambda job: str(job.job_id) == again["metadata"]["uid"])
    assert back.next_run_at is not None
