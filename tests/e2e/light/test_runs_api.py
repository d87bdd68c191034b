"""The runs API behind a real API server: what stock kubectl makes of it, and what must hold when parts of it are gone.

No operator runs here: the rows are the test's own, so that every state is there when a test looks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from cryptography import x509
from tests.support import history, installation, light, objects, postgres, runs
from tests.support.kubectl import Kubectl, wait_for

from clockhand.api.runs import certificates
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import changes, database

BASE = "/apis/runs.clockhand.dev/v1alpha1"
TEAM = f"{BASE}/namespaces/default/runs"
CANCEL_SECONDS = 2.0


@dataclass(frozen=True)
class Stage:
    """A control plane with the runs API behind it, and its database."""

    kubectl: Kubectl
    processes: installation.Processes
    database: postgres.PostgresServer

    @property
    def url(self) -> str:
        return self.database.url("clockhand")

    @property
    def port(self) -> int:
        service = self.kubectl.within(installation.OWN).get("service", "clockhand-runs")
        return int(service["spec"]["ports"][0]["port"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with light.LightCluster() as cluster, postgres.server() as server:
        processes = installation.Processes(cluster, server)
        try:
            processes.install(operators=0)
            asyncio.run(seed(server.url("clockhand")))
            yield Stage(Kubectl(cluster.kubeconfig), processes, server)
        finally:
            processes.close()


@pytest.fixture
def kubectl(stage: Stage) -> Kubectl:
    return stage.kubectl


async def seed(url: str) -> None:
    """Runs in every state that a test asks for, all of the job `nightly`."""
    db = database.Database(url, size=1, name="seed")
    await db.open()
    async with db.transaction() as connection:
        now = await database.now(connection)
        job = await history.make_job(connection, "nightly", namespace="default", labels={"tier": "gold"}, now=now)
        for hours, state in enumerate(("Running", "Retrying", "Blocked"), start=1):
            await history.add_live(connection, job, "nightly", at=now - timedelta(hours=hours), state=state)
        done = await history.add_live(connection, job, "nightly", at=now, name="done")
        await history.end(connection, done)
        dead = await history.add_live(connection, job, "nightly", at=now, name="dead", state="Running")
        await history.end(connection, dead, state="Dead", reason="AttemptsUsed")
        await history.skip(connection, job, last_at=now - timedelta(hours=4), count=9, reason="CatchUp")
    await changes.number_pending(db)
    await db.close()


def change(stage: Stage, name: str, state: str) -> None:
    """Moves or ends the live run called `name`."""

    async def act() -> None:
        db = database.Database(stage.url, size=1, name="change")
        await db.open()
        async with db.transaction() as connection:
            cursor = await connection.execute("SELECT run_id FROM live_runs WHERE name = %s", (name,))
            [(run_id,)] = await cursor.fetchall()
            if state in runs.ENDED:
                await history.end(connection, run_id, state=state)
            else:
                await history.move(connection, run_id, state=state)
        await changes.number_pending(db)
        await db.close()

    asyncio.run(act())


def create(kubectl: Kubectl, name: str, **spec: Any) -> None:
    kubectl.create(runs.manual(name, "nightly", **spec))


def test_every_state_is_a_row_also_a_page_at_a_time(kubectl: Kubectl) -> None:
    whole = kubectl.run("get", "runs").out.splitlines()
    states = [line.split()[2] for line in whole[1:]]
    assert {"Running", "Retrying", "Blocked", "Succeeded", "Dead", "Skipped"} <= set(states)
    paged = kubectl.run("get", "runs", "--chunk-size=2").out.splitlines()
    assert [line.split()[0] for line in paged] == [line.split()[0] for line in whole]
    wide = kubectl.run("get", "runs", "-o", "wide").out
    assert "CatchUp (9 slots)" in wide


def test_a_skipped_slot_can_be_described(kubectl: Kubectl) -> None:
    [skipped] = runs.skipped_of_job(kubectl, "nightly")
    said = kubectl.run("describe", "run", skipped["metadata"]["name"]).out
    assert "Skipped" in said
    assert "nothing to cancel" in kubectl.refusal("delete", "run", skipped["metadata"]["name"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "yaml"),
        ("-o", "name"),
        ("-o", "custom-columns=N:.metadata.name,S:.status.state"),
        ("--show-labels",),
        ("--sort-by=.spec.scheduledTime",),
        ("--all-namespaces",),
        ("-l", "tier in (gold),clockhand.dev/job=nightly"),
        ("--output-watch-events", "--watch", "--request-timeout=3s"),
    ],
)
def test_kubectl_can_show_a_list_in_any_way(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    assert "done" in kubectl.call("get", "runs", *arguments).out


def test_what_is_gone_is_not_found(kubectl: Kubectl) -> None:
    assert "NotFound" in kubectl.refusal("get", "run", "nobody")
    assert "NotFound" in kubectl.refusal("delete", "run", "nobody")


def test_kubectl_lets_the_server_check_fields(kubectl: Kubectl) -> None:
    order = json.dumps(runs.manual("misspelt", "nightly", paylod={}))
    # kubectl learns from the openapi document that it may
    wait_for("the openapi document", lambda: "ScheduledJob" in kubectl.call("explain", "runs.spec.job").out)
    assert 'unknown field "spec.paylod"' in kubectl.refusal("create", "-f", "-", stdin=order)
    assert 'unknown field "spec.paylod"' in kubectl.run("create", "-f", "-", "--validate=warn", stdin=order).err


def test_a_server_side_dry_run_makes_nothing(kubectl: Kubectl) -> None:
    order = json.dumps(runs.manual("only-tried", "nightly"))
    assert "server dry run" in kubectl.run("create", "-f", "-", "--dry-run=server", stdin=order).out
    assert kubectl.find("run", "only-tried") is None


def test_delete_returns_at_once_while_the_run_is_still_stopping(stage: Stage, kubectl: Kubectl) -> None:
    create(kubectl, "stops")
    change(stage, "stops", "Claimed")
    change(stage, "stops", "Running")
    answer = kubectl.run("delete", "run", "stops")
    assert answer.seconds < CANCEL_SECONDS
    assert runs.state(kubectl.get("run", "stops")) == "Stopping"


def test_edits_and_collections_are_refused_with_a_sentence(kubectl: Kubectl) -> None:
    assert "cannot be edited" in kubectl.refusal("label", "run", "done", "colour=blue")
    assert "one by one" in kubectl.refusal("delete", "--raw", TEAM)


def test_watch_and_wait_follow_a_run(stage: Stage, kubectl: Kubectl) -> None:
    arguments = ("get", "runs", "--watch", "--output-watch-events", "--field-selector=metadata.name=followed")
    with kubectl.follow(*arguments) as shown:
        create(kubectl, "followed")
        shown.until(lambda line: "Queued" in line)
        for state in ("Claimed", "Running", "Succeeded"):
            change(stage, "followed", state)
            shown.until(lambda line, state=state: state in line)  # type: ignore[misc]
    kubectl.run("wait", "--for=condition=Complete", "run/followed", "--timeout=30s")


def test_wait_returns_when_the_condition_comes(stage: Stage, kubectl: Kubectl) -> None:
    create(kubectl, "awaited")
    with kubectl.follow("wait", "--for=condition=Failed", "run/awaited", "--timeout=60s") as waiting:
        change(stage, "awaited", "Claimed")
        change(stage, "awaited", "Dead")
        waiting.until(lambda line: "condition met" in line)


def test_rights_are_the_clusters_own(kubectl: Kubectl) -> None:
    kubectl.apply(
        objects.role("sees-runs", ("runs.clockhand.dev", "runs", ["get", "list", "watch"])),
        objects.grant("reader", "Role", "sees-runs"),
    )
    reader, stranger = kubectl.acting_as("reader"), kubectl.acting_as("stranger")
    wait_for("the role", lambda: reader.call("get", "runs").code == 0)
    assert "done" in reader.run("get", "runs").out
    for arguments in (("get", "runs", "-A"), ("delete", "run", "done"), ("get", "--raw", f"{TEAM}/dead/log")):
        assert "Forbidden" in reader.refusal(*arguments)
    for subresource in ("cancel", "retry"):
        assert "Forbidden" in reader.refusal("create", "--raw", f"{TEAM}/dead/{subresource}", "-f", "-", stdin="{}")
    assert "Forbidden" in stranger.refusal("get", "runs")
    assert reader.run("auth", "can-i", "list", "runs").out.strip() == "yes"


def direct(stage: Stage, path: str, **headers: str) -> int:
    """The status of a call past the API server, straight to the port."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"https://localhost:{stage.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_direct_caller_with_forged_headers_is_nobody(stage: Stage) -> None:
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for path in (TEAM, f"{TEAM}/done", BASE, "/apis", f"{BASE}/runs?watch=true"):
        assert direct(stage, path, **forged) == 401


def test_a_direct_caller_with_a_token_has_that_tokens_rights(stage: Stage, kubectl: Kubectl) -> None:
    kubectl.run("create", "serviceaccount", "robot")
    token = kubectl.run("create", "token", "robot").out.strip()
    bearer = {"Authorization": f"Bearer {token}"}
    assert direct(stage, BASE, **bearer) == 200
    assert direct(stage, TEAM, **bearer) == 403
    assert direct(stage, TEAM, Authorization="Bearer made-up") == 401
    kubectl.run("create", "role", "robot", "--verb=list", "--resource=runs.runs.clockhand.dev")
    kubectl.run("create", "rolebinding", "robot", "--role=robot", "--serviceaccount=default:robot")
    wait_for("the answer to be asked anew", lambda: direct(stage, TEAM, **bearer) == 200)


def test_the_certificate_is_in_its_secret_and_its_authority_in_the_api_service(stage: Stage, kubectl: Kubectl) -> None:
    secret = kubectl.within(installation.OWN).get("secret", "clockhand-runs-tls")
    assert secret["type"] == "Opaque"
    leaf = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["ca.crt"])))
    bundle = kubectl.get("apiservice", installation.API_SERVICE)["spec"]["caBundle"]
    assert bundle == secret["data"]["ca.crt"]
    assert (
        ssl.get_server_certificate(("localhost", stage.port)).strip()
        in base64.b64decode(secret["data"]["tls.crt"]).decode()
    )


async def test_replicas_that_start_together_share_one_certificate(stage: Stage, kubectl: Kubectl) -> None:
    found = await connections.find(str(kubectl.kubeconfig))
    async with clients.connect(found) as client:
        replicas = [certificates.SecretCertificate(client, namespace="default", service="racer") for _ in range(4)]
        now = datetime.now(UTC)
        first = {serving.ca for serving in await asyncio.gather(*(replica.current(now) for replica in replicas))}
        later = now + certificates.LEAF_LIFE
        renewed = await asyncio.gather(*(replica.current(later) for replica in replicas))
    assert len(first) == 1
    assert len({serving.certificate for serving in renewed}) == 1
    assert {serving.ca for serving in renewed} == first
    assert certificates.is_good(renewed[0], certificates.host_names("racer", "default"), later)


def test_a_broken_certificate_is_replaced(stage: Stage, kubectl: Kubectl) -> None:
    own = kubectl.within(installation.OWN)
    before = own.get("secret", "clockhand-runs-tls")["data"]["tls.crt"]
    own.run("patch", "secret", "clockhand-runs-tls", "--type=merge", "-p", '{"data": {"tls.crt": "eA=="}}')
    after = wait_for(
        "a new certificate",
        lambda: (own.get("secret", "clockhand-runs-tls")["data"]["tls.crt"] not in (before, "eA==")) or None,
    )
    assert after
    wait_for("runs by the new certificate", lambda: kubectl.call("get", "runs").code == 0)


def test_the_garbage_collector_leaves_runs_alone(stage: Stage, kubectl: Kubectl) -> None:
    [listed] = [
        resource
        for resource in json.loads(kubectl.run("get", "--raw", BASE).out)["resources"]
        if resource["name"] == "runs"
    ]
    assert "delete" not in listed["verbs"]
    assert "deletecollection" not in listed["verbs"]


def test_namespaces_can_be_deleted_while_postgres_is_down(stage: Stage, kubectl: Kubectl) -> None:
    kubectl.create_namespace("unrelated")
    stage.database.kill()
    try:
        said = wait_for("an honest answer", lambda: refused(kubectl))
        assert "runs cannot be read or changed now" in said
        assert "runs" in kubectl.run("api-resources", "--api-group=runs.clockhand.dev").out
        kubectl.run("delete", "namespace", "unrelated", "--timeout=100s")
    finally:
        stage.database.start()
    wait_for("runs again", lambda: kubectl.call("get", "runs").code == 0)


def refused(kubectl: Kubectl) -> str | None:
    answer = kubectl.call("get", "runs")
    return answer.err if "ServiceUnavailable" in answer.err else None


def test_a_watch_outlives_a_restart_of_postgres(stage: Stage, kubectl: Kubectl) -> None:
    create(kubectl, "survivor")
    with kubectl.follow("get", "runs", "--watch", "--field-selector=metadata.name=survivor") as shown:
        shown.until(lambda line: "Queued" in line)
        change(stage, "survivor", "Claimed")
        shown.until(lambda line: "Claimed" in line)  # the list is over: kubectl watches now
        stage.database.kill()
        stage.database.start()
        wait_for("the database", lambda: ready(stage))
        change(stage, "survivor", "Running")
        shown.until(lambda line: "Running" in line)


def ready(stage: Stage) -> bool:
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(stage.url, connect_timeout=2):
        return True
    return False
