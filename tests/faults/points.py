"""Where a shot may go off: wrappers around functions of the product, put in from outside. The product knows none of this.

A point counts as passed only with work in hand: a batch that is not empty, a claim, a pod. Names say where the process is
when it stops: `end-unstored` is after the pod's end was seen and before it was stored.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.trigger import Trigger

from clockhand import errors
from clockhand.engine import fire, launch, observe, sweep
from clockhand.kube import pods
from clockhand.store import firing, runs

Wrapped = Callable[..., Awaitable[Any]]
Condition = Callable[[dict[str, Any], Any], bool]


def install(trigger: Trigger) -> None:
    """Puts every point in place."""
    _firing(trigger)
    _claiming(trigger)
    _ending(trigger)
    _create(trigger)
    _store(trigger)


def _firing(trigger: Trigger) -> None:
    wrap(trigger, fire.Fire, "run_once", before="due-read", after="fired", when=_due)
    wrap(trigger, firing, "insert_runs", after="inserted", when=lambda _, made: bool(made))
    wrap(trigger, firing, "advance", before="unadvanced", after="advanced", when=_has("moves"))


def _claiming(trigger: Trigger) -> None:
    wrap(trigger, launch.Launch, "start", before="claimed", when=lambda given, _: bool(given["claims"]))
    wrap(trigger, runs, "promote", after="promoted", when=lambda _, count: bool(count))


def _ending(trigger: Trigger) -> None:
    wrap(trigger, runs, "retry", after="retry-open", when=_has("items", "outcomes"))
    wrap(trigger, runs, "finish", after="finish-open", when=lambda _, rows: bool(rows))
    wrap(trigger, runs, "finish", after="death-open", when=lambda _, rows: any(row.state == "Dead" for row in rows))
    wrap(trigger, sweep.Sweep, "_delete", before="undeleted", after="deleted")


def _due(given: dict[str, Any], count: Any) -> bool:
    """Before the call: the pulse calls it only with something due. After it: something was."""
    return not given["anybodys"] and (count is None or count > 0)


def _has(*names: str) -> Condition:
    return lambda given, _: any(bool(given.get(name)) for name in names)


def wrap(
    trigger: Trigger,
    owner: Any,
    name: str,
    *,
    before: str = "",
    after: str = "",
    when: Condition = lambda given, result: True,
) -> None:
    """Has `owner.name` pass the points `before` and `after` it, `when` what it is given and returns says so."""
    original: Wrapped = getattr(owner, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if before and when(bound.arguments, None):
            trigger.passed(before)
        result = await original(*args, **kwargs)
        if after and when(bound.arguments, result):
            trigger.passed(after)
        return result

    setattr(owner, name, wrapped)


def _create(trigger: Trigger) -> None:
    """The creation of a pod: before it is sent, while its answer is on the way, and with the answer in hand."""
    original = pods.Pods.create

    async def create(self: pods.Pods, namespace: str, body: bytes, *, still: Callable[[], bool]) -> pods.CreatedPod:
        def last_moment() -> bool:
            trigger.passed("unposted")
            held = still()
            if held:
                trigger.passed("posting")
            return held

        call = asyncio.ensure_future(original(self, namespace, body, still=last_moment))
        if trigger.aims_at("posted"):
            await _until_stored(self, namespace, body, call)
            trigger.passed("posted")
        created = await call
        trigger.passed("answered")
        return created

    pods.Pods.create = create  # type: ignore[method-assign, assignment]


async def _until_stored(api: pods.Pods, namespace: str, body: bytes, call: asyncio.Future[Any]) -> None:
    """Returns as soon as the pod is there, whether its answer has come or not; a failed call is left to the caller."""
    name = json.loads(body)["metadata"]["name"]
    while not (call.done() and call.exception()):
        try:
            await api.get(namespace, name)
        except errors.NotFound:
            continue
        return


def _store(trigger: Trigger) -> None:
    """One transaction of sightings: what is in the batch says which points it passes."""
    original = observe.Observe._store
    retried = _flagged(runs, "retry")
    died = _flagged(runs, "finish")

    async def store(self: observe.Observe, batch: Any, *args: Any) -> Any:
        for kind in ("launched", "started", "ended"):
            if getattr(batch, kind):
                trigger.passed(f"{kind}-unstored")
        retried.clear()
        died.clear()
        result = await original(self, batch, *args)
        for kind in ("launched", "started", "ended"):
            if getattr(batch, kind):
                trigger.passed(f"{kind}-stored")
        if retried:
            trigger.passed("retry-stored")
        if "Dead" in died:
            trigger.passed("death-stored")
        return result

    observe.Observe._store = store  # type: ignore[method-assign, assignment]


def _flagged(owner: Any, name: str) -> list[str]:
    """The states of the outcomes last given to `owner.name`."""
    original: Wrapped = getattr(owner, name)
    seen: list[str] = []

    @functools.wraps(original)
    async def wrapped(connection: Any, outcomes: Any, **kwargs: Any) -> Any:
        seen.extend(one.state.value for one in outcomes)
        return await original(connection, outcomes, **kwargs)

    setattr(owner, name, wrapped)
    return seen
