"""The runs API as clients meet it: real TLS, real Postgres, and the requests that kubectl sends."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support import frontproxy, history, jobs, postgres
from tests.support.answers import Answer
from tests.support.frontproxy import BASE, METADATA, METADATA_LIST, TABLE

from clockhand.api.runs import feed, lists, negotiate, watch
from clockhand.domain import instants
from clockhand.domain.states import RunState
from clockhand.engine import backfill
from clockhand.store import changes, database, partitions

TEAM = f"{BASE}/namespaces/team-a/runs"
LONG_AGO = "2001-01-01T00:00:00Z"
DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@pytest.fixture
async def runs_server(db: database.Database, tmp_path: Path) -> AsyncIterator[frontproxy.RunsServer]:
    server = frontproxy.RunsServer(db, tmp_path)
    await server.start()
    polling = asyncio.create_task(server.feed.run())
    yield server
    polling.cancel()
    await server.close()


@pytest.fixture
async def proxy(runs_server: frontproxy.RunsServer) -> AsyncIterator[frontproxy.Caller]:
    async with runs_server.front_proxy() as caller:
        yield caller


@pytest.fixture
async def job(db: database.Database) -> uuid.UUID:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await partitions.ensure_window(connection, now=now, retention_days=30)
        return await history.make_job(connection, "nightly", labels={"tier": "gold"}, now=now)


async def make(
    db: database.Database,
    job: uuid.UUID,
    *,
    state: str = "Queued",
    name: str = "",
    hours: float = 1,
    numbered: bool = True,
) -> uuid.UUID:
    async with db.transaction() as connection:
        at = await database.now(connection) - timedelta(hours=hours)
        run = await history.add_live(connection, job, "nightly", at=at, state=state, name=name)
    if numbered:
        await changes.number_pending(db)
    return run


async def move(db: database.Database, run: uuid.UUID, state: str) -> None:
    async with db.transaction() as connection:
        await history.move(connection, run, state=state)
    await changes.number_pending(db)


async def end(db: database.Database, run: uuid.UUID, state: str = "Succeeded", reason: str | None = None) -> None:
    async with db.transaction() as connection:
        await history.end(connection, run, state=state, reason=reason)
    await changes.number_pending(db)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def answers(caller: frontproxy.Caller) -> bool:
    return (await caller.get(TEAM)).status == 200


async def nobody_watches(server: frontproxy.RunsServer) -> bool:
    return server.feed.watchers == 0


def order(name: str = "now", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "runs.clockhand.dev/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {"job": "nightly", **spec},
    }


def names(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


# Who is let in


@pytest.mark.parametrize(
    "path", [TEAM, f"{BASE}/runs", f"{TEAM}/x", f"{TEAM}/x/log", BASE, "/apis", "/openapi/v3", "/other"]
)
async def test_identity_headers_without_the_proxys_certificate_are_worth_nothing(
    runs_server: frontproxy.RunsServer, path: str
) -> None:
    async with runs_server.caller() as forger:
        answer = await forger.get(path)
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")


async def test_a_certificate_of_another_authority_is_not_even_heard(runs_server: frontproxy.RunsServer) -> None:
    async with runs_server.caller(authority=runs_server.cluster_ca, name="front-proxy-client") as forger:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await forger.get(TEAM)


async def test_a_certificate_of_the_right_authority_for_another_name_is_not_the_proxy(
    runs_server: frontproxy.RunsServer,
) -> None:
    async with runs_server.caller(authority=runs_server.front_ca, name="somebody-else") as forger:
        assert (await forger.get(TEAM)).status == 401


async def test_a_token_that_the_api_server_does_not_know_is_refused(runs_server: frontproxy.RunsServer) -> None:
    async with runs_server.caller(headers={"Authorization": "Bearer nonsense"}) as stranger:
        assert (await stranger.get(TEAM)).status == 401


async def test_the_proxys_user_needs_rights_of_their_own(runs_server: frontproxy.RunsServer, job: uuid.UUID) -> None:
    async with runs_server.front_proxy({"X-Remote-User": "eve", "X-Remote-Group": "everybody"}) as proxy:
        for method, path in (("GET", TEAM), ("POST", TEAM), ("DELETE", f"{TEAM}/x"), ("POST", f"{TEAM}/x/cancel")):
            answer = await proxy.call(method, path)
            assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
            assert "eve" in answer.json["message"]


async def test_a_call_on_data_in_nobodys_name_is_refused(runs_server: frontproxy.RunsServer) -> None:
    async with runs_server.front_proxy({}) as proxy:
        assert (await proxy.get(TEAM)).status == 401
        assert (await proxy.get(BASE)).status == 200


# Discovery


async def test_discovery_needs_no_database(tmp_path: Path) -> None:
    db = database.Database("postgresql://nobody:wrong@127.0.0.1:1/none", size=2, name="none", patience=0.2)
    await db.open()
    server = frontproxy.RunsServer(db, tmp_path)
    await server.start()
    try:
        async with server.front_proxy() as proxy:
            answer = await proxy.get("/apis", accept=DISCOVERY)
            assert answer.headers["Content-Type"] == negotiate.DISCOVERY_TYPE
            [resource] = answer.json["items"][0]["versions"][0]["resources"]
            assert sorted(resource["verbs"]) == ["create", "get", "list", "watch"]
            assert {sub["subresource"] for sub in resource["subresources"]} == {"cancel", "retry", "log"}
            for path in ("/apis", "/apis/runs.clockhand.dev", BASE, "/openapi/v2", "/openapi/v3", f"/openapi/v3{BASE}"):
                assert (await proxy.get(path)).status == 200
            for method, path in (("GET", TEAM), ("GET", f"{TEAM}/x"), ("DELETE", f"{TEAM}/x"), ("POST", TEAM)):
                answer = await proxy.call(method, path, body=order() if method == "POST" else None)
                assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
            answer = await proxy.get(TEAM, watch="true")
            assert answer.status == 503
    finally:
        await server.close()
        await db.close()


async def test_data_comes_back_with_the_database(
    server: postgres.PostgresServer, proxy: frontproxy.Caller, job: uuid.UUID, db: database.Database
) -> None:
    run = await make(db, job)
    assert len(names(await proxy.get(TEAM))) == 1
    server.kill()
    assert (await proxy.get(TEAM)).status == 503
    assert (await proxy.get(BASE)).status == 200
    server.start()
    await until(lambda: answers(proxy))
    assert (await proxy.get(TEAM)).json["items"][0]["metadata"]["uid"] == str(run)


async def test_unknown_paths_and_methods(proxy: frontproxy.Caller, job: uuid.UUID) -> None:
    assert (await proxy.get(f"{TEAM}/x/exec")).status == 404
    assert (await proxy.get("/apis/other.example/v1")).status == 404
    for method, path in (("PUT", f"{TEAM}/x"), ("PATCH", f"{TEAM}/x"), ("DELETE", TEAM), ("POST", f"{BASE}/runs")):
        answer = await proxy.call(method, path)
        assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


# Objects, tables and lists


async def test_an_object_carries_what_people_ask_for(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    run = await make(db, job, state="Running", name="asked")
    async with db.transaction() as connection:
        await connection.execute(
            "INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, started_at, ended_at, outcome, reason, "
            "exit_code, message, pod_name, node, log_tail) "
            "SELECT run_id, scheduled_at, 1, now(), now(), now(), 'Failed', 'ExitCode', 3, "
            "'exit code 3', 'the-pod', 'node-1', 'the end of the log' FROM live_runs"
        )
    await end(db, run, "Dead", "AttemptsUsed")
    found = (await proxy.get(f"{TEAM}/asked")).json
    assert found["kind"] == "Run"
    assert found["metadata"]["uid"] == str(run)
    assert found["metadata"]["labels"] == {"tier": "gold", "clockhand.dev/job": "nightly"}
    assert found["spec"]["payload"] == {"from": "job"}
    assert found["status"]["attempts"][0]["exitCode"] == 3
    held = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert held == {"Complete": "False", "Failed": "True"}
    listed = (await proxy.get(TEAM)).json["items"][0]
    assert "payload" not in listed["spec"]
    assert "attempts" not in listed["status"]
    log = await proxy.get(f"{TEAM}/asked/log")
    assert (log.text, log.headers["Content-Type"]) == ("the end of the log", "text/plain; charset=utf-8")
    assert (await proxy.get(f"{TEAM}/asked/log", attempt="2")).status == 404


async def test_a_table_has_its_columns_and_rows(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    await make(db, job, state="Running", name="asked")
    table = (await proxy.get(TEAM, accept=TABLE)).json
    shown = [column["name"].upper() for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["NAME", "JOB", "STATE", "ATTEMPT", "SCHEDULED", "LATENESS", "DURATION", "AGE"]
    assert table["kind"] == "Table"
    [row] = table["rows"]
    assert row["cells"][:4] == ["asked", "nightly", "Running", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    with_object = (await proxy.get(TEAM, accept=TABLE, includeObject="Object")).json
    assert with_object["rows"][0]["object"]["kind"] == "Run"
    without = (await proxy.get(TEAM, accept=TABLE, includeObject="None")).json
    assert "object" not in without["rows"][0]
    one = (await proxy.get(f"{TEAM}/asked", accept=TABLE)).json
    assert len(one["rows"]) == 1


async def test_a_workers_run_shows_its_worker_and_what_its_handler_returned(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    async with db.transaction() as connection:
        mails = await jobs.make_job(connection, jobs.pooled(), name="mails")
        now = await database.now(connection)
        await jobs.make_run(connection, mails, RunState.RUNNING, at=now)
        over = {"worker": "worker-2", "result": '{"mails": 3}'}
        run_id = await jobs.make_run(connection, mails, RunState.SUCCEEDED, at=now - timedelta(hours=1), **over)
        failed = (
            "INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, ended_at, outcome, reason, worker) "
            "SELECT run_id, scheduled_at, 1, now(), now(), 'Failed', 'ValueError', 'worker-1' FROM run_history"
        )
        await connection.execute(failed)
    table = (await proxy.get(TEAM, accept=TABLE, includeObject="Object")).json
    column = [column["name"] for column in table["columnDefinitions"]].index("Worker")
    assert [row["cells"][column] for row in table["rows"]] == [jobs.WORKER, "worker-2"]
    [_, name] = [row["object"]["metadata"]["name"] for row in table["rows"]]
    found = (await proxy.get(f"{TEAM}/{name}")).json
    assert found["metadata"]["uid"] == str(run_id)
    assert (found["status"]["worker"], found["status"]["result"]) == ("worker-2", {"mails": 3})
    assert "podName" not in found["status"]
    [attempt] = found["status"]["attempts"]
    assert (attempt["worker"], "podName" in attempt) == ("worker-1", False)
    assert "result" not in table["rows"][1]["object"]["status"]


async def test_metadata_alone(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    await make(db, job, name="asked")
    found = (await proxy.get(TEAM, accept=METADATA_LIST)).json
    assert found["kind"] == "PartialObjectMetadataList"
    assert list(found["items"][0]) == ["apiVersion", "kind", "metadata"]
    assert (await proxy.get(f"{TEAM}/asked", accept=METADATA)).json["kind"] == "PartialObjectMetadata"
    assert (await proxy.get(TEAM, accept="application/vnd.kubernetes.protobuf")).status == 406


async def test_pages_follow_their_token(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    for hours in range(5):
        await make(db, job, hours=hours)
    first = await proxy.get(TEAM, limit="2")
    second = await proxy.get(TEAM, limit="2", **{"continue": first.json["metadata"]["continue"]})
    third = await proxy.get(TEAM, limit="2", **{"continue": second.json["metadata"]["continue"]})
    assert not third.json["metadata"]["continue"]
    assert names(first) + names(second) + names(third) == names(await proxy.get(TEAM))
    assert first.json["metadata"]["resourceVersion"] == third.json["metadata"]["resourceVersion"]
    assert (await proxy.get(TEAM, limit="2", **{"continue": "x"})).status == 400


async def test_a_cut_list_warns(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours in range(3):
        await make(db, job, hours=hours)
    assert "Warning" not in (await proxy.get(TEAM)).headers
    monkeypatch.setattr(lists, "MOST", 2)
    answer = await proxy.get(TEAM)
    assert len(names(answer)) == 2
    assert answer.headers["Warning"].startswith('299 - "')
    assert "spec.job=NAME" in answer.headers["Warning"]


@pytest.mark.parametrize(
    "query",
    [
        {"fieldSelector": "status.colour=red"},
        {"fieldSelector": "status.state"},
        {"fieldSelector": "status.state=Blue"},
        {"fieldSelector": "spec.day=yesterday"},
        {"labelSelector": "tier in gold"},
        {"labelSelector": "=x"},
        {"limit": "many"},
        {"watch": "true", "resourceVersion": "x"},
        {"watch": "true", "timeoutSeconds": "-1"},
        {"includeObject": "Everything"},
    ],
)
async def test_what_cannot_be_read_is_a_bad_request(
    proxy: frontproxy.Caller, job: uuid.UUID, query: dict[str, str]
) -> None:
    answer = await proxy.get(TEAM, accept=TABLE, **query)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_more_requests_than_places_are_turned_away(db: database.Database, tmp_path: Path) -> None:
    server = frontproxy.RunsServer(db, tmp_path, in_flight=0)
    await server.start()
    async with server.front_proxy() as proxy:
        answer = await proxy.get(TEAM)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert (await proxy.get(BASE)).status == 200
    await server.close()


# Writes


async def test_a_manual_run_is_made_once(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    made = await proxy.call("POST", TEAM, body=order(payload={"colour": "blue"}))
    assert made.status == 201
    assert made.json["spec"]["kind"] == "Manual"
    assert made.json["spec"]["payload"] == {"colour": "blue"}
    assert made.json["status"]["state"] == "Queued"
    assert (await proxy.get(f"{TEAM}/now")).json["metadata"]["uid"] == made.json["metadata"]["uid"]
    again = await proxy.call("POST", TEAM, body=order())
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")


async def test_a_dry_run_changes_nothing(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    assert (await proxy.call("POST", TEAM, body=order(), dryRun="All")).status == 201
    assert (await proxy.get(f"{TEAM}/now")).status == 404
    run = await make(db, job, name="stays")
    assert (await proxy.call("DELETE", f"{TEAM}/stays", dryRun="All")).status == 200
    assert (await proxy.call("DELETE", f"{TEAM}/stays", body={"dryRun": ["All"]})).status == 200
    found = (await proxy.get(f"{TEAM}/stays")).json
    assert (found["metadata"]["uid"], found["status"]["state"]) == (str(run), "Queued")
    assert (await proxy.call("POST", TEAM, body=order(), dryRun="Some")).status == 400


async def test_a_generated_name(proxy: frontproxy.Caller, job: uuid.UUID) -> None:
    body = order()
    body["metadata"] = {"generateName": "again-"}
    first, second = [await proxy.call("POST", TEAM, body=body) for _ in range(2)]
    assert first.json["metadata"]["name"].startswith("again-")
    assert first.json["metadata"]["name"] != second.json["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {}}, "spec.job"),
        ({"spec": {"job": "Nightly!"}}, "spec.job"),
        ({"spec": {"job": "nightly", "backfill": {}}}, "spec.backfill.from"),
        ({"spec": {"job": "nightly", "backfill": []}}, "spec.backfill"),
        ({"spec": {"job": "nightly", "backfill": {"from": LONG_AGO, "to": LONG_AGO}}}, "spec.backfill.from"),
        ({"spec": {"job": "nightly", "payload": 1, "backfill": {"from": LONG_AGO, "to": LONG_AGO}}}, "spec.payload"),
        ({"spec": {"job": "nightly", "kind": "Slot"}}, "spec.kind"),
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": "UPPER"}}, "metadata.name"),
        ({"metadata": {"name": "nightly-20261129t020000z"}}, "metadata.name"),
        ({"spec": {"job": "nightly", "payload": "\x00"}}, "spec.payload"),
        ({"spec": {"job": "nightly", "payload": "x" * 70_000}}, "payload"),
    ],
)
async def test_a_wrong_order_names_its_field(
    proxy: frontproxy.Caller, job: uuid.UUID, change: dict[str, Any], field: str
) -> None:
    answer = await proxy.call("POST", TEAM, body={**order(), **change})
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert field in {cause["field"].removeprefix("spec.") for cause in answer.json["details"]["causes"]} | {
        cause["field"] for cause in answer.json["details"]["causes"]
    }


async def test_a_run_of_no_job_is_not_found(proxy: frontproxy.Caller, job: uuid.UUID) -> None:
    answer = await proxy.call("POST", TEAM, body=order(job="nobody"))
    assert answer.status == 404
    assert "if it is new, wait until it is Ready" in answer.json["message"]
    assert "nobody" in answer.json["message"]


async def test_unknown_fields_are_told(proxy: frontproxy.Caller, job: uuid.UUID) -> None:
    warned = await proxy.call("POST", TEAM, body=order("a", colour="red"), fieldValidation="Warn")
    assert (warned.status, warned.headers["Warning"]) == (201, '299 - "unknown field \\"spec.colour\\""')
    strict = await proxy.call("POST", TEAM, body=order("b", colour="red"), fieldValidation="Strict")
    assert strict.status == 400
    ignored = await proxy.call("POST", TEAM, body=order("c", colour="red"), fieldValidation="Ignore")
    assert ignored.status == 201
    assert "Warning" not in ignored.headers


@pytest.mark.parametrize("body", [[], "x", {"kind": "Pod", "apiVersion": "v1"}, {"metadata": {"namespace": "other"}}])
async def test_what_is_no_run_is_a_bad_request(proxy: frontproxy.Caller, job: uuid.UUID, body: Any) -> None:
    assert (await proxy.call("POST", TEAM, body=body)).status == 400


async def test_delete_cancels_and_says_nothing_that_kubectl_would_wait_for(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    await make(db, job, name="waits")
    running = await make(db, job, state="Running", name="runs")
    for name, state in (("waits", "Cancelled"), ("runs", "Stopping")):
        answer = await proxy.call("DELETE", f"{TEAM}/{name}")
        assert (answer.status, answer.json["kind"], answer.json["status"]) == (200, "Status", "Success")
        assert "uid" not in answer.json["details"]
        assert (await proxy.get(f"{TEAM}/{name}")).json["status"]["state"] == state
    ended = await proxy.call("DELETE", f"{TEAM}/waits")
    assert (ended.status, ended.json["reason"]) == (409, "Conflict")
    assert "over" in ended.json["message"]
    foreign = await proxy.call("DELETE", f"{TEAM}/runs", body={"preconditions": {"uid": str(uuid.uuid4())}})
    assert foreign.status == 409
    assert (await proxy.call("DELETE", f"{TEAM}/nobody")).status == 404
    assert str(running) == (await proxy.get(f"{TEAM}/runs")).json["metadata"]["uid"]


async def test_cancel_and_retry(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    run = await make(db, job, name="asked")
    assert (await proxy.call("POST", f"{TEAM}/asked/cancel")).json["status"]["state"] == "Cancelled"
    assert (await proxy.call("POST", f"{TEAM}/asked/cancel")).status == 409
    again = await proxy.call("POST", f"{TEAM}/asked/retry")
    assert (again.status, again.json["status"]["state"], again.json["metadata"]["uid"]) == (201, "Queued", str(run))
    assert (await proxy.call("POST", f"{TEAM}/asked/retry")).status == 409
    assert (await proxy.call("GET", f"{TEAM}/asked/retry")).status == 405


async def test_skipped_slots_are_rows_that_can_be_read(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    async with db.transaction() as connection:
        now = await database.now(connection)
        await history.skip(connection, job, last_at=now - timedelta(hours=1), count=7, reason="CatchUp")
    [name] = names(await proxy.get(TEAM, fieldSelector="status.state=Skipped"))
    found = (await proxy.get(f"{TEAM}/{name}")).json
    assert (found["status"]["state"], found["status"]["reason"], found["status"]["count"]) == ("Skipped", "CatchUp", 7)
    assert (await proxy.call("DELETE", f"{TEAM}/{name}")).status == 409
    assert (await proxy.call("POST", f"{TEAM}/{name}/retry")).status == 409


# Backfills


@pytest.fixture
async def hourly(db: database.Database, job: uuid.UUID) -> uuid.UUID:
    async with db.transaction() as connection:
        await connection.execute("""UPDATE job_specs SET spec = jsonb_set(spec::jsonb, '{schedule}', '"0 * * * *"')""")
    return job


async def backfill_order(db: database.Database, name: str = "again", days: int = 3, **more: Any) -> dict[str, Any]:
    async with db.transaction() as connection:
        now = await database.now(connection)
    asked = {"from": instants.rfc3339_ms(now - timedelta(days=days)), "to": instants.rfc3339_ms(now), **more}
    return order(name, backfill=asked)


async def look(db: database.Database) -> None:
    """As the holder of the shard does."""
    async with db.transaction() as connection:
        await connection.execute("UPDATE backfills SET look_at = now() - interval '1 s'")
    await backfill.Backfill(db).run_once(range(256))
    await changes.number_pending(db)


async def end_live(db: database.Database, state: str = "Succeeded") -> None:
    async with db.transaction() as connection:
        cursor = await connection.execute("SELECT run_id FROM live_runs")
        live = [run_id for (run_id,) in await cursor.fetchall()]
    for run_id in live:
        await end(db, run_id, state)
    await look(db)


async def test_a_backfill_is_shown_by_its_name_and_its_runs_in_lists(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID
) -> None:
    body = await backfill_order(db, concurrency=2, order="NewestFirst")
    made = await proxy.call("POST", TEAM, body=body)
    assert made.status == 201, made.text
    assert made.json["spec"] == {"job": "nightly", "backfill": body["spec"]["backfill"]}
    counts = {"slots": 72, "made": 0, "passed": 0, "succeeded": 0, "failed": 0}
    assert made.json["status"] == {"state": "Queued", "backfill": counts}
    assert names(await proxy.get(TEAM)) == []
    await look(db)
    found = (await proxy.get(f"{TEAM}/again")).json
    assert found["metadata"]["uid"] == made.json["metadata"]["uid"]
    assert (found["status"]["state"], found["status"]["backfill"]["made"]) == ("Running", 2)
    runs = (await proxy.get(TEAM)).json["items"]
    assert [run["spec"]["kind"] for run in runs] == ["Backfill", "Backfill"]
    for run in runs:
        assert (await proxy.get(f"{TEAM}/{run['metadata']['name']}")).json["spec"]["kind"] == "Backfill"
    # kubectl asks for one object in this way before it watches
    assert names(await proxy.get(TEAM, fieldSelector="metadata.name=again")) == ["again"]
    assert names(await proxy.get(TEAM, fieldSelector="metadata.name=again,status.state=Dead")) == []
    assert (await proxy.get(f"{TEAM}/again", accept=METADATA)).json["kind"] == "PartialObjectMetadata"


async def test_a_backfill_as_a_row(proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID) -> None:
    body = await backfill_order(db)
    await proxy.call("POST", TEAM, body=body)
    await look(db)
    [row] = (await proxy.get(f"{TEAM}/again", accept=TABLE)).json["rows"]
    asked = body["spec"]["backfill"]
    assert row["cells"][:5] == ["again", "nightly", "Running", 0, f"{asked['from']}/{asked['to']}"]
    assert row["cells"][-2:] == ["<none>", "0 of 72 slots"]


async def test_a_backfill_that_is_through(proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID) -> None:
    for name, ending, state in (("well", "Succeeded", "Succeeded"), ("ill", "Dead", "Dead")):
        body = await backfill_order(db, name, days=1 if name == "well" else 2, concurrency=100)
        await proxy.call("POST", TEAM, body=body)
        await look(db)
        await end_live(db, ending)
        found = (await proxy.get(f"{TEAM}/{name}")).json["status"]
        held = {condition["type"]: condition["status"] for condition in found["conditions"]}
        assert (found["state"], found["backfill"]["slots"]) == (state, 24 if name == "well" else 48)
        assert held == {"Complete": str(ending == "Succeeded"), "Failed": str(ending == "Dead")}
    assert (found["reason"], found["message"]) == ("RunsFailed", "24 of its 24 runs did not succeed")
    assert (found["backfill"]["made"], found["backfill"]["passed"], found["backfill"]["failed"]) == (24, 24, 24)
    answer = await proxy.call("DELETE", f"{TEAM}/ill")
    assert (answer.status, "over (Dead)" in answer.json["message"]) == (409, True)


async def test_delete_ends_a_backfill_with_its_runs(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID
) -> None:
    made = await proxy.call("POST", TEAM, body=await backfill_order(db))
    await look(db)
    [run] = (await proxy.get(TEAM)).json["items"]
    assert (await proxy.call("DELETE", f"{TEAM}/again", dryRun="All")).status == 200
    assert (await proxy.get(f"{TEAM}/again")).json["status"]["state"] == "Running"
    foreign = await proxy.call("DELETE", f"{TEAM}/again", body={"preconditions": {"uid": str(uuid.uuid4())}})
    assert foreign.status == 409
    uid = made.json["metadata"]["uid"]
    answer = await proxy.call("DELETE", f"{TEAM}/again", body={"preconditions": {"uid": uid}})
    assert (answer.status, answer.json["status"]) == (200, "Success")
    assert "uid" not in answer.json["details"]
    found = (await proxy.get(f"{TEAM}/again")).json["status"]
    assert (found["state"], found["reason"], found["backfill"]["failed"]) == ("Cancelled", "Cancelled", 1)
    assert (await proxy.get(f"{TEAM}/{run['metadata']['name']}")).json["status"]["state"] == "Cancelled"
    assert (await proxy.call("DELETE", f"{TEAM}/again")).status == 409
    refused = await proxy.call("POST", f"{TEAM}/again/retry")
    assert (refused.status, "retry those of its runs" in refused.json["message"]) == (409, True)
    assert (await proxy.get(f"{TEAM}/again/log")).status == 404


async def test_a_backfill_has_a_name_of_its_own(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID
) -> None:
    assert (await proxy.call("POST", TEAM, body=await backfill_order(db), dryRun="All")).status == 201
    assert (await proxy.get(f"{TEAM}/again")).status == 404
    assert (await proxy.call("POST", TEAM, body=await backfill_order(db))).status == 201
    for body in (await backfill_order(db), order("again")):
        taken = await proxy.call("POST", TEAM, body=body)
        assert (taken.status, taken.json["reason"]) == (409, "AlreadyExists")
    await proxy.call("POST", TEAM, body=order("by-hand"))
    taken = await proxy.call("POST", TEAM, body=await backfill_order(db, "by-hand"))
    assert (taken.status, taken.json["reason"]) == (409, "AlreadyExists")


async def test_what_no_backfill_can_be_made_of_is_told_in_a_sentence(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID
) -> None:
    body = await backfill_order(db, days=31)
    answer = await proxy.call("POST", TEAM, body=body)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "spec.backfill.from")
    assert "the 30 days for which runs are kept" in answer.json["message"]
    body = await backfill_order(db)
    body["spec"]["backfill"]["colour"] = "red"
    strict = await proxy.call("POST", TEAM, body=body, fieldValidation="Strict")
    assert (strict.status, 'unknown field "spec.backfill.colour"' in strict.json["message"]) == (400, True)
    unknown = await backfill_order(db)
    unknown["spec"]["job"] = "nobody"
    assert (await proxy.call("POST", TEAM, body=unknown)).status == 404
    async with db.transaction() as connection:
        await connection.execute(
            "UPDATE jobs SET parked = 'spec.schedule: is wrong', next_slot_at = NULL, next_run_at = NULL"
        )
    parked = await proxy.call("POST", TEAM, body=await backfill_order(db))
    assert (parked.status, "spec.schedule: is wrong" in parked.json["message"]) == (409, True)


@pytest.mark.parametrize("initial", [True, False])
async def test_a_watch_of_one_backfill_follows_it_to_its_end(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID, initial: bool
) -> None:
    await proxy.call("POST", TEAM, body=await backfill_order(db, days=1, concurrency=100))
    listed = await proxy.get(TEAM, fieldSelector="metadata.name=again")
    query = {"resourceVersion": listed.json["metadata"]["resourceVersion"]}
    if initial:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with proxy.watch(TEAM, fieldSelector="metadata.name=again", **query) as events:
        seen = [await anext(events)]
        if initial:
            mark = await anext(events)
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await look(db)
        while seen[-1]["object"]["status"]["state"] != "Running":
            seen.append(await anext(events))
        await end_live(db)
        while seen[-1]["object"]["status"]["state"] != "Succeeded":
            seen.append(await anext(events))
    assert seen[0]["type"] == ("ADDED" if initial else "MODIFIED")
    assert {event["type"] for event in seen[1:]} == {"MODIFIED"}
    assert seen[-1]["object"]["status"]["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": "Complete", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": "",
    }  # fmt: skip


async def test_a_watch_of_one_backfill_by_its_state(
    proxy: frontproxy.Caller, db: database.Database, hourly: uuid.UUID
) -> None:
    await proxy.call("POST", TEAM, body=await backfill_order(db, days=1, concurrency=100))
    await look(db)
    selector = "metadata.name=again,status.state=Running"
    async with proxy.watch(TEAM, accept=TABLE, fieldSelector=selector) as events:
        first = await anext(events)
        await end_live(db)
        last = await anext(events)
    assert (first["type"], first["object"]["rows"][0]["cells"][2]) == ("ADDED", "Running")
    assert last["type"] == "DELETED"


# Watches


async def test_a_watch_goes_on_where_the_list_ended(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    run = await make(db, job, name="first")
    version = (await proxy.get(TEAM)).json["metadata"]["resourceVersion"]
    async with proxy.watch(TEAM, resourceVersion=version) as events:
        await move(db, run, "Claimed")
        seen = [await anext(events)]
        second = await make(db, job, name="second")
        while seen[-1]["object"]["metadata"]["uid"] != str(second):
            seen.append(await anext(events))
    assert seen[-1]["type"] == "ADDED"
    shown = [event["object"]["status"]["state"] for event in seen if event["object"]["metadata"]["uid"] == str(run)]
    assert shown[-1] == "Claimed"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


async def test_a_watch_from_an_older_version_catches_up(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    version = (await proxy.get(TEAM)).json["metadata"]["resourceVersion"]
    run = await make(db, job, name="missed")
    await move(db, run, "Running")
    await end(db, run)
    async with proxy.watch(TEAM, resourceVersion=version) as events:
        event = await anext(events)
    assert (event["type"], event["object"]["status"]["state"]) == ("ADDED", "Succeeded")


async def test_a_watch_begins_with_what_there_is(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    await make(db, job, name="there")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with proxy.watch(TEAM, **query) as events:
        first, mark = await anext(events), await anext(events)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "there")
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "Run")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    async with proxy.watch(TEAM, resourceVersion="0") as events:
        assert (await anext(events))["object"]["metadata"]["name"] == "there"


async def test_a_watch_by_state_adds_and_deletes(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    run = await make(db, job, name="mover")
    before = await make(db, job, state="Running", name="there-before")
    await changes.number_pending(db)
    version = (await proxy.get(TEAM)).json["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "fieldSelector": "status.state=Running"}
    async with proxy.watch(TEAM, **query) as events:
        for state in ("Claimed", "Running"):
            await move(db, run, state)
        added = await anext(events)
        await end(db, before)
        left = await anext(events)
        await move(db, run, "Stopping")
        gone = await anext(events)
    shown = [(event["type"], event["object"]["metadata"]["name"]) for event in (added, left, gone)]
    assert shown == [("ADDED", "mover"), ("DELETED", "there-before"), ("DELETED", "mover")]


async def test_a_table_watch_describes_its_columns_once(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID
) -> None:
    run = await make(db, job, name="there")
    async with proxy.watch(TEAM, accept=TABLE) as events:
        first = await anext(events)
        await move(db, run, "Claimed")
        second = await anext(events)
    assert len(first["object"]["columnDefinitions"]) == len(first["object"]["rows"][0]["cells"]) == 10
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][2] == "Claimed"


async def test_a_metadata_watch(proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID) -> None:
    await make(db, job, name="there")
    async with proxy.watch(TEAM, accept=METADATA) as events:
        event = await anext(events)
    assert event["object"]["kind"] == "PartialObjectMetadata"


async def test_a_watch_ends_when_its_time_is_up(proxy: frontproxy.Caller, job: uuid.UUID) -> None:
    async with proxy.watch(TEAM, timeoutSeconds="1") as events:
        assert [event async for event in events] == []


@pytest.mark.parametrize("case", ["another epoch", "the future", "long ago"])
async def test_a_version_that_cannot_be_followed_has_expired(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID, case: str
) -> None:
    for name in ("one", "two", "three"):
        await make(db, job, name=name)
    version = int((await proxy.get(TEAM)).json["metadata"]["resourceVersion"])
    asked = {"another epoch": version + (1 << 40), "the future": version + 5, "long ago": version - 2}[case]
    async with db.transaction() as connection:
        await connection.execute("UPDATE run_changes SET changed_at = now() - interval '20 minutes'")
        await changes.trim(connection, await database.now(connection))
    async with proxy.watch(TEAM, resourceVersion=str(asked)) as events:
        event = await anext(events)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_bookmarks_move_on(
    proxy: frontproxy.Caller, db: database.Database, job: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.2)
    version = (await proxy.get(TEAM)).json["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "allowWatchBookmarks": "true", "fieldSelector": "spec.job=other"}
    async with proxy.watch(TEAM, **query) as events:
        first = await anext(events)
        await make(db, job, name="unrelated")
        async with asyncio.timeout(30):
            while (later := await anext(events))["object"]["metadata"]["resourceVersion"] == version:
                pass
    assert (first["type"], first["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", version)
    assert later["type"] == "BOOKMARK"


async def test_many_watchers_share_one_reader(
    proxy: frontproxy.Caller, runs_server: frontproxy.RunsServer, db: database.Database, job: uuid.UUID
) -> None:
    run = await make(db, job, name="there")
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(proxy.watch(TEAM)) for _ in range(120)]
        for events in streams:
            assert (await anext(events))["type"] == "ADDED"
        assert runs_server.feed.watchers == 120
        await move(db, run, "Running")
        for events in streams:
            assert (await anext(events))["object"]["status"]["state"] == "Running"
    await until(lambda: nobody_watches(runs_server))


async def test_a_reader_that_lags_is_cut_off(
    db: database.Database, job: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BACKLOG_EVENTS", 3)
    shared = feed.Feed(db)
    slow = await shared.join()
    for number in range(5):
        await make(db, job, name=f"run-{number}")
        await shared.run_once()
    with pytest.raises(feed.Lagging):
        await slow.next(0)


async def test_what_a_reader_missed_comes_little_at_a_time(
    db: database.Database, job: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "CHUNK", 2)
    shared = feed.Feed(db)
    before = (await shared.join()).start
    for number in range(5):
        await make(db, job, name=f"run-{number}")
    later = feed.Feed(db)
    batches = [batch async for batch in feed.missed(db, await later.join(), after=before)]
    assert [[event.run.name for event in batch.events] for batch in batches] == [
        ["run-0", "run-1"], ["run-2", "run-3"], ["run-4"],
    ]  # fmt: skip
    reader = next(iter(shared._subscriptions))
    await shared.run_once()
    whole = await reader.next(0)
    assert whole is not None
    assert len(whole.events) == 5


async def test_a_poll_without_news_is_one_look(db: database.Database, job: uuid.UUID) -> None:
    shared = feed.Feed(db)
    reader = await shared.join()
    await shared.run_once()
    assert await reader.next(0) is None
    await make(db, job, name="unnumbered", numbered=False)
    await shared.run_once()
    await shared.run_once()
    batch = await reader.next(0)
    assert batch is not None
    assert [event.run.name for event in batch.events] == ["unnumbered"]
    assert batch.events[0].created


async def test_a_stopping_server_ends_its_watches(db: database.Database, tmp_path: Path, job: uuid.UUID) -> None:
    server = frontproxy.RunsServer(db, tmp_path)
    await server.start()
    async with server.front_proxy() as proxy, proxy.watch(TEAM) as events:
        await server.close()
        assert [event async for event in events] == []
