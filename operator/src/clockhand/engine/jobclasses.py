"""JobClass objects become rows, and the jobs of a class that has changed are stored anew.

There are few, so that they are listed whole from time to time. What follows from a change is found by comparing each job's
spec with its class, so that nothing depends on who noticed the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import structlog

from clockhand import errors
from clockhand.domain import jobclass
from clockhand.engine import classes as rendering
from clockhand.engine import parking, templates
from clockhand.kube import objects
from clockhand.store import classes, database, duties

log = structlog.get_logger(__name__)

EVERY_SECONDS = 15.0
COMPARE_SECONDS = 600.0
PAGE = 200


class Catalogue:
    """The classes of the cluster, and their rows."""

    def __init__(self, db: database.Database, api: objects.Objects) -> None:
        self._db = db
        self._api = api
        self.changes = 0
        """How often rows have changed here."""

    async def refresh(self, held: duties.Held) -> None:
        """Stores what has changed."""
        found = await self._list()
        if found is not None:
            await self._store(held, found)

    async def look_again(self, held: duties.Held) -> None:
        """The same amid other work, which is not to end where nobody answers."""
        with _given_up():
            await self.refresh(held)

    async def learn(self, held: duties.Held, names: Collection[str]) -> None:
        """Looks for classes that are not stored: whoever applies a class and its job at once is not to be told of none."""
        if not names:
            return
        with _given_up():
            async with self._db.transaction() as connection:
                stored = await classes.hashes(connection)
            if not stored.keys() >= set(names):
                await self.refresh(held)

    async def _list(self) -> Mapping[str, jobclass.JobClass] | None:
        """Every class by its name; None where nobody may say which there are: then all stays as it is."""
        found: dict[str, jobclass.JobClass] = {}
        try:
            async for page in self._api.list_pages():
                for item in page.items:
                    try:
                        one = jobclass.from_object(item)
                    except errors.InvalidInput as error:
                        log.error("object_unreadable", error=str(error))
                        continue
                    if one is not None:
                        found[one.name] = one
        except (errors.NotFound, errors.Refused) as error:
            log.debug("classes_not_listed", error=str(error))
            return None
        return found

    async def _store(self, held: duties.Held, found: Mapping[str, jobclass.JobClass]) -> None:
        """Brings the rows up to the objects."""
        async with self._db.transaction() as connection:
            stored = await classes.hashes(connection)
        differing = [one for one in found.values() if stored.get(one.name) != one.hash]
        gone = [name for name in stored.keys() - found.keys() if await self._is_gone(name)]
        if not differing and not gone:
            return
        async with self._db.transaction() as connection:
            await duties.hold(connection, held)
            await classes.change(connection)
            await classes.store(connection, [classes.Class(one.name, one.spec_json, one.hash) for one in differing])
            await classes.remove(connection, gone)
        self.changes += 1
        log.info("classes_stored", classes=sorted(one.name for one in differing), removed=sorted(gone))

    async def _is_gone(self, name: str) -> bool:
        """A listing alone is no proof."""
        try:
            return jobclass.from_object(await self._api.get(None, name)) is None
        except errors.NotFound:
            return True


@contextlib.contextmanager
def _given_up() -> Iterator[None]:
    """Other work goes on where classes cannot be learnt, unless the duty is somebody else's by now."""
    try:
        yield
    except errors.Stale:
        raise
    except errors.ClockhandError as error:
        log.warning("classes_not_learnt", error=str(error))


class JobClasses:
    """Whoever holds the mirror duty calls it."""

    def __init__(
        self, db: database.Database, catalogue: Catalogue, checked: templates.Templates, *, turn: asyncio.Lock
    ) -> None:
        self._db = db
        self._catalogue = catalogue
        self._templates = checked
        self._turn = turn
        self._compared: tuple[int, int] | None = None  # the generation of the duty, and the changes until then
        self._compared_at = 0.0

    async def run_once(self, held: duties.Held) -> None:
        """Stores what has changed, and whatever follows for jobs."""
        await self._catalogue.refresh(held)
        state = held.generation, self._catalogue.changes
        now = time.monotonic()
        if state != self._compared or now - self._compared_at > COMPARE_SECONDS:
            await self._compare(held)
            self._compared, self._compared_at = state, now

    async def _compare(self, held: duties.Held) -> None:
        """Stores the jobs anew that were stored under another state of their class.

        That may take long: classes that change meanwhile are learnt as ever, and call for another comparison.
        """
        after, size, changed, looked_at = 0, PAGE, 0, time.monotonic()
        while True:
            try:
                last, stored = await self._compare_page(held, after=after, size=size)
            except database.TooMuch:
                if size == 1:
                    raise
                size //= 2
                continue
            if last is None:
                break
            after, size, changed = last, min(PAGE, size * 2), changed + stored
            if time.monotonic() - looked_at >= EVERY_SECONDS:
                await self._catalogue.look_again(held)
                looked_at = time.monotonic()
        log.info("jobs_follow_classes", jobs=changed)

    async def _compare_page(self, held: duties.Held, *, after: int, size: int) -> tuple[int | None, int]:
        """The last spec of the page, None where there is none after `after`; and how many jobs have other pods."""
        async with self._turn, self._db.transaction() as connection:
            await duties.hold(connection, held)
            now = await database.now(connection)
            page = await classes.stale_page(connection, after=after, size=size)
            jobs = _there(await classes.lock(connection, page.job_ids)) if page.job_ids else ()
            readings = await rendering.store_anew(connection, self._templates, jobs, now=now) if jobs else ()
        self._templates.want(readings)
        return page.last, len(readings)


def _there(jobs: Sequence[classes.Job]) -> Sequence[classes.Job]:
    """Without those whose objects are not served at present: they are stored anew once they are."""
    return [job for job in jobs if job.parked != parking.RESOURCE_GONE]
