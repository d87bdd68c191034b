"""Stock kubectl against the small API server, as people use it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import kubectl as kubectls
from tests.support import local_kube, postgres
from tests.support.crd_cases import job
from tests.support.kube_http import MERGE, STEPS, STRATEGIC, KubeHttp

from clockhand.store import database, migrations

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = str(ROOT / "examples")
HELLO = str(ROOT / "examples" / "hello.yaml")
DEFAULT = "namespaces/default"
JOBS = f"/apis/clockhand.dev/v1alpha1/{DEFAULT}/scheduledjobs"
PODS = f"/api/v1/{DEFAULT}/pods"
MAPS = f"/api/v1/{DEFAULT}/configmaps"
DEPLOYMENTS = f"/apis/apps/v1/{DEFAULT}/deployments"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    with postgres.server() as server:
        url = server.url(server.new_database())
        asyncio.run(_migrate(url))
        yield url


async def _migrate(url: str) -> None:
    db = database.Database(url, size=2, name="test")
    await db.open()
    await migrations.apply(db)
    await db.close()


@pytest.fixture(scope="module")
def kube(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_kube.LocalKube]:
    with local_kube.running(tmp_path_factory.mktemp("kube"), database_url) as running:
        yield running


@pytest.fixture
def kubectl(kube: local_kube.LocalKube) -> Iterator[kubectls.Kubectl]:
    """In a namespace of the test's own."""
    name = f"test-{random.randrange(1 << 32):08x}"
    kube.kubectl.run("create", "namespace", name)
    yield kube.kubectl.within(name)
    kube.kubectl.run("delete", "namespace", name)


def test_examples_come_and_go(kubectl: kubectls.Kubectl) -> None:
    made = kubectl.run("apply", "-f", EXAMPLES)
    assert "Warning" not in made.err
    assert "scheduledjob.clockhand.dev/hello created" in made.out
    again = kubectl.run("apply", "-f", EXAMPLES).out.splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    head, *rows = kubectl.run("get", "sjob").out.splitlines()
    assert head.split() == ["NAME", "SCHEDULE", "TIME", "ZONE", "SUSPEND", "ACTIVE", "LAST", "NEXT", "AGE"]
    assert len(rows) == len([line for line in again if line.startswith("scheduledjob.clockhand.dev/")])
    assert "tools" in kubectl.run("get", "wpool").out
    assert "shell" in kubectl.run("get", "jclass").out
    kubectl.run("delete", "-f", EXAMPLES)
    assert "No resources found" in kubectl.run("get", "sjob").err


def test_apply_merges_what_changed(kubectl: kubectls.Kubectl) -> None:
    kubectl.apply(job("merged", jitterSeconds=5))
    kubectl.run("label", "sjob", "merged", "kept=yes")
    kubectl.apply(job("merged", suspend=True))
    found = kubectl.get("sjob", "merged")
    assert (found["spec"]["suspend"], found["spec"]["jitterSeconds"]) == (True, 0)
    assert found["metadata"]["labels"] == {"kept": "yes"}
    assert found["metadata"]["generation"] == 2


def test_edit_describe_explain_and_diff(kubectl: kubectls.Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl.apply(job("seen"))
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/'timeZone: UTC'/'timeZone: Europe\\/Berlin'/")
    assert "edited" in kubectl.run("edit", "sjob", "seen").out
    assert "Europe/Berlin" in kubectl.run("describe", "sjob", "seen").out
    assert "No wait is longer." in kubectl.run("explain", "sjob.spec.retry.backoff.maxSeconds").out
    assert "The name of the ScheduledJob" in kubectl.run("explain", "run.spec.job").out
    assert "Entrypoint array" in kubectl.run("explain", "pod.spec.containers.command").out
    assert kubectl.call("diff", "-f", HELLO).code == 1


def test_field_that_nobody_knows_is_named(kubectl: kubectls.Kubectl) -> None:
    refused = kubectl.refusal("apply", "-f", "-", stdin=json.dumps(job("odd", jiterSeconds=3)))
    assert 'unknown field "spec.jiterSeconds"' in refused
    warned = kubectl.run("apply", "--validate=warn", "-f", "-", stdin=json.dumps(job("odd", jiterSeconds=3))).err
    assert 'Warning: unknown field "spec.jiterSeconds"' in warned


def test_server_side_apply_is_refused_with_a_sentence(kubectl: kubectls.Kubectl) -> None:
    assert "leave --server-side out" in kubectl.refusal("apply", "--server-side", "-f", HELLO)


def test_kinds_that_kubectl_sends_as_protobuf(kubectl: kubectls.Kubectl) -> None:
    kubectl.run("create", "configmap", "settings", "--from-literal=colour=blue")
    kubectl.run("create", "secret", "generic", "password", "--from-literal=word=hunter2")
    kubectl.run("create", "serviceaccount", "robot")
    kubectl.run("create", "deployment", "web", "--image=web:1", "--port=80", "--replicas=0", "--", "serve", "all")
    assert kubectl.get("cm", "settings")["data"] == {"colour": "blue"}
    assert kubectl.get("secret", "password")["data"] == {"word": "aHVudGVyMg=="}
    spec = kubectl.get("deployment", "web")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("web:1", ["serve", "all"])
    assert (spec["replicas"], container["ports"][0]["containerPort"]) == (0, 80)
    kubectl.run("scale", "deployment", "web", "--replicas=3")
    assert kubectl.get("deployment", "web")["spec"]["replicas"] == 3
    kubectl.run("set", "env", "deployment/web", "A=1")
    (container,) = kubectl.get("deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert (container["env"], container["image"]) == ([{"name": "A", "value": "1"}], "web:1")


def test_rights_and_tokens(kube: local_kube.LocalKube, kubectl: kubectls.Kubectl) -> None:
    assert kubectl.run("auth", "can-i", "create", "pods").out.strip() == "yes"
    assert local_kube.USER in kubectl.run("auth", "whoami").out
    token = kubectl.run("create", "token", "default").out.strip()
    account = KubeHttp(kube.url, kube.ca, token=token)
    refused = account.call("GET", JOBS)
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    asked = account.call("POST", REVIEWS, {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
    assert asked.body["status"]["allowed"] is False
    assert account.call("GET", "/apis/runs.clockhand.dev/v1alpha1/runs").code == 403
    for wrong in ("", "nonsense", f"{token}x", f"x.{token}", f"{token}\u00e9"):
        assert KubeHttp(kube.url, kube.ca, token=wrong).call("GET", JOBS).code == 401
    kubectl.run("delete", "serviceaccount", "default")
    assert account.call("GET", JOBS).code == 401
    assert "nobody can act as another user" in kubectl.refusal("get", "sjob", "--as=somebody")


def test_owners_are_named_whole(kube: local_kube.LocalKube) -> None:
    metadata = {"name": "owned", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}]}
    for path, body in ((JOBS, job()), (MAPS, {"apiVersion": "v1", "kind": "ConfigMap"})):
        refused = kube.http.call("POST", path, {**body, "metadata": metadata})
        assert refused.code == 422
        assert "metadata.ownerReferences[0].uid" in refused.body["message"]


@pytest.mark.parametrize(
    "path", [f"{PODS}?limit=-1", f"{PODS}?limit=%C2%B2", f"{PODS}/counted/log?tailLines=-1", f"{MAPS}?limit=1e3"]
)
def test_numbers_of_a_query_are_whole_and_not_negative(kube: local_kube.LocalKube, path: str) -> None:
    container = {"name": "main", "image": "any"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "counted"}, "spec": {"containers": [container]}}
    kube.http.call("POST", PODS, pod)
    assert kube.http.call("GET", path).code == 400


def test_token_is_good_for_its_audience_alone(kube: local_kube.LocalKube) -> None:
    token = kube.kubectl.run("create", "token", "default", "--audience=clockhand").out.strip()
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"

    def status(*audiences: str) -> Any:
        return kube.http.call("POST", reviews, {"spec": {"token": token, "audiences": audiences}}).body["status"]

    assert status("clockhand")["user"]["username"] == "system:serviceaccount:default:default"
    assert status("clockhand", "other")["audiences"] == ["clockhand"]
    assert "authenticated" not in status("other")
    assert KubeHttp(kube.url, kube.ca, token=token).call("GET", JOBS).code == 401


def test_wait_and_watch(kubectl: kubectls.Kubectl) -> None:
    with kubectl.follow("get", "sjob", "--watch") as watched:
        kubectl.apply(job("watched"))
        watched.until(lambda line: "watched" in line)
        kubectl.apply(job("watched", timeZone="Asia/Tokyo"))
        watched.until(lambda line: "Asia/Tokyo" in line)
    kubectl.run("wait", "--for=jsonpath={.spec.timeZone}=Asia/Tokyo", "sjob/watched", "--timeout=60s")
    kubectl.run("delete", "sjob", "watched", "--wait=false")
    kubectl.run("wait", "--for=delete", "sjob/watched", "--timeout=60s")


def test_runs_are_served_beside(kubectl: kubectls.Kubectl) -> None:
    assert "No resources found" in kubectl.run("get", "runs").err
    assert "not found" in kubectl.refusal("get", "run", "nope")
    assert "runs" in kubectl.run("api-resources", "--api-group=runs.clockhand.dev").out


def test_namespace_goes_with_what_is_in_it(kube: local_kube.LocalKube) -> None:
    inside = kube.kubectl.create_namespace("full")
    inside.apply(job("inside"))
    inside.run("create", "configmap", "inside", "--from-literal=a=b")
    kube.kubectl.run("delete", "namespace", "full", "--timeout=60s")
    assert 'namespaces "full" not found' in inside.refusal("apply", "-f", "-", stdin=json.dumps(job("late")))
    assert "NotFound" in kube.kubectl.refusal("get", "namespace", "full")
    assert "this namespace may not be deleted" in kube.kubectl.refusal("delete", "namespace", "default")


def test_what_an_object_owns_goes_with_it(kubectl: kubectls.Kubectl) -> None:
    kubectl.apply(job("owner"))
    uid = kubectl.get("sjob", "owner")["metadata"]["uid"]
    owner = {"apiVersion": "clockhand.dev/v1alpha1", "kind": "ScheduledJob", "name": "owner", "uid": uid}
    owned = {"name": "owned", "ownerReferences": [owner]}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned})
    kubectl.run("delete", "sjob", "owner")
    kubectl.run("wait", "--for=delete", "configmap/owned", "--timeout=60s")


def test_lists_in_pages_and_by_selector(kube: local_kube.LocalKube, kubectl: kubectls.Kubectl) -> None:
    bodies = [{**job(f"job-{number}"), "metadata": {"name": f"job-{number}", "labels": {"odd": str(number % 2)}}}
              for number in range(5)]  # fmt: skip
    kubectl.apply(*bodies)
    path = JOBS.replace("default", kubectl.namespace)
    names: list[str] = []
    versions = set()
    following = ""
    while True:
        page = kube.http.call("GET", f"{path}?limit=2&continue={following}").body
        names += [one["metadata"]["name"] for one in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        following = page["metadata"].get("continue", "")
        if not following:
            break
    assert names == [f"job-{number}" for number in range(5)]
    assert len(versions) == 1
    chosen = kubectl.run("get", "sjob", "-l", "odd in (1,2),!absent", "-o", "name").out.split()
    assert chosen == ["scheduledjob.clockhand.dev/job-1", "scheduledjob.clockhand.dev/job-3"]
    kubectl.run("delete", "sjob", "-l", "odd=1")
    assert len(kubectl.items("sjob")) == 3


def test_stored_objects_survive_a_new_start(database_url: str, tmp_path: Path) -> None:
    with local_kube.running(tmp_path, database_url) as kube:
        kube.kubectl.apply(job("kept"))
        before = kube.kubectl.get("sjob", "kept")
        token = kube.kubectl.run("create", "token", "default").out.strip()
        kube.stop()
        kube.start()
        assert kube.kubectl.get("sjob", "kept") == before
        assert KubeHttp(kube.url, kube.ca, token=token).call("GET", JOBS).code == 403
        kube.kubectl.run("label", "sjob", "kept", "a=b")
        version = kube.kubectl.get("sjob", "kept")["metadata"]["resourceVersion"]
        assert int(version) > int(before["metadata"]["resourceVersion"])


BAD_BODIES = [
    b"", b"{", b"[]", b"null", b"7", b'"text"', b"\xff\xfe", b"NaN", b'{"metadata": "x"}', b'{"metadata": {"name": 1}}',
    b'{"metadata": {"name": "\\ud800"}}', b'{"metadata": {"name": "a", "labels": []}}', b"[" * 100_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b'{"metadata": {"name": "a", "annotations": {"a": 1e400}}}',
    b"k8s\x00\xff\xff\xff", b"k8s\x00\x0a\x02\x08", b"k8s\x00" + b"\x80" * 20,
]  # fmt: skip
FORMS = ["application/json", "application/vnd.kubernetes.protobuf", MERGE, STEPS, STRATEGIC, "text/plain"]


@pytest.mark.parametrize("form", FORMS)
def test_bad_bodies_are_refused(kube: local_kube.LocalKube, form: str) -> None:
    for body in BAD_BODIES:
        for method, path in (("POST", JOBS), ("POST", PODS), ("PATCH", f"{MAPS}/none"), ("POST", REVIEWS)):
            answer = kube.http.call(method, path, body, form)
            assert 400 <= answer.code < 500 or path == REVIEWS, (method, path, body[:60], answer)
            assert answer.code < 500, (method, path, body[:60], answer)


def test_huge_body_is_refused(kube: local_kube.LocalKube) -> None:
    answer = kube.http.call("POST", MAPS, b'{"metadata": {"name": "' + b"a" * (4 << 20) + b'"}}')
    assert (answer.code, answer.body["reason"]) == (413, "RequestEntityTooLarge")


BAD_QUERIES = ["limit=x", "continue=x", "labelSelector=%3D%3D", "fieldSelector=x", "fieldValidation=Odd", "dryRun=Some"]


@pytest.mark.parametrize("query", BAD_QUERIES)
def test_bad_queries_are_refused(kube: local_kube.LocalKube, query: str) -> None:
    method, body = ("POST", job("any")) if query[0] in "df" and "Selector" not in query else ("GET", None)
    answer = kube.http.call(method, f"{JOBS}?{query}", body)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
POD: Json = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "a", "image": "b", "volumeMounts": [{"name": "v", "mountPath": "/x"}], "env": []}],
    },
}
DEPLOYMENT: Json = {
    "metadata": {"name": "d"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": POD},
}
PLACES = [(JOBS, job("any", retry={"rules": [{"onExitCodes": [1], "action": "Fail"}]})), (PODS, POD)]
PLACES += [(DEPLOYMENTS, DEPLOYMENT), (MAPS, {"metadata": {"name": "m"}, "data": {"a": "b"}})]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PLACES), JUNK, st.randoms(use_true_random=False))
def test_no_object_is_an_internal_error(
    kube: local_kube.LocalKube, place: tuple[str, Json], junk: Any, chance: random.Random
) -> None:
    path, good = place
    body = json.loads(json.dumps(good))
    _put_somewhere(body, junk, chance)
    answer = kube.http.call("POST", f"{path}?dryRun=All", body)
    assert answer.code < 500, (path, body, answer)


def _put_somewhere(body: Any, junk: Any, chance: random.Random) -> None:
    """In place of one of the values, at any depth."""
    key = chance.choice(list(body) if isinstance(body, dict) else range(len(body)))
    if isinstance(body[key], dict | list) and body[key] and chance.random() < 0.8:
        _put_somewhere(body[key], junk, chance)
    else:
        body[key] = junk
