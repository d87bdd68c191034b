"""What `kubectl apply -k` is given; its rights are written down a second time here: a change must be meant."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import helm, kubectl, manifests

from clockhand import config
from clockhand.domain import limits

OWN = "clockhand-system"
VERSION = yaml.safe_load((helm.CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
DEFINITIONS = "scheduledjobs.clockhand.dev,workerpools.clockhand.dev,jobclasses.clockhand.dev"
POLICIES = "clockhand-pod-template-author,clockhand-job-class-user,clockhand-worker-pool-author"

RIGHTS = {
    ("ClusterRole", "clockhand-operator"): [
        "clockhand.dev/scheduledjobs: delete get list watch",
        "clockhand.dev/workerpools: get list watch",
        "clockhand.dev/jobclasses: get list",
        "clockhand.dev/scheduledjobs/status: patch",
        "clockhand.dev/workerpools/status: patch",
        "/pods: create delete get list watch",
        "/pods/log: get",
        "apps/deployments: create delete get list patch",
        "/serviceaccounts: create delete get patch",
        "/configmaps: create delete get patch",
        "policy/poddisruptionbudgets: create delete get patch",
        "/events: create patch",
        "/namespaces: get",
        f"apiextensions.k8s.io/customresourcedefinitions[{DEFINITIONS}]: get",
        "apiregistration.k8s.io/apiservices[v1alpha1.runs.clockhand.dev]: get",
        f"admissionregistration.k8s.io/validatingadmissionpolicies[{POLICIES}]: get",
        f"admissionregistration.k8s.io/validatingadmissionpolicybindings[{POLICIES}]: get",
    ],
    ("ClusterRole", "clockhand-api"): [
        "authentication.k8s.io/tokenreviews: create",
        "authorization.k8s.io/subjectaccessreviews: create",
    ],
    ("ClusterRole", "clockhand-runs"): [
        "apiregistration.k8s.io/apiservices[v1alpha1.runs.clockhand.dev]: get patch",
    ],
    ("Role", "clockhand-runs"): ["/secrets[clockhand-runs-tls]: get update"],
    ("ClusterRole", "clockhand-viewer"): [
        "clockhand.dev/scheduledjobs: get list watch",
        "clockhand.dev/workerpools: get list watch",
        "clockhand.dev/jobclasses: get list watch",
        "clockhand.dev/scheduledjobs/status: get",
        "clockhand.dev/workerpools/status: get",
        "clockhand.dev/workerpools/scale: get",
        "runs.clockhand.dev/runs: get list watch",
    ],
    ("ClusterRole", "clockhand-editor"): [
        "clockhand.dev/scheduledjobs: create delete deletecollection patch update",
        "clockhand.dev/workerpools: create delete deletecollection patch update",
        "clockhand.dev/workerpools/scale: patch update",
        "runs.clockhand.dev/runs: create delete",
        "runs.clockhand.dev/runs/cancel: create",
        "runs.clockhand.dev/runs/retry: create",
        "runs.clockhand.dev/runs/log: get",
    ],
}

BINDINGS = {
    "ClusterRoleBinding clockhand-operator: ClusterRole clockhand-operator to clockhand-operator",
    "ClusterRoleBinding clockhand-api: ClusterRole clockhand-api to clockhand-api",
    "ClusterRoleBinding clockhand-runs: ClusterRole clockhand-runs to clockhand-runs",
    "ClusterRoleBinding clockhand-runs-auth-delegator: ClusterRole system:auth-delegator to clockhand-runs",
    f"RoleBinding {OWN}/clockhand-runs: Role clockhand-runs to clockhand-runs",
    "RoleBinding kube-system/clockhand-runs-authentication-reader: "
    "Role extension-apiserver-authentication-reader to clockhand-runs",
}


@functools.cache
def built() -> Sequence[dict[str, Any]]:
    """All of it, with the database for demonstrations."""
    return [*rendered(manifests.FOLDER), *rendered(manifests.FOLDER / "demo-postgres")]


def rendered(folder: Path) -> Sequence[dict[str, Any]]:
    """What `kubectl apply -k` would apply."""
    done = subprocess.run([kubectl.program(), "kustomize", folder], check=True, capture_output=True)
    return list(yaml.safe_load_all(done.stdout))


def objects(*kinds: str) -> Iterator[dict[str, Any]]:
    return (thing for thing in built() if thing["kind"] in kinds)


def pod_templates() -> list[Any]:
    return [
        pytest.param(thing["spec"]["template"]["spec"], id=thing["metadata"]["name"])
        for thing in objects("Deployment", "StatefulSet", "Job")
    ]


def rights(role: dict[str, Any]) -> Iterator[str]:
    for rule in role["rules"]:
        names = f"[{','.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield f"{group}/{resource}{names}: {' '.join(sorted(rule['verbs']))}"


def test_roles_are_exactly_those_meant() -> None:
    found = {(role["kind"], role["metadata"]["name"]): sorted(rights(role)) for role in objects("Role", "ClusterRole")}
    assert found == {which: sorted(meant) for which, meant in RIGHTS.items()}


def test_no_role_has_a_wildcard_or_reaches_every_secret() -> None:
    for role in objects("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"] or rule["resourceNames"] == ["clockhand-runs-tls"]


def test_bindings_are_exactly_those_meant() -> None:
    found = set()
    for binding in objects("RoleBinding", "ClusterRoleBinding"):
        meta, role = binding["metadata"], binding["roleRef"]
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", OWN)
        place = f"{meta['namespace']}/" if "namespace" in meta else ""
        found.add(f"{binding['kind']} {place}{meta['name']}: {role['kind']} {role['name']} to {subject['name']}")
    assert found == BINDINGS


def test_the_stock_roles_gain_what_is_theirs() -> None:
    gained: dict[str, set[str]] = {"view": set(), "edit": set(), "admin": set()}
    for role in objects("ClusterRole"):
        for stock, names in gained.items():
            label = f"rbac.authorization.k8s.io/aggregate-to-{stock}"
            if role["metadata"].get("labels", {}).get(label) == "true":
                names.add(role["metadata"]["name"])
    both = {"clockhand-viewer", "clockhand-editor"}
    assert gained == {"view": {"clockhand-viewer"}, "edit": both, "admin": both}


def test_every_long_running_part_has_two_replicas_a_budget_and_probes() -> None:
    budgets = {thing["metadata"]["name"]: thing["spec"] for thing in objects("PodDisruptionBudget")}
    deployments = list(objects("Deployment"))
    assert {thing["metadata"]["name"] for thing in deployments} == {
        "clockhand-operator",
        "clockhand-api",
        "clockhand-runs",
    }
    for thing in deployments:
        spec = thing["spec"]
        assert spec["replicas"] == 2
        budget = budgets[thing["metadata"]["name"]]
        assert budget["maxUnavailable"] == 1
        assert budget["selector"] == spec["selector"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_each_part_runs_under_an_account_of_its_own() -> None:
    accounts = [thing["spec"]["template"]["spec"]["serviceAccountName"] for thing in objects("Deployment", "Job")]
    declared = [thing["metadata"]["name"] for thing in objects("ServiceAccount")]
    assert sorted(accounts) == sorted(declared)
    assert len(set(accounts)) == len(accounts)


@pytest.mark.parametrize("pod", pod_templates())
def test_pods_pass_the_restricted_standard_and_say_what_they_need(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("pod", pod_templates())
def test_the_environment_is_one_that_clockhand_reads(pod: dict[str, Any]) -> None:
    known = {config.variable(field) for field in config.Settings.__struct_fields__}
    given = {entry["name"] for entry in pod["containers"][0]["env"] if entry["name"].startswith("CLOCKHAND_")}
    assert given <= known
    # the variables of the Services clockhand-runs and clockhand-api would otherwise be among them
    assert pod.get("enableServiceLinks") is False


def test_the_names_agree_with_the_defaults_of_the_settings() -> None:
    settings = config.from_environment({"CLOCKHAND_DATABASE_URL": "postgresql://h/d"})
    (service,) = (thing for thing in objects("Service") if thing["metadata"]["name"] == settings.runs_service)
    assert service["metadata"]["namespace"] == settings.own_namespace == OWN
    (api,) = objects("APIService")
    assert api["spec"]["service"] == {"name": settings.runs_service, "namespace": OWN, "port": 443}
    (runs,) = (thing for thing in objects("Deployment") if thing["metadata"]["name"] == settings.runs_service)
    ports = {port["name"]: port["containerPort"] for port in runs["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert ports == {"runs": settings.runs_port, "health": settings.health_port}
    (served,) = (thing for thing in objects("Service") if thing["metadata"]["name"] == "clockhand-api")
    [port] = served["spec"]["ports"]
    assert settings.api_url == f"http://clockhand-api.{served['metadata']['namespace']}:{port['port']}"
    (answering,) = (thing for thing in objects("Deployment") if thing["metadata"]["name"] == "clockhand-api")
    assert answering["spec"]["template"]["spec"]["containers"][0]["ports"] == [
        {"name": port["targetPort"], "containerPort": settings.api_port},
        {"name": "health", "containerPort": settings.health_port},
    ]


def test_the_limits_are_read_and_say_nothing_to_begin_with() -> None:
    (given,) = objects("ConfigMap")
    [(name, text)] = given["data"].items()
    assert limits.parse(text) == limits.NONE
    readers = [thing for thing in objects("Deployment") if thing["metadata"]["name"] != "clockhand-runs"]
    for thing in readers:
        pod = thing["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert {"name": "CLOCKHAND_LIMITS", "value": f"/etc/clockhand/{name}"} in container["env"]
        assert {"name": "limits", "configMap": {"name": given["metadata"]["name"]}} in pod["volumes"]
    commented = yaml.safe_load(text.replace("# ", ""))
    assert limits.parse(yaml.safe_dump(commented)) != limits.NONE


@pytest.mark.parametrize(
    ("folder", "meant"),
    [
        (manifests.FOLDER, f"{{name}}:{VERSION}"),
        # an overlay by the names that the folder has
        (manifests.WITH_IMAGES, "localhost:1/{name}:dev"),
    ],
    ids=["stock", "overlay"],
)
def test_images_are_named_in_one_place(folder: Path, meant: str) -> None:
    names = {
        entry
        for thing in rendered(folder)
        if thing["kind"] in ("Deployment", "Job")
        for container in thing["spec"]["template"]["spec"]["containers"]
        for entry in (
            container["image"],
            *(one["value"] for one in container["env"] if one["name"] == "CLOCKHAND_WORKER_IMAGE"),
        )
    }
    assert names == {meant.format(name=name) for name in ("clockhand", "clockhand-worker")}


def test_nothing_says_that_helm_keeps_it() -> None:
    for thing in built():
        labels = thing["metadata"].get("labels", {})
        assert not {"helm.sh/chart", "app.kubernetes.io/managed-by"} & labels.keys()
        assert "helm.sh/hook" not in thing["metadata"].get("annotations", {})
