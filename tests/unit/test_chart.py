"""What the chart renders: the same by both majors of Helm, with small rights, and with a place for every setting."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import pytest
import yaml
from tests.support import chart_cases, helm
from tests.unit import test_deploy as deploy

from clockhand import config
from clockhand.domain import limits

# a setting that no value of the chart reaches, and why
WITHOUT_A_VALUE = {
    "CLOCKHAND_REPLICA": "its default, the pod's name with a random tail, is what it is for",
    "CLOCKHAND_KUBECONFIG": "a pod has its service account",
    "CLOCKHAND_LISTEN": "a pod has addresses of its own",
    "CLOCKHAND_HEALTH_PORT": "a pod has ports of its own",
    "CLOCKHAND_API_PORT": "a pod has ports of its own; api.service.port is the one that is called",
}


@functools.cache
def rendered(name: str, program: str = "helm4") -> Sequence[helm.Object]:
    return helm.Helm(program).template(chart_cases.MATRIX[name])


def of(name: str, *kinds: str) -> Sequence[helm.Object]:
    return [thing for thing in rendered(name) if thing["kind"] in kinds]


def hooks(thing: helm.Object) -> str:
    return str(thing["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def lasting(name: str, *kinds: str) -> Sequence[helm.Object]:
    """Those that are no part of `helm test`."""
    return [thing for thing in of(name, *kinds) if hooks(thing) != "test"]


def roles(name: str) -> Mapping[tuple[str, str], set[str]]:
    return {
        (role["kind"], role["metadata"]["name"]): set(deploy.rights(role))
        for role in lasting(name, "Role", "ClusterRole")
    }


def containers(pod: helm.Object) -> Iterator[helm.Object]:
    yield from itertools.chain(pod.get("initContainers", ()), pod["containers"])


@pytest.mark.parametrize("major", helm.MAJORS, ids=str)
def test_lint_finds_nothing(major: helm.Helm) -> None:
    said = major.run("lint", "--strict", "--kube-version=1.36", str(helm.CHART), values=helm.DATABASE)
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_both_majors_render_the_same_objects(name: str) -> None:
    three, four = ({helm.identity(thing): thing for thing in rendered(name, str(major))} for major in helm.MAJORS)
    for objects in (three, four):
        # a password that is made when it is asked for
        objects.pop("Secret clockhand-system/clockhand-database", None)
    assert three == four


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_names_are_unique_and_every_object_says_whose_it_is(name: str) -> None:
    objects = rendered(name)
    assert len({helm.identity(thing) for thing in objects}) == len(objects)
    for thing in objects:
        if thing["metadata"]["name"] in ("text", "clockhand-more"):
            continue
        labels = thing["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "clockhand"
        assert labels["app.kubernetes.io/instance"] == "clockhand"


@pytest.mark.parametrize("name", ["demo", "everything", "namespaced", "cert-manager"])
def test_names_fit_however_long_that_of_the_release_is(name: str) -> None:
    for thing in helm.Helm("helm4").template(chart_cases.MATRIX[name], release="r" * 53):
        if not thing["metadata"]["name"].endswith(".clockhand.dev"):
            assert len(thing["metadata"]["name"]) <= 63
        for label in thing["metadata"].get("labels", {}).values():
            assert len(label) <= 63


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_pods_pass_the_restricted_standard_and_say_what_they_need(name: str) -> None:
    for pod in filter(None, map(helm.pod_spec, rendered(name))):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        # Services would leave variables behind that are read as settings
        assert pod["enableServiceLinks"] is False
        assert all("hostPath" not in volume for volume in pod["volumes"])
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_roles_are_exactly_those_meant() -> None:
    assert roles("secret") == roles("everything") == {which: set(rights) for which, rights in deploy.RIGHTS.items()}
    found = set()
    for binding in lasting("secret", "RoleBinding", "ClusterRoleBinding"):
        meta, role = binding["metadata"], binding["roleRef"]
        (subject,) = binding["subjects"]
        place = f"{meta['namespace']}/" if "namespace" in meta else ""
        found.add(f"{binding['kind']} {place}{meta['name']}: {role['kind']} {role['name']} to {subject['name']}")
    assert found == deploy.BINDINGS


def test_in_some_namespaces_the_operator_has_rights_in_these_alone() -> None:
    places = {
        (thing["kind"], thing["metadata"].get("namespace"))
        for thing in lasting("namespaced", "Role", "RoleBinding")
        if thing["metadata"]["name"] == "clockhand-operator"
    }
    assert places == {(kind, place) for kind in ("Role", "RoleBinding") for place in ("team-a", "team-b")}
    there, everywhere = (roles("namespaced")[kind, "clockhand-operator"] for kind in ("Role", "ClusterRole"))
    assert there | everywhere == set(deploy.RIGHTS["ClusterRole", "clockhand-operator"])
    assert {right for right in everywhere if not right.endswith(": get")} == {"clockhand.dev/jobclasses: get list"}


@pytest.mark.parametrize("name", ["cert-manager", "issuer", "own-certificate"])
def test_with_a_certificate_of_others_the_runs_api_may_neither_read_secrets_nor_change_the_apiservice(
    name: str,
) -> None:
    assert not {which for which in roles(name) if which[1] == "clockhand-runs"}
    assert not of(name, "Secret")


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_no_role_has_a_wildcard_or_reaches_every_secret(name: str) -> None:
    for role in of(name, "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"] or rule["resourceNames"] == ["clockhand-runs-tls"]


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_no_secret_is_rendered_but_that_of_the_demo_database(name: str) -> None:
    filled = [thing["metadata"]["name"] for thing in of(name, "Secret") if thing.get("data") or thing.get("stringData")]
    assert filled == (["clockhand-database"] if name == "demo" else [])
    for pod in filter(None, map(helm.pod_spec, rendered(name))):
        for container in containers(pod):
            for entry in container.get("env", ()):
                assert "value" not in entry or entry["name"] not in ("CLOCKHAND_DATABASE_URL", "POSTGRES_PASSWORD")


def test_every_setting_has_a_value_or_a_reason() -> None:
    known = {config.variable(name) for name in config.Settings.__struct_fields__}
    given = set()
    for name in chart_cases.MATRIX:
        for thing in lasting(name, "Deployment", "Job"):
            for container in containers(helm.pod_spec(thing) or {}):
                given |= {entry["name"] for entry in container["env"] if entry["name"].startswith("CLOCKHAND_")}
    assert given <= known
    assert known - given == WITHOUT_A_VALUE.keys()


@pytest.mark.parametrize("name", chart_cases.MATRIX)
def test_what_a_pod_mounts_it_has(name: str) -> None:
    for pod in filter(None, map(helm.pod_spec, rendered(name))):
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounted = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
        claimed = {"data"} & mounted
        assert set(volumes) | claimed == mounted
        assert len(set(volumes)) == len(volumes)


def test_settings_of_the_chart_can_be_read() -> None:
    for thing in (*lasting("everything", "Deployment"), *lasting("secret", "Deployment")):
        (container,) = containers(helm.pod_spec(thing) or {})
        environment = {entry["name"]: entry.get("value", "postgresql://h/d") for entry in container["env"]}
        settings = config.from_environment(environment)
        assert settings.database_pool == 8
        assert settings.api_url == "http://clockhand-api.clockhand-system:8080"


def test_limits_are_a_file_that_can_be_read() -> None:
    for name, wanted in (
        ("secret", limits.NONE),
        ("everything", limits.parse(yaml.safe_dump(chart_cases.EVERYTHING["limits"]))),
    ):
        (given,) = (thing for thing in of(name, "ConfigMap") if thing["metadata"]["name"] == "clockhand-limits")
        assert limits.parse(given["data"]["limits.yaml"]) == wanted


def test_definitions_are_those_of_the_release_and_stay() -> None:
    for thing in of("secret", "CustomResourceDefinition"):
        assert thing["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        plural = thing["spec"]["names"]["singular"]
        original = yaml.safe_load((helm.CHART.parents[1] / "crds" / f"{plural}.yaml").read_text())
        assert thing["spec"] == original["spec"]
    assert len(of("secret", "CustomResourceDefinition")) == len(list((helm.CHART.parents[1] / "crds").iterdir()))
    going = helm.Helm("helm4").template({**helm.DATABASE, "crds": {"keep": False}})
    assert not any("annotations" in thing["metadata"] for thing in going if thing["kind"] == "CustomResourceDefinition")


def test_the_schema_is_brought_up_before_an_upgrade_or_beside_a_database_of_the_release() -> None:
    assert [hooks(job) for job in of("secret", "Job")] == ["pre-install,pre-upgrade,pre-rollback"]
    for name in ("demo", "without-hooks"):
        (job,) = of(name, "Job")
        assert hooks(job) == ""
        assert job["metadata"]["name"].startswith("clockhand-migrate-")
    newer = helm.Helm("helm4").template({**chart_cases.MATRIX["without-hooks"], "image": {"tag": "0.2.0"}})
    (other,) = (thing for thing in newer if thing["kind"] == "Job")
    assert other["metadata"]["name"] != job["metadata"]["name"]


def test_what_holds_for_all_pods_holds_for_the_migration_and_the_test_as_well() -> None:
    placed = {"priorityClassName", "nodeSelector", "tolerations", "affinity", "imagePullSecrets"}
    pods = chart_cases.EVERYTHING["pods"]
    (job,) = of("everything", "Job")
    (test,) = of("everything", "Pod")
    for pod, meta in (
        (helm.pod_spec(job) or {}, job["spec"]["template"]["metadata"]),
        (test["spec"], test["metadata"]),
    ):
        assert {key: pod[key] for key in placed - {"imagePullSecrets"}} == {
            key: pods[key] for key in placed - {"imagePullSecrets"}
        }
        assert pod["imagePullSecrets"] == chart_cases.EVERYTHING["imagePullSecrets"]
        assert pod["securityContext"]["fsGroup"] == pods["securityContext"]["fsGroup"]
        assert pods["labels"].items() <= meta["labels"].items()
        assert meta["labels"]["team"] == "jobs", "that of the pods goes before the common one"
        assert pods["annotations"].items() <= meta["annotations"].items()
    assert hooks(test) == "test"
    pod = helm.pod_spec(job) or {}
    assert pods["extraVolumes"][0] in pod["volumes"]
    assert pods["extraVolumeMounts"][0] in pod["containers"][0]["volumeMounts"]


def test_another_owner_of_the_certificate_fills_another_secret() -> None:
    """Helm deletes the one of the mode before, whoever has written to it since."""
    (own,) = (thing["metadata"]["name"] for thing in of("secret", "Secret"))
    asked = {thing["spec"]["secretName"] for thing in of("cert-manager", "Certificate")}
    assert own == "clockhand-runs-tls"
    assert asked == {"clockhand-runs-cert", "clockhand-runs-ca"}
    (runs,) = (thing for thing in of("cert-manager", "Deployment") if thing["metadata"]["name"] == "clockhand-runs")
    (tls,) = (volume for volume in runs["spec"]["template"]["spec"]["volumes"] if volume["name"] == "tls")
    assert tls["secret"] == {"secretName": "clockhand-runs-cert"}


def test_alerts_and_dashboards_come_as_they_are() -> None:
    (rule,) = of("everything", "PrometheusRule")
    files = sorted((helm.CHART / "alerts").glob("*.yaml"))
    assert rule["spec"]["groups"] == [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    (board,) = (thing for thing in of("everything", "ConfigMap") if thing["metadata"]["name"].endswith("-dashboard"))
    assert board["data"] == {file.name: file.read_text() for file in (helm.CHART / "dashboards").glob("*.json")}
