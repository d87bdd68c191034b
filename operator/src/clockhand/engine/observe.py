"""What pods say becomes what runs are.

Sightings are noted as they come and stored in batches, all of a batch in one transaction: started attempts, and for ended
ones the verdict. Everything is level-triggered: the same sighting twice finds nothing to change, and one that was missed
comes again with the next listing. A pod stays until its outcome is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog

from clockhand import errors, metrics
from clockhand.domain import observed, outcome, pods, spec, states, verdict
from clockhand.engine import admit, backfill, pauses, shards, specs
from clockhand.kube import pods as kube_pods
from clockhand.kube import watch
from clockhand.store import database, runs

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

BATCH = 500
_LOGS_AT_ONCE = 8
_LOG_SECONDS = 5.0
_ALL_LOGS_SECONDS = 10.0
_RECORDED = {
    verdict.Ending.SUCCEEDED: "Stopped",
    verdict.Ending.FAILED: "Failed",
    verdict.Ending.DISRUPTED: "Disrupted",
    verdict.Ending.GONE: "Unseen",
    verdict.Ending.NEVER_STARTED: "Stopped",
    verdict.Ending.REFUSED: "Refused",
    verdict.Ending.NAME_TAKEN: "Refused",
    verdict.Ending.NAMESPACE_DELETED: "Stopped",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over, as seen; `pod` is None where there is none to read a log from."""

    key: runs.Key
    end: verdict.AttemptEnd
    pod: observed.Pod | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Accepted:
    """The API server has the pod of an attempt since `at`, by this process's own monotonic clock."""

    key: runs.Key
    pod_uid: uuid.UUID
    at: float

    def at_database_time(self, now: datetime, seconds_ago: float) -> runs.Launched:
        """The same, told in database time."""
        key = self.key
        return runs.Launched(key.run_id, key.token, key.shard, self.pod_uid, now - timedelta(seconds=seconds_ago))


class Observe:
    """Notes sightings, and stores them with `run_once`. `wanted` is set whenever there is something to store."""

    def __init__(
        self,
        db: database.Database,
        api: kube_pods.Pods,
        *,
        held: shards.Shards,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._api = api
        self._held = held
        self._clock = clock
        self._backfill = backfill.Backfill(db)
        self._launched: dict[uuid.UUID, Accepted] = {}
        self._started: dict[uuid.UUID, runs.Started] = {}
        self._waits: dict[uuid.UUID, runs.Waits] = {}
        self._handed_back: dict[uuid.UUID, runs.Key] = {}
        self._ended: dict[tuple[uuid.UUID, int], Ended] = {}
        self._settled: set[str] = set()  # uids of pods whose outcome is stored
        self.pods: dict[tuple[str, str], observed.Pod] = {}
        """Every pod of the held shards as last seen, by namespace and name."""
        self.vanished: dict[tuple[str, str], observed.Pod] = {}
        """Pods that left the watch without an outcome: to be looked up one by one."""
        self.gated: dict[uuid.UUID, runs.Key] = {}
        """Attempts whose pods are held back on purpose."""
        self.wanted = asyncio.Event()

    def wants(self, marks: observed.Marks) -> bool:
        """Whether a pod with these annotations belongs to a shard held here."""
        return marks.shard.isdigit() and self._held.holds(int(marks.shard))

    def note(self, seen: watch.Seen) -> None:
        """Takes note of what the watch saw."""
        if seen.kind is watch.Kind.SYNCED:
            return
        key = (seen.namespace, seen.name)
        if seen.kind is not watch.Kind.DELETED:
            assert seen.pod is not None
            self.note_pod(seen.pod)
            return
        last = seen.pod or self.pods.get(key)
        self.pods.pop(key, None)
        if seen.uid in self._settled:
            self._settled.discard(seen.uid)
            return
        if last is None or last.metadata.uid != seen.uid:
            return
        if not self._note_end(last):
            self.vanished[key] = last

    def note_pod(self, pod: observed.Pod) -> None:
        """Takes note of a pod as it is now."""
        identity = pods.identity_of(pod)
        if identity is None:
            return
        self.pods[(pod.metadata.namespace, pod.metadata.name)] = pod
        if self._note_end(pod):
            return
        key = runs.Key(identity.run_id, identity.token, identity.shard)
        match outcome.classify(pod):
            case outcome.Running():
                self.gated.pop(identity.run_id, None)
                uid, node = uuid.UUID(pod.metadata.uid), pod.spec.node_name or None
                self._started[identity.run_id] = runs.Started(key.run_id, key.token, key.shard, uid, node)
                self.wanted.set()
            case outcome.Pending(gated=True):
                self.gated[identity.run_id] = key
            case outcome.Pending(reason=reason, message=message) if reason:
                self.gated.pop(identity.run_id, None)
                self._waits[identity.run_id] = runs.Waits(key.run_id, key.token, reason, message)

    def note_gone(self, pod: observed.Pod, ending: verdict.Ending, message: str) -> None:
        """Takes note that `pod` is not there any more, and that no outcome of it was seen."""
        identity = pods.identity_of(pod)
        if identity is not None:
            end = verdict.AttemptEnd(ending, reason=_reason_of(ending), message=message, asked=True)
            self._end(Ended(runs.Key(identity.run_id, identity.token, identity.shard), end))

    def note_launched(self, claim: runs.Claim, pod_uid: uuid.UUID) -> None:
        """Takes note that the API server has the attempt's pod."""
        self._launched[claim.run_id] = Accepted(_key(claim), pod_uid, self._clock())
        self.wanted.set()

    def note_claim_end(self, claim: runs.Claim, end: verdict.AttemptEnd) -> None:
        """Takes note that an attempt ended without a pod of its own."""
        self._end(Ended(_key(claim), end))

    def note_waits(self, claim: runs.Claim, reason: str, message: str | None) -> None:
        """Takes note of why an attempt has no pod yet."""
        self._waits[claim.run_id] = runs.Waits(claim.run_id, claim.token, reason, message)
        self.wanted.set()

    def note_hand_back(self, claim: runs.Claim) -> None:
        """Takes note that this replica cannot launch an attempt."""
        self._handed_back[claim.run_id] = _key(claim)
        self.wanted.set()

    async def run_once(self) -> int:
        """Stores one batch; returns how many sightings it held. Nothing is lost where storing fails."""
        holder = self._held.holder()
        if not holder.generations:
            self.wanted.clear()
            return 0
        batch = _Batch(
            launched=_first(self._launched),
            started=_first(self._started),
            waits=_first(self._waits),
            handed_back=_first(self._handed_back),
            ended=_first(self._ended),
        )
        if batch.size:
            logs = await self._logs(batch.ended.values())
            stored = await self._store(batch, holder, logs)
            self._drop(batch, stored)
            await pauses.follow(self._db, stored.ended)
            await self._promote(stored.jobs)
            # after the promotion: what waits for a place comes before what could have been made long ago
            for backfill_id in stored.backfills:
                await self._backfill.look(backfill_id)
        if not (self._launched or self._started or self._ended or self._handed_back):
            self.wanted.clear()
        return batch.size

    async def _store(self, batch: _Batch, holder: runs.Holder, logs: dict[tuple[uuid.UUID, int], str]) -> _Stored:
        ended = list(batch.ended.values())
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            clock = self._clock()
            launched = [item.at_database_time(now, clock - item.at) for item in batch.launched.values()]
            await _store_launched(connection, holder, launched)
            if batch.started:
                await runs.running(connection, holder=holder, items=list(batch.started.values()), now=now)
            if batch.waits:
                await runs.waiting_for_pod(connection, list(batch.waits.values()))
            await runs.hand_back(connection, holder=holder, items=list(batch.handed_back.values()))
            return await _store_ended(connection, holder, ended, logs, now=now)

    async def _promote(self, jobs: set[uuid.UUID]) -> None:
        if jobs:
            async with self._db.transaction() as connection:
                await admit.promote_for(connection, jobs, now=await database.now(connection))

    async def _logs(self, ended: Sequence[Ended] | Any) -> dict[tuple[uuid.UUID, int], str]:
        places = asyncio.Semaphore(_LOGS_AT_ONCE)
        tails: dict[tuple[uuid.UUID, int], str] = {}

        async def fetch(item: Ended, pod: observed.Pod) -> None:
            where = (pod.metadata.namespace, pod.metadata.name, outcome.main_container_of(pod))
            # a log is a help, never a reason to lose an outcome
            with contextlib.suppress(errors.ClockhandError, TimeoutError):
                async with places, asyncio.timeout(_LOG_SECONDS):
                    tails[(item.key.run_id, item.key.token)] = await self._api.log_tail(*where)

        ill = [item for item in ended if item.pod and item.end.ending is not verdict.Ending.SUCCEEDED]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ALL_LOGS_SECONDS):
                await asyncio.gather(*(fetch(item, item.pod) for item in ill if item.pod))
        return tails

    def _drop(self, batch: _Batch, stored: _Stored) -> None:
        _forget(self._launched, batch.launched)
        _forget(self._started, batch.started)
        _forget(self._waits, batch.waits)
        _forget(self._handed_back, batch.handed_back)
        _forget(self._ended, batch.ended)
        # an end that was refused, as the shard is another's, must be stored if the shard comes back with the run still open
        self._settled.update(
            item.pod.metadata.uid for key, item in batch.ended.items() if item.pod and key in stored.attempts
        )

    def _note_end(self, pod: observed.Pod) -> bool:
        identity = pods.identity_of(pod)
        end = _end_of(pod)
        if identity is None or end is None:
            return False
        self.gated.pop(identity.run_id, None)
        if pod.metadata.uid in self._settled:
            return True
        self._end(Ended(runs.Key(identity.run_id, identity.token, identity.shard), end, pod))
        return True

    def _end(self, item: Ended) -> None:
        self._ended.setdefault((item.key.run_id, item.key.token), item)
        self.wanted.set()


@dataclasses.dataclass(frozen=True, slots=True)
class _Stored:
    """Attempts whose end was stored, by run and token, and what that means for the jobs."""

    attempts: set[tuple[uuid.UUID, int]] = dataclasses.field(default_factory=set)
    jobs: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those in which another run may now go on."""
    ended: pauses.Ended = dataclasses.field(default_factory=pauses.Ended)
    backfills: set[uuid.UUID] = dataclasses.field(default_factory=set)
    """Those that may now make another run."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    launched: dict[uuid.UUID, Accepted]
    started: dict[uuid.UUID, runs.Started]
    waits: dict[uuid.UUID, runs.Waits]
    handed_back: dict[uuid.UUID, runs.Key]
    ended: dict[tuple[uuid.UUID, int], Ended]

    @property
    def size(self) -> int:
        waiting = len(self.waits) + len(self.handed_back)
        return len(self.launched) + len(self.started) + len(self.ended) + waiting


async def _store_launched(connection: database.Connection, holder: runs.Holder, items: Sequence[runs.Launched]) -> None:
    if not items:
        return
    stored = await runs.launched(connection, holder=holder, items=items)
    metrics.STALE_WRITES.inc(len({item.run_id for item in items} - {row.run_id for row in stored}))
    for row in stored:
        if row.first:
            metrics.LATENESS.observe(row.lateness)


async def _store_ended(
    connection: database.Connection,
    holder: runs.Holder,
    ended: Sequence[Ended],
    logs: dict[tuple[uuid.UUID, int], str],
    *,
    now: datetime,
) -> _Stored:
    """Stores the verdicts over those attempts that are still open and ours."""
    stored = _Stored()
    if not ended:
        return stored
    by_attempt = {(item.key.run_id, item.key.token): item for item in ended}
    outcomes, records, stored_items = [], [], []
    for row in await runs.lock_open(connection, holder=holder, items=[item.key for item in ended]):
        item = by_attempt[(row.run_id, row.token)]
        stored.attempts.add((row.run_id, row.token))
        stored_items.append(item)
        plan = specs.of(row.spec)
        stored.ended.expect(row.job_id, plan)
        decided = verdict.judge(plan, _open_run(row), item.end, now=now)
        outcomes.append(_outcome(row, decided, item))
        if decided.state is not states.RunState.SUCCEEDED:
            records.append(_record(row, item, logs.get((row.run_id, row.token))))
        if _has_successors(plan):
            stored.jobs.add(row.job_id)
    # a pod is seen again by every new holder, long after its outcome was stored; what a launch reports is not
    metrics.STALE_WRITES.inc(sum(item.pod is None for item in ended) - sum(item.pod is None for item in stored_items))
    await runs.record_attempts(connection, records, now=now)
    await runs.retry(connection, [one for one in outcomes if not one.state.is_over])
    for row in await runs.finish(connection, [one for one in outcomes if one.state.is_over], now=now):
        metrics.RUNS_ENDED.labels(state=row.state).inc()
        stored.ended.note(row.job_id, kind=row.kind, state=row.state)
        if row.kind == states.RunKind.BACKFILL:
            stored.backfills.add(uuid.UUID(row.key))
        if not row.kept:
            metrics.HISTORY_CONFLICTS.inc()
            log.error("run_already_in_history", run=str(row.run_id))
    return stored


def _has_successors(plan: spec.JobSpec) -> bool:
    one_at_a_time = plan.max_concurrent_runs is not None
    return (
        one_at_a_time
        or plan.concurrency_policy is not spec.ConcurrencyPolicy.ALLOW
        or plan.catch_up.policy is spec.CatchUpPolicy.ALL
    )


def _end_of(pod: observed.Pod) -> verdict.AttemptEnd | None:
    asked = pod.metadata.deletion_timestamp is not None
    match outcome.classify(pod):
        case outcome.Succeeded():
            return verdict.AttemptEnd(verdict.Ending.SUCCEEDED, asked=asked)
        case outcome.Failed(reason=reason, exit_code=code, message=message):
            return verdict.AttemptEnd(verdict.Ending.FAILED, reason, code, message or None, asked)
        case outcome.Disrupted(reason=reason, exit_code=code, message=message):
            return verdict.AttemptEnd(verdict.Ending.DISRUPTED, reason, code, message or None, asked)
    return None


def _open_run(row: Any) -> verdict.OpenRun:
    return verdict.OpenRun(
        run_id=row.run_id,
        state=states.RunState(row.state),
        attempt=row.attempt,
        failures=row.failures,
        disruptions=row.disruptions,
        stop_reason=row.stop_reason,
        job_is_deleted=row.job_is_deleted,
    )


def _outcome(row: Any, decided: verdict.Verdict, item: Ended) -> runs.Outcome:
    # a pod can be over before anything else of it was stored
    pod = item.pod
    return runs.Outcome(
        run_id=row.run_id,
        token=row.token,
        state=decided.state,
        reason=decided.reason,
        message=decided.message,
        failures=decided.failures,
        disruptions=decided.disruptions,
        ready_at=decided.ready_at,
        pod_uid=uuid.UUID(pod.metadata.uid) if pod else None,
        node=pod.spec.node_name or None if pod else None,
        created_at=pod.metadata.creation_timestamp if pod else None,
        started_at=outcome.started_at_of(pod) if pod else None,
    )


def _record(row: Any, item: Ended, log_tail: str | None) -> runs.AttemptRecord:
    end = item.end
    timed_out = row.stop_reason in (states.Reason.ATTEMPT_TIMEOUT, states.Reason.PENDING_TIMEOUT)
    return runs.AttemptRecord(
        run_id=row.run_id,
        scheduled_at=row.scheduled_at,
        attempt=row.attempt,
        claimed_at=row.claimed_at,
        started_at=row.started_at or (outcome.started_at_of(item.pod) if item.pod else None),
        outcome="TimedOut" if timed_out else "Stopped" if row.stop_reason else _RECORDED[end.ending],
        reason=row.stop_reason or end.reason or end.ending.value,
        exit_code=end.exit_code,
        message=end.message,
        pod_name=pods.pod_name(row.job_name, row.run_id, row.attempt),
        node=row.node or (item.pod.spec.node_name or None if item.pod else None),
        log_tail=log_tail,
    )


def _reason_of(ending: verdict.Ending) -> str:
    if ending is verdict.Ending.NAMESPACE_DELETED:
        return states.Reason.NAMESPACE_DELETED
    return states.Reason.POD_LOST


def _key(claim: runs.Claim) -> runs.Key:
    return runs.Key(claim.run_id, claim.token, claim.shard)


def _first(noted: dict[K, V]) -> dict[K, V]:
    return dict(itertools.islice(noted.items(), BATCH))


def _forget(noted: dict[K, V], stored: dict[K, V]) -> None:
    """Drops what was stored, but for what a newer sighting has replaced meanwhile."""
    for key, value in stored.items():
        if noted.get(key) is value:
            del noted[key]
