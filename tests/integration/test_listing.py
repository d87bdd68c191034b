"""Lists of runs from real tables: complete, in order, bounded, and by indexes."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support import history

from clockhand.api.runs import lists, selection, status
from clockhand.store import database, listing, partitions, queries

HOUR = timedelta(hours=1)
FEW_ROWS = 1_000


class World:
    """Two jobs in two namespaces with live, ended, skipped and long-ended runs."""

    now: datetime
    runs: dict[str, uuid.UUID]


@pytest.fixture
async def world(db: database.Database) -> World:
    made = World()
    async with db.transaction() as connection:
        now = await database.now(connection)
        made.now, made.runs = now, {}
        await partitions.ensure_window(connection, now=now, retention_days=30)
        blue = await history.make_job(connection, "blue", labels={"tier": "gold", "team": "a"}, now=now)
        red = await history.make_job(connection, "red", namespace="team-b", labels={"tier": "tin"}, now=now)
        for job, name in ((blue, "blue"), (red, "red")):
            for hours in range(1, 6):
                made.runs[f"{name}-{hours}"] = await history.add_live(connection, job, name, at=now - hours * HOUR)
            made.runs[f"{name}-old"] = await history.add_live(connection, job, name, at=now - timedelta(days=9))
            made.runs[f"{name}-asked"] = await history.add_live(connection, job, name, at=now, name=f"{name}-asked")
            await history.skip(connection, job, last_at=now - 2 * HOUR, count=3)
        for name in ("blue", "red"):
            await history.end(connection, made.runs[f"{name}-3"], made.runs[f"{name}-old"])
            await history.end(connection, made.runs[f"{name}-4"], state="Dead", reason="AttemptsUsed")
        await history.end(connection, made.runs["red-asked"], state="Cancelled", reason="Cancelled")
    return made


async def page(
    db: database.Database,
    *,
    namespace: str | None = None,
    fields: str | None = None,
    labels: str | None = None,
    limit: int = 0,
    token: str = "",
) -> lists.Page:
    chosen = selection.parse(namespace=namespace, fields=fields, labels=labels)
    async with db.transaction() as connection:
        return await lists.page(connection, chosen, limit=limit, token=token)


async def everything(db: database.Database, *, limit: int = 0, **selectors: Any) -> list[listing.Run]:
    """All pages, as kubectl reads them."""
    found: list[listing.Run] = []
    token = ""
    while True:
        one = await page(db, limit=limit, token=token, **selectors)
        assert not limit or len(one.runs) <= limit
        found.extend(one.runs)
        token = one.token
        if not token:
            return found


def names(runs: Sequence[listing.Run]) -> list[str]:
    return [run.name for run in runs]


async def test_live_runs_come_first_then_ended_ones_newest_first(db: database.Database, world: World) -> None:
    runs = await everything(db, namespace="team-a")
    live = [world.runs[key] for key in ("blue-asked", "blue-1", "blue-2", "blue-5")]
    ended = [world.runs[key] for key in ("blue-3", "blue-4")]
    assert [run.run_id for run in runs[:6]] == live + ended
    assert [(run.state, run.reason, run.count) for run in runs[6:]] == [("Skipped", "Forbid", 3)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_together_are_the_list(db: database.Database, world: World, limit: int) -> None:
    several: list[dict[str, Any]] = [
        {},
        {"namespace": "team-a"},
        {"fields": "status.state=Dead"},
        {"labels": "tier in (gold, tin)"},
    ]
    for selectors in several:
        whole = await everything(db, **selectors)
        assert await everything(db, limit=limit, **selectors) == whole
        assert len({run.run_id for run in whole}) == len(whole) > 0


@pytest.mark.parametrize(
    ("fields", "labels", "wanted"),
    [
        ("status.state=Dead", None, {"blue-4", "red-4"}),
        ("status.state=Cancelled", None, {"red-asked"}),
        ("status.state=Succeeded", None, {"blue-3", "red-3", "blue-old", "red-old"}),
        ("spec.job=blue,status.state=Succeeded", None, {"blue-3", "blue-old"}),
        ("spec.job=blue,status.state!=Queued,status.state!=Skipped", None, {"blue-3", "blue-4", "blue-old"}),
        ("status.state!=Queued,status.state!=Skipped,spec.job!=red", None, {"blue-3", "blue-4", "blue-old"}),
        ("metadata.namespace=team-b,status.state=Dead", None, {"red-4"}),
        ("status.state=Dead,metadata.namespace!=team-b", None, {"blue-4"}),
        ("status.state=Dead", "tier=gold", {"blue-4"}),
        ("status.state=Dead", "tier!=gold", {"red-4"}),
        ("status.state=Dead", "tier in (gold,silver)", {"blue-4"}),
        ("status.state=Dead", "tier notin (gold,silver)", {"red-4"}),
        ("status.state=Dead", "team", {"blue-4"}),
        ("status.state=Dead", "!team", {"red-4"}),
        ("status.state=Dead", "team notin (b)", {"blue-4", "red-4"}),
        ("status.state=Dead", "clockhand.dev/job=red", {"red-4"}),
        ("status.state=Dead", "clockhand.dev/job in (red, blue)", {"blue-4", "red-4"}),
        ("status.state=Dead", "tier=gold,tier=tin", set()),
        ("status.state=Dead,status.state=Queued", None, set()),
        ("spec.job=blue,spec.job=red", None, set()),
        ("metadata.name=blue-asked", None, {"blue-asked"}),
    ],
)
async def test_selectors(
    db: database.Database, world: World, fields: str, labels: str | None, wanted: set[str]
) -> None:
    found = await everything(db, fields=fields, labels=labels)
    assert {run.run_id for run in found} == {world.runs[key] for key in wanted}


async def test_a_day_holds_what_was_scheduled_on_it(db: database.Database, world: World) -> None:
    old = world.now - timedelta(days=9)
    runs = await everything(db, fields=f"spec.day={old:%Y-%m-%d}")
    assert {run.run_id for run in runs} == {world.runs["blue-old"], world.runs["red-old"]}


async def test_without_selectors_only_the_last_day_of_history_is_shown(db: database.Database, world: World) -> None:
    assert world.runs["blue-old"] not in {run.run_id for run in await everything(db)}
    assert world.runs["blue-old"] in {run.run_id for run in await everything(db, fields="spec.job=blue")}


async def test_every_listed_run_is_found_by_its_name(db: database.Database, world: World) -> None:
    runs = await everything(db, fields="status.state!=Blocked")
    assert len(runs) == 16
    async with db.transaction() as connection:
        for run in runs:
            assert await listing.by_name(connection, owner=run.owner, name=run.name) == run
            assert await listing.by_name(connection, owner="k8s/elsewhere", name=run.name) is None


async def test_a_slot_is_found_by_name_in_all_namespaces(db: database.Database, world: World) -> None:
    [old] = [run for run in await everything(db, fields="spec.job=blue") if run.run_id == world.runs["blue-old"]]
    assert await everything(db, fields=f"metadata.name={old.name}") == [old]


async def test_a_slot_is_found_by_name_when_its_job_is_gone(db: database.Database, world: World) -> None:
    async with db.transaction() as connection:
        runs = await listing.by_ids(connection, [world.runs["blue-1"], world.runs["blue-old"]])
        assert len(runs) == 2
        await connection.execute("DELETE FROM jobs WHERE name = 'blue'")
        for run in runs:
            assert await listing.by_name(connection, owner=run.owner, name=run.name) == run
    assert {run.job_name for run in await everything(db, namespace="team-a", fields="spec.job=blue")} == {"blue"}


async def test_a_run_that_ends_between_two_pages_is_listed_once(db: database.Database, world: World) -> None:
    first = await page(db, namespace="team-a", limit=5)
    assert first.runs[1].run_id == world.runs["blue-1"]
    assert first.runs[4].state == "Succeeded"
    async with db.transaction() as connection:
        await history.end(connection, world.runs["blue-1"], world.runs["blue-5"])
    rest = await page(db, namespace="team-a", limit=100, token=first.token)
    assert not {run.run_id for run in rest.runs} & {run.run_id for run in first.runs}


async def test_a_list_without_selectors_is_cut_and_says_so(
    db: database.Database, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST", 5)
    pages = [await page(db, limit=2)]
    while pages[-1].token:
        pages.append(await page(db, limit=2, token=pages[-1].token))
    assert [len(one.runs) for one in pages] == [2, 2, 1]
    assert [one.cut for one in pages] == [False, False, True]
    selected = await everything(db, limit=2, fields="spec.job=blue")
    assert len(selected) == 8


async def test_a_token_belongs_to_its_selectors(db: database.Database, world: World) -> None:
    token = (await page(db, limit=1)).token
    for wrong in (token[:-4], "x", "e30", base64.urlsafe_b64encode(b"[1,2,3]").decode()):
        with pytest.raises(status.Failure) as caught:
            await page(db, limit=1, token=wrong)
        assert caught.value.code == 400
    with pytest.raises(status.Failure) as caught:
        await page(db, limit=1, token=token, labels="tier=gold")
    assert caught.value.code == 400


async def test_a_token_of_another_epoch_or_an_old_one_has_expired(db: database.Database, world: World) -> None:
    token = (await page(db, limit=1)).token
    fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    fields[2] -= 16 * 60_000
    old = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
    with pytest.raises(status.Failure) as caught:
        await page(db, limit=1, token=old)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    async with db.transaction() as connection:
        await connection.execute("UPDATE installation SET epoch = epoch + 1")
    with pytest.raises(status.Failure) as caught:
        await page(db, limit=1, token=token)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


async def test_runs_of_other_owners_are_never_shown(db: database.Database, world: World) -> None:
    async with db.transaction() as connection:
        await connection.execute("INSERT INTO owners VALUES ('rest/tenant')")
        await connection.execute("UPDATE live_runs SET owner = 'rest/tenant' WHERE run_id = %s", (world.runs["red-1"],))
        await connection.execute(
            "UPDATE run_history SET owner = 'rest/tenant' WHERE run_id = %s", (world.runs["red-4"],)
        )
    for fields in (None, "spec.job=red", "status.state=Dead", "status.state=Queued"):
        shown = {run.run_id for run in await everything(db, fields=fields)}
        assert not shown & {world.runs["red-1"], world.runs["red-4"]}


@pytest.mark.parametrize(
    ("namespace", "fields", "labels"),
    [
        (None, None, None),
        ("team-3", None, None),
        (None, None, "tier=gold"),
        ("team-3", "spec.job=job-3", None),
        (None, "spec.job=job-3", None),
        (None, "status.state=Dead", None),
        ("team-3", "status.state=Dead", None),
        (None, "status.state!=Succeeded", "tier"),
    ],
)
async def test_no_page_reads_a_table_from_end_to_end(
    db: database.Database,
    big: str,
    monkeypatch: pytest.MonkeyPatch,
    namespace: str | None,
    fields: str | None,
    labels: str | None,
) -> None:
    """A page looks at a bounded number of rows through an index, whatever is in the tables."""
    opened = database.Database(big, size=1, name="plans")
    await opened.open()
    plans: list[Any] = []
    fetch, parts = database.fetch, database.parts

    async def explain(connection: database.Connection, name: str, parameters: Any) -> None:
        if name.startswith("listing."):
            text = "EXPLAIN (ANALYZE, FORMAT JSON) " + queries.sql(name)
            cursor = await connection.execute(text.encode(), parameters)
            [(plan,)] = await cursor.fetchall()
            plans.append(plan[0]["Plan"])

    async def explained(connection: database.Connection, name: str, parameters: Any = None) -> Sequence[Any]:
        await explain(connection, name, parameters)
        return await fetch(connection, name, parameters)

    async def in_parts(connection: database.Connection, name: str, parameters: Any) -> AsyncIterator[Sequence[Any]]:
        await explain(connection, name, parameters)
        async for rows in parts(connection, name, parameters):
            yield rows

    monkeypatch.setattr(database, "fetch", explained)
    monkeypatch.setattr(database, "parts", in_parts)
    try:
        await page(opened, namespace=namespace, fields=fields, labels=labels, limit=100)
    finally:
        await opened.close()
    nodes = [node for plan in plans for node in walk(plan)]
    assert nodes
    # the oldest week may hold a handful of rows, which no index makes cheaper
    read = [node for node in nodes if node["Node Type"] == "Seq Scan" and looked_at(node) > FEW_ROWS]
    assert not [node for node in read if "history" in node["Relation Name"]]
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in nodes) <= 2 * listing.SCAN_ROWS


@pytest.fixture(scope="module")
def big(server: Any, template: str) -> str:
    """A database with 100,000 ended runs over four weeks, analysed."""
    import asyncio

    url: str = server.url(server.new_database(template=template))

    async def fill() -> None:
        opened = database.Database(url, size=1, name="fill")
        await opened.open()
        async with opened.transaction() as connection:
            await history.fill(connection, 100_000, now=await database.now(connection))
        await opened.close()

    asyncio.run(fill())
    history.analyze(url)
    return url


def looked_at(node: Any) -> float:
    return float(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * float(node["Actual Loops"])


def walk(plan: Any) -> list[Any]:
    return [plan, *(node for part in plan.get("Plans", ()) for node in walk(part))]
