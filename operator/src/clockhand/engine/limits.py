"""The file of limits, kept up to date, and how many places its limits leave.

Places are counted from the rows under the locks of the limited keys, in the transaction that takes them. What has no limit
costs nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import structlog

from clockhand import errors, metrics
from clockhand.domain import limits as domain
from clockhand.store import database
from clockhand.store import limits as rows

log = structlog.get_logger(__name__)

_LOOK_EVERY = 3.0
_Stamp = tuple[int, int, int] | None


class LimitsFile:
    """The file at `path`, None for no limits at all. Raises InvalidInput where it cannot be used at the start.

    Later a file that cannot be used changes nothing: `current` stays, and the metric says that it is old.
    """

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._stamp = _stamp(self._path)
        self.current = domain.NONE if self._path is None else _read(self._path)
        """The limits that hold now."""
        metrics.LIMITS_STALE.set(0)

    async def step(self) -> float:
        """Looks whether the file is another one, and reads it then; the seconds until the next look."""
        if self._path is not None:
            await self._look(self._path)
        return _LOOK_EVERY

    async def _look(self, path: Path) -> None:
        stamp = await asyncio.to_thread(_stamp, path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.current = await asyncio.to_thread(_read, path)
        except errors.InvalidInput as error:
            metrics.LIMITS_STALE.set(1)
            log.error("limits_unusable", error=str(error))
        else:
            metrics.LIMITS_STALE.set(0)
            log.info("limits_read", path=str(path))


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """How many more of each limited key fit in; a key without a limit is not there."""

    owners: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pools: Mapping[str, int] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def of_owner(self, owner: str) -> int | None:
        """How many more attempts `owner` may have open; None: any number."""
        return self.owners.get(owner)

    def of_pool(self, pool: str) -> int | None:
        """How many more attempts the workers of `pool` may have; None: any number."""
        return self.pools.get(pool)


async def room(
    connection: database.Connection,
    limits: domain.Limits,
    *,
    owners: Collection[str] = (),
    pools: Collection[str] = (),
    groups: Collection[str] = (),
) -> Room:
    """Locks and counts those of the given keys that have a limit; without any there is no query.

    What is taken of the room has to be stored in the caller's transaction, which must hold no lock of a run yet.
    """
    by_owner = _capped(owners, limits.owner_cap)
    by_pool = _capped(pools, limits.pool_cap)
    by_group = _capped(groups, limits.group_cap)
    keys = [
        f"{kind}:{key}"
        for kind, caps in (("owner", by_owner), ("pool", by_pool), ("group", by_group))
        for key, cap in caps.items()
        if cap > 0  # where nothing fits in ever, nothing can be taken
    ]
    if keys:
        await rows.lock(connection, keys)
    return Room(
        await _left(connection, rows.open_of_owners, by_owner),
        await _left(connection, rows.open_of_pools, by_pool),
        await _left(connection, rows.places_of_groups, by_group),
    )


def _capped(keys: Collection[str], cap_of: Callable[[str], int | None]) -> Mapping[str, int]:
    return {key: cap for key in set(keys) if (cap := cap_of(key)) is not None}


async def _left(connection: database.Connection, count: rows.Count, caps: Mapping[str, int]) -> Mapping[str, int]:
    wanted = {key: cap for key, cap in caps.items() if cap > 0}
    held = await count(connection, wanted) if wanted else {}
    return {key: cap - held.get(key, 0) for key, cap in caps.items()}


def _stamp(path: Path | None) -> _Stamp:
    """What differs once the file is another one, also behind the links by which a ConfigMap is mounted."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> domain.Limits:
    try:
        return domain.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InvalidInput(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise errors.InvalidInput(str(path), "is not UTF-8 text") from None
    except errors.InvalidInput as error:
        raise errors.InvalidInput(f"{path}: {error.field}" if error.field else str(path), error.sentence) from None
