"""Would the API server take this pod? Asked once per namespace and distinct template, before the first slot if possible.

A template that the API server calls invalid stops its job, with the server's own words in the condition. Any other
refusal (quota, PodSecurity, a webhook) may pass by the time a run is due and counts only there.

Whoever stores what is read of objects brings their templates. Those of jobs made over REST are looked for among the newest
specs, while there are new ones.
"""

from __future__ import annotations

import asyncio
import collections
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from clockhand import errors
from clockhand.domain import conditions, declared, pods, sightings
from clockhand.kube import failures
from clockhand.kube import pods as pod_calls
from clockhand.store import database, duties, mirroring

log = structlog.get_logger(__name__)

PER_SECOND = 5.0
_REMEMBERED = 8_192
_STORED_AT_ONCE = 500
_LOOKED_AT_ONCE = 1_000
_LONGEST_WRITE = 15.0
"""Seconds after which a transaction that had stored a spec has ended, one way or the other."""
_HASH_TEXT = 12
_FIELD = "spec.template"

_Key = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the API server said of a template."""

    status: str
    reason: str
    sentence: str


VALID = Verdict(conditions.TRUE, "Accepted", "the API server takes a pod of this template")


class Templates:
    """The templates that wait for a dry run, and the verdicts so far."""

    def __init__(self, db: database.Database, calls: pod_calls.Pods) -> None:
        self._db = db
        self._calls = calls
        self._pending: collections.OrderedDict[_Key, set[UUID]] = collections.OrderedDict()
        self._verdicts: collections.OrderedDict[_Key, Verdict] = collections.OrderedDict()
        self._filled = asyncio.Event()
        self._newest = 0
        self._look_until = 0.0
        self._looked_at = 0.0
        self._look = False

    def verdict(self, reading: declared.Reading) -> Verdict | None:
        """What is known of the template of `reading`; None where it must be asked."""
        if reading.template_hash is None:
            return None
        return self._verdicts.get((reading.declared.owner, reading.template_hash))

    def want(self, readings: Iterable[declared.Reading]) -> None:
        """Queues the templates of these jobs, where there is no verdict on them."""
        for reading in readings:
            if reading.template_hash is not None and self.verdict(reading) is None:
                self._queue((reading.declared.owner, reading.template_hash), (reading.declared.uid,))

    async def load(self) -> None:
        """Queues every stored template without a verdict: those that a lost holder did not come to."""
        self._looked_at = time.monotonic()
        self._look_until = self._looked_at + _LONGEST_WRITE
        async with self._db.transaction() as connection:
            found = await mirroring.unchecked(connection)
        for one in found:
            self._queue((one.owner, one.template_hash), one.job_ids)

    def heard(self, newest_spec: int) -> None:
        """Wants a look at new specs where there are any by now, or one with a lower number may have come after it.

        Until a look has succeeded that began when none could come any more: one that failed is made up for.
        """
        if newest_spec != self._newest:
            self._newest, self._look_until = newest_spec, time.monotonic() + _LONGEST_WRITE
        if self._looked_at < self._look_until:
            self._look = True
            self._filled.set()

    async def run(self, held: duties.Held) -> None:
        """Checks what waits, at most five a second, until cancelled or stale."""
        while True:
            await self._filled.wait()
            try:
                await self.check_once(held)
            except errors.Stale:
                raise
            except errors.ClockhandError as error:
                log.warning("template_check_postponed", error=str(error))
                await asyncio.sleep(1)
            await asyncio.sleep(1 / PER_SECOND)

    async def check_once(self, held: duties.Held) -> bool:
        """Asks about one template and stores the verdict; False where none waits."""
        if self._look:
            await self._look_around()
        if not self._pending:
            self._rest()
            return False
        key, job_ids = self._pending.popitem(last=False)
        self._rest()
        try:
            await self._check(held, key, sorted(job_ids))
        except BaseException:
            self._queue(key, job_ids)
            raise
        return True

    async def _look_around(self) -> None:
        """Queues templates of REST that were stored since the last look."""
        looked_at, self._look = time.monotonic(), False
        passed = timedelta(seconds=looked_at - self._looked_at + 3 * _LONGEST_WRITE)
        async with self._db.transaction() as connection:
            last: int | None = await mirroring.last_spec_before(connection, await database.now(connection) - passed)
            while last is not None:
                last, found = await mirroring.unchecked_page(connection, after=last, size=_LOOKED_AT_ONCE)
                for one in found:
                    self._queue((one.owner, one.template_hash), one.job_ids)
        self._looked_at = looked_at

    def _rest(self) -> None:
        if not (self._pending or self._look):
            self._filled.clear()

    def _queue(self, key: _Key, job_ids: Iterable[UUID]) -> None:
        self._pending.setdefault(key, set()).update(job_ids)
        self._filled.set()

    async def _check(self, held: duties.Held, key: _Key, job_ids: Sequence[UUID]) -> None:
        owner, template_hash = key
        async with self._db.transaction() as connection:
            found = await mirroring.template_of(connection, job_ids, template_hash=template_hash)
        if found is None:
            return
        name, template = found
        verdict = await self._ask(owner.removeprefix("k8s/"), name, json.loads(template))
        if verdict.status != conditions.UNKNOWN:
            self._remember(key, verdict)
        for start in range(0, len(job_ids), _STORED_AT_ONCE):
            await self._keep(held, template_hash, job_ids[start : start + _STORED_AT_ONCE], verdict)
        log.debug("template_checked", owner=owner, template=template_hash.hex()[:_HASH_TEXT], valid=verdict.status)

    async def _ask(self, namespace: str, job: str, template: dict[str, object]) -> Verdict:
        try:
            await self._calls.dry_run(namespace, _probe(template, namespace=namespace, job=job))
        except errors.InvalidInput as error:
            sentence = str(error) if error.field.startswith(_FIELD) else f"{_FIELD}: {error}"
            return Verdict(conditions.FALSE, "Refused", sentence)
        except failures.ApiRefused as error:
            return Verdict(conditions.UNKNOWN, error.refusal.value, str(error))
        except (errors.NotFound, errors.Conflict) as error:
            return Verdict(conditions.UNKNOWN, "NotChecked", str(error))
        return VALID

    def _remember(self, key: _Key, verdict: Verdict) -> None:
        self._verdicts[key] = verdict
        while len(self._verdicts) > _REMEMBERED:
            self._verdicts.popitem(last=False)

    async def _keep(self, held: duties.Held, template_hash: bytes, job_ids: Sequence[UUID], verdict: Verdict) -> None:
        async with self._db.transaction() as connection:
            await duties.hold(connection, held)
            now = await database.now(connection)
            jobs = await mirroring.lock_template(connection, job_ids, template_hash=template_hash)
            if not jobs:
                return
            new = [condition(verdict)]
            if verdict.status == conditions.FALSE:
                await mirroring.park_jobs(connection, jobs, sentence=verdict.sentence)
                new.append(sightings.not_ready(_fault(verdict)))
            stored = await mirroring.lock_conditions(connection, jobs)
            shown = [
                mirroring.Shown(
                    job_id,
                    conditions.merge(stored[job_id], new, now=now, generation=jobs[job_id]),
                    urgent=verdict.status == conditions.FALSE,
                )
                for job_id in stored
            ]
            await mirroring.set_conditions(connection, shown, now=now)


def _probe(template: dict[str, object], *, namespace: str, job: str) -> bytes:
    try:
        return pods.render_template(template, namespace=namespace, job=job).probe()
    except errors.InvalidInput:
        raise
    except Exception as error:  # whatever a template raises, it stops its own jobs alone
        log.exception("template_not_rendered", namespace=namespace, job=job)
        raise errors.InvalidInput("", f"its pod cannot be made: {error}") from error


def condition(verdict: Verdict) -> conditions.Condition:
    """The TemplateValid condition that says this verdict."""
    return conditions.Condition(conditions.TEMPLATE_VALID, verdict.status, verdict.reason, verdict.sentence)


def fault(reading: declared.Reading, verdict: Verdict | None) -> declared.Fault | None:
    """Why a job that was just read does not fire, its template's verdict included."""
    known = reading.fault or reading.barred
    if known is not None or verdict is None or verdict.status != conditions.FALSE:
        return known
    return _fault(verdict)


def _fault(verdict: Verdict) -> declared.Fault:
    return declared.Fault(sightings.TEMPLATE_INVALID, verdict.sentence)
