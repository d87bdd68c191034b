"""Runs over REST: how they are listed and read, and what is done with them; over real HTTP and real tables."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args

import pytest
from tests.support import jobs, statements, worker_process, workers_api
from tests.support.answers import Answer
from tests.support.workers_api import Caller, Served

from clockhand.api.rest import asked
from clockhand.domain import ids, instants, states, tokens
from clockhand.domain.states import RunState as S
from clockhand.store import database, partitions

OWNER = "rest/acme"
OTHER = "rest/other"
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SKIP = (
    "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
    "SELECT job_id, owner, name, %s, %s, 3, 'Forbid', now() FROM jobs WHERE job_id = %s"
)


class World:
    """Two jobs of one tenant and one of another, each with a run of every kind of end."""

    now: datetime
    blue: jobs.Job
    red: jobs.Job
    foreign: jobs.Job
    ids: dict[str, uuid.UUID]


@pytest.fixture
async def api(db: database.Database) -> AsyncIterator[Served]:
    async with workers_api.served(db) as running:
        yield running


@pytest.fixture
async def world(db: database.Database) -> World:
    made = World()
    async with db.transaction() as connection:
        made.now = now = await database.now(connection)
        await partitions.ensure(connection, oldest=now - timedelta(days=9), newest=now + timedelta(days=1))
        made.blue = await jobs.make_job(connection, owner=OWNER, name="blue")
        made.red = await jobs.make_job(connection, owner=OWNER, name="red")
        made.foreign = await jobs.make_job(connection, owner=OTHER, name="blue")
        made.ids = {}
        for job, name in ((made.blue, "blue"), (made.red, "red"), (made.foreign, "foreign")):
            for number, state in enumerate((S.QUEUED, S.RUNNING, S.SUCCEEDED, S.DEAD, S.RETRYING, S.CANCELLED)):
                at = now - (2 * number + 1) * HOUR
                later = {"ready_at": now + HOUR} if state is S.RETRYING else {}
                made.ids[f"{name}-{state}"] = await jobs.make_run(connection, job, state, at=at, **later)
            await connection.execute(SKIP.encode(), (now - 9 * HOUR, now - 6 * HOUR, job.job_id))
    return made


async def caller(api: Served, *, owner: str = OWNER, role: tokens.Role = tokens.Role.EDITOR) -> Caller:
    return api.caller(await workers_api.make_token(api.db, owner=owner, role=role))


@pytest.fixture
async def editor(api: Served) -> Caller:
    return await caller(api)


async def get(who: Caller, path: str) -> Answer:
    return await who.send("GET", path)


async def listed(who: Caller, path: str, **query: Any) -> Sequence[Any]:
    """All pages."""
    found: list[Any] = []
    following: str | None = None
    while True:
        given = {**query, **({} if following is None else {"cursor": following})}
        text = "&".join(f"{name}={value}" for name, value in given.items())
        answer = await get(who, f"{path}?{text}")
        assert answer.status == 200, answer.text
        found += answer.json["items"]
        following = answer.json.get("next")
        if following is None:
            return found


def mistake(answer: Answer) -> tuple[int, str | None]:
    """The status, and where the mistake is."""
    [error] = answer.json["errors"]
    return answer.status, error.get("pointer", error.get("parameter"))


async def test_a_list_has_all_that_became_of_slots_newest_first(world: World, editor: Caller) -> None:
    runs = await listed(editor, "/v1/runs")
    assert [run["scheduledAt"] for run in runs] == sorted((run["scheduledAt"] for run in runs), reverse=True)
    assert {run["id"] for run in runs if run["state"] != "Skipped"} == {
        str(run_id) for name, run_id in world.ids.items() if not name.startswith("foreign")
    }
    [skip, _] = [run for run in runs if run["state"] == "Skipped"]
    assert (skip["count"], skip["reason"], "finishedAt" in skip) == (3, "Forbid", False)
    assert {run["owner"] for run in runs} == {OWNER}
    assert not any("payload" in run or "result" in run for run in runs)


async def test_a_page_is_a_statement_for_each_place_that_runs_are_in(
    world: World, editor: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await get(editor, "/v1/runs")  # once the token is known
    names = statements.named(monkeypatch)
    await get(editor, "/v1/runs?limit=1000")
    about_runs = [name for name in names if name.startswith("listing.")]
    assert about_runs == ["listing.live_by_owner", "listing.history_by_owner", "listing.skips_by_owner"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 14, 100])
@pytest.mark.parametrize("query", [{}, {"job": "blue"}, {"state": "Dead&state=Skipped&state=Queued"}])
async def test_pages_together_are_the_list(world: World, editor: Caller, limit: int, query: dict[str, str]) -> None:
    assert await listed(editor, "/v1/runs", limit=limit, **query) == await listed(editor, "/v1/runs", **query)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_what_has_one_instant_is_listed_once(
    db: database.Database, world: World, editor: Caller, limit: int
) -> None:
    at = ids.whole_ms(world.now - 30 * MINUTE)
    async with db.transaction() as connection:
        for number, job in enumerate(await jobs.make_jobs(connection, 6, owner=OWNER, name="same")):
            await jobs.make_run(connection, job, (S.QUEUED, S.SUCCEEDED, S.DEAD)[number % 3], at=at)
            for key in ("by-hand", "again"):
                run_id = ids.run_id(job_id=job.job_id, scheduled_at=at, kind=states.RunKind.MANUAL, key=key)
                own = {"run_id": run_id, "kind": "Manual", "key": key, "name": f"{job.name}-{key}"}
                await jobs.make_run(connection, job, S.SUCCEEDED, at=at, **own)
            await connection.execute(SKIP.encode(), (at, at, job.job_id))
    whole = await listed(editor, "/v1/runs", limit=1_000)
    assert len([run for run in whole if run["job"].startswith("same")]) == 6 * 4
    assert await listed(editor, "/v1/runs", limit=limit) == whole
    of_job = await listed(editor, "/v1/runs", job="same-00002")
    assert len(of_job) == 4
    assert await listed(editor, "/v1/runs", job="same-00002", limit=limit) == of_job


async def test_filters(world: World, editor: Caller) -> None:
    async def names(path: str = "/v1/runs", **query: Any) -> set[str]:
        by_id = {str(run_id): name for name, run_id in world.ids.items()}
        return {by_id.get(run["id"], f"{run['job'].split('-')[0]}-skip") for run in await listed(editor, path, **query)}

    blue = {
        "blue-Queued",
        "blue-Running",
        "blue-Succeeded",
        "blue-Dead",
        "blue-Retrying",
        "blue-Cancelled",
        "blue-skip",
    }
    assert await names(job="blue-00000") == await names(job=world.blue.job_id) == blue
    assert await names(f"/v1/jobs/{world.blue.job_id}/runs") == blue
    assert await names(state="Dead") == {"blue-Dead", "red-Dead"}
    assert await names(state="Running&state=Succeeded", job="red-00000") == {"red-Running", "red-Succeeded"}
    assert await names(f"/v1/jobs/{world.red.job_id}/runs", state="Skipped") == {"red-skip"}
    since, until = instants.rfc3339_ms(world.now - 5 * HOUR), instants.rfc3339_ms(world.now - 3 * HOUR)
    assert await names(since=since, until=until, job="blue-00000") == {"blue-Running", "blue-Succeeded"}
    assert await names(since=since, state="Dead") == set()
    assert await names(job="nobody") == set()
    assert await names(job=world.foreign.job_id) == set()


async def test_a_run_by_its_name(world: World, editor: Caller) -> None:
    dead = (await get(editor, f"/v1/runs/{world.ids['blue-Dead']}")).json
    name = dead["name"]
    assert await listed(editor, "/v1/runs", name=name) == [dead]
    assert await listed(editor, "/v1/runs", name=name, job="blue-00000", state="Dead", since="2026-01-01T00:00:00Z")
    for others in ({"job": "red-00000"}, {"state": "Queued"}, {"until": "2026-01-01T00:00:00Z"}):
        assert await listed(editor, "/v1/runs", name=name, **others) == []
    assert await listed(editor, "/v1/runs", name="nobody") == []
    cursor = (await get(editor, "/v1/runs?limit=1")).json["next"]
    assert mistake(await get(editor, f"/v1/runs?name={name}&cursor={cursor}")) == (422, "cursor")


async def test_a_run_that_ends_between_two_pages_is_listed_once(
    db: database.Database, world: World, editor: Caller
) -> None:
    first = (await get(editor, "/v1/runs?limit=1")).json
    async with db.transaction() as connection:
        await connection.execute(b"UPDATE live_runs SET state = 'Queued', token = NULL WHERE state = 'Running'")
    for run_id in (world.ids["blue-Queued"], world.ids["red-Running"]):
        assert (await editor.post(f"/v1/runs/{run_id}:cancel", b"")).json["state"] == "Cancelled"
    rest = (await get(editor, f"/v1/runs?limit=100&cursor={first['next']}")).json
    found = [run["id"] for run in first["items"] + rest["items"]]
    assert len(found) == len(set(found)) == 14


async def test_runs_of_a_deleted_job_are_listed_while_its_row_is_kept(
    db: database.Database, world: World, editor: Caller
) -> None:
    async with db.transaction() as connection:
        await connection.execute("UPDATE jobs SET deleted_at = now() WHERE job_id = %s", (world.blue.job_id,))
    assert len(await listed(editor, f"/v1/jobs/{world.blue.job_id}/runs")) == 7


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/{foreign}/runs",
        "/v1/jobs/nonsense/runs",
        "/v1/runs/{run}",
        "/v1/runs/{run}/attempts",
        "/v1/runs/{run}/payload",
        "/v1/runs/{run}/log",
        "/v1/runs/{foreign}",
        "/v1/runs/nonsense",
        "/v1/runs/ffffffff-ffff-8fff-bfff-ffffffffffff",
        "/v1/runs/00000000-0000-0000-0000-000000000000",
    ],
)
async def test_what_is_not_there_or_somebody_elses(world: World, editor: Caller, path: str) -> None:
    named = path.format(foreign=world.foreign.job_id, run=world.ids["foreign-Dead"])
    assert (await get(editor, named)).status == 404


async def test_a_cursor_is_for_its_list_alone(world: World, api: Served, editor: Caller) -> None:
    cursor = (await get(editor, "/v1/runs?limit=2&state=Dead&state=Queued")).json["next"]
    other = await caller(api, owner=OTHER)
    assert (await get(editor, f"/v1/runs?state=Queued&state=Dead&cursor={cursor}")).status == 200
    for who, query in [
        (editor, f"cursor={cursor}"),
        (editor, f"state=Dead&cursor={cursor}"),
        (other, f"state=Dead&state=Queued&cursor={cursor}"),
        (editor, f"state=Dead&state=Queued&cursor={cursor[:-2]}AA"),
        (editor, "cursor="),
        (editor, "cursor=%00"),
        (editor, "cursor=AAAA"),
        (editor, "cursor=%C3%A4"),
    ]:
        assert mistake(await get(who, f"/v1/runs?{query}")) == (422, "cursor"), query
    assert mistake(await get(editor, f"/v1/audit?cursor={cursor}")) == (422, "cursor")


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("state=dead", "state"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("since=yesterday", "since"),
        ("since=2026-11-30T00:00:00", "since"),
        ("until=9999-12-31T23:59:59Z", "until"),
        ("until=0001-01-01T00:00:00Z", "until"),
        ("jbo=x", "jbo"),
    ],
)
async def test_queries_that_say_nothing(world: World, editor: Caller, query: str, parameter: str) -> None:
    assert mistake(await get(editor, f"/v1/runs?{query}")) == (422, parameter)


async def test_one_run_as_a_whole(db: database.Database, world: World, editor: Caller) -> None:
    dead = world.ids["blue-Dead"]
    at = ids.scheduled_at_of(dead)
    async with db.transaction() as connection:
        await connection.execute(
            "INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, ended_at, outcome, reason, exit_code, "
            "log_tail) VALUES (%(run)s, %(at)s, 1, %(at)s, %(at)s, 'Failed', 'Error', 3, 'out of ink\n')",
            {"run": dead, "at": at},
        )
        await connection.execute("UPDATE run_history SET result = '{\"sent\": 7}' WHERE state = 'Succeeded'")
    run = (await get(editor, f"/v1/runs/{dead}")).json
    assert (run["id"], run["job"], run["jobId"]) == (str(dead), world.blue.name, str(world.blue.job_id))
    assert (run["state"], run["attempt"], "result" in run) == ("Dead", 1, False)
    assert (await get(editor, f"/v1/runs/{world.ids['blue-Succeeded']}")).json["result"] == {"sent": 7}
    [attempt] = (await get(editor, f"/v1/runs/{dead}/attempts")).json["items"]
    assert (attempt["outcome"], attempt["exitCode"], attempt["logged"]) == ("Failed", 3, True)
    assert (await get(editor, f"/v1/runs/{dead}/payload")).json == {"made": "for a test"}
    for query in ("", "?attempt=1"):
        log = await get(editor, f"/v1/runs/{dead}/log{query}")
        assert (log.status, log.text) == (200, "out of ink\n")
        assert log.headers["Content-Type"].startswith("text/plain")
    assert (await get(editor, f"/v1/runs/{dead}/log?attempt=2")).status == 404
    assert mistake(await get(editor, f"/v1/runs/{dead}/log?attempt=99999999999")) == (422, "attempt")
    assert (await get(editor, f"/v1/runs/{world.ids['blue-Queued']}/log")).status == 404


async def test_whatever_a_list_shows_is_found_by_its_id(world: World, editor: Caller) -> None:
    for run in await listed(editor, "/v1/runs"):
        assert (await get(editor, f"/v1/runs/{run['id']}")).json == run


async def test_a_run_now(db: database.Database, world: World, editor: Caller) -> None:
    path = f"/v1/jobs/{world.blue.job_id}:run"
    answer = await editor.post(path, {"payload": {"to": "you"}})
    run = answer.json
    assert (answer.status, run["state"], run["kind"], run["job"]) == (202, "Queued", "Manual", world.blue.name)
    assert answer.headers["Location"] == f"/v1/runs/{run['id']}"
    assert (await get(editor, answer.headers["Location"])).json == run
    assert (await get(editor, f"/v1/runs/{run['id']}/payload")).json == {"to": "you"}
    named = await editor.post(path, {"name": "by-hand"})
    assert named.json["name"] == "by-hand"
    assert (await get(editor, f"/v1/runs/{named.json['id']}/payload")).json == {"made": "for a test"}
    assert (await editor.post(path, {"name": "by-hand"})).status == 409
    assert (await editor.post(path, b"")).status == 202
    async with db.transaction() as connection:
        told = await jobs.query(connection, "SELECT action, job_id, run_id, actor FROM audit ORDER BY audit_id")
    assert [row[:2] for row in told] == 3 * [("run", world.blue.job_id)]
    assert str(told[0].run_id) == run["id"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"payload": "\\u0000"}', "/payload"),
        (b'{"payload": {"a": ["\\ud800"]}}', None),
        (b'{"payload": "' + b"x" * 70_000 + b'"}', "/payload"),
        (b'{"payload": 18446744073709551616}', "/payload"),
        (b'{"name": "Capital"}', "/name"),
        (b'{"name": ""}', "/name"),
        (b'{"name": "x-20261130t000000z"}', "/name"),
        (b'{"name": 7}', "/name"),
        (b'{"nmae": "x"}', "/nmae"),
        (b"[]", ""),
        (b"{", None),
        (b'{"payload": NaN}', None),
    ],
)
async def test_a_run_that_cannot_be_asked_for_so(
    db: database.Database, world: World, editor: Caller, body: bytes, pointer: str | None
) -> None:
    answer = await editor.post(f"/v1/jobs/{world.blue.job_id}:run", body)
    if pointer is None:
        assert answer.status in (400, 422), answer.text
    else:
        assert mistake(answer) == (422, pointer), answer.text
    async with db.transaction() as connection:
        assert await jobs.query(connection, "TABLE audit") == []
        assert await jobs.one(connection, "SELECT count(*) FROM live_runs WHERE kind <> 'Slot'") == 0


async def test_a_key_stands_for_one_run(db: database.Database, world: World, editor: Caller) -> None:
    path, key = f"/v1/jobs/{world.blue.job_id}:run", {"Idempotency-Key": "order 4711"}
    first = await editor.post(path, b"", headers=key)
    again = await editor.post(path, b"", headers=key)
    assert (again.status, again.text, again.headers["Location"]) == (202, first.text, first.headers["Location"])
    assert (await editor.post(path, {"payload": 1}, headers=key)).status == 422
    async with db.transaction() as connection:
        await connection.execute(b"DELETE FROM kept_answers")
    later = await editor.post(path, b"", headers=key)
    assert (later.status, later.json["id"]) == (202, first.json["id"])
    other = await editor.post(f"/v1/jobs/{world.red.job_id}:run", b"", headers={"Idempotency-Key": "another"})
    assert other.json["id"] != first.json["id"]


async def test_a_worker_that_waits_is_given_the_run_at_once(
    db: database.Database, world: World, api: Served, editor: Caller
) -> None:
    worker = await api.worker(owner=OWNER)
    async with db.transaction() as connection:
        job = await jobs.make_job(connection, jobs.pooled("0 0 1 1 *"), owner=OWNER, name="mail")
    claim = asyncio.create_task(worker.call("claim", place="acme", waitSeconds=30))
    await worker_process.until(lambda: bool(api.pools.desk.sitting(f"{OWNER}/mailers")))
    run = (await editor.post(f"/v1/jobs/{job.job_id}:run", {"payload": {"to": "you"}})).json
    [given] = (await claim).json["runs"]
    assert (given["runId"], given["payload"]) == (run["id"], {"to": "you"})
    done = {"runId": given["runId"], "token": given["token"], "outcome": "Succeeded", "result": {"sent": 1}}
    assert (await worker.call("report", place="acme", reports=[done])).status == 200
    shown = (await get(editor, f"/v1/runs/{run['id']}")).json
    assert (shown["state"], shown["result"], shown["worker"]) == ("Succeeded", {"sent": 1}, jobs.WORKER)


async def test_twenty_with_one_key_have_one_effect(db: database.Database, world: World, editor: Caller) -> None:
    path, key = f"/v1/jobs/{world.blue.job_id}:run", {"Idempotency-Key": "raced"}
    answers = await asyncio.gather(*(editor.post(path, b"", headers=key) for _ in range(20)))
    assert {answer.status for answer in answers} <= {202, 409}
    assert len({answer.json["id"] for answer in answers if answer.status == 202}) == 1
    async with db.transaction() as connection:
        assert await jobs.one(connection, "SELECT count(*) FROM live_runs WHERE kind = 'Manual'") == 1


async def test_past_slots(world: World, editor: Caller) -> None:
    path = f"/v1/jobs/{world.blue.job_id}:backfill"
    first, last = world.now - 20 * MINUTE, world.now - 10 * MINUTE
    span = {"from": first.isoformat(), "to": last.isoformat()}
    answer = await editor.post(path, {**span, "order": "NewestFirst", "concurrency": 2, "name": "again"})
    shown = answer.json
    assert (answer.status, shown["kind"], shown["state"], shown["name"]) == (202, "Backfill", "Queued", "again")
    assert shown["backfill"]["slots"] in (10, 11)
    assert (shown["backfill"]["order"], shown["backfill"]["concurrency"]) == ("NewestFirst", 2)
    assert (await get(editor, answer.headers["Location"])).json == shown
    assert (await editor.post(path, {**span, "name": "again"})).status == 409
    assert (await get(editor, f"{answer.headers['Location']}/payload")).status == 404
    assert (await editor.post(f"{answer.headers['Location']}:retry", b"")).status == 409
    ended = await editor.post(f"{answer.headers['Location']}:cancel", b"")
    assert (ended.status, ended.json["state"]) == (200, "Cancelled")
    assert (await editor.post(f"{answer.headers['Location']}:cancel", b"")).status == 409


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"from": "2026-01-01"}, "/from"),
        ({"from": "2026-01-01T00:00:00"}, "/from"),
        ({"from": "1969-12-31T00:00:00Z"}, "/from"),
        ({"from": "2020-01-01T00:00:00Z"}, "/from"),
        ({"to": "9999-12-31T23:59:59-14:00"}, "/to"),
        ({"to": "2100-01-01T00:00:00Z"}, "/to"),
        ({"to": "2026-01-01T00:00:00.0001Z"}, "/to"),
        ({"order": "Random"}, "/order"),
        ({"concurrency": 0}, "/concurrency"),
        ({"concurrency": 2**63}, "/concurrency"),
        ({"name": "-"}, "/name"),
        ({"colour": "red"}, "/colour"),
    ],
)
async def test_a_backfill_that_cannot_be_asked_for_so(
    world: World, editor: Caller, change: dict[str, Any], pointer: str
) -> None:
    span = {"from": (world.now - HOUR).isoformat(), "to": (world.now - MINUTE).isoformat()}
    answer = await editor.post(f"/v1/jobs/{world.blue.job_id}:backfill", {**span, **change})
    assert mistake(answer) == (422, pointer), answer.text


async def test_a_range_without_a_slot_and_one_that_is_missing(world: World, editor: Caller) -> None:
    path = f"/v1/jobs/{world.blue.job_id}:backfill"
    at = (world.now - HOUR).replace(second=30, microsecond=0).isoformat()
    assert mistake(await editor.post(path, {"from": at, "to": at})) == (422, "")
    assert mistake(await editor.post(path, {"to": at})) == (422, "/from")


async def test_cancel(world: World, editor: Caller) -> None:
    async def cancel(name: str) -> tuple[int, str | None]:
        answer = await editor.post(f"/v1/runs/{world.ids[name]}:cancel", b"")
        return answer.status, answer.json.get("state")

    assert await cancel("blue-Queued") == (200, "Cancelled")
    assert await cancel("blue-Retrying") == (200, "Cancelled")
    assert await cancel("blue-Running") == (200, "Stopping")
    for name in ("blue-Queued", "blue-Succeeded", "blue-Dead"):
        assert await cancel(name) == (409, None)
    assert await cancel("foreign-Queued") == (404, None)
    [skip] = await listed(editor, f"/v1/jobs/{world.blue.job_id}/runs", state="Skipped")
    assert (await editor.post(f"/v1/runs/{skip['id']}:cancel", b"")).status == 409
    assert (await editor.post(f"/v1/runs/{skip['id']}:retry", b"")).status == 409


async def test_retry(world: World, editor: Caller) -> None:
    async def retry(name: str) -> tuple[int, str | None]:
        answer = await editor.post(f"/v1/runs/{world.ids[name]}:retry", b"")
        return answer.status, answer.json.get("state")

    for name in ("blue-Dead", "blue-Cancelled", "blue-Retrying"):
        assert await retry(name) == (200, "Queued")
    for name in ("blue-Dead", "blue-Succeeded", "blue-Running"):
        assert await retry(name) == (409, None)
    assert await retry("foreign-Dead") == (404, None)
    key = {"Idempotency-Key": "once more"}
    first = await editor.post(f"/v1/runs/{world.ids['red-Dead']}:retry", b"", headers=key)
    again = await editor.post(f"/v1/runs/{world.ids['red-Dead']}:retry", b"", headers=key)
    assert (first.status, again.status, again.text) == (200, 200, first.text)


async def test_many_are_tried_again_a_page_at_a_time(db: database.Database, world: World, editor: Caller) -> None:
    async with db.transaction() as connection:
        gone = await jobs.make_job(connection, owner=OWNER, name="gone")
        for number in range(5):
            await jobs.make_run(connection, world.red, S.DEAD, at=world.now - 4 * HOUR - number * MINUTE)
            await jobs.make_run(connection, gone, S.DEAD, at=world.now - 4 * HOUR - number * MINUTE)
        await connection.execute("DELETE FROM job_status WHERE job_id = %s", (gone.job_id,))
        await connection.execute("DELETE FROM jobs WHERE job_id = %s", (gone.job_id,))
    wanted: dict[str, Any] = {"state": "Dead", "limit": 5}
    dry = (await editor.post("/v1/runs:retry", {"dryRun": True})).json
    assert dry == {"retried": 7, "passed": 5}
    of_job = (await editor.post("/v1/runs:retry", {"dryRun": True, "job": str(world.red.job_id)})).json
    assert of_job == {"retried": 6, "passed": 0}
    steps = []
    while True:
        answer = await editor.post("/v1/runs:retry", wanted)
        assert answer.status == 200, answer.text
        steps.append(answer.json)
        if "next" not in answer.json:
            break
        wanted["cursor"] = answer.json["next"]
    assert sum(step["retried"] for step in steps) == 7
    assert sum(step["passed"] for step in steps) == 5
    assert len(steps) == 3
    async with db.transaction() as connection:
        assert await jobs.state_of(connection, world.ids["foreign-Dead"]) == (S.DEAD,)
    assert mistake(await editor.post("/v1/runs:retry", {**wanted, "state": "Unknown"})) == (422, "/cursor")
    assert mistake(await editor.post("/v1/runs:retry", {"state": "Succeeded"})) == (422, "/state")
    assert mistake(await editor.post("/v1/runs:retry", {"limit": 1_001})) == (422, "/limit")
    assert mistake(await editor.post("/v1/runs:retry", {"since": "9999-12-31T23:59:59Z"})) == (422, "/since")


async def test_who_asked_for_what(world: World, editor: Caller) -> None:
    for name, what in (("blue-Queued", "cancel"), ("blue-Dead", "retry"), ("red-Dead", "retry")):
        assert (await editor.post(f"/v1/runs/{world.ids[name]}:{what}", b"")).status == 200
    entries = await listed(editor, "/v1/audit")
    assert [(entry["action"], entry["run"]) for entry in entries] == [
        ("retry", str(world.ids["red-Dead"])),
        ("retry", str(world.ids["blue-Dead"])),
        ("cancel", str(world.ids["blue-Queued"])),
    ]
    assert all(entry["actor"].startswith("a test (") for entry in entries)
    assert await listed(editor, "/v1/audit", limit=1) == entries
    assert await listed(editor, "/v1/audit", job=world.blue.job_id) == entries[1:]
    assert await listed(editor, "/v1/audit", job=world.blue.job_id, limit=1) == entries[1:]
    assert await listed(editor, "/v1/audit", job=world.blue.name) == entries[1:]
    assert {entry["jobName"] for entry in entries[1:]} == {world.blue.name}
    assert await listed(editor, "/v1/audit", job="nobody") == []
    assert await listed(editor, "/v1/audit", job=world.foreign.job_id) == []
    first, last = entries[-1]["at"], entries[0]["at"]
    assert await listed(editor, "/v1/audit", since=first, until=last) == entries
    assert await listed(editor, "/v1/audit", until=first) == entries[2:]


async def test_a_viewer_changes_nothing(world: World, api: Served) -> None:
    viewer = await caller(api, role=tokens.Role.VIEWER)
    assert (await get(viewer, "/v1/runs")).status == 200
    for path in (f"/v1/jobs/{world.blue.job_id}:run", f"/v1/runs/{world.ids['blue-Dead']}:retry", "/v1/runs:retry"):
        assert (await viewer.post(path, b"")).status == 403


async def test_states_are_all_known() -> None:
    assert set(get_args(asked.State)) == {*map(str, states.RunState), "Skipped"}
