"""Values of the chart at their borders: what is refused, and what is odd but right."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from tests.support import helm

_TIMED = ("livenessProbe", "readinessProbe", "securityContext")


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "database.existingSecret: name the Secret"),
        ({**helm.DATABASE, "replicas": 2}, "replicas"),
        ({**helm.DATABASE, "operator": {"replica": 2}}, "replica"),
        ({**helm.DATABASE, "operator": {"pod": {"nodeselector": {}}}}, "nodeselector"),
        ({**helm.DATABASE, "retentionDays": 0}, "retentionDays"),
        ({**helm.DATABASE, "logFormat": "xml"}, "logFormat"),
        ({**helm.DATABASE, "limits": {"owner": {}}}, "owner"),
        ({**helm.DATABASE, "runs": {"certificate": {"mode": "ExistingSecret"}}}, "runs.certificate.existingSecret"),
        (
            {**helm.DATABASE, "kafka": {"brokers": "k:1", "securityProtocol": "SASL_SSL", "sasl": {"username": "u"}}},
            "kafka.sasl.existingSecret",
        ),
        ({**helm.DATABASE, "kafka": {"brokers": "k:1", "sasl": {"username": "u"}}}, "kafka.securityProtocol"),
        ({**helm.DATABASE, "kafka": {"brokers": "k:1", "securityProtocol": "SASL_SSL"}}, "kafka.sasl.username"),
        ({**helm.DATABASE, "demoDatabase": {"enabled": True}}, "one database, not two"),
        ({"demoDatabase": {"enabled": True}, "database": {"ca": {"existingSecret": "ca"}}}, "database.ca"),
        (
            {"database": {"existingSecret": "d", "ca": {"existingSecret": "a", "existingConfigMap": "b"}}},
            "existingSecret or existingConfigMap",
        ),
        ({"demoDatabase": {"enabled": True, "image": {"tag": ""}}}, "demoDatabase.image"),
        ({**helm.DATABASE, "runs": {"certificate": {"existingSecret": "tls"}}}, "for the mode ExistingSecret"),
        ({**helm.DATABASE, "runs": {"certificate": {"issuerRef": {"name": "ours"}}}}, "for the mode CertManager"),
        ({**helm.DATABASE, "commonLabels": {"app.kubernetes.io/instance": "x"}}, "app.kubernetes.io/instance"),
        ({**helm.DATABASE, "pods": {"labels": {"helm.sh/chart": "x"}}}, "helm.sh/chart"),
        ({**helm.DATABASE, "api": {"pod": {"labels": {"app.kubernetes.io/name": "x"}}}}, "app.kubernetes.io/name"),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(major: helm.Helm, values: dict[str, Any], sentence: str) -> None:
    said = major.refusal("template", "clockhand", str(helm.CHART), "--kube-version=1.36", values=values)
    assert sentence in said


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
def test_a_cluster_that_is_too_old_is_refused(major: helm.Helm) -> None:
    said = major.refusal("template", "clockhand", str(helm.CHART), "--kube-version=1.29.9", values=helm.DATABASE)
    assert "1.30" in said


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
@pytest.mark.parametrize(
    "values",
    [{"operator": {"pod": {key: {} for key in _TIMED}}}, {"pods": dict.fromkeys(_TIMED)}],
    ids=["empty", "null"],
)
def test_a_pod_of_which_nothing_is_said_keeps_its_probes(major: helm.Helm, values: dict[str, Any]) -> None:
    objects = major.template({**helm.DATABASE, **values})
    (operator,) = (
        thing
        for thing in objects
        if helm.identity(thing).startswith("Deployment ") and thing["metadata"]["name"] == "clockhand-operator"
    )
    pod = operator["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["livenessProbe"] == {"httpGet": {"path": "/healthz", "port": "health"}}
    assert container["readinessProbe"] == {"httpGet": {"path": "/readyz", "port": "health"}}
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_what_looks_like_a_number_is_a_name() -> None:
    odd = "123"
    values = {
        "nameOverride": odd,
        "database": {"existingSecret": odd, "existingSecretKey": odd, "ca": {"existingSecret": odd}},
        "kafka": {
            "brokers": "kafka:9092",
            "securityProtocol": "SASL_SSL",
            "ca": {"existingSecret": odd},
            "sasl": {"username": odd, "existingSecret": odd},
        },
        "imagePullSecrets": [{"name": odd}],
        "watchNamespaces": [odd],
        "pods": {"priorityClassName": odd, "topologyKeys": [odd], "nodeSelector": {"a": odd}, "labels": {"a": odd}},
        "operator": {"serviceAccount": {"create": True, "name": odd}},
        "runs": {"certificate": {"mode": "ExistingSecret", "existingSecret": odd, "caBundle": "PEM"}},
        "workerPools": [{"name": odd, "namespace": odd, "spec": {}}],
        "networkPolicy": {"enabled": True},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"a": odd}}},
    }
    for thing in helm.Helm("helm4", namespace=odd).template(values, release=odd):
        numbers = {key for key, value in _leaves(thing) if isinstance(value, int) and value == int(odd)}
        assert numbers == set(), helm.identity(thing)


def _leaves(thing: object, key: str = "") -> Iterator[tuple[str, object]]:
    for name, below in (
        thing.items() if isinstance(thing, dict) else enumerate(thing if isinstance(thing, list) else ())
    ):
        yield from _leaves(below, f"{key}.{name}")
    if not isinstance(thing, (dict, list)):
        yield key, thing


@pytest.mark.parametrize(
    ("chosen", "wanted"), [(None, {}), ("", {"storageClassName": ""}), ("1", {"storageClassName": "1"})]
)
def test_the_class_of_the_demo_disk_may_be_none(chosen: str | None, wanted: dict[str, str]) -> None:
    values = {"demoDatabase": {"enabled": True, "storageClassName": chosen}}
    (database,) = (thing for thing in helm.Helm("helm4").template(values) if thing["kind"] == "StatefulSet")
    (claim,) = database["spec"]["volumeClaimTemplates"]
    assert {key: value for key, value in claim["spec"].items() if key == "storageClassName"} == wanted


def told(heading: str) -> Sequence[Sequence[str]]:
    """The commands of the block that follows in docs/operations.md."""
    page = (helm.CHART.parents[1] / "docs/operations.md").read_text(encoding="utf-8")
    block = page.partition(heading)[2].partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line) for line in block.replace("\\\n", "").splitlines()]


def test_the_way_from_the_demo_database_to_another_one_is_as_told() -> None:
    commands = told("**From the demo database to one of yours.**")
    settings = [word for line in commands for word in line if line[0] == "helm" and "=" in word]
    [made] = [line[line.index("generic") + 1] for line in commands if "generic" in line]
    given = [word for setting in settings for word in ("--set", setting)]
    demo = {"demoDatabase": {"enabled": True}}
    said = helm.Helm("helm4").run("template", "clockhand", str(helm.CHART), "--kube-version=1.36", *given, values=demo)
    objects = [thing for thing in yaml.load_all(said, Loader=yaml.CSafeLoader) if thing]
    assert [thing for thing in objects if thing["kind"] == "StatefulSet"] == []
    deployments = [thing for thing in objects if thing["kind"] == "Deployment"]
    for thing in deployments:
        assert thing["spec"]["replicas"] == 2
        (container,) = thing["spec"]["template"]["spec"]["containers"]
        assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": made, "key": "url"}
    # Helm deletes what the release had before and has no more
    before = helm.Helm("helm4").template(demo)
    assert made not in {thing["metadata"]["name"] for thing in before if thing["kind"] == "Secret"}
    (database,) = (thing for thing in before if thing["kind"] == "StatefulSet")
    assert f"{database['metadata']['name']}-0" in next(line for line in commands if "pg_dump" in line)


def test_an_upgrade_as_told_pins_no_image_and_outlasts_the_migration() -> None:
    [[*words]] = told("## Upgrade\n")
    assert not [word for word in words if "image" in word]
    minutes = int(words[words.index("--timeout") + 1].removesuffix("m"))
    (job,) = (thing for thing in helm.Helm("helm4").template(helm.DATABASE) if thing["kind"] == "Job")
    assert minutes * 60 > job["spec"]["activeDeadlineSeconds"]
