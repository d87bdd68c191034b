"""A claimed run gets its pod, exactly one for each attempt, whoever dies on the way.

The pod's name is a function of run and attempt, so that creating it again meets `AlreadyExists`, and what is found under
the name is adopted only if its annotations say the same run, attempt and token. A refusal that may pass (quota, a webhook
that is down, an overloaded server) is tried again in place until the pending time-out ends the attempt; one that will not
pass ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from clockhand import errors, logs, metrics, tracing
from clockhand.domain import observed, pods, spec, states, verdict
from clockhand.engine import shards, specs
from clockhand.kube import failures
from clockhand.kube import pods as kube_pods
from clockhand.store import database, runs

log = structlog.get_logger(__name__)

BACKLOG = 256
"""Launches under way or waiting for a place at the API server, at most; beyond it nothing more is claimed."""
_RENDERED = 2048
_AT_ONCE, _FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0, 20.0
_HAND_BACK_AFTER = 6
"""Tries at an API server that cannot answer, after which another replica shall have the run."""

_PASSING = frozenset(
    {
        failures.Refusal.QUOTA,
        failures.Refusal.WEBHOOK_DOWN,
        failures.Refusal.RIGHTS,
        failures.Refusal.UNAUTHENTICATED,
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What an attempt's pod is made from: rendered once for a generation of a job."""

    template: pods.PodTemplate
    spec: spec.JobSpec
    payload: bytes


@dataclasses.dataclass(slots=True)
class _Past:
    """What earlier tries left open: whether the pod may exist, and whether it may even have run and gone."""

    may_exist: bool
    may_have_run: bool
    tries: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Reports:
    """Where a launch tells what became of it; each call only takes note and returns."""

    launched: Callable[[runs.Claim, uuid.UUID], None]
    ended: Callable[[runs.Claim, verdict.AttemptEnd], None]
    waits: Callable[[runs.Claim, str, str | None], None]
    hand_back: Callable[[runs.Claim], None]
    seen: Callable[[observed.Pod], None]


class Launch:
    """Creates or adopts the pods of claimed runs, many at once."""

    def __init__(self, db: database.Database, api: kube_pods.Pods, *, held: shards.Shards, reports: Reports) -> None:
        self._db = db
        self._api = api
        self._held = held
        self._reports = reports
        self._tasks: dict[uuid.UUID, asyncio.Task[None]] = {}
        self._abandoned: dict[uuid.UUID, asyncio.Event] = {}
        self._plans: dict[int, Plan | errors.InvalidInput] = {}

    def room(self) -> int:
        """How many more runs may be claimed now."""
        return max(0, BACKLOG - len(self._tasks))

    def busy_with(self, run_id: uuid.UUID) -> bool:
        """Whether a launch of `run_id` is under way here."""
        return run_id in self._tasks

    async def start(self, claims: Sequence[runs.Claim], *, taken_over: bool = False) -> None:
        """Begins launching `claims`; `taken_over` are attempts that another replica may have launched already."""
        plans = await self._plans_of(claims)
        for claim in claims:
            plan = plans[claim.spec_id]
            if isinstance(plan, errors.InvalidInput):
                self._end(claim, verdict.Ending.REFUSED, str(plan))
            elif claim.run_id not in self._tasks:
                self._abandoned[claim.run_id] = asyncio.Event()
                task = asyncio.create_task(self._launch(claim, plan, taken_over=taken_over))
                self._tasks[claim.run_id] = task
                task.add_done_callback(functools.partial(self._done, claim))

    async def abandon(self, run_id: uuid.UUID) -> None:
        """Ends a launch that is under way here, so that no pod of it can appear later."""
        task = self._tasks.get(run_id)
        if task is not None:
            # a request on its way is not cut off: its pod would appear after everybody had looked
            self._abandoned[run_id].set()
            await asyncio.wait((task,))

    async def drain(self, seconds: float) -> None:
        """Lets launches under way finish for at most `seconds`; what is left is found by the next holder."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()

    def _done(self, claim: runs.Claim, task: asyncio.Task[None]) -> None:
        self._tasks.pop(claim.run_id, None)
        self._abandoned.pop(claim.run_id, None)
        if not task.cancelled() and task.exception() is not None:
            metrics.LOOP_ERRORS.labels(loop="launch").inc()
            log.error("launch_failed", **_named(claim), exc_info=task.exception())

    async def _plans_of(self, claims: Sequence[runs.Claim]) -> Mapping[int, Plan | errors.InvalidInput]:
        """The plan of each claim's spec; a template that cannot be rendered is its job's own trouble."""
        if len(self._plans) > _RENDERED:
            self._plans.clear()
        first = {claim.spec_id: claim for claim in claims}
        unknown = [spec_id for spec_id in first if spec_id not in self._plans]
        if unknown:
            async with self._db.transaction() as connection:
                rows = await runs.templates(connection, unknown)
            for row in rows:
                self._plans[row.spec_id] = _plan(row, first[row.spec_id])
        return {spec_id: self._plans[spec_id] for spec_id in first}

    async def _launch(self, claim: runs.Claim, plan: Plan, *, taken_over: bool) -> None:
        structlog.contextvars.bind_contextvars(**_named(claim))
        began = tracing.now()
        try:
            await self._try(claim, plan, taken_over=taken_over)
        finally:
            told = {"clockhand.run": claim.name, "clockhand.job": claim.job_name}
            tracing.part_over("launch", claim.run_id, claim.attempt, began=began, attributes=told)

    async def _try(self, claim: runs.Claim, plan: Plan, *, taken_over: bool) -> None:
        facts = _facts(claim, plan)
        past = _Past(may_exist=taken_over, may_have_run=taken_over)
        abandoned = self._abandoned[claim.run_id]
        while self._held.holds(claim.shard) and not abandoned.is_set():
            wait = await self._step(claim, plan, facts, past)
            if wait is None:
                return
            past.tries += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait * random.uniform(0.75, 1.25)):
                    await abandoned.wait()

    async def _step(self, claim: runs.Claim, plan: Plan, facts: pods.RunFacts, past: _Past) -> float | None:
        """One try; None when it is settled, else seconds to wait before the next.

        A pod that may exist is looked for first: admission, which comes before the check of names, could refuse it now for
        the very quota that it fills.
        """
        if past.may_exist:
            try:
                await self._adopt(claim, plan, facts)
                return None
            except errors.NotFound:
                if past.may_have_run and plan.spec.delivery is spec.Delivery.AT_MOST_ONCE:
                    self._end(claim, verdict.Ending.GONE, "taken over from a replica that may have started it")
                    return None
            except (errors.Unavailable, errors.Refused):
                return _wait(past.tries)
        return await self._create(claim, plan, facts, past)

    async def _create(self, claim: runs.Claim, plan: Plan, facts: pods.RunFacts, past: _Past) -> float | None:
        body = plan.template.body_for(facts)
        try:
            created = await self._api.create(claim.namespace, body, still=lambda: self._held.holds(claim.shard))
        except (failures.ApiConflict, errors.Uncertain):
            past.may_exist = True
            return _wait(past.tries) if past.tries else _AT_ONCE
        except errors.Unavailable as error:
            return self._unavailable(claim, error, past)
        except (errors.Refused, errors.InvalidInput, errors.NotFound) as error:
            return self._refused(claim, error, past)
        except errors.Stale:
            return None  # the new holder goes through this run
        metrics.PODS_CREATED.inc()
        self._reports.launched(claim, uuid.UUID(created.uid))
        return None

    async def _adopt(self, claim: runs.Claim, plan: Plan, facts: pods.RunFacts) -> None:
        """The name is taken: by this attempt's own pod, or by a stranger. Raises NotFound where it is free."""
        found = await self._api.get(claim.namespace, plan.template.name_for(facts))
        if not pods.belongs_to(found, facts):
            message = f"pod {found.metadata.name} exists and is not of this attempt; it is left alone"
            self._end(claim, verdict.Ending.NAME_TAKEN, message)
            return
        metrics.PODS_ADOPTED.inc()
        log.info("pod_adopted", pod=found.metadata.name)
        self._reports.launched(claim, uuid.UUID(found.metadata.uid))
        self._reports.seen(found)

    def _refused(self, claim: runs.Claim, error: errors.ClockhandError, past: _Past) -> float | None:
        refusal = getattr(error, "refusal", None)
        if refusal in _PASSING or isinstance(error, failures.ResourceMissing):
            log.info("pod_refused", error=str(error), tries=past.tries + 1)
            self._reports.waits(claim, refusal.value if refusal else "Unavailable", str(error))
            return _wait(past.tries)
        gone = refusal is failures.Refusal.NAMESPACE_TERMINATING or isinstance(error, errors.NotFound)
        self._end(claim, verdict.Ending.NAMESPACE_DELETED if gone else verdict.Ending.REFUSED, str(error))
        return None

    def _unavailable(self, claim: runs.Claim, error: errors.Unavailable, past: _Past) -> float | None:
        if past.tries >= _HAND_BACK_AFTER and not past.may_exist:
            self._reports.hand_back(claim)
            return None
        return max(_wait(past.tries), error.retry_after or 0)

    def _end(self, claim: runs.Claim, ending: verdict.Ending, message: str) -> None:
        reason = {
            verdict.Ending.NAME_TAKEN: states.Reason.POD_NAME_TAKEN,
            verdict.Ending.REFUSED: states.Reason.POD_REFUSED,
            verdict.Ending.GONE: states.Reason.POD_LOST,
            verdict.Ending.NAMESPACE_DELETED: states.Reason.NAMESPACE_DELETED,
        }[ending]
        self._reports.ended(claim, verdict.AttemptEnd(ending, reason=reason, message=message))


def _plan(row: Any, claim: runs.Claim) -> Plan | errors.InvalidInput:
    try:
        job = specs.of(row.spec)
        keep = pods.Keep(job.pod_retention.succeeded_seconds, job.pod_retention.failed_count)
        template = pods.render_template(row.template or {}, namespace=claim.namespace, job=claim.job_name, keep=keep)
        payload = msgspec.json.encode(row.payload if row.payload is not None else {})
    except errors.InvalidInput as error:
        return error
    except Exception as error:  # whatever a template raises, it ends its own runs alone
        log.exception("template_not_rendered", **_named(claim))
        return errors.InvalidInput("", f"its pod cannot be made: {error}")
    return Plan(template, job, payload)


def _facts(claim: runs.Claim, plan: Plan) -> pods.RunFacts:
    return pods.RunFacts(
        run_id=claim.run_id,
        run_name=claim.name,
        job_uid=claim.job_id,
        attempt=claim.attempt,
        token=claim.token,
        fencing_token=claim.fencing,
        shard=claim.shard,
        scheduled_at=claim.scheduled_at,
        payload=msgspec.json.encode(claim.payload) if claim.own_payload else plan.payload,
        traceparent=tracing.traceparent(claim.run_id, claim.attempt),
    )


def _named(claim: runs.Claim) -> Mapping[str, Any]:
    return logs.of_run(claim.run_id, name=claim.name, job=claim.job_name, owner=claim.owner, attempt=claim.attempt)


def _wait(tries: int) -> float:
    return min(_FIRST_WAIT * 2.0**tries, _LONGEST_WAIT)
