"""Do a job's runs find workers? Said by a condition, since a run that waits for a pool that is not there waits in silence.

It is told when the job is stored, and again when its pool changes: then the jobs are gone through a page at a time, since an
index from pools to jobs would cost a write at every fire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from clockhand.domain import conditions, declared
from clockhand.store import database, duties, mirroring, workerpools

PAGE = 2_000


async def of_readings(
    connection: database.Connection, readings: Sequence[declared.Reading]
) -> Mapping[UUID, conditions.Condition]:
    """The condition of each job that workers run, by its id."""
    named = {
        one.declared.uid: (one.declared.owner, pool, one.job.handler or "")
        for one in readings
        if one.job is not None and (pool := one.job.pool_of(one.declared.owner)) is not None
    }
    if not named:
        return {}
    offers = await workerpools.found(connection, {pool for _, pool, _ in named.values()})
    return {
        job_id: condition(offers.get(pool), owner=owner, pool=pool, handler=handler)
        for job_id, (owner, pool, handler) in named.items()
    }


def condition(offer: workerpools.Offer | None, *, owner: str, pool: str, handler: str) -> conditions.Condition:
    """What a job of `owner` that names `pool` and `handler` is told."""
    namespace, name = pool.removeprefix("k8s/").split("/", 1)
    known = f"WorkerPool {name} of namespace {namespace}"
    if offer is None:
        return _not_ready("PoolMissing", f"there is no {known}: runs wait until there is")
    if owner != offer.owner and owner not in offer.allowed_owners and "*" not in offer.allowed_owners:
        own = owner.removeprefix("k8s/")
        return _not_ready(
            "NotAllowed", f"{known} does not list {own} in spec.allowedNamespaces: runs wait until it does"
        )
    if offer.handlers and handler not in offer.handlers:
        listed = ", ".join(offer.handlers)
        return _not_ready("HandlerMissing", f"{known} lists {listed} in spec.handlers, not {handler}: runs wait")
    return conditions.Condition(conditions.POOL_READY, conditions.TRUE, "PoolFound", f"{known} takes the runs")


def _not_ready(reason: str, sentence: str) -> conditions.Condition:
    return conditions.Condition(conditions.POOL_READY, conditions.FALSE, reason, sentence)


async def tell(db: database.Database, held: duties.Held, *, pools: Collection[str] | None, turn: asyncio.Lock) -> int:
    """Tells the jobs of `pools` (None: of any) what has become of those; returns to how many that was news.

    `turn` is the mirror's: no job is stored by what its pool was before.
    """
    told, after = 0, mirroring.Place()
    while True:
        async with turn, db.transaction() as connection:
            await duties.hold(connection, held)
            last, jobs = await workerpools.jobs_page(connection, after=after, pools=pools, size=PAGE)
            if last is None:
                return told
            told += await _tell_page(connection, jobs)
        after = last


async def _tell_page(connection: database.Connection, jobs: Sequence[workerpools.Job]) -> int:
    offers = await workerpools.found(connection, {job.pool for job in jobs}) if jobs else {}
    news = {
        job.job_id: (job, new)
        for job in jobs
        if _differs(
            job.conditions,
            new := condition(offers.get(job.pool), owner=job.owner, pool=job.pool, handler=job.handler),
        )
    }
    if not news:
        return 0
    now = await database.now(connection)
    stored = await mirroring.lock_conditions(connection, list(news))
    shown = [
        mirroring.Shown(
            job_id, conditions.merge(stored[job_id], [new], now=now, generation=job.generation), urgent=False
        )
        for job_id, (job, new) in news.items()
        if job_id in stored
    ]
    await mirroring.set_conditions(connection, shown, now=now)
    return len(shown)


def _differs(stored: Iterable[Mapping[str, object]], new: conditions.Condition) -> bool:
    known = next((one for one in stored if one["type"] == new.type), {})
    return (known.get("status"), known.get("reason"), known.get("message")) != (new.status, new.reason, new.message)
