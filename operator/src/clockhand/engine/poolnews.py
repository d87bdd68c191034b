"""Events on WorkerPools: a trouble is told once, as long as it stands.

What was told is remembered by this process alone. One that begins tells what stands again, under the same names, and finds
it told.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from clockhand.domain import conditions, definition, news, workerpool, workerpool_crd
from clockhand.engine import events
from clockhand.kube import events as event_calls

_API_VERSION = f"{definition.GROUP}/{definition.VERSION}"


class PoolNews:
    """What pools have to tell, left at a recorder."""

    def __init__(self, recorder: events.Recorder) -> None:
        self._recorder = recorder
        self._told: dict[UUID, frozenset[str]] = {}

    def tell(self, pool: workerpool.Pool, shown: conditions.Stored, *, now: datetime) -> None:
        """Tells what is new of a pool that shows `shown` now, in place of what it was listed with."""
        before = pool.status.get("conditions")
        found = news.of_pool(before if isinstance(before, list) else [], shown, now=now)
        told = self._told.get(pool.uid, frozenset())
        about = event_calls.Regarding(_API_VERSION, workerpool_crd.KIND, pool.namespace, pool.name, str(pool.uid))
        self._recorder.tell(about, [one for one in found if one.fact not in told])
        self._told[pool.uid] = frozenset(one.fact for one in found)

    def forget_others(self, uids: Collection[UUID]) -> None:
        """What is known of pools beside these is not needed any more."""
        self._told = {uid: facts for uid, facts in self._told.items() if uid in uids}
