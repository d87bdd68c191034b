"""The mirror as a duty: whichever replica holds it watches, lists, stores and checks; the others wait for it to be free.

Losing the duty is not a matter of noticing: every write names its generation. What stops here when it is lost is only
the work, so that a replica without the duty costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from clockhand import errors, metrics
from clockhand.controller import watch
from clockhand.engine import inbox, jobclasses, mirror, resync, templates, workerpools
from clockhand.store import database, duties

log = structlog.get_logger(__name__)

COLLECT_SECONDS = 0.1
RESYNC_SECONDS = 600.0
RESYNC_UNWATCHED_SECONDS = 15.0
RETRY_SECONDS = 2.0
LOOK_SECONDS = 1.0
_WATCH = "scheduledjobs"

MakeWatch = Callable[[inbox.Inbox], watch.Watch]


class MirrorDuty:
    """Takes the duty when it is free and does its work while it has it. `run` never ends by itself."""

    def __init__(
        self,
        db: database.Database,
        *,
        replica: str,
        lease: timedelta,
        parts: Parts,
        make_watch: MakeWatch,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        self._db = db
        self._replica = replica
        self._lease = lease
        self._parts = parts
        self._make_watch = make_watch
        self._is_free = is_free
        self._watch: watch.Watch | None = None
        self.held: duties.Held | None = None

    @property
    def silence(self) -> float:
        """Seconds since the watch was last known to live; 0 where this replica does not watch."""
        return self._watch.activity_age if self._watch else 0.0

    @property
    def watching(self) -> bool:
        """Whether this replica holds the duty, has compared once and watches."""
        return self._watch is not None

    async def run(self) -> None:
        """Until cancelled; frees the duty on the way out."""
        while True:
            try:
                if self._is_free():
                    await self.serve_once()
            except errors.ClockhandError as error:
                log.info("mirror_duty_unreachable", error=str(error))
            await asyncio.sleep(min(LOOK_SECONDS, self._lease.total_seconds() / 3))

    async def serve_once(self) -> None:
        """Takes the duty if it is free, and serves until it is lost or the caller cancels."""
        async with self._db.transaction() as connection:
            held = await duties.take(connection, duties.MIRROR, replica=self._replica, lease=self._lease)
        if held is None:
            return
        log.info("mirror_duty_taken", generation=held.generation)
        self.held = held
        try:
            await self._serve(held)
        finally:
            self.held = None
            with contextlib.suppress(errors.ClockhandError):
                await asyncio.shield(self._resign(held))

    async def _resign(self, held: duties.Held) -> None:
        async with self._db.transaction() as connection:
            await duties.resign(connection, held)

    async def _serve(self, held: duties.Held) -> None:
        box = inbox.Inbox()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._renew(held))
                tasks.create_task(self._flush(held, box))
                tasks.create_task(self._compare(held, box))
                tasks.create_task(self._check(held))
                tasks.create_task(self._tend_pools(held))
                tasks.create_task(self._follow_classes(held))
        except* errors.Stale as lost:
            log.warning("mirror_duty_lost", reason=str(lost.exceptions[0]))
        finally:
            await asyncio.shield(self._stop_watch())

    async def _renew(self, held: duties.Held) -> None:
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            try:
                asked = time.monotonic()
                async with self._db.transaction() as connection:
                    newest = await duties.renew(connection, held, lease=self._lease)
                renewed = asked
                self._parts.templates.heard(newest)
            except errors.Stale:
                raise
            except errors.ClockhandError as error:
                if time.monotonic() - renewed > self._lease.total_seconds():
                    raise errors.Stale(f"the lease ran out: {error}") from error

    async def _flush(self, held: duties.Held, box: inbox.Inbox) -> None:
        while True:
            await box.wait()
            if len(box) < mirror.BATCH:
                await asyncio.sleep(COLLECT_SECONDS)
            async with _patiently("flush"):
                await self._parts.mirror.flush_once(held, box)

    async def _compare(self, held: duties.Held, box: inbox.Inbox) -> None:
        """A full comparison first, then the watch; then one after each listing of the watch, and every ten minutes."""
        full = True
        while True:
            pause, listings = RESYNC_UNWATCHED_SECONDS, self._listings
            async with _patiently("resync"):
                if await self._parts.resync.run_once(held, full=full):
                    self._ensure_watch(box)
                    pause, full = RESYNC_SECONDS, False
                else:
                    await self._stop_watch()
                    full = True
            await self._look_after_watch(box, pause, listings)

    async def _look_after_watch(self, box: inbox.Inbox, seconds: float, listings: int) -> None:
        """Waits until a comparison is due: after some time, when the watch listed anew, or when it had to be replaced."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(LOOK_SECONDS)
            if self._watch is not None and self._watch.sick:
                log.error("watch_replaced", beat=self._watch.beat_age, silence=self._watch.activity_age)
                await self._stop_watch()
                self._ensure_watch(box)
                return
            if self._listings != listings:
                return

    @property
    def _listings(self) -> int:
        return self._watch.listings if self._watch else 0

    def _ensure_watch(self, box: inbox.Inbox) -> None:
        if self._watch is None:
            self._watch = watch = self._make_watch(box)
            metrics.WATCH_AGE.labels(watch=_WATCH).set_function(lambda: watch.activity_age)
            watch.start()

    async def _stop_watch(self) -> None:
        ending, self._watch = self._watch, None
        metrics.WATCH_AGE.remove(_WATCH)  # whoever has the duty next watches, and tells of it
        if ending is not None and not await asyncio.to_thread(ending.stop):
            log.error("watch_left_behind")

    async def _check(self, held: duties.Held) -> None:
        while True:
            async with _patiently("templates"):
                await self._parts.templates.load()
                await self._parts.templates.run(held)

    async def _tend_pools(self, held: duties.Held) -> None:
        while True:
            pause = RETRY_SECONDS
            async with _patiently("pools"):
                pause = await self._parts.pools.run_once(held)
            await self._parts.pools.wait(pause)

    async def _follow_classes(self, held: duties.Held) -> None:
        while True:
            async with _patiently("classes"):
                await self._parts.classes.run_once(held)
            await asyncio.sleep(jobclasses.EVERY_SECONDS)


@dataclass(frozen=True, slots=True)
class Parts:
    """The use cases that the duty drives."""

    mirror: mirror.Mirror
    resync: resync.Resync
    templates: templates.Templates
    pools: workerpools.WorkerPools
    classes: jobclasses.JobClasses


@contextlib.asynccontextmanager
async def _patiently(step: str) -> AsyncIterator[None]:
    """What cannot be done now is done later; only the loss of the duty ends the work."""
    try:
        yield
    except errors.Stale:
        raise
    except Exception as error:  # a mistake in one step must not stop the others
        expected = isinstance(error, errors.ClockhandError)
        log.warning("mirror_step_failed", step=step, error=str(error), exc_info=None if expected else error)
        metrics.LOOP_ERRORS.labels(loop=f"mirror_{step}").inc()
        await asyncio.sleep(RETRY_SECONDS)
