"""The store of the small API server: what is written is there and is told once, in order, whatever happens beside it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from clockhand import errors
from clockhand.api.runs import negotiate
from clockhand.standalone.kube import housekeeping, kinds, seeds, selection, store, targets, watching
from clockhand.standalone.kube import objects as verbs_of

Json = dict[str, Any]
OBJECT = negotiate.Shape(negotiate.Form.OBJECT)


def key(name: str, resource: str = "configmaps") -> store.Key:
    return store.Key(resource, "default", name)


def body(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "labels": labels}}


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[store.Store]:
    opened = store.Store(tmp_path / "objects.sqlite", durable=False)
    yield opened
    await opened.close()


async def changes(
    objects: store.Store, since: int, count: int, resource: str = "configmaps"
) -> Sequence[tuple[str, str]]:
    """The first so many after a version."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(60), aclosing(objects.watch(resource, since=since)) as events:
        async for event in events:
            found.append((str(event.change), event.key.name))
            if len(found) == count:
                break
    return found


async def test_changes_are_told_in_order_to_who_asks_early_and_late(objects: store.Store) -> None:
    since = objects.version
    early = asyncio.create_task(changes(objects, since, 3))
    await objects.create(key("a"), body("a"))
    await objects.create(key("other", "secrets"), body("other"))
    await objects.change(key("a"), lambda old: {**old, "data": {"x": "1"}})
    await objects.delete(key("a"), uid="uid-of-a")
    told = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await early == told
    assert await changes(objects, since, 3) == told
    assert objects.listed("configmaps") == []


async def test_what_changes_nothing_is_no_change(objects: store.Store) -> None:
    made = await objects.create(key("a"), body("a"))
    assert await objects.change(key("a"), lambda old: {**old}) == made
    assert objects.version == int(made["metadata"]["resourceVersion"])


async def test_another_object_of_the_name_is_left_alone(objects: store.Store) -> None:
    await objects.create(key("a"), body("a"))
    with pytest.raises(store.AlreadyThere):
        await objects.create(key("a"), body("a"))
    with pytest.raises(errors.Conflict):
        await objects.update_status(key("a"), {}, uid="another")
    with pytest.raises(errors.Conflict):
        await objects.delete(key("a"), uid="another")
    with pytest.raises(errors.NotFound):
        await objects.delete(key("b"), uid="any")


async def test_version_that_is_too_old_or_never_was_is_refused(
    objects: store.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_CHANGES", 2)
    since = objects.version
    for name in "abc":
        await objects.create(key(name), body(name))
    with pytest.raises(store.TooOld):
        await changes(objects, since, 1)
    with pytest.raises(store.TooOld):
        await changes(objects, objects.version + 1, 1)
    assert await changes(objects, since + 1, 2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_new_start_knows_objects_and_goes_on_counting(tmp_path: Path) -> None:
    first = store.Store(tmp_path / "objects.sqlite")
    kept = await first.create(key("a"), body("a"))
    await first.create(key("b"), body("b"))
    await first.delete(key("b"), uid="uid-of-b")
    version = first.version
    await first.close()
    second = store.Store(tmp_path / "objects.sqlite")
    assert (second.listed("configmaps"), second.version) == ([kept], version)
    with pytest.raises(store.TooOld):
        await changes(second, version - 1, 1)
    await second.close()


async def test_writer_that_goes_away_leaves_no_half_of_a_change(objects: store.Store) -> None:
    writer = asyncio.create_task(objects.create(key("a"), body("a")))
    await asyncio.sleep(0)
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert await changes(objects, 1, 1) == [("ADDED", "a")]
    assert objects.get(key("a")) is not None


async def test_disk_that_refuses_changes_nothing(objects: store.Store, tmp_path: Path) -> None:
    await objects.create(key("a"), body("a"))
    version = objects.version
    other = sqlite3.connect(tmp_path / "objects.sqlite")
    other.execute("alter table objects rename to gone")
    other.close()
    with pytest.raises(errors.Unavailable):
        await objects.create(key("b"), body("b"))
    assert (objects.get(key("b")), objects.version) == (None, version)


class Lines:
    """What a watch writes."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Json] = asyncio.Queue()

    async def write(self, line: bytes) -> None:
        self.queue.put_nowait(json.loads(line))

    async def next(self) -> tuple[str, str]:
        async with asyncio.timeout(60):
            event = await self.queue.get()
        return event["type"], event["object"].get("metadata", {}).get("name", "")


def wish(objects: store.Store, labels: str = "", **query: str) -> watching.Wish:
    target = targets.Target(kinds.BY_RESOURCE["configmaps"], "default")
    asked = {"resourceVersion": str(objects.version), **query}
    return watching.wish_of(target, selection.parse(labels, None), OBJECT, asked)


async def test_object_comes_into_and_leaves_a_selection(objects: store.Store) -> None:
    lines = Lines()
    watch = asyncio.create_task(watching.Watch(objects, wish(objects, "a=b"), lines.write).run())
    await objects.create(key("x"), body("x"))
    await objects.change(key("x"), lambda old: body("x", a="b"))
    assert await lines.next() == ("ADDED", "x")
    await objects.change(key("x"), lambda old: body("x", a="b", more="yes"))
    assert await lines.next() == ("MODIFIED", "x")
    await objects.change(key("x"), lambda old: body("x", a="c"))
    assert await lines.next() == ("DELETED", "x")
    await objects.delete(key("x"), uid="uid-of-x")
    await objects.create(key("y"), body("y", a="b"))
    assert await lines.next() == ("ADDED", "y")
    watch.cancel()


async def test_watch_begins_with_what_is_there(objects: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_BOOKMARK_SECONDS", 0.01)
    await objects.create(key("x"), body("x"))
    lines = Lines()
    asked = wish(objects, sendInitialEvents="true", allowWatchBookmarks="true")
    watch = asyncio.create_task(watching.Watch(objects, asked, lines.write).run())
    assert await lines.next() == ("ADDED", "x")
    marked = await lines.queue.get()
    assert marked["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    marked = await lines.queue.get()
    assert marked["type"] == "BOOKMARK"
    assert marked["object"]["metadata"]["resourceVersion"] == str(objects.version)
    watch.cancel()


async def test_watch_of_an_old_version_ends_with_an_error(objects: store.Store) -> None:
    lines = Lines()
    await watching.Watch(objects, wish(objects, resourceVersion="999"), lines.write).run()
    event = await lines.queue.get()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_namespace_that_a_kill_left_without_an_account_gets_one(objects: store.Store) -> None:
    verbs = verbs_of.Objects(objects)
    await seeds.sow(verbs)
    accounts = [one["metadata"]["namespace"] for one in objects.listed(kinds.ACCOUNTS.resource)]
    assert sorted(accounts) == sorted(kinds.LASTING_NAMESPACES)
    for name, more in (("half", {}), ("leaving", {"deletionTimestamp": "2026-03-01T12:00:00Z"})):
        metadata = {"name": name, "uid": name, **more}
        await objects.create(store.Key(kinds.NAMESPACES.resource, "", name), {"metadata": metadata})
    await seeds.sow(verbs)
    added = {one["metadata"]["namespace"] for one in objects.listed(kinds.ACCOUNTS.resource)} - set(accounts)
    assert added == {"half"}


@pytest.mark.parametrize("text", ["\u00b2", "9" * 400, "-1", "x", "", "0"])
def test_what_is_no_number_in_a_watch_says_nothing(text: str) -> None:
    target = targets.Target(kinds.BY_RESOURCE["configmaps"], "default", "")
    query = {"resourceVersion": text, "timeoutSeconds": text}
    wish = watching.wish_of(target, selection.everything, OBJECT, query)
    assert wish.since is None
    assert 1800 <= wish.seconds <= 3600


async def test_an_object_that_cannot_be_understood_does_not_end_the_housekeeping(objects: store.Store) -> None:
    keeping = asyncio.create_task(housekeeping.Housekeeping(verbs_of.Objects(objects)).run())
    strange = {"metadata": {**body("strange")["metadata"], "ownerReferences": [{"name": "x"}]}}
    await objects.create(key("strange"), strange)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await objects.delete(key("strange"), uid="uid-of-strange")
    await objects.create(key("owner"), body("owner"))
    owned = {"metadata": {**body("owned")["metadata"], "ownerReferences": [{"uid": "uid-of-owner"}]}}
    await objects.create(key("owned"), owned)
    await objects.delete(key("owner"), uid="uid-of-owner")
    async with asyncio.timeout(60):
        while objects.get(key("owned")) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait({keeping})
    assert keeping.cancelled()
