"""kopf is asked for nothing but watching."""

from __future__ import annotations

import inspect

import kopf
import yarl
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
    registry = watch.Watch(inbox.Inbox(), pool_seen=lambda: None)._registry()
    selectors = [handler.selector for handler in registry._watching.get_all_handlers()]
    assert [(one.group, one.version, one.any_name) for one in selectors if one] == [
        ("clockhand.dev", "v1alpha1", "scheduledjobs"),
        ("clockhand.dev", "v1alpha1", "workerpools"),
    ]
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


async def test_what_is_heard_of_pools_does_not_hide_that_nothing_is_heard_of_jobs() -> None:
    silent = watch.Watch(inbox.Inbox(), pool_seen=lambda: None)
    before = silent._activity = -100.0
    silent._noticed(yarl.URL("https://api/apis/clockhand.dev/v1alpha1/workerpools?watch=true"))
    assert silent._activity == before
    silent._noticed(yarl.URL("https://api/apis/clockhand.dev/v1alpha1/scheduledjobs?watch=true"))
    assert silent._activity > before


async def test_a_watch_that_never_connects_stops_when_asked() -> None:
    running = watch.Watch(inbox.Inbox(), kubeconfig="/nonexistent", pool_seen=lambda: None)
    running.start()
    assert running.stop(patience=30)
