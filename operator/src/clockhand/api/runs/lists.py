"""One page of a list, and the token that leads to the next.

kubectl follows tokens to the end, so a list whose selectors do not say how much is wanted keeps to the last day and to
5,000 entries, and says so. Other lists go through everything that is kept.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from clockhand.api.runs import selection, status
from clockhand.domain import instants, names
from clockhand.store import changes, database, listing

MOST = 5_000
WINDOW = timedelta(hours=24)
TOKEN_LIFE = changes.KEPT
_LOOKED_AT = 50_000
_LOOKS = 24
_DISTANT_PAST = datetime(1970, 1, 1, tzinfo=UTC)
_DISTANT_FUTURE = datetime(9998, 12, 31, tzinfo=UTC)
_Source = Callable[..., Awaitable[listing.Step]]
_SOURCES: Sequence[_Source] = (listing.live, listing.history, listing.skips)
_HISTORY = 1


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where the next page begins; the token is its encoding."""

    epoch: int
    number: int
    begun_ms: int
    asof_ms: int
    fingerprint: str
    source: int
    before: str
    given: int


class Page(msgspec.Struct, frozen=True):
    """Runs in the order of the list, the resourceVersion of the whole list, and the way on."""

    runs: Sequence[listing.Run]
    version: int
    now: datetime
    token: str = ""
    cut: bool = False


async def page(connection: database.Connection, chosen: selection.Selection, *, limit: int, token: str) -> Page:
    """The page at `token` (empty: the first) with at most `limit` entries (0: as many as a page may have)."""
    await listing.hold_still(connection)
    standing = await changes.newest(connection)
    now = standing.at
    cursor = _read(token, chosen, standing, now) if token else _first(chosen, standing, now)
    version = changes.version(cursor.epoch, cursor.number)
    if chosen.impossible:
        return Page((), version, now)
    if chosen.name is not None and chosen.namespace is not None:
        found = await listing.by_name(connection, owner=chosen.sift().owner or "", name=chosen.name)
        return Page([found] if found and chosen.matches(found) else [], version, now)
    wanted = min(limit or MOST, MOST)
    if chosen.is_bounded:
        wanted = min(wanted, MOST - cursor.given)
    runs, following = await _Walk(connection, chosen, now).collect(cursor, wanted)
    return _page(chosen, runs, following, version=version, now=now)


def _page(
    chosen: selection.Selection,
    runs: Sequence[listing.Run],
    following: Cursor | None,
    *,
    version: int,
    now: datetime,
) -> Page:
    if following is None:
        return Page(runs, version, now)
    if chosen.is_bounded and following.given >= MOST:
        return Page(runs, version, now, cut=True)
    return Page(runs, version, now, token=_write(following))


class _Walk:
    """Live runs, then ended ones, then skipped slots, each from its cursor downwards."""

    def __init__(self, connection: database.Connection, chosen: selection.Selection, now: datetime) -> None:
        self._connection = connection
        self._chosen = chosen
        self._sift = chosen.sift()
        self._now = now
        self._jobs: Sequence[uuid.UUID] = ()
        self._looked_at = 0
        self._looks = 0

    async def collect(self, cursor: Cursor, wanted: int) -> tuple[list[listing.Run], Cursor | None]:
        """`wanted` runs at most, and the cursor behind them (None: that was all)."""
        if self._sift.job:
            self._jobs = await listing.job_ids(self._connection, owner=self._sift.owner, name=self._sift.job)
        runs: list[listing.Run] = []
        at: Cursor | None = cursor
        while at is not None and len(runs) < wanted and not self._is_tired():
            found, at = await self._step(at, wanted - len(runs))
            runs.extend(found)
        if at is not None and len(runs) == wanted and not await self._goes_on(at):
            at = None
        return runs, at

    async def _step(self, at: Cursor, wanted: int) -> tuple[list[listing.Run], Cursor | None]:
        step = await self._look(at, wanted)
        self._looks += 1
        self._looked_at += listing.SCAN_ROWS if self._sift.sifts else wanted
        found = [run for run in step.runs if self._chosen.matches(run)]
        at = msgspec.structs.replace(at, given=at.given + len(found))
        if step.edge is None:
            return found, self._next_source(at)
        return found, msgspec.structs.replace(at, before=step.edge.hex)

    async def _look(self, at: Cursor, wanted: int) -> listing.Step:
        return await _SOURCES[at.source](
            self._connection, self._sift, self._span(at), jobs=self._jobs, before=uuid.UUID(at.before), take=wanted
        )

    async def _goes_on(self, at: Cursor) -> bool:
        """One look further, so that a full last page does not lead to an empty one."""
        following: Cursor | None = at
        while following is not None:
            step = await self._look(following, 1)
            if step.runs or step.edge is not None:
                return True
            following = self._next_source(following)
        return False

    def _next_source(self, at: Cursor) -> Cursor | None:
        if at.source + 1 == len(_SOURCES):
            return None
        # ended runs are those that had ended when the live ones were through: the others were listed as live
        asof = max(at.asof_ms, _milliseconds(self._now)) if at.source + 1 == _HISTORY else at.asof_ms
        return msgspec.structs.replace(at, source=at.source + 1, before=listing.TOP.hex, asof_ms=asof)

    def _span(self, at: Cursor) -> listing.Span:
        asof = _instant(at.asof_ms)
        slot = names.parse(self._chosen.name or "")
        if slot is not None:
            return listing.Span(slot.instant, slot.instant + timedelta(milliseconds=999), asof)
        if self._chosen.day is not None:
            return listing.Span(*selection.span_of_day(self._chosen.day), asof)
        bounded = self._chosen.is_bounded and at.source >= _HISTORY
        return listing.Span(_instant(at.begun_ms) - WINDOW if bounded else _DISTANT_PAST, _DISTANT_FUTURE, asof)

    def _is_tired(self) -> bool:
        return self._looked_at >= _LOOKED_AT or self._looks >= _LOOKS


def _first(chosen: selection.Selection, standing: changes.Standing, now: datetime) -> Cursor:
    return Cursor(
        epoch=standing.epoch,
        number=standing.newest,
        begun_ms=_milliseconds(now),
        asof_ms=0,
        fingerprint=chosen.fingerprint,
        source=0,
        before=listing.TOP.hex,
        given=0,
    )


def _write(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _read(token: str, chosen: selection.Selection, standing: changes.Standing, now: datetime) -> Cursor:
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=Cursor)
        uuid.UUID(cursor.before)
        begun = _instant(cursor.begun_ms)
        _instant(cursor.asof_ms)
    except (ValueError, OverflowError, msgspec.MsgspecError):
        raise status.bad_request("continue key is not valid: it was not made by this server") from None
    if cursor.fingerprint != chosen.fingerprint or not 0 <= cursor.source < len(_SOURCES) or cursor.given < 0:
        raise status.bad_request("continue key is not valid: it belongs to a list with other selectors")
    if cursor.epoch != standing.epoch or now - begun > TOKEN_LIFE or cursor.number > standing.newest:
        raise status.expired(
            "The provided continue parameter is too old to display a consistent list result; list anew"
        )
    return cursor


def _milliseconds(instant: datetime) -> int:
    return (instant - instants.EPOCH) // instants.MILLISECOND


def _instant(milliseconds: int) -> datetime:
    return instants.EPOCH + milliseconds * instants.MILLISECOND
