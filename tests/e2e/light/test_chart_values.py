"""Values of the chart at work: its processes with what their pods say, and kinds of others by their own definitions."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiokafka.admin
import pytest
from tests.e2e.cluster import binaries
from tests.support import chart_cases, charted, helm, installation, kafka, light, objects, pki, postgres, runs
from tests.support.kubectl import Kubectl, NotYet, bundle, wait_for

from clockhand.domain import protocol

OPERATOR = "system:serviceaccount:clockhand-system:clockhand-operator"
HOST = "clockhand-runs.clockhand-system.svc"
PARTITIONS = 3
# files with definitions in the module of each project
CERT_MANAGER, PROMETHEUS = "github.com/cert-manager/cert-manager", "github.com/prometheus-operator/prometheus-operator"
DEFINITIONS = {
    CERT_MANAGER: [f"deploy/crds/cert-manager.io_{kind}.yaml" for kind in ("certificates", "issuers")],
    PROMETHEUS: [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "prometheusrules")
    ],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        kubectl = Kubectl(running.kubeconfig)
        for name in ("team-a", "team-b"):
            kubectl.create_namespace(name)
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[kafka.Broker]:
    with kafka.broker() as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pki.Authority:
    """Signed what is in the Secret."""
    made = pki.authority(tmp_path_factory.mktemp("runs"), "own")
    made.issue("tls", common_name="runs", hosts=(HOST,))
    return made


@pytest.fixture(scope="module")
def release(
    cluster: light.LightCluster, server: postgres.PostgresServer, broker: kafka.Broker, authority: pki.Authority
) -> Iterator[charted.Charted]:
    """One that needs something else to be there: a certificate, brokers, a namespace to watch."""
    own = {f"tls.{end}": (authority.folder / f"tls.{end}").read_bytes() for end in ("crt", "key")}
    values: dict[str, Any] = {
        "watchNamespaces": ["team-a"],
        "runs": {
            "certificate": {
                "mode": "ExistingSecret",
                "existingSecret": "own-certificate",
                "caBundle": (authority.folder / "own.crt").read_text(),
            }
        },
        "kafka": {
            "brokers": broker.secure_servers,
            "securityProtocol": "SASL_SSL",
            "ca": {"existingSecret": "brokers", "key": "authority.pem"},
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": kafka.USER, "existingSecret": "brokers"},
            "partitions": PARTITIONS,
        },
        "workerPools": [
            {"name": "mailers", "namespace": "team-a", "spec": {"dispatch": "Kafka", "handlers": ["email.send"]}}
        ],
    }
    brokers = {"authority.pem": broker.ca.read_bytes(), "password": kafka.PASSWORD.encode()}
    with closing(charted.Charted(cluster, server)) as installed:
        secrets = charted.secret("own-certificate", own), charted.secret("brokers", brokers)
        installed.install_chart(values, *secrets)
        yield installed


def test_runs_are_served_by_a_certificate_of_a_secret(release: charted.Charted, authority: pki.Authority) -> None:
    """The API server believes the authority of the values, and the name of the Service; no Secret is the process's own."""
    assert release.kubectl.run("get", "runs", "-A").code == 0
    registered = release.kubectl.get("apiservice", installation.API_SERVICE)["spec"]
    assert base64.b64decode(registered["caBundle"]) == (authority.folder / "own.crt").read_bytes()
    shown = ssl.get_server_certificate(("localhost", registered["service"]["port"]))
    assert shown.strip() == (authority.folder / "tls.crt").read_text().strip()
    assert release.kubectl.within(installation.OWN).find("secret", "clockhand-runs-tls") is None


def test_the_operator_works_in_the_namespaces_that_it_watches(release: charted.Charted) -> None:
    beside, watched = (release.kubectl.within(name) for name in ("team-b", "team-a"))
    for team in (beside, watched):
        team.apply(objects.job("works"))
    wait_for("the job to be ready", lambda: objects.condition(watched.get("sjob", "works"), "Ready").get("status"))
    watched.create(runs.manual("once", "works"))
    wait_for("its run to succeed", lambda: runs.state(watched.get("run", "once")) == "Succeeded")
    assert "status" not in beside.get("sjob", "works")
    allowed = {team.namespace: rights(team) for team in (beside, watched)}
    assert {"pods", "scheduledjobs.clockhand.dev", "deployments.apps"} <= allowed["team-a"]
    assert not {name for name in allowed["team-b"] if name.startswith(("pods", "scheduledjobs", "deployments"))}


def test_processes_connect_to_the_brokers_of_the_values(release: charted.Charted, broker: kafka.Broker) -> None:
    """By TLS, with the password of a Secret; the topic of a pool that came with the release has the partitions asked for."""
    asked = protocol.topic_of("email.send")

    def partitions() -> int:
        [found] = asyncio.run(topics(broker, asked))
        if found["error_code"]:
            raise NotYet(str(found))
        return len(found["partitions"])

    assert wait_for("the topic", partitions) == PARTITIONS
    team = release.kubectl.within("team-a")
    wait_for(
        "the condition",
        lambda: objects.condition(team.get("wpool", "mailers"), "KafkaReachable").get("status") == "True",
    )


async def topics(broker: kafka.Broker, *names: str) -> list[Any]:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await admin.start()
    try:
        return list(await admin.describe_topics(list(names)))
    finally:
        await admin.close()


def rights(team: Kubectl) -> set[str]:
    """The resources of which the operator may do anything there."""
    said = team.acting_as(OPERATOR).run("auth", "can-i", "--list").out
    return {line.split()[0] for line in said.splitlines()[1:]}


def test_kinds_of_other_projects_are_as_their_definitions_have_them(cluster: light.LightCluster) -> None:
    """cert-manager's, and those of the Prometheus operator."""
    kubectl = Kubectl(cluster.kubeconfig)
    for module, files in DEFINITIONS.items():
        source = binaries.source_of("definitions", module)
        for file in files:
            kubectl.run("apply", "--server-side", "-f", str(source / file))
    kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=100s")
    served = "certificates,issuers,servicemonitors,prometheusrules"
    wait_for("the kinds to be served", lambda: kubectl.call("get", served, "-A").code == 0)
    made = [
        thing
        for name in ("everything", "cert-manager", "issuer")
        for thing in helm.Helm("helm4").template(chart_cases.MATRIX[name])
        if "monitoring.coreos.com" in thing["apiVersion"] or "cert-manager.io" in thing["apiVersion"]
    ]
    kinds = [thing["kind"] for thing in made]
    assert sorted(set(kinds)) == ["Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"]
    kubectl.create_namespace(installation.OWN, labels=charted.RESTRICTED)
    said = kubectl.run(
        "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", stdin=bundle(made)
    )
    assert len(said.out.splitlines()) == len(made)
    assert "Warning" not in said.err
