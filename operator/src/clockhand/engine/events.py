"""Events on objects, seldom and never in anybody's way.

Whoever has news leaves them here and goes on. They are posted one after the other; what comes faster than that, or than
one object or this replica may tell, is dropped and counted. Repeated news of one reason become one event with a count.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog

from clockhand import errors, metrics
from clockhand.domain import news
from clockhand.engine.budget import Budget
from clockhand.kube import events, failures

log = structlog.get_logger(__name__)

QUEUE = 1_000
PER_SECOND = 10.0
AT_ONCE = 100
OF_OBJECT_AT_ONCE = 25
OF_OBJECT_PER_SECOND = 1 / 300
"""As Kubernetes' own recorders have it."""
_TOGETHER = timedelta(minutes=10)
"""News of one reason that come within this time of each other are one event."""
_KNOWN = 4_096
_NAME_LIMIT = 63


@dataclass(frozen=True, slots=True)
class _Item:
    about: events.Regarding
    news: news.News
    at: datetime


@dataclass(frozen=True, slots=True)
class _Posted:
    """An event as it stands, and the name of the fact that it tells last."""

    event: events.Event
    fact: str


class Recorder:
    """The events of one replica."""

    def __init__(self, calls: events.Events, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._calls = calls
        self._clock = clock
        self._waiting: asyncio.Queue[_Item] = asyncio.Queue(QUEUE)
        self._budget = Budget(PER_SECOND, most=AT_ONCE)
        self._budgets: collections.OrderedDict[str, Budget] = collections.OrderedDict()
        self._posted: collections.OrderedDict[tuple[str, str], _Posted] = collections.OrderedDict()

    def tell(self, about: events.Regarding, found: Sequence[news.News]) -> None:
        """Leaves news to be posted; what there is no room for is dropped."""
        for one in found:
            if not (self._may_tell(about.uid) and self._budget.left()):
                metrics.EVENTS_DROPPED.labels(reason="rate").inc()
                continue
            self._budget.spend(1)
            try:
                self._waiting.put_nowait(_Item(about, one, self._clock()))
            except asyncio.QueueFull:
                metrics.EVENTS_DROPPED.labels(reason="full").inc()

    async def step(self) -> float:
        """Posts the next event, as soon as there is one."""
        item = await self._waiting.get()
        try:
            await self._post(item)
        except errors.ClockhandError as error:
            metrics.EVENTS_DROPPED.labels(reason="refused").inc()
            about = item.about
            log.info("event_not_posted", namespace=about.namespace, kind=about.kind, name=about.name, error=str(error))
        return 0.0

    async def _post(self, item: _Item) -> None:
        key = (item.about.uid, item.news.reason)
        event = _event(item)
        posted = self._posted.get(key)
        if posted is not None and posted.fact == event.name:
            return  # whoever told it could not store that it did
        if posted is not None and item.at - posted.event.last < _TOGETHER:
            again = replace(posted.event, note=item.news.note, last=item.at, count=posted.event.count + 1)
            try:
                await self._calls.repeat(again)
            except errors.NotFound:
                pass
            else:
                self._know(key, again, event.name)
                return
        try:
            await self._calls.create(event)
        except failures.ApiConflict:
            return  # somebody who is gone has told it
        self._know(key, event, event.name)
        metrics.EVENTS_POSTED.inc()

    def _know(self, key: tuple[str, str], event: events.Event, fact: str) -> None:
        self._posted[key] = _Posted(event, fact)
        self._posted.move_to_end(key)
        if len(self._posted) > _KNOWN:
            self._posted.popitem(last=False)

    def _may_tell(self, uid: str) -> bool:
        budget = self._budgets.setdefault(uid, Budget(OF_OBJECT_PER_SECOND, most=OF_OBJECT_AT_ONCE))
        self._budgets.move_to_end(uid)
        if len(self._budgets) > _KNOWN:
            self._budgets.popitem(last=False)
        if not budget.left():
            return False
        budget.spend(1)
        return True


def _event(item: _Item) -> events.Event:
    about, one = item.about, item.news
    # the same fact has the same name, so that whoever tells it again after a crash finds it told
    digest = hashlib.sha256(f"{about.uid}/{one.reason}/{one.fact}".encode()).hexdigest()[:16]
    return events.Event(
        name=f"{about.name[:_NAME_LIMIT]}.{digest}",
        regarding=about,
        type=one.type,
        reason=one.reason,
        note=one.note,
        first=item.at,
        last=item.at,
    )
