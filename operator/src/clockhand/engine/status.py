"""Writes what is known of a job into its object's status, seldom: an object's every write goes to etcd and to all watchers.

Lossy by design. Changes coalesce, an object is written at most once in 30 s and a replica writes at most 20 a second;
only a change of Ready is shown at once, within a wider limit of its own. What is lost when a process dies comes with
the next change.

Whoever writes the status tells the news of the object too, in events: as far as they have told of it is stored with what
the object shows.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import conditions, crd, declared, instants, sightings
from clockhand.domain import news as facts
from clockhand.engine import events, news
from clockhand.engine.budget import Budget
from clockhand.kube import events as event_calls
from clockhand.kube import objects
from clockhand.store import database
from clockhand.store import status as rows

log = structlog.get_logger(__name__)

PAUSE = timedelta(seconds=30)
SETTLE = timedelta(seconds=3)
"""News waits this long: a short run is then shown once, as it ended, and pods come before it at the API server."""
PER_SECOND = 20.0
BATCH = 40
URGENT_BATCH = 100
_PATCHES_AT_ONCE = 8
_API_VERSION = f"{crd.GROUP}/{crd.VERSION}"


class StatusWriter:
    """Writes the status of the jobs of this replica's shards, and tells their news to `recorder`."""

    def __init__(
        self,
        db: database.Database,
        calls: objects.Objects,
        *,
        pause: timedelta = PAUSE,
        budget: Budget | None = None,
        recorder: events.Recorder | None = None,
    ) -> None:
        self._db = db
        self._calls = calls
        self._pause = pause
        self._budget = budget or Budget(PER_SECOND, most=BATCH)
        self._recorder = recorder

    async def run_once(self, shards: Collection[int]) -> int:
        """One batch: urgent news whatever the budget, other news within it. Returns how many objects were patched."""
        if not shards:
            return 0
        left = self._budget.left()
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            due = await rows.dirty(
                connection,
                shards,
                written_before=now - self._pause,
                settled=now - min(SETTLE, self._pause),
                batch=URGENT_BATCH,
                usual=left,
            )
            shown = {one.job_id: status_of(one) for one in due}
            told = await news.of_jobs(connection, due, {job: one["conditions"] for job, one in shown.items()})
        if not due:
            return 0
        gate = asyncio.Semaphore(_PATCHES_AT_ONCE)
        outcomes = await asyncio.gather(*(self._write(one, shown[one.job_id], told[one.job_id], gate) for one in due))
        return await self._keep(due, outcomes)

    async def _keep(self, due: Sequence[rows.Dirty], outcomes: Sequence[rows.Written | None]) -> int:
        done = [outcome for outcome in outcomes if outcome is not None]
        later = [one.job_id for one, outcome in zip(due, outcomes, strict=True) if outcome is None]
        patched = sum(outcome.patched for outcome in done)
        self._budget.spend(patched)
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            if done:
                await rows.written(connection, done, now=now)
            if later:
                await rows.postponed(connection, later, now=now)
        return patched

    async def _write(
        self, one: rows.Dirty, status: Mapping[str, Any], found: facts.Facts, gate: asyncio.Semaphore
    ) -> rows.Written | None:
        """Patches one object if it shows something else; None where it must be tried again later."""
        if one.deleted_at is not None or not one.declared:
            return rows.Written(one.job_id, one.version, one.written_digest, patched=False)
        digest = hashlib.sha256(msgspec.json.encode(status)).digest()[:16]
        if digest == one.written_digest:
            return rows.Written(one.job_id, one.version, digest, patched=False, told=self._tell(one, found))
        try:
            async with gate:
                await self._calls.patch_status(_namespace(one), one.name, status, uid=str(one.job_id))
        except errors.NotFound:
            # the mirror will hear of it; there is nothing to show it on
            return rows.Written(one.job_id, one.version, None, patched=False)
        except errors.ClockhandError as error:
            log.info("status_postponed", owner=one.owner, job=one.name, error=str(error))
            return None
        return rows.Written(one.job_id, one.version, digest, patched=True, told=self._tell(one, found))

    def _tell(self, one: rows.Dirty, found: facts.Facts) -> bytes | None:
        """Leaves what is new to be told; returns how far that is, None where it is as far as before."""
        before = news.told(one)
        if self._recorder is None or found.now == before:
            return None
        about = event_calls.Regarding(_API_VERSION, crd.KIND, _namespace(one), one.name, str(one.job_id))
        self._recorder.tell(about, facts.news(before, found))
        return msgspec.json.encode(found.now)


def status_of(one: rows.Dirty) -> dict[str, Any]:
    """The status to show. A field without a value is null, which takes it off the object."""
    return {
        "nextRunTime": _text(one.next_run_at),
        "lastScheduledTime": _text(one.last_scheduled_at),
        "lastSuccessfulTime": _text(one.last_success_at),
        "active": one.live,
        "consecutiveFailures": one.consecutive_failures,
        "observedGeneration": one.generation,
        "conditions": _conditions(one),
    }


def _conditions(one: rows.Dirty) -> Sequence[Any]:
    """As stored, except that a job which the engine had to stop says so, and one that has fired its last slot too."""
    if one.finished:
        return [_finished(condition) for condition in one.conditions]
    if one.parked is None or conditions.status_of(one.conditions, conditions.READY) == conditions.FALSE:
        return one.conditions
    stopped = sightings.not_ready(declared.Fault("CannotEvaluate", one.parked))
    others = [condition for condition in one.conditions if condition["type"] != conditions.READY]
    return [*others, {**msgspec.structs.asdict(stopped), "observedGeneration": one.generation}]


def _finished(condition: Mapping[str, object]) -> Mapping[str, object]:
    """Only "slots fire when they fall due" is untrue by now; since when the job is Ready is not changed by its end."""
    if condition["type"] != conditions.READY or condition["reason"] != sightings.SCHEDULED:
        return condition
    return {**condition, **msgspec.structs.asdict(sightings.finished())}


def _namespace(one: rows.Dirty) -> str:
    return one.owner.removeprefix("k8s/")


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instants.rfc3339_ms(instant)
