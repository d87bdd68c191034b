"""The REST API over real HTTP: who gets in, what jobs can be sent and asked, and how whatever is wrong is answered."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import jobs, limits, workers_api
from tests.support.workers_api import Caller, Rest, Served

from clockhand import errors, metrics
from clockhand.api.rest import openapi, page, room
from clockhand.domain import resources, tokens
from clockhand.kube import access
from clockhand.store import database

TENANT = "rest/acme"
JOB = {"schedule": "0 2 * * *", "handler": "email.send"}


class Cluster:
    """Users by their tokens, and what each of them may do; `away`: nobody knows."""

    def __init__(self) -> None:
        self.away = False
        self.users = {
            "jane": access.User("jane"),
            "account": access.User("system:serviceaccount:team-a:shop"),
        }
        self.allowed: dict[str, set[tuple[str, str, str]]] = {}

    def allow(self, user: str, verb: str, resource: str, namespace: str) -> None:
        self.allowed.setdefault(user, set()).add((verb, resource, namespace))

    async def user_of(self, token: str) -> access.User | None:
        return self.users.get(token)

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        if self.away:
            raise errors.Unavailable("the API server did not answer", 7.0)
        resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
        wanted = (action.verb, f"{resource}.{action.group}", action.namespace)
        return access.Decision(wanted in self.allowed.get(user.username, ()), "")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(db: database.Database, cluster: Cluster) -> AsyncIterator[Served]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    async with workers_api.served(db, asked=cluster) as running:
        yield running


async def holder(api: Served, role: tokens.Role = tokens.Role.EDITOR, owner: str = TENANT) -> Caller:
    """Somebody with a static token."""
    return api.caller(await workers_api.make_token(api.db, owner=owner, role=role))


@pytest.fixture
async def editor(api: Served) -> Caller:
    return await holder(api)


async def made(caller: Caller, **fields: Any) -> dict[str, Any]:
    """A job that was made."""
    answer = await caller.post("/v1/jobs", {**JOB, **fields})
    assert answer.status == 201, answer.text
    document: dict[str, Any] = answer.json
    return document


# jobs


async def test_a_job_is_made_read_changed_and_ended(editor: Caller) -> None:
    answer = await editor.post("/v1/jobs", {**JOB, "name": "letters", "labels": {"team": "post"}, "payload": {"n": 1}})
    job = answer.json
    at = f"/v1/jobs/{job['id']}"
    assert (answer.status, answer.headers["Location"]) == (201, at)
    assert (job["name"], job["owner"], job["origin"], job["generation"]) == ("letters", TENANT, "REST", 1)
    got = await editor.send("GET", at)
    assert got.json == job
    assert got.headers["ETag"] == answer.headers["ETag"]
    assert got.json["payload"] == {"n": 1}
    edited = await editor.send("PATCH", at, {"retry": {"maxAttempts": 7}, "labels": None})
    assert edited.json["retry"]["maxAttempts"] == 7
    assert "labels" not in edited.json
    assert edited.json["generation"] == 2
    replaced = await editor.send("PUT", at, {"every": "5m", "handler": "other"})
    assert (replaced.json["every"], "schedule" in replaced.json) == ("5m", False)
    gone = await editor.send("DELETE", at)
    assert (gone.status, gone.text) == (204, "")
    assert (await editor.send("GET", at)).status == 404
    assert (await editor.send("DELETE", at)).status == 404


async def test_what_was_read_may_be_sent_back(editor: Caller) -> None:
    rules = [{"onErrors": ["TimeoutError"], "action": "Fail"}, {"onExitCodes": [3], "action": "Ignore"}]
    for fields in (
        {"retry": {"rules": rules}, "labels": {"a": "b"}, "payload": [1]},
        {"schedule": None, "schedules": ["0 1 * * *", "0 2 * * *"], "timeZone": "Europe/Berlin"},
        {"schedule": None, "at": "2099-01-01T00:00:00Z", "priority": 3},
        {"schedule": None, "every": "90m", "pool": "mailers", "suspend": True},
    ):
        job = await made(editor, **fields)
        again = await editor.send("PUT", f"/v1/jobs/{job['id']}", job)
        assert again.status == 200, again.text
        assert without_status(again.json) == without_status(job)


def without_status(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in job.items() if name != "status"}


async def test_an_edit_names_the_version_that_it_is_of(editor: Caller) -> None:
    job = await made(editor)
    at = f"/v1/jobs/{job['id']}"
    first = (await editor.send("GET", at)).headers["ETag"]
    second = (await editor.send("PATCH", at, {"priority": 1}, headers={"If-Match": first})).headers["ETag"]
    assert first != second
    for method, body in (("PATCH", {"priority": 2}), ("PUT", JOB), ("DELETE", b"")):
        for tag in (first, f"W/{second}", '"none"', "x"):
            refused = await editor.send(method, at, body, headers={"If-Match": tag})
            assert (refused.status, refused.json["status"]) == (412, 412)
    for tag in (f"{first}, {second}", "*"):
        assert (await editor.send("PATCH", at, {"priority": 3}, headers={"If-Match": tag})).status == 200
        second = (await editor.send("GET", at)).headers["ETag"]
    unchanged = await editor.send("GET", at, headers={"If-None-Match": f"W/{second}"})
    assert (unchanged.status, unchanged.text, unchanged.headers["ETag"]) == (304, "", second)
    assert (await editor.send("GET", at, headers={"If-None-Match": first})).status == 200
    assert (await editor.post(f"{at}:run", {})).status == 202
    ran = await editor.send("GET", at, headers={"If-None-Match": second})
    assert (ran.status, ran.json["status"]["active"]) == (200, 1), "what is shown has changed, and the version has not"
    assert (await editor.send("PATCH", at, {"priority": 3}, headers={"If-Match": second})).status == 200


async def test_a_key_has_one_effect_and_one_answer(editor: Caller) -> None:
    key = {"Idempotency-Key": "order 1"}
    body = {**JOB, "name": "once"}
    first, again = [await editor.post("/v1/jobs", body, headers=key) for _ in range(2)]
    assert (again.status, again.text, again.headers["Location"]) == (201, first.text, first.headers["Location"])
    other = await editor.post("/v1/jobs", {**body, "priority": 1}, headers=key)
    assert other.status == 422
    assert (await editor.post("/v1/jobs", body)).status == 409, "the name is taken"
    for wrong in ("", "x" * 256, "é"):
        assert (await editor.post("/v1/jobs", JOB, headers={"Idempotency-Key": wrong})).status == 422


async def test_many_at_once_are_each_by_itself(editor: Caller) -> None:
    batch = [{**JOB, "name": "a"}, {**JOB, "name": "a"}, {"schedule": "* *"}, 5, {**JOB, "template": {}}, JOB]
    answer = await editor.post("/v1/jobs:batch", batch)
    assert answer.status == 200, answer.text
    assert (answer.json["created"], answer.json["refused"]) == (2, 4)
    assert [item["error"]["status"] if "error" in item else 201 for item in answer.json["items"]] == [
        201, 409, 422, 422, 422, 201,
    ]  # fmt: skip


async def test_a_batch_has_its_limits(editor: Caller) -> None:
    answer = await editor.post("/v1/jobs:batch", [JOB] * (resources.MAX_BATCH + 1))
    assert answer.status == 413
    assert str(resources.MAX_BATCH) in answer.json["detail"]
    wide = [{**JOB, "payload": "x" * 15_000}] * resources.MAX_BATCH
    assert (await editor.post("/v1/jobs:batch", wide)).json["created"] == resources.MAX_BATCH
    beyond = b"[" + b" " * resources.MAX_BATCH_BODY_BYTES + b"]"
    answer = await editor.post("/v1/jobs:batch", beyond)
    assert answer.status == 413
    assert str(resources.MAX_BATCH_BODY_BYTES) in answer.json["detail"]
    assert answer.headers["Connection"] == "close", "what was sent is still in the way"


async def test_large_bodies_have_their_places_until_they_are_answered(
    api: Served, editor: Caller, db: database.Database
) -> None:
    await made(editor)
    large, half = [{**JOB, "payload": "x" * 60_000}] * 20, room.BIG_BODIES // 2
    other = await holder(api, owner="rest/other")
    async with db.transaction() as connection:
        await connection.execute(b"SELECT FROM owners WHERE owner = 'rest/acme' FOR UPDATE")
        sent = [asyncio.create_task(editor.post("/v1/jobs:batch", large)) for _ in range(room.BIG_BODIES)]
        refused = set[asyncio.Task[Any]]()
        while len(refused) < half:
            done, _ = await asyncio.wait(set(sent) - refused, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert {one.result().status for one in refused} == {503}
    assert sorted(one.status for one in await asyncio.gather(*sent)) == [200] * half + [503] * half
    assert (await other.post("/v1/jobs:batch", large)).status == 200


async def test_lists_come_in_pages_by_name(editor: Caller) -> None:
    names = [f"job-{number}" for number in range(7)]
    for name in names:
        await made(editor, name=name, labels={"even": str(int(name[-1]) % 2 == 0).lower()})
    found, cursor = [], ""
    for _ in range(4):
        got = (await editor.send("GET", f"/v1/jobs?limit=2{cursor}")).json
        found += [job["name"] for job in got["items"]]
        if "next" not in got:
            break
        cursor = f"&cursor={got['next']}"
    assert found == names
    for query, wanted in (
        ("name=job-3", ["job-3"]),
        ("name=job", []),
        ("namePrefix=job-", names),
        ("label=even=true&limit=100", names[::2]),
        ("handler=email.send&standing=Active", names),
        ("handler=other", []),
        ("standing=Suspended", []),
        ("pool=default", names),
    ):
        got = (await editor.send("GET", f"/v1/jobs?{query}")).json
        assert [job["name"] for job in got["items"]] == wanted, query


async def test_a_cursor_is_good_for_its_own_list_alone(api: Served, editor: Caller) -> None:
    for name in ("a", "b", "c"):
        await made(editor, name=name)
    cursor = (await editor.send("GET", "/v1/jobs?limit=1")).json["next"]
    other = await holder(api, owner="rest/other")
    for caller, path in (
        (other, f"/v1/jobs?limit=1&cursor={cursor}"),
        (editor, f"/v1/jobs?namePrefix=a&cursor={cursor}"),
        (editor, f"/v1/runs?cursor={cursor}"),
        (editor, f"/v1/jobs?cursor={cursor[:-2]}"),
        (editor, "/v1/jobs?cursor=x"),
        (editor, "/v1/jobs?cursor="),
    ):
        answer = await caller.send("GET", path)
        assert (answer.status, answer.json["errors"][0]["parameter"]) == (422, "cursor"), path


async def test_upcoming_times_are_marked_where_clocks_change(editor: Caller) -> None:
    job = await made(editor, schedule="30 2 * * *", timeZone="Europe/Berlin")
    slots = (await editor.send("GET", f"/v1/jobs/{job['id']}/upcoming?count=100")).json["items"]
    assert len([slot for slot in slots if slot.get("runs", True)]) == 100
    assert all(slot["local"].endswith(("+01:00", "+02:00")) for slot in slots)
    year = await made(editor, schedule=None, schedules=["30 2 25-31 3,10 *"], timeZone="Europe/Berlin")
    slots = (await editor.send("GET", f"/v1/jobs/{year['id']}/upcoming?count=28")).json["items"]
    notes = " ".join(slot.get("note", "") for slot in slots)
    assert "gap: 02:30 does not exist" in notes
    assert "overlap: 02:30 comes twice" in notes
    once = await made(editor, schedule=None, at="2099-01-01T00:00:00+01:00")
    [slot] = (await editor.send("GET", f"/v1/jobs/{once['id']}/upcoming")).json["items"]
    assert slot["at"] == "2098-12-31T23:00:00Z"


async def test_a_job_that_does_not_fire_has_no_upcoming_times(editor: Caller) -> None:
    job = await made(editor)
    at = f"/v1/jobs/{job['id']}"
    assert len((await editor.send("GET", f"{at}/upcoming")).json["items"]) == 10
    paused = await editor.post(f"{at}:pause", b"")
    assert (paused.status, paused.json["suspend"], paused.json["status"]["standing"]) == (200, True, "Suspended")
    assert (await editor.send("GET", f"{at}/upcoming")).json["items"] == []
    resumed = await editor.post(f"{at}:resume", b"")
    assert (resumed.status, resumed.json["suspend"], resumed.json["status"]["standing"]) == (200, False, "Active")


# who may


async def test_without_a_good_token_there_is_nothing(api: Served) -> None:
    for secret in (None, "stranger", tokens.secret_of(b"\1" * tokens.SECRET_BYTES)):
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/runs:stream")):
            answer = await api.caller(secret).send(method, path)
            assert answer.status == 401
            assert "WWW-Authenticate" in answer.headers


async def test_roles_are_kept_apart(api: Served, editor: Caller) -> None:
    job = await made(editor)
    viewer = await holder(api, tokens.Role.VIEWER)
    worker = await holder(api, tokens.Role.WORKER)
    at = f"/v1/jobs/{job['id']}"
    assert (await viewer.send("GET", at)).status == 200
    assert (await viewer.send("GET", "/v1/jobs")).status == 200
    for caller in (viewer, worker):
        for method, path in (("POST", "/v1/jobs"), ("PATCH", at), ("DELETE", at), ("POST", f"{at}:pause")):
            assert (await caller.send(method, path, JOB)).status == 403
    assert (await worker.send("GET", at)).status == 403
    assert (await viewer.call("claim", place="acme", pool="mailers")).status == 403


async def test_what_is_anothers_is_not_there(api: Served, editor: Caller) -> None:
    job = await made(editor)
    other = await holder(api, owner="rest/other")
    at = f"/v1/jobs/{job['id']}"
    for method, path in (("GET", at), ("PUT", at), ("PATCH", at), ("DELETE", at), ("POST", f"{at}:pause")):
        assert (await other.send(method, path, JOB if method != "POST" else b"")).status == 404
    assert (await other.send("GET", "/v1/jobs")).json["items"] == []
    for text in ("1", "x" * 200, "%00", str(uuid.UUID(int=0))):
        assert (await editor.send("GET", f"/v1/jobs/{text}")).status == 404


async def test_a_user_of_the_cluster_acts_where_the_cluster_lets_them(api: Served, cluster: Cluster) -> None:
    account, jane = api.caller("account"), api.caller("jane")
    group = "scheduledjobs.clockhand.dev"
    assert (await account.post("/v1/jobs", JOB)).status == 403
    cluster.allow("system:serviceaccount:team-a:shop", "get", group, "team-a")
    cluster.allow("system:serviceaccount:team-a:shop", "create", group, "team-b")
    answer = await account.post("/v1/jobs?namespace=team-b", JOB)
    assert (answer.status, answer.json["owner"]) == (201, "k8s/team-b")
    assert (await account.send("GET", f"/v1/jobs/{answer.json['id']}?namespace=team-a")).status == 404
    nowhere = await jane.send("GET", "/v1/jobs")
    assert (nowhere.status, nowhere.json["errors"][0]["parameter"]) == (422, "namespace")
    assert (await jane.send("GET", "/v1/jobs?namespace=Team")).status == 422
    cluster.allow("jane", "list", group, "team-b")
    assert len((await jane.send("GET", "/v1/jobs?namespace=team-b")).json["items"]) == 1
    static = await holder(api, owner="k8s/team-b")
    assert len((await static.send("GET", "/v1/jobs?namespace=team-b")).json["items"]) == 1
    assert (await static.send("GET", "/v1/jobs?namespace=team-a")).status == 403


async def test_a_template_takes_the_right_to_create_pods(api: Served, cluster: Cluster, editor: Caller) -> None:
    job = {"schedule": "0 2 * * *", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    assert (await editor.post("/v1/jobs", job)).status == 403
    jane = api.caller("jane")
    cluster.allow("jane", "create", "scheduledjobs.clockhand.dev", "team-a")
    refused = await jane.post("/v1/jobs?namespace=team-a", job)
    assert refused.status == 403
    batch = await jane.post("/v1/jobs:batch?namespace=team-a", [job, JOB])
    assert [item.get("error", {}).get("status") for item in batch.json["items"]] == [403, None]


async def test_a_template_of_who_may_create_pods(api: Served, cluster: Cluster) -> None:
    job = {"schedule": "0 2 * * *", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    jane = api.caller("jane")
    for verb, resource in (("create", "scheduledjobs.clockhand.dev"), ("create", "pods.")):
        cluster.allow("jane", verb, resource, "team-a")
    answer = await jane.post("/v1/jobs?namespace=team-a", job)
    assert answer.status == 201, answer.text
    assert answer.json["template"]["spec"]["containers"][0]["image"] == "busybox"


async def test_a_cluster_that_cannot_be_asked_lets_nobody_act(api: Served, cluster: Cluster) -> None:
    cluster.away = True
    answer = await api.caller("account").send("GET", "/v1/jobs")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "7")


# how much


async def test_an_owner_has_a_rate(db: database.Database, tmp_path: Path) -> None:
    file = limits.file(tmp_path, f"owners: {{{TENANT}: {{requestsPerSecond: 2}}}}")
    async with workers_api.served(db, over=Rest(limits=file)) as api:
        editor, other = await holder(api), await holder(api, owner="rest/other")
        answers = [await editor.send("GET", "/v1/jobs") for _ in range(30)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused
        assert "requestsPerSecond" in refused[0].json["detail"]
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert {(await other.send("GET", "/v1/jobs")).status for _ in range(30)} == {200}


async def test_more_than_there_is_room_for_is_told_to_come_again(db: database.Database) -> None:
    async with workers_api.served(db, over=Rest(connections=1)) as api:
        editor = await holder(api)
        await editor.send("GET", "/v1/jobs")
        before = metrics.REST_SHED._value.get()
        async with db.transaction() as blocking:
            await blocking.execute("LOCK TABLE jobs")
            asked = [asyncio.create_task(editor.send("GET", "/v1/jobs")) for _ in range(100)]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result().status for task in done} == {503}
            statuses = [answer.status for answer in await asyncio.gather(*asked[20:])]
            assert set(statuses) == {503}, "what has no place does not wait for one"
        assert {answer.status for answer in await asyncio.gather(*asked[:16])} == {200}, "what had one, has it"
        assert metrics.REST_SHED._value.get() == before + 84
        assert "Retry-After" in next(iter(done)).result().headers


async def test_workers_do_not_wait_for_what_is_asked_over_rest(db: database.Database, database_url: str) -> None:
    await workers_api.make_pool(db)
    own = database.Database(database_url, size=1, name="rest", patience=0.5)
    await own.open()
    async with workers_api.served(db, over=Rest(connections=1, db=own)) as api:
        viewer, worker = await holder(api, tokens.Role.VIEWER), await api.worker()
        await viewer.send("GET", "/v1/audit")
        async with db.transaction() as blocking:
            await blocking.execute("LOCK TABLE audit")
            asked = [asyncio.create_task(viewer.send("GET", "/v1/audit")) for _ in range(16)]
            # one has the connection and waits for the table; the others are told that there is none
            done, waiting = set[asyncio.Task[Any]](), set(asked)
            while len(waiting) > 1:
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            assert {task.result().status for task in done} == {503}
            assert (await worker.call("claim")).status == 200
        await asyncio.gather(*waiting)
    await own.close()


# what is wrong


NO_JSON = (
    b"{", b"nul", b"\xff", b'{"handler": "\xff"}', b'{"handler": "\\ud800"}', b'{"priority": NaN}',
    b'{"priority": Infinity}', b'{"priority": 1,}', b"\x1f\x8b\x08", b"\0", b'{"a": "b" x}', b"{'a': 1}",
)  # fmt: skip


async def test_what_is_no_json_is_400(editor: Caller) -> None:
    one = f"/v1/jobs/{uuid.uuid4()}"
    for body in NO_JSON:
        for method, path in (("POST", "/v1/jobs"), ("PUT", one), ("PATCH", one)):
            answer = await editor.send(method, path, body)
            assert answer.status == 400, (body, answer.text)
    packed = await editor.post("/v1/jobs", b"no gzip", headers={"Content-Encoding": "gzip"})
    assert packed.status == 400
    assert packed.json["detail"] == "the body cannot be read: Can not decode content-encoding: gzip"


UNFIT: Mapping[str, tuple[Any, str]] = {
    "a list": ([], ""),
    "nothing": ({}, ""),
    "no when": ({"handler": "h"}, ""),
    "two whens": ({**JOB, "every": "5m"}, ""),
    "no what": ({"schedule": "* * * * *"}, ""),
    "two whats": ({**JOB, "template": {"spec": {"containers": [{"name": "a"}]}}}, ""),
    "an unknown field": ({**JOB, "timezone": "UTC"}, "/timezone"),
    "an unknown field inside": ({**JOB, "retry": {"backoff": {"factr": 2}}}, "/retry/backoff/factr"),
    "an odd name of a field": ({**JOB, "a/b~c": 1}, "/a~1b~0c"),
    "a wrong type": ({**JOB, "priority": "high"}, "/priority"),
    "a boolean for a number": ({**JOB, "priority": True}, "/priority"),
    "beyond a bound": ({**JOB, "retry": {"maxAttempts": 0}}, "/retry/maxAttempts"),
    "2^63": ({**JOB, "priority": 2**63}, "/priority"),
    "2^70": ({**JOB, "priority": 2**70}, "/priority"),
    "1e400": (b'{"schedule": "* * * * *", "handler": "h", "priority": 1e400}', ""),
    "2^70 in the payload": ({**JOB, "payload": {"n": 2**70}}, "/payload/n"),
    "NUL": ({**JOB, "handler": "a\0b"}, "/handler"),
    "NUL in the payload": ({**JOB, "payload": {"a": ["\0"]}}, "/payload/a/0"),
    "NUL in a name": ({**JOB, "payload": {"\0": 1}}, "/payload"),
    "a payload too large": ({**JOB, "payload": "x" * 65_536}, "/payload"),
    "the year 10000": ({"at": "10000-01-01T00:00:00Z", "handler": "h"}, "/at"),
    "no such day": ({"at": "2026-02-30T00:00:00Z", "handler": "h"}, "/at"),
    "no offset": ({"at": "2026-02-03T00:00:00", "handler": "h"}, "/at"),
    "another name of at": ({"run_at": "soon", "handler": "h"}, "/at"),
    "at twice": ({"run_at": "2099-01-01T00:00:00Z", "at": "2099-01-01T00:00:00Z", "handler": "h"}, "/at"),
    "no schedule": ({"schedule": "every day", "handler": "h"}, "/schedule"),
    "one of several": ({"schedules": ["* * * * *", "x"], "handler": "h"}, "/schedules/1"),
    "no zone": ({**JOB, "timeZone": "Mars/Base"}, "/timeZone"),
    "an upper-case name": ({**JOB, "name": "Letters"}, "/name"),
    "a long name": ({**JOB, "name": "x" * 64}, "/name"),
    "labels that are none": ({**JOB, "labels": {"a b": "c"}}, "/labels"),
    "a label that is no text": ({**JOB, "labels": {"a": 1}}, "/labels/a"),
}


async def test_what_does_not_fit_is_422_and_says_where(editor: Caller) -> None:
    for case, (body, pointer) in UNFIT.items():
        answer = await editor.post("/v1/jobs", body)
        assert answer.status == 422, (case, answer.text)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert [one["pointer"] for one in answer.json["errors"]] == [pointer], (case, answer.text)
        assert "spec." not in answer.json["detail"]
    assert (await editor.send("GET", "/v1/jobs")).json["items"] == [], "nothing of it is stored"


async def test_the_nearest_name_is_told(editor: Caller) -> None:
    for body, near in (({**JOB, "timezone": "UTC"}, "timeZone"), ({**JOB, "labls": {}}, "labels")):
        assert f"did you mean {near}?" in (await editor.post("/v1/jobs", body)).json["detail"]
    answer = await editor.send("GET", "/v1/jobs?limits=3")
    assert (answer.status, answer.json["errors"][0]["parameter"]) == (422, "limits")
    assert "did you mean limit?" in answer.json["detail"]
    for call, given, said in (
        (f"/v1/jobs/{uuid.uuid4()}:run", {"paylod": 1}, "/paylod: is not a known field: did you mean payload?"),
        ("/v1/runs:retry", {"dryrun": True}, "/dryrun: is not a known field: did you mean dryRun?"),
        ("/v1/runs:retry", {"limit": 0}, "/limit: must be at least 1"),
        ("/v1/runs:retry", {"dryRun": "yes"}, "/dryRun: must be true or false, not a string"),
        (f"/v1/jobs/{uuid.uuid4()}:backfill", {}, "/from: is missing: write it"),
        ("/v1/jobs", [], "must be an object, not a list"),
    ):
        assert (await editor.post(call, given)).json["detail"] == said
    answer = await editor.send("GET", "/v1/jobs?limit=1001")
    assert answer.json["detail"] == "limit: must be at most 1000"


async def test_a_parameter_that_does_not_fit_is_422(editor: Caller) -> None:
    for query in (
        "limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "standing=Idle", "label=a", "name=%00", "name=",
    ):  # fmt: skip
        answer = await editor.send("GET", f"/v1/jobs?{query}")
        assert answer.status == 422, answer.text
        assert answer.json["errors"][0]["parameter"] == query.partition("=")[0]


async def test_depth_and_size_have_limits_that_are_named(editor: Caller) -> None:
    deep = b'{"schedule": "* * * * *", "handler": "h", "payload": ' + b"[" * 60 + b"]" * 60 + b"}"
    assert (await editor.post("/v1/jobs", deep)).status == 201
    for depth in (70, 5_000, 100_000):
        body = deep.replace(b"[" * 60, b"[" * depth).replace(b"]" * 60, b"]" * depth)
        answer = await editor.post("/v1/jobs", body)
        assert answer.status == 413, answer.text
        assert "64 levels" in answer.json["detail"]
    text = json.dumps({**JOB, "payload": "[{" * 1_000}).encode()
    assert (await editor.post("/v1/jobs", text)).status == 201, "brackets in a text are no levels"
    whole = json.dumps(JOB).encode().ljust(resources.MAX_BODY_BYTES)
    assert (await editor.post("/v1/jobs", whole)).status == 201
    answer = await editor.post("/v1/jobs", whole + b" ")
    assert answer.status == 413
    assert str(resources.MAX_BODY_BYTES) in answer.json["detail"]


async def test_paths_methods_and_media_types_that_are_none(editor: Caller) -> None:
    one = f"/v1/jobs/{uuid.uuid4()}"
    for method, path, status, allow in (
        ("GET", "/", 404, None),
        ("GET", "/v1", 404, None),
        ("GET", "/v1/jobs/", 404, None),
        ("POST", f"{one}:stop", 404, None),
        ("POST", "/v1/jobs:BATCH", 404, None),
        ("PUT", "/v1/jobs", 405, "GET, HEAD, OPTIONS, POST"),
        ("GET", f"{one}:pause", 405, "OPTIONS, POST"),
        ("TRACE", one, 405, "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("OPTIONS", one, 204, "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("DELETE", "/docs", 405, "GET, HEAD, OPTIONS"),
    ):
        answer = await editor.send(method, path, b"")
        assert (answer.status, answer.headers.get("Allow")) == (status, allow), (method, path)
    wrong = {"Content-Type": "application/json-patch+json"}
    assert (await editor.send("PATCH", one, [], headers=wrong)).status == 415
    assert (await editor.post(f"{one}:pause", {"why": 1})).status == 422


async def test_head_is_get_without_the_body(editor: Caller) -> None:
    job = await made(editor)
    got = await editor.send("GET", f"/v1/jobs/{job['id']}")
    head = await editor.send("HEAD", f"/v1/jobs/{job['id']}")
    assert (head.status, head.text, head.headers["ETag"]) == (200, "", got.headers["ETag"])


async def test_a_body_that_trickles_is_not_waited_for(db: database.Database) -> None:
    async with workers_api.served(db, body_seconds=0.2) as api:
        editor = await holder(api)
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\nAuthorization: Bearer {editor.secret}\r\n\r\n"
        )
        writer.write(head.encode())

        async def trickle() -> None:
            while True:
                writer.write(b"{")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert (await reader.readline()).split()[1] == b"408"
        trickling.cancel()
        writer.close()


async def test_an_answer_that_is_not_taken_is_not_kept(db: database.Database) -> None:
    async with workers_api.served(db, body_seconds=0.1) as api:
        editor = await holder(api)
        label = {f"label-{number}": "x" * 60 for number in range(60)}
        batch = [{**JOB, "labels": label}] * resources.MAX_BATCH
        assert (await editor.post("/v1/jobs:batch", batch)).json["created"] == resources.MAX_BATCH
        before = metrics.REST_ABANDONED._value.get()
        with socket.socket() as small:
            small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            small.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(small, ("127.0.0.1", api.port))
            head = f"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {editor.secret}\r\n\r\n"
            await loop.sock_sendall(small, head.encode())
            async with asyncio.timeout(60):
                while metrics.REST_ABANDONED._value.get() == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_the_database_is_away() -> None:
    db = database.Database("postgresql://u@127.0.0.1:1/d", size=1, name="away", patience=0.2)
    await db.open()
    async with workers_api.served(db) as api:
        answer = await api.caller(tokens.secret_of(bytes(tokens.SECRET_BYTES))).send("GET", "/v1/jobs")
    await db.close()
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) >= 1


# what there is


async def test_the_document_has_every_route_and_nothing_else(api: Served) -> None:
    document = (await api.caller().send("GET", openapi.PATH)).json
    written = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    there = {(route.method, route.path) for route in api.rest.table.routes}
    pools = {("POST", f"/v1/pools/{{ns}}/{{pool}}/{call}") for call in ("claim", "heartbeat", "report", "start")}
    assert written == there | pools
    operations = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(operations) == len(set(operations))
    text = json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named == set(document["components"]["schemas"])


async def test_the_page_shows_every_route_and_loads_nothing(api: Served) -> None:
    answer = await api.caller().send("GET", page.PATH)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert all(f'id="{route.name}"' in answer.text for route in api.rest.table.routes)
    assert re.findall(r"(?:src|href)=\"(?!#|/)", answer.text) == []
    assert "<script" not in answer.text


async def test_calls_are_counted_by_route_and_code(api: Served, editor: Caller) -> None:
    counter = metrics.API_REQUESTS.labels("listJobs", "200")
    before = counter._value.get()
    await editor.send("GET", "/v1/jobs")
    assert counter._value.get() == before + 1
