"""`clockhand doctor` and a real API server: each check of the cluster seen content, and finding what is really broken."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support import examined, jobs, light, manifests, objects, ports, postgres
from tests.support.kubectl import Kubectl, bundle, wait_for

from clockhand.admin.doctor import contradictions
from clockhand.api.runs import certificates, listener
from clockhand.domain import ids, observed, pods
from clockhand.domain.findings import Finding, Verdict
from clockhand.domain.states import RunKind
from clockhand.domain.states import RunState as S
from clockhand.kube import aggregation
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import audits, database

ROOT = Path(__file__).resolve().parents[3]
OPERATOR = "clockhand-operator"
LATER = datetime.timedelta(minutes=5)
"""Enough for everything that a test makes to have settled."""
AGES = datetime.timedelta(days=10_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        kubectl.run("apply", "--server-side", "-f", str(ROOT / "crds"))
        kubectl.apply(manifests.namespace())
        kubectl.apply(*manifests.objects(*manifests.RIGHTS, *manifests.POLICIES, "APIService"))
        yield running


@pytest.fixture
def kubectl(cluster: light.LightCluster) -> Iterator[Kubectl]:
    """The administrator in a namespace of the test's own."""
    inside = Kubectl(cluster.kubeconfig).create_namespace(f"team-{uuid.uuid4().hex[:8]}")
    yield inside
    inside.run("delete", "namespace", inside.namespace, "--wait=false")


@pytest.fixture
async def operator(cluster: light.LightCluster, tmp_path: Path) -> AsyncIterator[clients.Client]:
    """A client as a pod of the operator has it."""
    async with as_account(cluster, tmp_path, OPERATOR) as client:
        yield client


@contextlib.asynccontextmanager
async def as_account(cluster: light.LightCluster, folder: Path, account: str) -> AsyncIterator[clients.Client]:
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    answer = Kubectl(cluster.kubeconfig, "clockhand-system").run("create", "token", account)
    (folder / "token").write_text(answer.out.strip())
    port = str(urllib.parse.urlsplit(cluster.url).port)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    async with clients.connect(connections.in_cluster(environment, directory=folder), call_seconds=5.0) as client:
        yield client


async def look(
    db: database.Database, server: postgres.PostgresServer, cluster: clients.Client, name: str, **changes: Any
) -> Finding:
    patient = await examined.patient_of(db, server.url(), cluster=cluster, **changes)
    return await examined.finding_of(patient, name)


async def test_the_api_server(db: database.Database, server: postgres.PostgresServer, operator: clients.Client) -> None:
    found = await look(db, server, operator, "kubernetes")
    assert found.verdict is Verdict.OK
    assert found.sentence.endswith("as system:serviceaccount:clockhand-system:clockhand-operator")
    nobody = connections.Connection(server=f"https://127.0.0.1:{ports.free_row(1)}")
    async with clients.connect(nobody) as client:
        found = await look(db, server, client, "kubernetes")
        assert found.verdict is Verdict.ERROR
        assert (await look(db, server, client, "rights")).sentence == "it needs `kubernetes`"


async def test_rights(
    db: database.Database,
    server: postgres.PostgresServer,
    cluster: light.LightCluster,
    operator: clients.Client,
    tmp_path: Path,
) -> None:
    async def found() -> Finding:
        return await look(db, server, operator, "rights")

    kubectl = Kubectl(cluster.kubeconfig)
    await until(found, Verdict.OK)
    role = kubectl.get("clusterrole", OPERATOR)
    fewer = [rule for rule in role["rules"] if rule["resources"] != ["pods/log"]]
    kubectl.run("patch", "clusterrole", OPERATOR, "--type=merge", "-p", json.dumps({"rules": fewer}))
    try:
        lacking = await until(found, Verdict.ERROR)
        assert lacking.samples == ("get pods/log",)
    finally:
        kubectl.apply(*manifests.objects("ClusterRole"))
    async with as_account(cluster, tmp_path, "clockhand-api") as other:
        assert "none of the operator's rights" in (await look(db, server, other, "rights")).sentence
        for name in ("definitions", "runs-api", "certificates", "served-certificate", "admission"):
            skipped = await look(db, server, other, name)
            assert (skipped.verdict, "may not look" in skipped.sentence) == (Verdict.SKIPPED, True), name


async def until(look_again: Any, verdict: Verdict) -> Finding:
    """RBAC reaches the API server's authorizer a moment after it is stored."""
    for _ in range(150):
        found: Finding = await look_again()
        if found.verdict is verdict:
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(found)


async def test_definitions(
    db: database.Database, server: postgres.PostgresServer, cluster: light.LightCluster, operator: clients.Client
) -> None:
    kubectl, name = Kubectl(cluster.kubeconfig), "scheduledjobs.clockhand.dev"
    assert (await look(db, server, operator, "definitions")).verdict is Verdict.OK
    try:
        column = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]
        kubectl.run("patch", "crd", name, "--type=json", "-p", json.dumps(column))
        found = await look(db, server, operator, "definitions")
        assert (found.verdict, found.samples) == (Verdict.ERROR, (f"{name} has another additionalPrinterColumns",))
        kubectl.run("delete", "crd", name)
        assert (await look(db, server, operator, "definitions")).samples == (f"{name} is not there",)
    finally:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
        kubectl.run("wait", "--for=condition=Established", f"crd/{name}", "--timeout=100s")


async def test_the_runs_api(
    db: database.Database, server: postgres.PostgresServer, cluster: light.LightCluster, operator: clients.Client
) -> None:
    """Nobody answers for it here."""
    kubectl, manifest = Kubectl(cluster.kubeconfig), manifests.objects("APIService")
    wait_for("the APIService to be judged", lambda: condition(kubectl, "Available") == "False")
    found = await look(db, server, operator, "runs-api")
    assert (found.verdict, "no namespace can be deleted" in found.sentence) == (Verdict.ERROR, True)
    kubectl.run("delete", "-f", "-", stdin=bundle(manifest))
    try:
        assert "is not there" in (await look(db, server, operator, "runs-api")).sentence
        # one that the API server itself answers for
        own = {
            "group": "runs.clockhand.dev",
            "version": "v1alpha1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
        }
        named = {"name": "v1alpha1.runs.clockhand.dev"}
        kubectl.apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": named, "spec": own})
        wait_for("the APIService to be judged", lambda: condition(kubectl, "Available") == "True")
        assert (await look(db, server, operator, "runs-api")).verdict is Verdict.OK
        kubectl.run("delete", "apiservice", named["name"])
    finally:
        kubectl.apply(*manifest)


def condition(kubectl: Kubectl, kind: str) -> str:
    found = kubectl.get("apiservice", "v1alpha1.runs.clockhand.dev").get("status", {}).get("conditions", [])
    return next((one["status"] for one in found if one["type"] == kind), "")


async def test_certificates(
    db: database.Database,
    server: postgres.PostgresServer,
    cluster: light.LightCluster,
    operator: clients.Client,
    tmp_path: Path,
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    kubectl = Kubectl(cluster.kubeconfig)
    serving, _ = certificates.issue(("localhost",), now)

    async def with_bundle(pem: bytes, **changes: Any) -> Finding:
        patch = {"spec": {"caBundle": base64.b64encode(pem).decode()}}
        kubectl.run("patch", "apiservice", "v1alpha1.runs.clockhand.dev", "--type=merge", "-p", json.dumps(patch))
        return await look(db, server, operator, "certificates", **changes)

    assert (await with_bundle(serving.ca)).verdict is Verdict.OK
    soon = certificates.CA_LIFE - datetime.timedelta(days=7)
    assert (await with_bundle(serving.ca, later=soon)).verdict is Verdict.WARNING
    assert (await with_bundle(serving.ca, later=AGES)).sentence == "a certificate has expired"
    file = tmp_path / "tls.crt"
    file.write_bytes(serving.certificate)
    found = await with_bundle(serving.ca, runs_tls_cert=str(file), later=certificates.LEAF_LIFE)
    assert (found.verdict, found.samples[0].partition(",")[0]) == (Verdict.ERROR, str(file))
    file.write_text("none")
    assert "holds no certificate" in (await with_bundle(serving.ca, runs_tls_cert=str(file))).sentence


async def test_the_certificate_that_is_served(
    db: database.Database, server: postgres.PostgresServer, cluster: light.LightCluster, operator: clients.Client
) -> None:
    """By the listener of the runs API, under whatever authority and name."""
    kubectl, now = Kubectl(cluster.kubeconfig), datetime.datetime.now(datetime.UTC)
    host = "clockhand-runs.clockhand-system.svc"
    good, _ = certificates.issue((host,), now)
    stranger, _ = certificates.issue((host,), now)
    misnamed, _ = certificates.issue(("localhost",), now)
    expired, _ = certificates.issue((host,), now - 2 * certificates.LEAF_LIFE)
    front = aggregation.FrontProxy(good.ca.decode(), (), ("X-Remote-User",), ("X-Remote-Group",), ())
    serving = listener.Listener(web.Application(), port=0, host="127.0.0.1")

    async def found(shown: certificates.Serving, bundle: bytes, **changes: Any) -> Finding:
        await serving.present(shown)
        service = {"name": "clockhand-runs", "namespace": "clockhand-system", "port": serving.port}
        patch = {"spec": {"service": service, "caBundle": base64.b64encode(bundle).decode()}}
        kubectl.run("patch", "apiservice", "v1alpha1.runs.clockhand.dev", "--type=merge", "-p", json.dumps(patch))
        return await look(db, server, operator, "served-certificate", **changes)

    await serving.present(good)
    await serving.believe(front)
    try:
        assert (await found(good, good.ca)).verdict is Verdict.OK
        assert (await found(good, "# für uns\n".encode() + good.ca)).verdict is Verdict.OK
        soon = await found(good, good.ca, later=certificates.LEAF_LIFE - datetime.timedelta(days=7))
        assert (soon.verdict, soon.sentence[:13]) == (Verdict.WARNING, "it expires at")
        for shown, bundle, said, advice in (
            (good, stranger.ca, "refuses the certificate", "into spec.caBundle"),
            (misnamed, misnamed.ca, f"not valid for '{host}'", f"issue it for {host}"),
            (expired, expired.ca, "has expired", "renews its own"),
        ):
            amiss = await found(shown, bundle)
            assert (amiss.verdict, said in amiss.sentence, advice in amiss.advice) == (Verdict.ERROR, True, True), amiss
        await serving.close()
        away = await look(db, server, operator, "served-certificate")
        assert (away.verdict, "cannot be reached from here" in away.sentence) == (Verdict.SKIPPED, True)
    finally:
        await serving.close()
        kubectl.apply(*manifests.objects("APIService"))


async def test_admission(
    db: database.Database, server: postgres.PostgresServer, cluster: light.LightCluster, operator: clients.Client
) -> None:
    kubectl, manifest = Kubectl(cluster.kubeconfig), manifests.objects(*manifests.POLICIES)
    name = "clockhand-pod-template-author"
    assert (await look(db, server, operator, "admission")).verdict is Verdict.OK
    try:
        for kind, patch, said in (
            ("validatingadmissionpolicy", {"failurePolicy": "Ignore"}, "lets pass what it cannot judge"),
            ("validatingadmissionpolicybinding", {"validationActions": ["Audit"]}, "is not enforced everywhere"),
        ):
            kubectl.run("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": patch}))
            found = await look(db, server, operator, "admission")
            assert (found.verdict, said in found.samples[0]) == (Verdict.ERROR, True)
            kubectl.apply(*manifest)
        kubectl.run("delete", "validatingadmissionpolicybinding", name)
        assert "is not there" in (await look(db, server, operator, "admission")).samples[0]
    finally:
        kubectl.apply(*manifest)


async def test_objects_and_jobs(
    db: database.Database, server: postgres.PostgresServer, kubectl: Kubectl, operator: clients.Client
) -> None:
    """No operator mirrors here: what it would have stored, the test stores."""

    async def found(name: str) -> Finding:
        return await look(db, server, operator, name, later=LATER, namespaces=(kubectl.namespace,))

    kubectl.apply(objects.job("stored"), objects.job("new"))
    assert (await found("objects-without-job")).samples == (f"{owner(kubectl)}/new", f"{owner(kubectl)}/stored")
    async with db.transaction() as connection:
        for name in ("stored", "new"):
            job = await jobs.make_job(connection, owner=owner(kubectl), name=name)
            uid = kubectl.get("scheduledjob", name)["metadata"]["uid"]
            await connection.execute(
                "UPDATE jobs SET job_id = %s, name = %s WHERE job_id = %s", (uid, name, job.job_id)
            )
            await connection.execute("DELETE FROM job_status WHERE job_id = %s", (job.job_id,))
    assert (await found("objects-without-job")).verdict is Verdict.OK
    assert (await found("jobs-without-object")).verdict is Verdict.OK
    kubectl.run("delete", "scheduledjob", "new")
    gone = await found("jobs-without-object")
    assert (gone.verdict, gone.samples) == (Verdict.ERROR, (f"{owner(kubectl)}/new",))
    assert (await found("objects-without-job")).verdict is Verdict.OK


async def test_a_run_without_its_pod(
    db: database.Database, server: postgres.PostgresServer, kubectl: Kubectl, operator: clients.Client
) -> None:
    async def found() -> Finding:
        return await look(db, server, operator, "runs-without-pod", later=LATER)

    run_id, name = await make_run(db, kubectl, S.RUNNING)
    lost = await found()
    assert (lost.verdict, lost.samples) == (Verdict.ERROR, (f"{owner(kubectl)}/{name}, attempt 1",))
    kubectl.apply(pod_of(run_id, kubectl.namespace))
    assert (await found()).verdict is Verdict.OK


async def test_pods_without_a_run(
    db: database.Database, server: postgres.PostgresServer, kubectl: Kubectl, operator: clients.Client
) -> None:
    run_id, _ = await make_run(db, kubectl, S.RUNNING)
    async with db.transaction() as connection:
        job_id = await jobs.one(connection, "SELECT job_id FROM live_runs WHERE run_id = %s", run_id)
    over = uuid.uuid4()
    stray = pod_of(over, kubectl.namespace, name="stray")
    stray["metadata"]["annotations"][observed.JOB_UID] = str(job_id)
    stranger = pod_of(over, kubectl.namespace, name="stranger")
    stranger["metadata"]["annotations"] = {}
    theirs = pod_of(uuid.uuid4(), kubectl.namespace, name="theirs")
    kubectl.apply(pod_of(run_id, kubectl.namespace), stray, stranger, theirs)
    changes: dict[str, Any] = {"cluster": operator, "later": LATER, "namespaces": (kubectl.namespace,)}
    patient = await examined.patient_of(db, server.url(), **changes)
    found = await examined.finding_of(patient, "pods-without-run")
    assert (found.verdict, len(found.samples)) == (Verdict.WARNING, 3)
    assert f"{kubectl.namespace}/stray, of no open attempt" in found.samples
    for name in ("stranger", "theirs"):
        assert f"{kubectl.namespace}/{name}, which names no run of this database" in found.samples
    kubectl.run("delete", "pod", "stranger", "theirs", "--force", "--grace-period=0")
    assert await examined.mended(patient, "pods-without-run") == (f"deleted pod {kubectl.namespace}/stray",)
    left = {one["metadata"]["name"] for one in kubectl.items("pods") if "deletionTimestamp" not in one["metadata"]}
    assert left == {pods.pod_name("job-00000", run_id, 1)}
    async with db.transaction() as connection:
        [row] = await audits.page(
            connection,
            owner(kubectl),
            job_ids=None,
            oldest=patient.now - LATER,
            before=(patient.now + LATER, 0),
            size=5,
        )
    assert (row.actor, row.action, row.run_id) == (contradictions.ACTOR, "pod-delete", over)


def owner(kubectl: Kubectl) -> str:
    return f"k8s/{kubectl.namespace}"


async def make_run(db: database.Database, kubectl: Kubectl, state: S) -> tuple[uuid.UUID, str]:
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, owner=owner(kubectl))
        at = ids.whole_ms(await database.now(connection))
        run_id = await jobs.make_run(connection, job, state, at=at)
    return run_id, ids.run_name(job_name=job.name, scheduled_at=at, kind=RunKind.SLOT, key="")


def pod_of(run_id: uuid.UUID, namespace: str, *, name: str = "") -> dict[str, Any]:
    """A pod of the first attempt, which no node will ever take."""
    marks = {
        observed.RUN_ID: str(run_id),
        observed.JOB_UID: str(uuid.uuid4()),
        observed.ATTEMPT: "1",
        observed.TOKEN: str(jobs.TOKEN),
        observed.SHARD: "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or pods.pod_name("job-00000", run_id, 1),
            "namespace": namespace,
            "labels": {pods.MANAGED_BY_LABEL: pods.MANAGED_BY},
            "annotations": marks,
        },
        "spec": {"nodeSelector": {"never": "there"}, "containers": [{"name": "main", "image": "any"}]},
    }
