"""The small API server beside a real one: the same calls to both, and the same answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import kubectl as kubectls
from tests.support import light, local_kube, postgres
from tests.support.crd_cases import ACCEPTED, REFUSED, REFUSED_CLASSES, job
from tests.support.kube_http import MERGE, METADATA, STEPS, STRATEGIC, TABLE, Answer, KubeHttp

from clockhand.store import database, migrations

ROOT = Path(__file__).resolve().parents[3]
DEFAULT = "namespaces/default"
JOBS = f"/apis/clockhand.dev/v1alpha1/{DEFAULT}/scheduledjobs"
POOLS = f"/apis/clockhand.dev/v1alpha1/{DEFAULT}/workerpools"
CLASSES = "/apis/clockhand.dev/v1alpha1/jobclasses"
PODS = f"/api/v1/{DEFAULT}/pods"
MAPS = f"/api/v1/{DEFAULT}/configmaps"
DEPLOYMENTS = f"/apis/apps/v1/{DEFAULT}/deployments"
JSON = "application/json"
Json = dict[str, Any]
Call = tuple[Any, ...]


@dataclass(frozen=True)
class Both:
    """The same call to both servers; the real one's answer first."""

    real: KubeHttp
    ours: KubeHttp

    def call(self, *call: Any) -> tuple[Answer, Answer]:
        return self.real.call(*call), self.ours.call(*call)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with postgres.server() as server, light.LightCluster() as cluster:
        url = server.url(server.new_database())
        asyncio.run(_migrate(url))
        kubectl = kubectls.Kubectl(cluster.kubeconfig)
        kubectl.run("apply", "-f", str(ROOT / "crds"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=100s")
        keys = cluster.directory / "pki"
        real = KubeHttp(cluster.url, cluster.ca, certificate=(keys / "admin.crt", keys / "admin.key"))
        kubectls.wait_for("the kinds", lambda: real.call("GET", JOBS).code == 200)
        with local_kube.running(tmp_path_factory.mktemp("kube"), url) as kube:
            yield Both(real, kube.http)


async def _migrate(url: str) -> None:
    db = database.Database(url, size=2, name="test")
    await db.open()
    await migrations.apply(db)
    await db.close()


@pytest.mark.parametrize(("body", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_bad_job_is_refused_alike(both: Both, body: Json, sentence: str) -> None:
    real, ours = both.call("POST", f"{JOBS}?fieldValidation=Strict", body)
    assert sentence in str(ours.body["message"])
    assert _refusal(ours) == _refusal(real)


@pytest.mark.parametrize(("body", "sentence"), REFUSED_CLASSES, ids=[sentence[:50] for _, sentence in REFUSED_CLASSES])
def test_bad_class_is_refused_alike(both: Both, body: Json, sentence: str) -> None:
    real, ours = both.call("POST", f"{CLASSES}?fieldValidation=Strict", body)
    assert sentence in str(ours.body["message"])
    assert _refusal(ours) == _refusal(real)


@pytest.mark.parametrize("body", ACCEPTED, ids=lambda body: str(body["spec"])[:60])
def test_good_job_is_stored_alike(both: Both, body: Json) -> None:
    real, ours = both.call("POST", JOBS, body)
    assert (ours.code, _essence(ours.body)) == (201, _essence(real.body))
    both.call("DELETE", f"{JOBS}/sample")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_is_stored_alike(both: Both, path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        where = {"WorkerPool": POOLS, "JobClass": CLASSES}.get(body["kind"], JOBS)
        real, ours = both.call("POST", where, body)
        assert (ours.code, _essence(ours.body)) == (201, _essence(real.body))
        both.call("DELETE", f"{where}/{body['metadata']['name']}")


def pod(name: str = "p", **spec: Any) -> Json:
    """A pod for which no node is right."""
    body = {"containers": [{"name": "a", "image": "b:1"}], "nodeSelector": {"no": "where"}, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def container(**fields: Any) -> list[Json]:
    return [{"name": "a", "image": "b", **fields}]


BAD_PODS = [
    pod(containers=[]),
    pod(containers=None),
    {**pod(), "spec": {}},
    pod(containers=[{"name": "A_", "image": ""}]),
    pod(containers=[*container(), *container()]),
    pod(containers=[{"image": "b"}]),
    pod(containers=container(volumeMounts=[{"name": "v", "mountPath": "/x"}])),
    pod(containers=container(env=[{"value": "1"}])),
    pod(containers=container(imagePullPolicy="X")),
    pod(containers=container(foo={"bar": 1})),
    pod(containers=container(resources={"limits": {"cpu": "x"}})),
    pod(containers=container(resources={"limits": {"cpu": "1Q"}})),
    pod(containers=container(resources={"limits": {"cpu": "500mm"}})),
    pod(restartPolicy="Foo"),
    pod(activeDeadlineSeconds=-1),
    pod(serviceAccountName="nope"),
    pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
    pod(foo=1),
    pod("P!"),
]


@pytest.mark.parametrize("body", BAD_PODS, ids=lambda body: str(body["spec"])[:70])
def test_bad_pod_is_refused_alike(both: Both, body: Json) -> None:
    real, ours = both.call("POST", f"{PODS}?dryRun=All&fieldValidation=Strict", body)
    assert _refusal(ours) == _refusal(real)


CONFIG: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
READY = {"type": "Ready", "status": "True"}
SEQUENCES: dict[str, list[Call]] = {
    "a job": [
        ("POST", JOBS, job("one")),
        ("POST", JOBS, job("one")),
        ("GET", f"{JOBS}/one"),
        ("GET", f"{JOBS}/nope"),
        ("PATCH", f"{JOBS}/one", {"spec": {"jitterSeconds": 5}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"spec": {"timeZone": None}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"spec": {"foo": 1}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"spec": {"schedule": "bad"}}, MERGE),
        ("PATCH", f"{JOBS}/one?dryRun=All", {"spec": {"jitterSeconds": 77}}, MERGE),
        ("PATCH", f"{JOBS}/one/status", [{"op": "add", "path": "/status", "value": {"conditions": [READY]}}], STEPS),
        ("PATCH", f"{JOBS}/one/status", {"status": {"active": 2}, "spec": {"jitterSeconds": 9}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"metadata": {"resourceVersion": "1"}, "spec": {"jitterSeconds": 8}}, MERGE),
        ("PATCH", f"{JOBS}/one", {"metadata": {"name": "two"}}, MERGE),
        ("GET", JOBS, None, JSON, TABLE),
        ("GET", f"{JOBS}/one", None, JSON, METADATA),
        ("GET", f"{JOBS}?fieldSelector=spec.x%3Done"),
        ("DELETE", f"{JOBS}/one?dryRun=All"),
        ("DELETE", f"{JOBS}/one"),
        ("DELETE", f"{JOBS}/one"),
        ("PUT", f"{JOBS}/one", job("one")),
    ],
    "what is no job": [
        ("POST", JOBS, {"apiVersion": "v1", "kind": "Foo", "metadata": {"name": "x"}}),
        ("POST", JOBS, {**job("x"), "metadata": {"name": "x", "namespace": "other"}}),
        ("POST", JOBS.replace("default", "other"), job("x")),
    ],
    "a pool": [
        ("POST", POOLS, {"apiVersion": "clockhand.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "w"},
                         "spec": {"handlers": ["a"], "replicas": 1}}),
        ("GET", f"{POOLS}/w/scale"),
        ("PATCH", f"{POOLS}/w/scale", {"spec": {"replicas": 3}}, MERGE),
        ("GET", POOLS, None, JSON, TABLE),
        ("DELETE", f"{POOLS}/w"),
    ],
    "a map": [
        ("POST", MAPS, CONFIG),
        ("PATCH", f"{MAPS}/c", {"data": {"x": "y", "a": None}}, STRATEGIC),
        ("GET", f"{MAPS}?fieldSelector=metadata.name%3Dc", None, JSON, TABLE),
        ("PUT", f"{MAPS}/c", {**CONFIG, "data": {"z": "1"}}),
        ("PUT", f"{MAPS}/c", {**CONFIG, "metadata": {"name": "c", "resourceVersion": "1"}}),
        ("DELETE", f"{MAPS}/c", {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "nope"}}),
        ("DELETE", f"{MAPS}/c", {"kind": "DeleteOptions", "apiVersion": "v1"}),
    ],
    "a pod": [
        ("POST", f"{PODS}?dryRun=All", pod()),
        ("POST", f"{PODS}?dryRun=All", pod(terminationGracePeriodSeconds=-1)),
    ],
    "rights": [
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
         {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nope"}}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("calls", SEQUENCES.values(), ids=SEQUENCES)
def test_calls_are_answered_alike(both: Both, calls: list[Call]) -> None:
    for call in calls:
        real, ours = both.call(*call)
        assert (ours.code, ours.warnings) == (real.code, real.warnings), call
        assert _essence(ours.body) == _essence(real.body), call


def _refusal(answer: Answer) -> tuple[int, str, list[str]]:
    """Code, reason and causes; the real server's order of causes is by chance. Without causes, the message."""
    causes = answer.body.get("details", {}).get("causes") or [answer.body["message"]]
    return answer.code, answer.body["reason"], sorted(map(str, causes))


_CHANCE = frozenset({"creationTimestamp", "deletionTimestamp", "managedFields", "resourceVersion", "uid"})
# what other admission puts into pods, and what is written about columns
_OTHERS = frozenset({"description", "preemptionPolicy", "priority", "tolerations", "volumeMounts", "volumes"})


def _essence(value: Any) -> Any:
    """The value without what is by chance, and without what somebody else puts there."""
    if isinstance(value, dict):
        return {key: _essence(inner) for key, inner in value.items() if key not in _CHANCE | _OTHERS}
    if isinstance(value, list):
        return [_essence(inner) for inner in value]
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UID", value)
        return "AGE" if re.fullmatch(r"\d+s", value) else value
    return value
