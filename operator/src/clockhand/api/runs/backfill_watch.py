"""A watch of one backfill, for `kubectl get -w` and `kubectl wait`.

A backfill is in no list and so not in the change log of runs either: whoever watches it by its name is answered by looking
at it again whenever the log moves, which it does with every run that the backfill makes or loses.
"""

from __future__ import annotations

import time

from clockhand.api.runs import feed, group, watch
from clockhand.store import changes, listing

LOOK_SECONDS = 5.0
"""A backfill may end without any run that moves: it is looked at this often in any case."""


class BackfillWatch(watch.Watch):
    """One client's stream about the one backfill that its selectors name."""

    async def _start(self, subscription: feed.Subscription) -> None:
        self._seen: listing.Run | None = None
        self._shows = False
        await self._look(subscription)
        if self._wish.marks_initial_end:
            await self._bookmark({watch.INITIAL_END: "true"})
        await self._put(b"")

    async def _follow(self, subscription: feed.Subscription) -> None:
        clock = time.monotonic
        end = clock() + self._wish.seconds
        bookmark = clock() + watch.BOOKMARK_SECONDS
        while (now := clock()) < end:
            if now >= bookmark:
                bookmark = now + watch.BOOKMARK_SECONDS
                if self._wish.bookmarks:
                    await self._bookmark({})
            await subscription.next(min(end, bookmark, now + LOOK_SECONDS) - now)
            await self._look(subscription)

    async def _look(self, subscription: feed.Subscription) -> None:
        chosen = self._wish.chosen
        async with self._db.transaction() as connection:
            await listing.hold_still(connection)
            standing = await changes.newest(connection)
            run = await listing.by_name(
                connection, owner=group.owner_of(chosen.namespace or ""), name=chosen.name or ""
            )
        if standing.epoch != subscription.epoch:
            raise feed.Lagging
        self._epoch, self._number = standing.epoch, max(self._number, standing.newest)
        before, self._seen = self._seen, run
        if run is None or run == before:
            return
        if not chosen.matches(run):
            kind = "DELETED" if self._shows else None
        else:
            kind = "MODIFIED" if self._shows or (before is None and self._wish.after is not None) else "ADDED"
        self._shows = kind in ("ADDED", "MODIFIED")
        if kind is not None:
            await self._send(kind, run, number=self._number, now=standing.at)
