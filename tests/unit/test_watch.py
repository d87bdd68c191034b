"""kopf is asked for nothing but watching."""

from __future__ import annotations

import inspect

import kopf
from kopf._core.reactor import inventory

from clockhand.controller import watch
from clockhand.engine import inbox


def test_kopf_is_at_its_quietest() -> None:
    chosen = watch.settings()
    assert not chosen.posting.enabled
    assert chosen.scanning.disabled
    assert chosen.watching.chunk_size == 500
    assert chosen.process.ultimate_exiting_timeout is None


async def test_only_watching_is_asked_for() -> None:
    registry = watch.Watch(inbox.Inbox())._registry()
    [handler] = registry._watching.get_all_handlers()
    selector = handler.selector
    assert selector
    assert (selector.group, selector.version, selector.any_name) == ("clockhand.dev", "v1alpha1", "scheduledjobs")
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not registry._indexing.get_all_handlers()
    assert not registry._webhooks.get_all_handlers()


async def test_kopf_remembers_no_objects() -> None:
    memories = watch._Forgetful()
    await memories.recall({"metadata": {"uid": "one"}}, noticed_by_listing=True)
    assert list(memories.iter_all_memories()) == []


def test_kopf_still_has_what_is_used_of_its_inside() -> None:
    assert "ephemeral" in inspect.signature(inventory.ResourceMemories.recall).parameters
    parameters = inspect.signature(kopf.operator).parameters
    assert {"memories", "insights", "identity", "stop_flag"} <= set(parameters)


async def test_a_watch_that_never_connects_stops_when_asked() -> None:
    running = watch.Watch(inbox.Inbox(), kubeconfig="/nonexistent")
    running.start()
    assert running.stop(patience=30)
