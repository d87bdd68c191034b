"""kopf, kept at the edge: it watches ScheduledJobs and hands each sighting to the mirror's inbox. Of WorkerPools it says
only that something was seen: they are few, and read whole.

It runs in a thread with an event loop of its own, since it cancels whatever tasks it finds on its loop when it ends. All
it may do is watch: no finalizers, no annotations, no timers, no events posted, no peers, no look at other resources. If
it dies it is started again; while it is down the mirror's own listing does its work.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import kopf
import structlog
import yarl
from kopf._cogs.structs import references
from kopf._core.engines import peering
from kopf._core.reactor import inventory

from clockhand import errors
from clockhand.controller import login
from clockhand.domain import sightings
from clockhand.engine import inbox

log = structlog.get_logger(__name__)

GROUP, VERSION, PLURAL, POOLS = "clockhand.dev", "v1alpha1", "scheduledjobs", "workerpools"
HUNG_SECONDS = 30.0
SILENT_SECONDS = 600.0
_FIRST_BACKOFF, _MAX_BACKOFF = 1.0, 60.0
_STEADY_SECONDS = 120.0
_BEAT_SECONDS = 1.0
_FULL_PAUSE = 0.05
_GOODBYE_SECONDS = 0.25


class Watch:
    """One thread that watches. `start` and `stop` once each; make another one to watch again."""

    def __init__(
        self,
        box: inbox.Inbox,
        *,
        kubeconfig: str | None = None,
        namespaces: Sequence[str] = (),
        pool_seen: Callable[[], None],
    ) -> None:
        self._box = box
        self._pool_seen = pool_seen
        self._kubeconfig = kubeconfig
        self._namespaces = tuple(namespaces)
        self._thread = threading.Thread(target=self._main, name="clockhand-watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._closed = threading.Event()
        self._beat = self._activity = time.monotonic()
        self._sessions: list[aiohttp.ClientSession] = []
        self.listings = 0
        """How often kopf listed anew. What was deleted before a listing it never tells: compare after each."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 5.0) -> bool:
        """Ends the watch; what it sees from now on is dropped. False where its thread does not end in time."""
        self._closed.set()
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                log.debug("watch_ended_before")
        self._thread.join(patience)
        return not self._thread.is_alive()

    @property
    def beat_age(self) -> float:
        """Seconds since the thread's event loop last turned; beyond some it hangs or has died."""
        return time.monotonic() - self._beat

    @property
    def activity_age(self) -> float:
        """Seconds since the API server last answered or an event came."""
        return time.monotonic() - self._activity

    @property
    def sick(self) -> bool:
        """Whether another one should watch: this one hangs, or has heard nothing for longer than a watch may last."""
        return self.beat_age > HUNG_SECONDS or self.activity_age > SILENT_SECONDS

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._run())

    async def _run(self) -> None:
        beating = asyncio.create_task(self._keep_beating())
        backoff = _FIRST_BACKOFF
        while not self._closed.is_set():
            started = time.monotonic()
            try:
                await self._watch()
            except Exception as error:
                log.error("watch_failed", error=repr(error))
            if time.monotonic() - started > _STEADY_SECONDS:
                backoff = _FIRST_BACKOFF
            await self._pause(backoff)
            backoff = min(backoff * 2, _MAX_BACKOFF)
        beating.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _keep_beating(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(_BEAT_SECONDS)

    async def _watch(self) -> None:
        """Until `stop`, a failure, or the finding that there is nothing to watch."""
        found = references.Insights()
        ending = asyncio.Event()
        checking = asyncio.create_task(self._end_if_blind(found, ending))
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=settings(),
                memories=_Forgetful(),
                insights=found,
                identity=peering.Identity("clockhand"),
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=ending,
            )
        finally:
            checking.cancel()
            await self._close_sessions()

    async def _end_if_blind(self, found: references.Insights, ending: asyncio.Event) -> None:
        """kopf looks once which resources there are. Where ours was not served at that moment it would never watch."""
        stopped = asyncio.create_task(self._stop.wait())
        looked = asyncio.create_task(found.ready_resources.wait())
        await asyncio.wait((stopped, looked), return_when=asyncio.FIRST_COMPLETED)
        if any(resource.plural == PLURAL for resource in found.watched_resources):
            await stopped
        elif not stopped.done():
            log.warning("watch_found_no_resource")
        for waiting in (stopped, looked):
            waiting.cancel()
        ending.set()

    async def _close_sessions(self) -> None:
        """kopf closes them only where it ends as it likes to; TLS takes a moment to say goodbye."""
        while self._sessions:
            await self._sessions.pop().close()
        await asyncio.sleep(_GOODBYE_SECONDS)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY)(self._log_in)
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self._seen)
        kopf.on.event(GROUP, VERSION, POOLS, registry=registry)(self._seen_pool)
        return registry

    async def _log_in(self, **_: Any) -> kopf.AiohttpSession:
        try:
            credentials = await login.log_in(self._kubeconfig, self._noticed)
        except errors.ClockhandError as error:
            raise kopf.TemporaryError(str(error), delay=_FIRST_BACKOFF) from error
        self._sessions.append(credentials.aiohttp_session)
        return credentials

    def _noticed(self, address: yarl.URL) -> None:
        """What is heard of pools says nothing of the watch on jobs."""
        if not address.path.endswith(f"/{POOLS}"):
            self._activity = time.monotonic()
        if address.path.endswith(f"/{PLURAL}") and not {"watch", "continue"} & address.query.keys():
            self.listings += 1

    async def _seen(self, event: Mapping[str, Any], **_: Any) -> None:
        """Reads the few fields that matter and lets go of the rest at once."""
        self._activity = time.monotonic()
        try:
            seen = sightings.from_object(event["object"], deleted=event["type"] == "DELETED")
        except errors.InvalidInput as error:
            log.error("object_unreadable", error=str(error))
            return
        while self._box.full and not self._closed.is_set():  # noqa: ASYNC110 (it empties in another thread)
            await asyncio.sleep(_FULL_PAUSE)
        if not self._closed.is_set():
            self._box.put(seen)

    async def _seen_pool(self, **_: Any) -> None:
        if not self._closed.is_set():
            self._pool_seen()


class _Forgetful(inventory.ResourceMemories):
    """kopf remembers every object that it ever saw, about a kilobyte each; nothing here needs that."""

    async def recall(self, *args: Any, **kwargs: Any) -> inventory.ResourceMemory:
        return await super().recall(*args, **{**kwargs, "ephemeral": True})


class _NoMemory(kopf.DiffBaseStorage):
    """kopf copies each object to find what changed; here nobody asks."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        return None


def settings() -> kopf.OperatorSettings:
    """kopf at its quietest."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.watching.chunk_size = 500
    chosen.watching.server_timeout = 420
    chosen.watching.connect_timeout = 5
    chosen.queueing.idle_timeout = 0.01
    chosen.queueing.worker_limit = 200
    chosen.queueing.exit_timeout = 1
    chosen.networking.request_timeout = 60
    chosen.networking.connect_timeout = 5
    chosen.persistence.diffbase_storage = _NoMemory()
    chosen.persistence.finalizer = f"{GROUP}/none"
    # it would end with killing its thread, and that means the process
    chosen.process.ultimate_exiting_timeout = None
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # that signals are not its own in this thread is as it should be
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    return chosen
