"""The client against a real API server: its answers, its refusals, its watches and its failures."""

from __future__ import annotations

import asyncio
import base64
import collections.abc
import contextlib
import dataclasses
import json
import pathlib
import urllib.parse
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support import kubeapi, light, ports, tcpproxy

from clockhand import errors
from clockhand.domain import observed, outcome
from clockhand.domain import pods as pod_rules
from clockhand.kube import access, aggregation, failures, flow, objects, pods, watch
from clockhand.kube import client as clients
from clockhand.kube import connection as connections

PATIENCE_SECONDS = 60.0
STUCK = "test.clockhand.dev/outcome"
GROUP = "kubetest.clockhand.dev"
FAST = flow.FlowSettings(64, 64, writes_per_second=1e5, burst=1e5)


@pytest.fixture(scope="module")
def cluster() -> collections.abc.Iterator[light.LightCluster]:
    with light.LightCluster() as running:
        yield running


@pytest.fixture
def namespace(cluster: light.LightCluster) -> str:
    return make_namespace(cluster.api)


@pytest.fixture
async def connection(cluster: light.LightCluster) -> connections.Connection:
    return await connections.from_kubeconfig(str(cluster.kubeconfig))


@pytest.fixture
async def client(connection: connections.Connection) -> collections.abc.AsyncIterator[clients.Client]:
    async with clients.connect(connection, FAST) as opened:
        yield opened


@pytest.fixture
def source(client: clients.Client) -> pods.Pods:
    return pods.Pods(client)


@pytest.fixture
async def proxy(cluster: light.LightCluster) -> collections.abc.AsyncIterator[tcpproxy.TcpProxy]:
    port = urllib.parse.urlsplit(cluster.url).port
    assert port is not None
    async with tcpproxy.TcpProxy("127.0.0.1", port) as running:
        yield running


@pytest.fixture
async def fragile(
    connection: connections.Connection, proxy: tcpproxy.TcpProxy
) -> collections.abc.AsyncIterator[clients.Client]:
    """A client whose wire the test can cut."""
    through = dataclasses.replace(connection, server=f"https://127.0.0.1:{proxy.port}")
    async with clients.connect(through, FAST, call_seconds=2.0) as opened:
        yield opened


def make_namespace(api: kubeapi.KubeApi, labels: dict[str, str] | None = None) -> str:
    """One that takes pods: the account they run as is there."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    metadata = {"name": name, "labels": labels or {}}
    api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with contextlib.suppress(kubeapi.ApiError):
        api.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


def template(namespace: str, how: str = "stuck", job: str = "nightly", **spec: Any) -> pod_rules.PodTemplate:
    source = {
        "metadata": {"annotations": {STUCK: how}},
        "spec": {"containers": [{"name": "main", "image": "any"}], **spec},
    }
    return pod_rules.render_template(source, namespace=namespace, job=job)


def facts(shard: int = 3) -> pod_rules.RunFacts:
    due = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    return pod_rules.RunFacts(uuid.uuid4(), "nightly-x", uuid.uuid4(), 1, -7, 42, shard, due, b'{"a":"$(B)"}')


async def make_pod(source: pods.Pods, namespace: str, *, how: str = "stuck", shard: int = 3) -> str:
    """The name of a new pod."""
    run = facts(shard)
    rendered = template(namespace, how)
    await source.create(namespace, rendered.body_for(run))
    return rendered.name_for(run)


def remove_pod(api: kubeapi.KubeApi, namespace: str, name: str) -> None:
    """Gone at once, as if by another hand."""
    api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})


async def eventually(
    ask: collections.abc.Callable[[], collections.abc.Awaitable[object]],
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await ask():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.05)


async def next_where(
    stream: collections.abc.AsyncIterator[watch.Seen],
    accept: collections.abc.Callable[[watch.Seen], bool],
) -> watch.Seen:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for seen in stream:
            if accept(seen):
                return seen
    raise AssertionError("the stream ended")


@contextlib.asynccontextmanager
async def following(view: watch.PodWatch) -> collections.abc.AsyncIterator[list[watch.Seen]]:
    """What the view shows, as it goes on in the background."""
    seen: list[watch.Seen] = []

    async def collect() -> None:
        async with contextlib.aclosing(view.stream()) as stream:
            async for one in stream:
                seen.append(one)

    task = asyncio.create_task(collect())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(seen: list[watch.Seen], kind: watch.Kind, name: str) -> watch.Seen:
    async def there() -> bool:
        return any(one.kind is kind and one.name == name for one in seen)

    await eventually(there)
    return next(one for one in seen if one.kind is kind and one.name == name)


async def open_watch(source: pods.Pods, namespace: str, seen: list[watch.Seen]) -> str:
    """Wait until the view follows its watch: a pod made after a listing can only be seen there."""

    async def synced() -> bool:
        return any(is_synced(one) for one in seen)

    await eventually(synced)
    name = await make_pod(source, namespace)
    await until(seen, watch.Kind.ADDED, name)
    return name


def is_synced(seen: watch.Seen) -> bool:
    return seen.kind is watch.Kind.SYNCED


def fresh_watch(source: pods.Pods, namespace: str, wants: pods.Wants = pods.everything) -> watch.PodWatch:
    settings = watch.WatchSettings(first_backoff_seconds=0.05, max_backoff_seconds=0.5)
    return watch.PodWatch(source, selector=pod_rules.SELECTOR, namespace=namespace, wants=wants, settings=settings)


async def refusal(source: pods.Pods, namespace: str, **spec: Any) -> failures.ApiRefused:
    with pytest.raises(failures.ApiRefused) as refused:
        await source.create(namespace, template(namespace, **spec).body_for(facts()))
    return refused.value


async def test_a_pod_is_made_once_and_taken_away_once(source: pods.Pods, namespace: str) -> None:
    run = facts()
    rendered = template(namespace)
    name = rendered.name_for(run)
    created = await source.create(namespace, rendered.body_for(run))
    with pytest.raises(failures.ApiConflict) as taken:
        await source.create(namespace, rendered.body_for(run))
    assert taken.value.already_exists

    found = await source.get(namespace, name)
    assert found.metadata.uid == created.uid
    assert pod_rules.belongs_to(found, run)
    assert isinstance(outcome.classify(found), outcome.Pending)

    assert await source.delete(namespace, name, uid=str(uuid.uuid4())) is pods.Deletion.OTHER_UID
    assert (await source.get(namespace, name)).metadata.uid == created.uid
    requested = await source.delete(namespace, name, uid=created.uid, grace_seconds=0)
    assert requested is pods.Deletion.REQUESTED
    assert await source.delete(namespace, name, uid=created.uid) is pods.Deletion.GONE
    with pytest.raises(errors.NotFound):
        await source.get(namespace, name)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("succeed", outcome.Succeeded),
        ("exit:42", outcome.Failed),
        ("oom", outcome.Failed),
        ("evict", outcome.Disrupted),
    ],
)
async def test_the_end_of_a_pod_is_understood(
    source: pods.Pods, namespace: str, how: str, expected: type[outcome.Observation]
) -> None:
    name = await make_pod(source, namespace, how=how)

    async def over() -> bool:
        return (await source.get(namespace, name)).status.phase in ("Succeeded", "Failed")

    await eventually(over)
    found = outcome.classify(await source.get(namespace, name))
    assert isinstance(found, expected)
    if how == "exit:42":
        assert isinstance(found, outcome.Failed)
        assert found.exit_code == 42
    if how == "oom":
        assert isinstance(found, outcome.Failed)
        assert found.reason == "OOMKilled"


async def test_a_dry_run_finds_a_misspelt_field_and_stores_nothing(source: pods.Pods, namespace: str) -> None:
    await source.dry_run(namespace, template(namespace).probe())
    wrong = template(namespace, containers=[{"name": "main", "imge": "any"}]).probe()
    with pytest.raises(failures.ApiInvalid) as refused:
        await source.dry_run(namespace, wrong)
    assert refused.value.field == "spec.containers[0].imge"
    bad_name = template(namespace, containers=[{"name": "Main", "image": "any"}]).probe()
    with pytest.raises(failures.ApiInvalid) as refused:
        await source.dry_run(namespace, bad_name)
    assert refused.value.field == "spec.containers[0].name"
    assert [page.pods async for page in source.list_pages("", namespace)] == [()]


async def test_quota(cluster: light.LightCluster, source: pods.Pods, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.api.call("POST", path, quota)

    async def counted() -> object:
        return (await asyncio.to_thread(cluster.api.call, "GET", f"{path}/none")).get("status", {}).get("hard")

    await eventually(counted)
    assert (await refusal(source, namespace)).refusal is failures.Refusal.QUOTA


async def test_pod_security(cluster: light.LightCluster, source: pods.Pods) -> None:
    namespace = make_namespace(cluster.api, {"pod-security.kubernetes.io/enforce": "restricted"})
    assert (await refusal(source, namespace)).refusal is failures.Refusal.POD_SECURITY


async def test_terminating_namespace(cluster: light.LightCluster, client: clients.Client, source: pods.Pods) -> None:
    namespace = make_namespace(cluster.api)
    held = {"metadata": {"finalizers": ["test.clockhand.dev/hold"]}}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.api.call(
        "POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"} | held["metadata"]}
    )
    assert await objects.namespace_phase(client, namespace) == "Active"
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    assert await objects.namespace_phase(client, namespace) == "Terminating"
    error = await refusal(source, namespace)
    assert error.refusal is failures.Refusal.NAMESPACE_TERMINATING
    free = {"metadata": {"finalizers": None}}
    cluster.api.call("PATCH", f"{path}/held", free, content_type="application/merge-patch+json")


async def test_missing_account(source: pods.Pods, namespace: str) -> None:
    assert (await refusal(source, namespace, serviceAccountName="nobody")).refusal is failures.Refusal.POLICY


async def test_webhook_that_is_down(
    cluster: light.LightCluster, client: clients.Client, source: pods.Pods, namespace: str
) -> None:
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "down.test.clockhand.dev",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    cluster.api.call("POST", path, hook)
    try:
        rendered = template(namespace)

        async def refused() -> bool:
            try:
                await source.create(namespace, rendered.body_for(facts()))
            except failures.ApiRefused as error:
                return error.refusal is failures.Refusal.WEBHOOK_DOWN
            return False

        await eventually(refused)
    finally:
        cluster.api.call("DELETE", f"{path}/{namespace}")
    assert client.gate.flow.throttled == 0, "one namespace's webhook must not slow the others down"


async def test_somebody_without_rights(cluster: light.LightCluster, namespace: str) -> None:
    config = await connections.from_kubeconfig(str(cluster.kubeconfig_for("bob")))
    async with clients.connect(config) as client:
        assert (await refusal(pods.Pods(client), namespace)).refusal is failures.Refusal.RIGHTS


async def test_what_is_missing(client: clients.Client, source: pods.Pods) -> None:
    with pytest.raises(errors.NotFound) as missing:
        await source.create("nowhere", template("nowhere").body_for(facts()))
    assert not isinstance(missing.value, failures.ResourceMissing)
    with pytest.raises(failures.ResourceMissing):
        await objects.Objects(client, "nothings").get("default", "x")


async def test_a_long_list_comes_in_pages(source: pods.Pods, namespace: str) -> None:
    rendered = template(namespace, nodeSelector={"no": "where"})
    made = 501
    await asyncio.gather(*(source.create(namespace, rendered.body_for(facts(number % 2))) for number in range(made)))
    pages = [
        page async for page in source.list_pages(pod_rules.SELECTOR, namespace, wants=lambda marks: marks.shard == "0")
    ]
    assert [len(page.heads) for page in pages] == [500, 1]
    assert sum(len(page.pods) for page in pages) == 251
    assert len({page.resource_version for page in pages}) == 1


async def test_a_watch_can_be_resumed_and_shows_only_what_is_wanted(
    cluster: light.LightCluster, source: pods.Pods, namespace: str
) -> None:
    pages = [page async for page in source.list_pages(pod_rules.SELECTOR, namespace)]
    wanted = await make_pod(source, namespace, shard=1)
    other = await make_pod(source, namespace, shard=2)

    async def read(version: str, until: str) -> list[pods.PodEvent]:
        found = []
        events = source.watch(
            version, selector=pod_rules.SELECTOR, namespace=namespace, wants=lambda marks: marks.shard == "1"
        )
        async with asyncio.timeout(PATIENCE_SECONDS), contextlib.aclosing(events):
            async for event in events:
                found.append(event)
                if event.change == until and event.pod is not None:
                    return found
        raise AssertionError("the watch ended")

    first = await read(pages[0].resource_version, "ADDED")
    assert first[0].pod is not None
    assert first[0].pod.metadata.name == wanted
    remove_pod(cluster.api, namespace, other)
    remove_pod(cluster.api, namespace, wanted)
    rest = await read(first[-1].resource_version, "DELETED")
    assert {event.pod.metadata.name for event in rest if event.pod is not None} == {wanted}
    assert any(event.pod is None for event in rest), "the other shard's events carry the version on"
    again = await read(pages[0].resource_version, "DELETED")
    assert [event.resource_version for event in again] == [event.resource_version for event in (*first, *rest)]


async def test_a_version_that_is_too_old_is_expired(
    cluster: light.LightCluster, source: pods.Pods, namespace: str
) -> None:
    """A server that has just started knows nothing of the time before."""
    await make_pod(source, namespace)
    await asyncio.to_thread(cluster.restart_apiserver)
    await make_pod(source, namespace)
    events = source.watch("1", selector=pod_rules.SELECTOR)
    with pytest.raises(failures.Expired):
        await asyncio.wait_for(anext(events), PATIENCE_SECONDS)


async def test_what_happens_while_the_wire_is_cut_is_made_up_for(
    cluster: light.LightCluster,
    source: pods.Pods,
    fragile: clients.Client,
    proxy: tcpproxy.TcpProxy,
    namespace: str,
) -> None:
    goes = await make_pod(source, namespace)
    view = fresh_watch(pods.Pods(fragile), namespace)
    async with following(view) as seen:
        stays = await open_watch(source, namespace, seen)
        before = len(seen)
        proxy.cut()
        gone = await source.get(namespace, goes)
        await asyncio.to_thread(remove_pod, cluster.api, namespace, goes)
        came = await make_pod(source, namespace)
        proxy.mend()
        lost = await until(seen, watch.Kind.DELETED, goes)
        await until(seen, watch.Kind.ADDED, came)
        await until(seen, watch.Kind.MODIFIED, stays)
    assert (lost.uid, lost.run_id, lost.pod) == (gone.metadata.uid, gone.metadata.marks.run_id, None)
    assert watch.Kind.SYNCED in {one.kind for one in seen[before:]}


async def test_a_pod_that_was_replaced_while_the_wire_was_cut_is_two_pods(
    cluster: light.LightCluster,
    source: pods.Pods,
    fragile: clients.Client,
    proxy: tcpproxy.TcpProxy,
    namespace: str,
) -> None:
    run = facts()
    rendered = template(namespace)
    first = await source.create(namespace, rendered.body_for(run))
    view = fresh_watch(pods.Pods(fragile), namespace)
    async with contextlib.aclosing(view.stream()) as stream:
        await next_where(stream, is_synced)
        proxy.cut()
        remove_pod(cluster.api, namespace, rendered.name_for(run))
        second = await source.create(namespace, rendered.body_for(run))
        proxy.mend()
        deleted = await next_where(stream, lambda one: one.kind is watch.Kind.DELETED)
        added = await next_where(stream, lambda one: one.kind is watch.Kind.ADDED)
    assert (deleted.uid, added.uid) == (first.uid, second.uid)


async def test_a_shard_that_is_gained_is_seen_after_a_resync(source: pods.Pods, namespace: str) -> None:
    shards = {"1"}
    mine = await make_pod(source, namespace, shard=1)
    gained = await make_pod(source, namespace, shard=2)
    view = fresh_watch(source, namespace, wants=lambda marks: marks.shard in shards)
    async with contextlib.aclosing(view.stream()) as stream:
        assert (await next_where(stream, lambda one: one.kind is watch.Kind.ADDED)).name == mine
        await next_where(stream, is_synced)
        waiting = asyncio.ensure_future(next_where(stream, lambda one: one.name == gained))
        await asyncio.sleep(0)
        shards.add("2")
        view.resync()
        assert (await waiting).kind is watch.Kind.ADDED
        await next_where(stream, is_synced)
    assert view.listings == 2


async def test_a_silent_watch_is_not_trusted(cluster: light.LightCluster, source: pods.Pods, namespace: str) -> None:
    settings = watch.WatchSettings(stall_seconds=1.0, first_backoff_seconds=0.05, max_backoff_seconds=0.5)
    view = watch.PodWatch(source, selector=pod_rules.SELECTOR, namespace=namespace, settings=settings)
    async with following(view) as seen:
        await open_watch(source, namespace, seen)
        cluster.pause_apiserver()
        try:

            async def noticed() -> bool:
                return view.last_error.startswith("Stalled")

            await eventually(noticed)
            listings = view.listings
        finally:
            cluster.resume_apiserver()

        async def listed() -> bool:
            return view.listings > listings

        await eventually(listed)
        name = await open_watch(source, namespace, seen)
        await asyncio.to_thread(remove_pod, cluster.api, namespace, name)
        await until(seen, watch.Kind.DELETED, name)


async def test_a_write_whose_answer_is_lost_is_uncertain_and_can_be_settled(
    source: pods.Pods, fragile: clients.Client, proxy: tcpproxy.TcpProxy, namespace: str
) -> None:
    run = facts()
    rendered = template(namespace)
    await fragile.get("/version")
    proxy.clog()
    with pytest.raises(errors.Uncertain):
        await pods.Pods(fragile).create(namespace, rendered.body_for(run))
    proxy.clear()
    assert pod_rules.belongs_to(await source.get(namespace, rendered.name_for(run)), run)
    assert fragile.gate.flow.limit == FAST.initial_in_flight / 2


async def test_a_server_that_cannot_be_reached_is_unavailable(
    fragile: clients.Client, proxy: tcpproxy.TcpProxy, namespace: str, connection: connections.Connection
) -> None:
    nobody = dataclasses.replace(connection, server=f"https://127.0.0.1:{ports.free_row(1)}")
    async with clients.connect(nobody) as client:
        with pytest.raises(errors.Unavailable):
            await pods.Pods(client).create(namespace, template(namespace).body_for(facts()))
        with pytest.raises(errors.Unavailable):
            await pods.Pods(client).get(namespace, "x")
    proxy.clog()
    with pytest.raises(errors.Unavailable):
        await pods.Pods(fragile).get(namespace, "x")
    proxy.clear()


async def test_calls_work_again_when_the_server_is_back(
    cluster: light.LightCluster, source: pods.Pods, namespace: str
) -> None:
    name = await make_pod(source, namespace)
    view = fresh_watch(source, namespace)
    async with contextlib.aclosing(view.stream()) as stream:
        await next_where(stream, is_synced)
        await asyncio.to_thread(cluster.stop_apiserver)
        with pytest.raises(errors.Unavailable):
            await source.get(namespace, name)
        await asyncio.to_thread(cluster.start_apiserver)
        assert (await source.get(namespace, name)).metadata.name == name
        await asyncio.to_thread(remove_pod, cluster.api, namespace, name)
        gone = await next_where(stream, lambda one: one.kind is watch.Kind.DELETED)
    assert gone.name == name


async def test_logs_that_are_not_there(source: pods.Pods, namespace: str) -> None:
    with pytest.raises(errors.NotFound):
        await source.log_tail(namespace, "nothing", "main")
    unscheduled = template(namespace, nodeSelector={"no": "where"})
    run = facts()
    await source.create(namespace, unscheduled.body_for(run))
    assert await source.log_tail(namespace, unscheduled.name_for(run), "main") == ""


@pytest.fixture
async def things(cluster: light.LightCluster, client: clients.Client) -> collections.abc.AsyncIterator[objects.Objects]:
    """A resource of our group with a status."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.clockhand.dev"},
        "spec": {
            "group": "clockhand.dev",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.api.call("POST", path, definition)
    found = objects.Objects(client, "things")

    async def served() -> bool:
        with contextlib.suppress(errors.NotFound, errors.Unavailable):
            return [page async for page in found.list_pages()] != []
        return False

    await eventually(served)
    yield found
    cluster.api.call("DELETE", f"{path}/things.clockhand.dev")


async def test_objects_and_their_status(cluster: light.LightCluster, things: objects.Objects, namespace: str) -> None:
    path = f"{objects.GROUP_PATH}/namespaces/{namespace}/things"
    thing = {"apiVersion": "clockhand.dev/v1alpha1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"a": 1}}
    made = cluster.api.call("POST", path, thing)["metadata"]
    uid, version = made["uid"], made["resourceVersion"]

    newer = await things.patch_status(namespace, "one", {"active": 1}, uid=uid, resource_version=version)
    assert newer != version
    found = await things.get(namespace, "one")
    assert (found["status"], found["spec"]) == ({"active": 1}, {"a": 1})
    assert found["metadata"]["resourceVersion"] == newer

    with pytest.raises(failures.ApiConflict):
        await things.patch_status(namespace, "one", {"active": 2}, uid=uid, resource_version=version)
    with pytest.raises(failures.ApiConflict):
        await things.patch_status(namespace, "one", {"active": 2}, uid=str(uuid.uuid4()))
    with pytest.raises(errors.NotFound):
        await things.patch_status(namespace, "two", {"active": 2}, uid=uid)
    await things.patch_status(namespace, "one", {"active": None, "next": "x"}, uid=uid)
    assert (await things.get(namespace, "one"))["status"] == {"next": "x"}

    pages = [page async for page in things.list_pages(metadata_only=True)]
    assert [item["metadata"]["uid"] for page in pages for item in page.items] == [uid]
    assert "spec" not in pages[0].items[0]
    with pytest.raises(failures.ApiConflict):
        await things.delete(namespace, "one", uid=str(uuid.uuid4()))
    with pytest.raises(failures.ApiConflict):
        await things.delete(namespace, "one", uid=uid, resource_version=version)
    await things.delete(namespace, "one", uid=uid, resource_version=pages[0].items[0]["metadata"]["resourceVersion"])
    with pytest.raises(errors.NotFound) as gone:
        await things.get(namespace, "one")
    assert not isinstance(gone.value, failures.ResourceMissing)


def account_token(api: kubeapi.KubeApi, namespace: str, *audiences: str) -> str:
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences)} if audiences else {},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token: str = api.call("POST", path, request)["status"]["token"]
    return token


async def test_who_is_asking(cluster: light.LightCluster, client: clients.Client, namespace: str) -> None:
    token = account_token(cluster.api, namespace, "clockhand")
    user = await access.review_token(client, token, ["clockhand"])
    assert user is not None
    assert user.username == f"system:serviceaccount:{namespace}:default"
    assert f"system:serviceaccounts:{namespace}" in user.groups
    assert await access.review_token(client, token, ["other"]) is None
    assert await access.review_token(client, token, []) is None
    assert await access.review_token(client, "nonsense", ["clockhand"]) is None


async def test_may_they(client: clients.Client, namespace: str) -> None:
    create = access.Action("create", "", "pods", namespace)
    nobody = await access.review_access(client, access.User("bob", groups=("system:authenticated",)), create)
    admin = await access.review_access(client, access.User("amy", groups=("system:masters",)), create)
    assert (nobody.allowed, admin.allowed) == (False, True)


async def test_inside_a_cluster_the_token_is_read_anew(
    cluster: light.LightCluster, namespace: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (tmp_path / "token").write_text("stale")
    port = str(urllib.parse.urlsplit(cluster.url).port)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    found = connections.in_cluster(environment, directory=tmp_path)
    async with clients.connect(found) as client:
        with pytest.raises(failures.ApiRefused) as refused:
            await client.get("/version/")
        assert refused.value.refusal is failures.Refusal.UNAUTHENTICATED
        (tmp_path / "token").write_text(account_token(cluster.api, namespace))
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = json.loads(await client.ask(path, json.dumps(review).encode()))
    assert answer["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


async def test_an_unverified_server_is_refused_unless_it_is_allowed(
    cluster: light.LightCluster, tmp_path: pathlib.Path
) -> None:
    config = json.loads(cluster.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    with pytest.raises(errors.InvalidInput):
        await connections.from_kubeconfig(str(path))
    allowed = await connections.from_kubeconfig(str(path), allow_insecure=True)
    async with clients.connect(allowed) as client:
        assert b"gitVersion" in await client.get("/version")


async def test_whom_an_aggregated_server_trusts(cluster: light.LightCluster, client: clients.Client) -> None:
    first = await aggregation.read_front_proxy(client)
    assert first.ca.startswith("-----BEGIN CERTIFICATE-----")
    assert first.allowed_names == ("front-proxy-client",)
    assert first.username_headers == ("X-Remote-User",)
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    states = aggregation.front_proxies(client)
    async with asyncio.timeout(PATIENCE_SECONDS), contextlib.aclosing(states):
        assert await anext(states) == first
        other = {"data": {"requestheader-allowed-names": '["front-proxy-client","second"]'}}
        change = asyncio.ensure_future(anext(states))
        await asyncio.to_thread(cluster.api.call, "PATCH", path, other, content_type="application/merge-patch+json")
        assert (await change).allowed_names == ("front-proxy-client", "second")


async def test_an_api_service_learns_our_ca(cluster: light.LightCluster, client: clients.Client) -> None:
    name = f"v1.{GROUP}"
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {
            "group": GROUP,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": {"name": "none", "namespace": "default"},
            "insecureSkipTLSVerify": True,
        },
    }
    cluster.api.call("POST", path, service)
    try:
        await aggregation.set_ca_bundle(client, name, cluster.ca.read_bytes())
        spec = cluster.api.call("GET", f"{path}/{name}")["spec"]
        assert base64.b64decode(spec["caBundle"]) == cluster.ca.read_bytes()
        assert not spec.get("insecureSkipTLSVerify")
    finally:
        cluster.api.call("DELETE", f"{path}/{name}")


def test_marks_are_read_from_annotations_of_any_size() -> None:
    line = {
        "type": "ADDED",
        "object": {
            "metadata": {
                "name": "p",
                "resourceVersion": "5",
                "annotations": {"clockhand.dev/shard": "9", "big": "x" * 100_000},
            }
        },
    }
    event = pods.read_event(json.dumps(line).encode(), lambda marks: marks == observed.Marks(shard="9"))
    assert event.pod is not None
    assert event.resource_version == "5"
