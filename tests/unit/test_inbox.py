"""The inbox keeps the newest of each object, from any thread."""

from __future__ import annotations

import asyncio
import threading

from tests.support import sighted

from clockhand.engine import inbox


async def test_only_the_newest_of_an_object_waits() -> None:
    box = inbox.Inbox()
    old = sighted.job()
    new = sighted.edited(old)
    for seen in (new, old, sighted.job()):
        box.put(seen)
    assert len(box) == 2
    assert box.take(1) == [new]


async def test_a_deletion_at_the_same_version_wins() -> None:
    box = inbox.Inbox()
    seen = sighted.job()
    gone = sighted.replaced(sighted.deleted(seen), resource_version=seen.resource_version)
    for one in (seen, gone, seen):
        box.put(one)
    assert box.take(5) == [gone]


async def test_wait_ends_when_another_thread_puts() -> None:
    box = inbox.Inbox()
    waiting = asyncio.create_task(box.wait())
    thread = threading.Thread(target=box.put, args=(sighted.job(),))
    thread.start()
    async with asyncio.timeout(30):
        await waiting
    thread.join()
    assert len(box.take(10)) == 1
    waiting = asyncio.create_task(box.wait())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    waiting.cancel()


async def test_the_giver_learns_that_it_is_full() -> None:
    box = inbox.Inbox()
    for _ in range(inbox.CAPACITY):
        box.put(sighted.job())
    assert box.full
    box.take(1)
    assert not box.full
