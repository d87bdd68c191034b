"""What a pool's workers look like in the cluster, before anything is sent there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.test_workerpool import UID, seen

from clockhand.domain import pods, workerpool, workloads

DEFAULTS = workloads.Defaults("registry/worker:1", "http://clockhand-api.own:8080", "broker:9092")
Json = dict[str, Any]


def rendered(replicas: int = 2, **spec: Any) -> dict[str, Json]:
    """The objects by kind."""
    pool = workerpool.from_object(seen(spec))
    assert pool is not None
    assert pool.spec is not None, pool.fault
    return {body["kind"]: body for body in workloads.render(pool, pool.spec, DEFAULTS, replicas=replicas)}


def pod_of(**spec: Any) -> Json:
    pod: Json = rendered(**spec)["Deployment"]["spec"]["template"]
    return pod


def container_of(**spec: Any) -> Json:
    container: Json = pod_of(**spec)["spec"]["containers"][0]
    return container


def environment_of(**spec: Any) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of(**spec)["env"]}


def test_everything_belongs_to_the_pool_and_goes_with_it() -> None:
    found = rendered()
    assert list(found) == ["ServiceAccount", "ConfigMap", "Deployment", "PodDisruptionBudget"]
    for body in found.values():
        metadata = body["metadata"]
        assert (metadata["namespace"], metadata["name"]) == ("team-a", "clockhand-pool-mailers")
        [owner] = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("WorkerPool", str(UID), True)
        assert "blockOwnerDeletion" not in owner


def test_the_pods_of_a_pool_are_not_taken_for_runs() -> None:
    name, _, value = pods.SELECTOR.partition("=")
    assert pod_of()["metadata"]["labels"].get(name) != value
    labelled = {
        "metadata": {"labels": {"clockhand.dev/pool": "other", "own": "1"}},
        "spec": {"containers": [{"name": "w"}]},
    }
    labels = pod_of(template=labelled)["metadata"]["labels"]
    assert (labels["clockhand.dev/pool"], labels["own"]) == ("mailers", "1")


def test_a_worker_is_told_what_it_needs() -> None:
    assert environment_of(concurrency=7, terminationGracePeriodSeconds=40) == {
        "CLOCKHAND_API_URL": "http://clockhand-api.own:8080",
        "CLOCKHAND_POOL": "team-a/mailers",
        "CLOCKHAND_TOKEN_FILE": "/var/run/secrets/clockhand/token",
        "CLOCKHAND_CONCURRENCY": "7",
        "CLOCKHAND_GRACE_SECONDS": "35",
        "CLOCKHAND_HEALTH_PORT": "8081",
    }
    assert environment_of(dispatch="Kafka")["CLOCKHAND_KAFKA"] == "broker:9092"
    [volume] = [one for one in pod_of()["spec"]["volumes"] if one["name"] == "clockhand-token"]
    [source] = volume["projected"]["sources"]
    assert source["serviceAccountToken"] == {"audience": "clockhand", "expirationSeconds": 3600, "path": "token"}


def test_a_pod_passes_the_restricted_standard_and_writes_nowhere() -> None:
    pod, container = pod_of()["spec"], container_of()
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/tmp", "/var/run/secrets/clockhand"}


def test_a_rollout_loses_nothing() -> None:
    spec = rendered(terminationGracePeriodSeconds=40)["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 40
    container = spec["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        ({}, "registry/worker:1"),
        ({"image": "mine:2"}, "mine:2"),
        ({"template": {"spec": {"containers": [{"name": "a", "image": "theirs:3"}]}}}, "theirs:3"),
        ({"template": {"spec": {"containers": [{"name": "a"}]}}}, "registry/worker:1"),
    ],
)
def test_whose_image(spec: Json, image: str) -> None:
    assert container_of(**spec)["image"] == image
    assert container_of(**spec)["args"] == ["worker"]


def test_a_template_has_the_last_word() -> None:
    main = {
        "name": "main",
        "image": "mine",
        "command": ["my-worker"],
        "env": [{"name": "CLOCKHAND_CONCURRENCY", "value": "3"}, {"name": "OWN", "value": "x"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "large", "mountPath": "/tmp/"}],
    }
    template = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "main"}},
        "spec": {"serviceAccountName": "own", "containers": [{"name": "side", "image": "side"}, main]},
    }
    found = rendered(template=template)
    assert "ServiceAccount" not in found
    pod = found["Deployment"]["spec"]["template"]["spec"]
    side, worker = pod["containers"]
    assert side == {"name": "side", "image": "side"}
    assert pod["serviceAccountName"] == "own"
    assert "args" not in worker
    assert worker["resources"] == {"limits": {"memory": "1Gi"}}
    assert [one["name"] for one in worker["volumeMounts"]] == ["large", "clockhand-token"]
    environment = {one["name"]: one["value"] for one in worker["env"]}
    assert (environment["CLOCKHAND_CONCURRENCY"], environment["OWN"]) == ("3", "x")
    assert environment["CLOCKHAND_POOL"] == "team-a/mailers"


def test_the_template_of_the_spec_is_left_as_it_is() -> None:
    template: Json = {"spec": {"containers": [{"name": "a"}]}}
    pool = workerpool.from_object(seen({"template": template}))
    assert pool is not None
    assert pool.spec is not None
    first = workloads.render(pool, pool.spec, DEFAULTS, replicas=1)
    assert workloads.render(pool, pool.spec, DEFAULTS, replicas=1) == first


def test_built_in_handlers_get_their_files_and_a_change_of_them_new_workers() -> None:
    commands = {"report": ["/bin/report", "--all"]}
    http = {"allowedHosts": ["api.example.org"], "secretName": "keys"}
    found = rendered(execCommands=commands, http=http)
    data = found["ConfigMap"]["data"]
    assert json.loads(data["exec.yaml"]) == commands
    assert json.loads(data["hosts.yaml"]) == {"hosts": ["api.example.org"], "networks": []}
    environment = environment_of(execCommands=commands, http=http)
    assert environment["CLOCKHAND_EXEC_COMMANDS"] == "/etc/clockhand/pool/exec.yaml"
    assert environment["CLOCKHAND_HTTP_HOSTS"] == "/etc/clockhand/pool/hosts.yaml"
    assert environment["CLOCKHAND_HTTP_KEYS"] == "/etc/clockhand/keys"
    marks = {
        json.dumps(pod_of(**spec)["metadata"]["annotations"])
        for spec in ({}, {"execCommands": commands}, {"execCommands": {"report": ["/bin/other"]}})
    }
    assert len(marks) == 3
