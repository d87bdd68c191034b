"""WorkerPools on a real API server, under the operator's own rights: what is refused, what is kept, and what goes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs, light, manifests, objects, statements
from tests.support.kubectl import Kubectl, bundle, wait_for

from clockhand import errors
from clockhand.controller import watch
from clockhand.domain import documents, news, workerpool_fields, workloads
from clockhand.domain.states import RunState as S
from clockhand.engine import events, inbox, loops, poolnews, workerpools, workforce
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import events as event_calls
from clockhand.kube import objects as listed
from clockhand.kube import workloads as calls
from clockhand.store import database, duties

OPERATOR = "system:serviceaccount:clockhand-system:clockhand-operator"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:clockhand-system", "system:authenticated")
DEFAULTS = workloads.Defaults("clockhand-worker", "http://clockhand-api.clockhand-system:8080")
KEPT = ("deployment", "serviceaccount", "configmap", "poddisruptionbudget")
NAME = "clockhand-pool-mailers"
UNTIL_SECONDS = 180.0
Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        manifests.declare(kubectl, known="execCommands")
        yield running


@pytest.fixture
def team(cluster: light.LightCluster, request: pytest.FixtureRequest) -> Kubectl:
    """A namespace of the test's own, where pods must pass the restricted standard."""
    name = request.node.name.removeprefix("test_").replace("_", "-").partition("[")[0][:50].rstrip("-")
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    return Kubectl(cluster.kubeconfig).create_namespace(name, labels=enforced)


@dataclass
class Tended:
    """The pools of one namespace, looked after a pass at a time."""

    db: database.Database
    kubectl: Kubectl
    pools: workerpools.WorkerPools
    held: duties.Held
    make: Callable[[], workerpools.WorkerPools]
    """A process that knows nothing yet."""

    @property
    def key(self) -> str:
        return f"k8s/{self.kubectl.namespace}/mailers"

    async def once(self) -> float:
        return await self.pools.run_once(self.held)

    async def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Passes until `condition` holds; the bound only ends a failing test."""
        deadline = time.monotonic() + UNTIL_SECONDS
        while time.monotonic() < deadline:
            await self.once()
            if found := await asyncio.to_thread(condition):
                return found
            await asyncio.sleep(0.2)
        raise AssertionError(f"waited in vain for {what}")

    async def apply(self, **spec: Any) -> None:
        await asyncio.to_thread(self.kubectl.apply, pool(**spec))

    async def row(self) -> Any:
        async with self.db.transaction() as connection:
            text = (
                "SELECT object_uid, service_account, allowed_owners, handlers, dispatch, lease_seconds, heartbeat_seconds, "
                "deleted_at, xmin::text AS version FROM pools WHERE pool = %s"
            )
            cursor = await connection.execute(text, (self.key,))
            return await cursor.fetchone()

    def get(self, what: str = "deployment", name: str = NAME) -> Json | None:
        found = self.kubectl.find(what, name)
        return None if found is None else dict(found)

    def status(self) -> Json:
        return dict(self.kubectl.get("wpool", "mailers").get("status", {}))

    def events(self, reason: str) -> list[Json]:
        """Those of the pool."""
        return self.kubectl.items("events", f"--field-selector=involvedObject.name=mailers,reason={reason}")

    def ready(self) -> Json:
        return dict(objects.condition(self.kubectl.get("wpool", "mailers"), "Ready"))


@pytest.fixture
async def tended(
    db: database.Database, cluster: light.LightCluster, team: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Tended]:
    monkeypatch.setattr(workerpools, "STATUS_SECONDS", 0.0)
    connection = await connections.from_kubeconfig(str(cluster.kubeconfig_for(OPERATOR, GROUPS)))
    async with db.transaction() as transaction:
        held = await duties.take(transaction, duties.MIRROR, replica="one", lease=timedelta(minutes=5))
    assert held
    async with clients.connect(connection) as client:
        namespaces = (team.namespace,)
        staff = workforce.Workforce(calls.Workloads(client), DEFAULTS, namespaces=namespaces)
        found = listed.Objects(client, listed.WORKER_POOLS)
        recorder = events.Recorder(event_calls.Events(client, instance="one"))

        def make() -> workerpools.WorkerPools:
            news = poolnews.PoolNews(recorder)
            return workerpools.WorkerPools(db, found, staff, news=news, turn=asyncio.Lock(), namespaces=namespaces)

        posting = asyncio.create_task(loops.forever("events", recorder.step))
        yield Tended(db, team, make(), held, make)
        posting.cancel()


def pool(name: str = "mailers", **spec: Any) -> Json:
    return {
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": spec,
    }


REFUSED = [
    (pool("a.b"), "metadata.name must not contain a dot"),
    (pool("a" * 64), "metadata.name must be at most 63 characters"),
    (pool(image="one", template={"spec": {"containers": [{"name": "a"}]}}), "spec.image and spec.template exclude"),
    (pool(replicas=1, maxReplicas=2), "spec.replicas is a fixed number, and spec.maxReplicas scales"),
    (pool(minReplicas=1), "spec.minReplicas is only for a pool with spec.maxReplicas"),
    (pool(minReplicas=3, maxReplicas=2), "spec.maxReplicas must not be less than minReplicas"),
    (pool(leaseSeconds=60), "spec.heartbeatSeconds must be less than half of spec.leaseSeconds"),
    (pool(external=True, replicas=1), "spec.replicas is not for an external pool"),
    (pool(handlers=["a b"]), "spec.handlers is no name of a handler"),
    (pool(allowedNamespaces=["Team"]), "spec.allowedNamespaces is no name of a namespace"),
    (pool(http={"allowedHosts": ["https://one/path"]}), "spec.http.allowedHosts is no host"),
    (pool(http={"allowedNetworks": ["10.0.0.1"]}), "spec.http.allowedNetworks is no network"),
    (pool(http={"secretName": "Keys"}), "spec.http.secretName is no name of a Secret"),
    (pool(execCommands={"x": []}), "spec.execCommands.x in body should have at least 1 items"),
    (pool(dispatch="Push"), 'supported values: "Poll", "Kafka"'),
    (pool(replica=1), 'unknown field "spec.replica"'),
    (pool(template={"spec": {"containers": []}}), "spec.template.spec.containers in body should have at least 1"),
    (
        pool(template={"spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"}}),
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
]


@pytest.fixture(scope="module")
def kubectl(cluster: light.LightCluster) -> Kubectl:
    return Kubectl(cluster.kubeconfig)


@pytest.mark.parametrize(("body", "sentence"), REFUSED, ids=[sentence[:50] for _, sentence in REFUSED])
def test_a_bad_pool_is_refused_with_a_sentence(kubectl: Kubectl, body: Json, sentence: str) -> None:
    assert sentence in kubectl.refusal("apply", "-f", "-", stdin=json.dumps(body))


def test_the_definition_has_no_complaints_and_the_defaults_of_the_parser(kubectl: Kubectl) -> None:
    conditions = kubectl.get("crd", "workerpools.clockhand.dev")["status"]["conditions"]
    assert "NonStructuralSchema" not in {one["type"] for one in conditions}
    kubectl.apply(pool("plain"))
    assert kubectl.get("wpool", "plain")["spec"] == documents.check({}, workerpool_fields.TABLE)
    kubectl.run("delete", "wpool", "plain")


def test_an_author_who_may_not_create_pods_makes_no_pool(team: Kubectl) -> None:
    rights = ("clockhand.dev", "workerpools", ["get", "list", "create", "patch"])
    team.apply(
        objects.role("pools", rights),
        objects.role("pools-and-pods", rights, ("", "pods", ["create"])),
        objects.grant("author", "Role", "pools"),
        objects.grant("builder", "Role", "pools-and-pods"),
    )
    author, builder = team.acting_as("author"), team.acting_as("builder")
    said = wait_for("the policy", lambda: policy_of(author.refusal("create", "-f", "-", stdin=bundle([pool()]))))
    assert "author may not create pods in namespace" in said
    author.apply(pool("outside", external=True))
    builder.apply(pool())
    assert "may not create pods" in author.refusal(
        "patch", "wpool", "mailers", "--type=merge", "-p", '{"spec":{"image":"x"}}'
    )
    author.run("label", "wpool", "mailers", "seen=true")


async def test_a_pool_gets_its_row_its_workers_and_a_status(tended: Tended) -> None:
    await tended.apply(handlers=["email.send"], replicas=2, allowedNamespaces=["other"], leaseSeconds=61)
    await tended.until("ready workers", lambda: tended.ready().get("status") == "True")
    row = await tended.row()
    assert (row.service_account, row.allowed_owners, row.handlers) == (NAME, ["k8s/other"], ["email.send"])
    assert (row.lease_seconds, row.heartbeat_seconds, row.dispatch, row.deleted_at) == (61, 30, "Poll", None)
    status = tended.status()
    assert (status["replicas"], status["readyReplicas"], status["backlog"], status["running"]) == (2, 2, 0, 0)
    for what in KEPT:
        found = tended.get(what)
        assert found is not None
        [owner] = found["metadata"]["ownerReferences"]
        assert owner["uid"] == str(row.object_uid)
    assert len(tended.kubectl.items("pods", f"--selector={status['selector']}")) == 2
    head, line = tended.kubectl.run("get", "wpool", "mailers").out.splitlines()
    assert head.split() == ["NAME", "READY", "WANTED", "BACKLOG", "OLDEST", "AGE"]
    assert line.split()[:5] == ["mailers", "2", "2", "0", "0"]


async def test_a_pass_that_finds_all_as_it_should_be_writes_nothing(tended: Tended) -> None:
    await tended.apply()
    await tended.until("ready workers", lambda: tended.ready().get("status") == "True")

    def versions() -> list[str]:
        found = [tended.get(what) for what in KEPT] + [tended.get("wpool", "mailers")]
        return [one["metadata"]["resourceVersion"] for one in found if one]

    before, row = versions(), await tended.row()
    assert await tended.once() == workerpools.EVERY_SECONDS
    assert versions() == before
    assert await tended.row() == row


async def test_where_there_are_no_pools_the_database_is_not_asked(
    tended: Tended, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tended.once()
    sent = statements.named(monkeypatch)
    assert await tended.once() == workerpools.EVERY_SECONDS
    assert sent == []
    await tended.apply()
    await tended.once()
    assert await tended.row()
    tended.kubectl.run("delete", "wpool", "mailers", "--wait=true")
    await tended.once()
    assert (await tended.row()).deleted_at is not None
    sent.clear()
    await tended.once()
    await tended.once()
    assert sent.count("workerpools.all") == 1


async def test_what_somebody_changes_or_deletes_is_put_right(tended: Tended) -> None:
    await tended.apply()
    await tended.until("workers", lambda: tended.get())
    patch = {"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "worker", "image": "evil"}]}}}}
    tended.kubectl.run("patch", "deployment", NAME, "--type=strategic", "-p", json.dumps(patch))

    def image() -> str:
        found = tended.get()
        return found["spec"]["template"]["spec"]["containers"][0]["image"] if found else ""

    await tended.until("the image", lambda: image() == "clockhand-worker")
    found = tended.get()
    assert found is not None
    assert found["spec"]["replicas"] == 1
    tended.kubectl.run("delete", "deployment", NAME)
    await tended.until("a new Deployment", lambda: image() == "clockhand-worker")


async def test_an_object_that_is_not_the_pools_is_left_alone(tended: Tended) -> None:
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"mine": "yes"}}
    tended.kubectl.apply(foreign)
    await tended.apply()
    await tended.until("the condition", lambda: tended.ready().get("reason") == "NameTaken")
    assert f"there is a ConfigMap {NAME} already" in tended.ready()["message"]
    kept = tended.get("configmap")
    assert kept is not None
    assert kept["data"] == {"mine": "yes"}


async def test_a_template_that_the_api_server_refuses_is_told_and_stops_no_other_pool(tended: Tended) -> None:
    tended.kubectl.apply(pool("other"))
    await tended.apply(
        template={"spec": {"containers": [{"name": "a", "image": "b", "volumeMounts": [{"name": "no"}]}]}}
    )
    await tended.until("the condition", lambda: tended.ready().get("reason") == "TemplateInvalid")
    assert "volumeMounts" in tended.ready()["message"]
    assert await tended.until("the other pool", lambda: tended.get("deployment", "clockhand-pool-other"))


async def test_pods_that_cannot_be_made_are_told(tended: Tended, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    tended.kubectl.apply(quota)
    wait_for("the quota", lambda: tended.kubectl.get("resourcequota", "none").get("status", {}).get("hard"))
    monkeypatch.setattr(news, "PATIENCE", timedelta(days=1))
    await tended.apply(dispatch="Kafka", handlers=["email.send"])
    await tended.until("the message", lambda: "exceeded quota" in tended.ready().get("message", ""))
    assert tended.ready()["reason"] == "WorkersNotReady"
    async with tended.db.transaction() as connection:
        await connection.execute("UPDATE pools SET kafka_error = 'no broker answers'")
    await tended.until("what is told after it", lambda: tended.events("BrokersUnreachable"))
    assert not tended.events("WorkersNotReady"), "it may pass by itself"
    monkeypatch.setattr(news, "PATIENCE", timedelta())
    [told] = await tended.until("the event", lambda: tended.events("WorkersNotReady"))
    assert (told["type"], told["involvedObject"]["kind"]) == ("Warning", "WorkerPool")
    assert "exceeded quota" in told["message"]
    assert "exceeded quota" in tended.kubectl.run("describe", "wpool", "mailers").out
    tended.pools = tended.make()
    await tended.once()
    tended.kubectl.run("delete", "resourcequota", "none")
    [over] = await tended.until("the end of it", lambda: tended.events("Ready"))
    assert (over["type"], over["message"]) == ("Normal", "1 of 1 workers are ready")
    assert [one["count"] for one in tended.events("WorkersNotReady")] == [1]


async def test_conditions_of_somebody_else_are_replaced(tended: Tended) -> None:
    """The definition asks for no more than a type and a status."""
    await tended.apply(dispatch="Kafka", handlers=["email.send"])
    bare = [{"type": kind, "status": "True"} for kind in ("Ready", "KafkaReachable")]
    patch = json.dumps({"status": {"conditions": bare}})
    tended.kubectl.run("patch", "wpool", "mailers", "--subresource=status", "--type=merge", "-p", patch)
    await tended.until("workers", lambda: tended.status().get("readyReplicas") == 1)
    for shown in (tended.ready(), reachable(tended)):
        assert (shown["status"], "reason" in shown, "lastTransitionTime" in shown) == ("True", True, True)


async def test_a_worker_that_cannot_start_says_why(tended: Tended) -> None:
    stuck = {"annotations": {objects.OUTCOME: "stuck"}}
    await tended.apply(template={"metadata": stuck, "spec": {"containers": [{"name": "worker", "image": "nowhere/x"}]}})
    await tended.until("the reason", lambda: "ErrImagePull" in tended.ready().get("message", ""))
    assert tended.ready()["message"].startswith("0 of 1 workers are ready: pod clockhand-pool-mailers-")


async def test_an_external_pool_has_no_workers_and_no_account(tended: Tended) -> None:
    await tended.apply()
    await tended.until("workers", lambda: tended.get())
    await tended.apply(external=True)
    await tended.until("their end", lambda: not any(tended.get(what) for what in KEPT))
    row = await tended.row()
    assert (row.service_account, row.deleted_at) == (None, None)
    assert tended.ready()["reason"] == "External"


async def test_a_deleted_pool_takes_everything_with_it(tended: Tended) -> None:
    await tended.apply()
    await tended.until("workers", lambda: tended.get())
    tended.kubectl.run("delete", "wpool", "mailers", "--wait=true")
    await tended.once()
    assert (await tended.row()).deleted_at is not None
    wait_for("its objects to go", lambda: not any(tended.get(what) for what in KEPT))
    await tended.apply()
    await tended.until("a new pool", lambda: tended.ready().get("status") == "True")
    assert (await tended.row()).deleted_at is None


async def make_late(tended: Tended) -> None:
    """Four runs that have waited for half a minute, behind one that runs."""
    async with tended.db.transaction() as connection:
        now = await database.now(connection)
        made = await jobs.make_job(connection, jobs.pooled(), owner=f"k8s/{tended.kubectl.namespace}")
        late = {"queue_at": now - timedelta(seconds=30)}
        for number in range(4):
            await jobs.make_run(connection, made, S.QUEUED, at=now - timedelta(minutes=number), **late)
        await jobs.make_run(connection, made, S.RUNNING, at=now - timedelta(hours=1))


async def test_no_workers_come_or_go_while_the_clock_is_not_trusted(tended: Tended) -> None:
    await tended.apply(maxReplicas=3, concurrency=1)
    await tended.until("a worker", lambda: tended.status().get("readyReplicas") == 1)
    async with tended.db.transaction() as connection:
        await connection.execute("UPDATE installation SET clock_step = interval '1 hour', clock_noticed_at = now()")
    await make_late(tended)
    await tended.until("the backlog", lambda: tended.status().get("backlog") == 4)
    for _ in range(3):
        await tended.once()
    assert tended.status()["replicas"] == 1
    async with tended.db.transaction() as connection:
        await connection.execute("UPDATE installation SET clock_step = NULL")
    await tended.until("another worker", lambda: tended.status().get("replicas") == 2)


async def test_a_backlog_that_is_late_brings_workers_and_is_shown(tended: Tended) -> None:
    await tended.apply(maxReplicas=3, concurrency=1)
    await tended.until("a worker", lambda: tended.status().get("readyReplicas") == 1)
    await make_late(tended)
    await tended.until("more workers", lambda: tended.status().get("readyReplicas") == 2)
    status = tended.status()
    assert (status["backlog"], status["running"]) == (4, 1)
    assert status["oldestWaitingSeconds"] >= 30


async def test_kubectl_scales_a_pool(tended: Tended) -> None:
    await tended.apply(replicas=1)
    await tended.until("a worker", lambda: tended.status().get("readyReplicas") == 1)
    tended.kubectl.run("scale", "wpool", "mailers", "--replicas=3")
    await tended.until("three workers", lambda: tended.status().get("readyReplicas") == 3)
    tended.kubectl.run("scale", "wpool", "mailers", "--replicas=0")
    await tended.until("no workers", lambda: tended.status().get("readyReplicas") == 0)
    assert tended.ready()["status"] == "True"


async def test_trouble_with_brokers_is_a_condition_of_pools_that_need_them(tended: Tended) -> None:
    await tended.apply(dispatch="Kafka", handlers=["email.send"])
    await tended.until("the condition", lambda: reachable(tended).get("status") == "True")
    async with tended.db.transaction() as connection:
        await connection.execute("UPDATE pools SET kafka_error = 'no broker answers'")
    await tended.until("the trouble", lambda: reachable(tended).get("status") == "False")
    assert reachable(tended)["message"] == "runs are polled for: no broker answers"
    [told] = await tended.until("the event", lambda: tended.events("BrokersUnreachable"))
    assert told["message"] == "runs are polled for: no broker answers"
    async with tended.db.transaction() as connection:
        await connection.execute("UPDATE pools SET kafka_error = NULL")
    await tended.until("its end", lambda: tended.events("BrokersReachable"))
    await tended.apply(dispatch="Poll", handlers=["email.send"])
    await tended.until("no condition", lambda: not reachable(tended))


async def test_the_watch_says_that_a_pool_was_seen(cluster: light.LightCluster, team: Kubectl) -> None:
    seen = threading.Event()
    watching = watch.Watch(
        inbox.Inbox(), kubeconfig=str(cluster.kubeconfig), namespaces=(team.namespace,), pool_seen=seen.set
    )
    watching.start()
    try:
        await asyncio.to_thread(wait_for, "the first listing", lambda: watching.listings)
        await asyncio.to_thread(team.apply, pool())
        await asyncio.to_thread(wait_for, "the pool", seen.is_set)
    finally:
        assert await asyncio.to_thread(watching.stop)


async def test_whoever_lost_the_duty_stores_nothing(tended: Tended) -> None:
    await tended.apply()
    tended.held = duties.Held(tended.held.duty, tended.held.replica, tended.held.generation - 1)
    with pytest.raises(errors.Stale):
        await tended.once()
    assert await tended.row() is None


def policy_of(said: str) -> str:
    """What the policy said; empty where it was somebody else, such as rights that do not hold yet."""
    return said if "ValidatingAdmissionPolicy" in said else ""


def reachable(tended: Tended) -> Json:
    return dict(objects.condition(tended.kubectl.get("wpool", "mailers"), "KafkaReachable"))
