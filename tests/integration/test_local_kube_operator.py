"""The operator, as it is in a cluster, against the small API server: over a restart of that, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import kubectl as kubectls
from tests.support import local_kube, postgres
from tests.support.crd_cases import job

from clockhand.standalone.nodes import kubelet

OWNED = ("deployment", "serviceaccount", "configmap", "poddisruptionbudget")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_kube.LocalKube]:
    folder = tmp_path_factory.mktemp("kube")
    with postgres.server() as server:
        url = server.url(server.new_database())
        local_kube.migrate(url)
        node = kubelet.maker(folder / "node", environment=dict(os.environ))
        with local_kube.running(folder, url, node) as running, local_kube.operator(folder, url, running.kubeconfig):
            yield running


def often(name: str, script: str = "true") -> Json:
    """A job that runs a script each second."""
    pod = {"containers": [{"name": "main", "image": "any", "command": ["sh", "-c", script]}]}
    return job(name, schedule=None, every="1s", template={"spec": pod})


def succeeded(kubectl: kubectls.Kubectl, name: str) -> list[Json]:
    fields = f"--field-selector=spec.job={name},status.state=Succeeded"
    return kubectl.items("runs", fields)


def test_job_runs_and_its_status_is_written(kube: local_kube.LocalKube) -> None:
    kubectl = kube.kubectl
    kubectl.apply(often("ticking"))
    kubectls.wait_for("runs", lambda: succeeded(kubectl, "ticking"))
    kubectl.run("wait", "--for=condition=Ready", "sjob/ticking", "--timeout=60s")
    kubectl.run("wait", "--for=condition=TemplateValid", "sjob/ticking", "--timeout=60s")
    assert kubectl.get("sjob", "ticking")["status"]["observedGeneration"] == 1
    kubectl.run("delete", "sjob", "ticking")


def test_template_that_is_no_pod_stops_its_job(kube: local_kube.LocalKube) -> None:
    pod = {"containers": [{"name": "main", "image": "any", "comand": ["true"]}]}
    kube.kubectl.apply(job("misspelt", template={"spec": pod}))
    kube.kubectl.run("wait", "--for=condition=TemplateValid=False", "sjob/misspelt", "--timeout=60s")
    conditions = kube.kubectl.get("sjob", "misspelt")["status"]["conditions"]
    (found,) = [one for one in conditions if one["type"] == "TemplateValid"]
    assert "spec.containers[0].comand" in found["message"]
    kube.kubectl.run("delete", "sjob", "misspelt")


def test_pool_is_kept_and_goes(kube: local_kube.LocalKube) -> None:
    kubectl = kube.kubectl
    kubectl.apply({
        "apiVersion": "clockhand.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "mailers"},
        "spec": {"handlers": ["email.send"], "replicas": 0},
    })  # fmt: skip
    for kind in OWNED[:2]:
        kubectl.run("wait", "--for=create", f"{kind}/clockhand-pool-mailers", "--timeout=60s")
    kubectl.run("scale", "wpool/mailers", "--replicas=2")
    wanted = "--for=jsonpath={.spec.replicas}=2"
    kubectl.run("wait", wanted, "deployment/clockhand-pool-mailers", "--timeout=60s")
    kubectl.run("delete", "wpool", "mailers")
    for kind in OWNED:
        kubectl.run("wait", "--for=delete", f"{kind}/clockhand-pool-mailers", "--timeout=60s")


def test_operator_goes_on_after_a_restart_of_the_server(kube: local_kube.LocalKube) -> None:
    kubectl = kube.kubectl
    kubectl.apply(often("before"))
    kubectls.wait_for("runs", lambda: succeeded(kubectl, "before"))
    kube.stop()
    kube.start()
    kubectl.apply(often("after"))
    kubectls.wait_for("runs of the new job", lambda: succeeded(kubectl, "after"))
    known = len(succeeded(kubectl, "before"))
    kubectls.wait_for("more runs of the old one", lambda: len(succeeded(kubectl, "before")) > known)
    kubectl.run("delete", "sjob", "before", "after")
