"""All that happens to our pods, without gaps: a listing, a watch, and again when the watch cannot be trusted.

What a watch missed shows in the next listing: a pod that was known and is gone is reported as deleted,
every other one as it is now. Consumers are level-triggered, so seeing a state twice costs them nothing and
missing one is impossible.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import enum
import random
import time
from dataclasses import dataclass

import msgspec

from clockhand import errors
from clockhand.domain import observed
from clockhand.kube import pods, streams

RELIST_SECONDS = 300.0


class Kind(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one pod. `pod` is its last state, or None for one that vanished between two listings.

    `SYNCED` closes a listing: every wanted pod that existed when it began has been reported.
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    uid: str = ""
    run_id: str = ""
    pod: observed.Pod | None = None


@dataclass(frozen=True, slots=True)
class WatchSettings:
    stall_seconds: float = pods.STALL_SECONDS
    relist_seconds: float = RELIST_SECONDS
    first_backoff_seconds: float = 0.2
    max_backoff_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class _Known:
    uid: str
    run_id: str


class PodWatch:
    """One replica's view of its pods. `wants` judges the annotations and may change its mind over time."""

    def __init__(
        self,
        source: pods.Pods,
        *,
        selector: str,
        wants: pods.Wants = pods.everything,
        namespace: str | None = None,
        settings: WatchSettings | None = None,
        clock: collections.abc.Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._selector = selector
        self._wants = wants
        self._namespace = namespace
        self._settings = settings or WatchSettings()
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._version = ""
        self._patience = streams.Patience(self._settings.stall_seconds)
        self._list_due = clock() + self._settings.relist_seconds
        self._asked = 0
        self._answered = 0
        self._failing = False
        self.last_activity = clock()
        self.listings = 0
        self.last_error = ""

    def resync(self) -> None:
        """List again soon, as after gaining a shard: a later `SYNCED` covers all that is wanted now."""
        self._asked += 1
        self._patience.interrupt()

    async def stream(self) -> collections.abc.AsyncGenerator[Seen]:
        """Endless; failures are waited out, and leave their text in `last_error`."""
        failed = 0
        while True:
            began = self._clock()
            async with contextlib.aclosing(self._guarded_round()) as events:
                async for seen in events:
                    yield seen
            lasted = self._clock() - began
            failed = failed + 1 if lasted < self._settings.max_backoff_seconds else 0
            if self._failing or not self._resync_wanted():
                await self._pause(failed)

    async def _guarded_round(self) -> collections.abc.AsyncGenerator[Seen]:
        self._failing = False
        try:
            async with contextlib.aclosing(self._round()) as events:
                async for seen in events:
                    yield seen
        except streams.Interrupted:
            return
        except (errors.ClockhandError, msgspec.MsgspecError) as error:
            self.last_error = f"{type(error).__name__}: {error}"
            self._failing = True
            self._version = ""

    async def _round(self) -> collections.abc.AsyncGenerator[Seen]:
        """A listing where one is needed, then one watch until the server ends it."""
        if not self._version or self._resync_wanted():
            async with contextlib.aclosing(self._list()) as events:
                async for seen in events:
                    yield seen
        async with contextlib.aclosing(self._follow()) as events:
            async for seen in events:
                yield seen

    def _resync_wanted(self) -> bool:
        return self._asked != self._answered or self._clock() >= self._list_due

    async def _list(self) -> collections.abc.AsyncGenerator[Seen]:
        self._patience = streams.Patience(self._settings.stall_seconds)
        asked = self._asked
        there: set[tuple[str, str]] = set()
        version = ""
        async for page in self._source.list_pages(self._selector, self._namespace, wants=self._wants):
            self.last_activity = self._clock()
            version = version or page.resource_version
            there.update((head.namespace, head.name) for head in page.heads)
            for pod in page.pods:
                for seen in self._note(pod):
                    yield seen
        for key in [key for key in self._known if key not in there]:
            yield self._forget(key)
        self._version = version
        self._answered = asked
        self._list_due = self._clock() + self._settings.relist_seconds
        self.listings += 1
        yield Seen(Kind.SYNCED)

    async def _follow(self) -> collections.abc.AsyncGenerator[Seen]:
        events = self._source.watch(
            self._version,
            selector=self._selector,
            namespace=self._namespace,
            wants=self._wants,
            patience=self._patience,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                self.last_activity = self._clock()
                self._version = event.resource_version
                if event.pod is not None:
                    for seen in self._note(event.pod, gone=event.change is pods.Change.DELETED):
                        yield seen
                if self._clock() >= self._list_due:
                    return

    def _note(self, pod: observed.Pod, *, gone: bool = False) -> collections.abc.Iterator[Seen]:
        """A new uid under a known name means that the pod before it is gone."""
        meta = pod.metadata
        key = (meta.namespace, meta.name)
        known = self._known.get(key)
        if known is not None and known.uid != meta.uid:
            yield self._forget(key)
            known = None
        if gone:
            self._known.pop(key, None)
            kind = Kind.DELETED
        else:
            self._known[key] = _Known(meta.uid, meta.marks.run_id)
            kind = Kind.ADDED if known is None else Kind.MODIFIED
        yield Seen(kind, *key, meta.uid, meta.marks.run_id, pod)

    def _forget(self, key: tuple[str, str]) -> Seen:
        known = self._known.pop(key)
        return Seen(Kind.DELETED, *key, known.uid, known.run_id)

    async def _pause(self, failed: int) -> None:
        """Jitter keeps the replicas from asking a server that has just come back all at once."""
        first = self._settings.first_backoff_seconds
        longest = min(self._settings.max_backoff_seconds, first * 2 ** min(failed, 10))
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))
