"""WorkerPool objects become rows, workers and a status.

There are few, so that they are listed whole at each pass, some seconds apart: a watch only says that it is time to look. A
pass compares what is declared with what is stored and running; nothing depends on what happened in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from clockhand import errors
from clockhand.domain import conditions, workerpool, workloads
from clockhand.domain.workerpool_scale import Load
from clockhand.engine import poolnews, poolready, workforce
from clockhand.kube import objects
from clockhand.kube import workloads as calls
from clockhand.store import database, duties, installation, workerpools

log = structlog.get_logger(__name__)

EVERY_SECONDS = 10.0
SOON_SECONDS = 3.0
STATUS_SECONDS = 10.0
_NUDGE_SECONDS = 1.0

Pools = Mapping[str, workerpool.Pool]
Stored = Mapping[str, workerpools.Loaded]


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass goes by."""

    pools: Pools
    stored: Stored
    now: datetime
    steady: bool  # whether the database's clock can be trusted: else no number of workers changes


class WorkerPools:
    """The pools of the watched namespaces (none named: all). Whoever holds the mirror duty calls it."""

    def __init__(
        self,
        db: database.Database,
        api: objects.Objects,
        staff: workforce.Workforce,
        *,
        news: poolnews.PoolNews,
        turn: asyncio.Lock,
        namespaces: Sequence[str] = (),
    ) -> None:
        self._db = db
        self._api = api
        self._staff = staff
        self._news = news
        self._turn = turn
        self._namespaces = tuple(namespaces)
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._served: int | None = None  # the generation of the duty under which a pass was made
        self._bare: int | None = (
            None  # that under which the last pass found neither pools nor rows: nobody else makes rows
        )
        self._shown_at: dict[UUID, float] = {}

    def nudge(self) -> None:
        """Something about pools has changed; from any thread."""
        self._loop.call_soon_threadsafe(self._wanted.set)

    async def wait(self, seconds: float) -> None:
        """Until a nudge, or for so long."""
        await asyncio.sleep(_NUDGE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    async def run_once(self, held: duties.Held) -> float:
        """One pass; returns the seconds until the next."""
        self._wanted.clear()
        if self._served != held.generation:
            # what this process knew when it had the duty before is old
            self._staff.forget_others(())
        found = await self._list()
        if found is None or (not found and self._bare == held.generation):
            return EVERY_SECONDS
        seen = await self._load(found)
        changed = await self._store(held, seen)
        await self._tell(held, changed)
        self._served = held.generation
        self._bare = None if found or seen.stored else held.generation
        return await self._settle(seen)

    async def _list(self) -> Pools | None:
        """Every pool by its whole name; None where the resource itself is not there: then all stays as it is."""
        found: dict[str, workerpool.Pool] = {}
        try:
            for namespace in self._namespaces or (None,):
                async for page in self._api.list_pages(namespace):
                    found.update((pool.key, pool) for pool in _readable(page.items))
        except errors.NotFound:
            return None
        return found

    async def _load(self, found: Pools) -> _Pass:
        owners = [f"k8s/{namespace}" for namespace in self._namespaces] or None
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            stored = await workerpools.all_pools(connection, owners=owners, now=now)
            steady = (await installation.clock(connection)).stored.step is None if found else True
        return _Pass(found, stored, now, steady)

    async def _store(self, held: duties.Held, seen: _Pass) -> set[str]:
        """Brings the rows up to the objects; returns the pools of which jobs have to be told."""
        new = {key: setup for key, pool in seen.pools.items() if (setup := _setup(pool)) is not None}
        differing = {key: setup for key, setup in new.items() if _stored(seen, key) != setup}
        gone = await self._gone(seen)
        if not differing and not gone:
            return set()
        async with self._db.transaction() as connection:
            await duties.hold(connection, held)
            now = await database.now(connection)
            for key, setup in sorted(differing.items()):
                version = seen.pools[key].resource_version
                await workerpools.store(connection, key, setup, resource_version=version)
            if gone:
                await workerpools.remove(connection, gone, now=now)
        log.info("pools_stored", pools=sorted(differing), removed=sorted(gone))
        return {key for key, setup in differing.items() if _offer(_stored(seen, key)) != _offer(setup)} | gone

    async def _gone(self, seen: _Pass) -> set[str]:
        """Rows whose object is not listed, and is not there when asked for by name either."""
        return {key for key in seen.stored.keys() - seen.pools.keys() if await self._is_gone(key)}

    async def _is_gone(self, key: str) -> bool:
        _, namespace, name = key.split("/")
        try:
            return workerpool.from_object(await self._api.get(namespace, name)) is None
        except errors.NotFound:
            return True

    async def _tell(self, held: duties.Held, changed: set[str]) -> None:
        """Whoever takes the duty goes through all jobs once: what the holder before it did not come to is not known."""
        first = self._served != held.generation
        if first or changed:
            told = await poolready.tell(self._db, held, pools=None if first else changed, turn=self._turn)
            log.info("jobs_told_of_pools", jobs=told)

    async def _settle(self, seen: _Pass) -> float:
        managed = any(pool.spec is not None for pool in seen.pools.values())
        deployments = await self._staff.look() if managed else {}
        uids = {pool.uid for pool in seen.pools.values()}
        self._staff.forget_others(uids)
        self._news.forget_others(uids)
        self._shown_at = {uid: at for uid, at in self._shown_at.items() if uid in uids}
        unsettled = False
        for pool in seen.pools.values():
            try:
                unsettled |= await self._settle_one(pool, deployments.get(pool.uid), seen)
            except Exception as error:  # a mistake with one pool must not stop the others
                unsettled = True
                expected = isinstance(error, errors.ClockhandError)
                log.warning("pool_not_settled", pool=pool.key, error=str(error), exc_info=None if expected else error)
        return SOON_SECONDS if unsettled else EVERY_SECONDS

    async def _settle_one(self, pool: workerpool.Pool, deployment: calls.Deployment | None, seen: _Pass) -> bool:
        """Whether there is more to be seen of it soon."""
        loaded = seen.stored.get(pool.key)
        load = None if loaded is None else Load(loaded.backlog, loaded.oldest_seconds, loaded.running)
        if pool.spec is None:
            staff = workforce.faulty(deployment, pool.fault or "")
        else:
            staff = await self._staff.settle(pool, pool.spec, deployment, load if seen.steady else None)
        told = _conditions(pool, staff, loaded, now=seen.now)
        self._news.tell(pool, told, now=seen.now)
        shown = await self._show(pool, _status(pool, staff, loaded, told))
        return not shown or staff.ready < staff.wanted or load is None or load.backlog > 0

    async def _show(self, pool: workerpool.Pool, status: Mapping[str, object]) -> bool:
        """Patches the status where it says something else, at most once in ten seconds; False: later."""
        if {**pool.status, **status} == pool.status:
            return True
        now = time.monotonic()
        if now - self._shown_at.get(pool.uid, float("-inf")) < STATUS_SECONDS:
            return False
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._api.patch_status(pool.namespace, pool.name, status, uid=str(pool.uid))
        self._shown_at[pool.uid] = now
        return True


def _readable(items: Iterable[objects.Json]) -> Iterable[workerpool.Pool]:
    for item in items:
        try:
            pool = workerpool.from_object(item)
        except errors.InvalidInput as error:
            log.error("object_unreadable", error=str(error))
            continue
        if pool is not None:
            yield pool


def _setup(pool: workerpool.Pool) -> workerpools.Setup | None:
    """The row of a pool; None where its spec cannot be used: what was stored before holds on."""
    spec = pool.spec
    if spec is None:
        return None
    return workerpools.Setup(
        object_uid=pool.uid,
        service_account=pool.service_account,
        allowed_owners=spec.allowed_owners,
        handlers=spec.handlers,
        dispatch=spec.dispatch.value,
        lease_seconds=spec.lease_seconds,
        heartbeat_seconds=spec.heartbeat_seconds,
    )


def _stored(seen: _Pass, key: str) -> workerpools.Setup | None:
    loaded = seen.stored.get(key)
    return None if loaded is None else loaded.setup


def _offer(setup: workerpools.Setup | None) -> object:
    return None if setup is None else (setup.allowed_owners, setup.handlers)


def _conditions(
    pool: workerpool.Pool, staff: workforce.Staff, loaded: workerpools.Loaded | None, *, now: datetime
) -> conditions.Stored:
    told = [staff.condition]
    if loaded is not None and pool.spec is not None and pool.spec.dispatch is workerpool.Dispatch.KAFKA:
        told.append(_kafka(loaded.kafka_error))
    stored = pool.status.get("conditions")
    return conditions.merge(
        stored if isinstance(stored, list) else [],
        told,
        now=now,
        generation=pool.generation,
        dropped={conditions.KAFKA_REACHABLE} - {one.type for one in told},
    )


def _status(
    pool: workerpool.Pool,
    staff: workforce.Staff,
    loaded: workerpools.Loaded | None,
    told: conditions.Stored,
) -> Mapping[str, object]:
    """The status to show."""
    return {
        "replicas": staff.wanted,
        "readyReplicas": staff.ready,
        "backlog": 0 if loaded is None else loaded.backlog,
        "oldestWaitingSeconds": 0 if loaded is None else int(loaded.oldest_seconds),
        "running": 0 if loaded is None else loaded.running,
        "selector": workloads.selector_of(pool),
        "observedGeneration": pool.generation,
        "conditions": told,
    }


def _kafka(error: str | None) -> conditions.Condition:
    kind = conditions.KAFKA_REACHABLE
    if error is None:
        return conditions.Condition(kind, conditions.TRUE, "Publishing", "runs are published for the workers")
    return conditions.Condition(kind, conditions.FALSE, "Unreachable", f"runs are polled for: {error}")
