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
from clockhand.domain import observed, outcome, pods, states, verdict
from clockhand.engine import aftermath, limits, shards, verdicts
from clockhand.kube import pods as kube_pods
from clockhand.kube import watch
from clockhand.store import database, runs, status

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

BATCH = 500
_LOGS_AT_ONCE = 8
_LOG_SECONDS = 5.0
_ALL_LOGS_SECONDS = 10.0


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
        file: limits.LimitsFile | None = None,
    ) -> None:
        self._db = db
        self._api = api
        self._held = held
        self._clock = clock
        self._aftermath = aftermath.Aftermath(db, file)
        self._launched: dict[uuid.UUID, Accepted] = {}
        self._started: dict[uuid.UUID, runs.Started] = {}
        self._waits: dict[uuid.UUID, runs.Waits] = {}
        self._handed_back: dict[uuid.UUID, runs.Key] = {}
        self._ended: dict[verdicts.Attempt, verdicts.Ended] = {}
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
            self._end(verdicts.Ended(runs.Key(identity.run_id, identity.token, identity.shard), end))

    def note_launched(self, claim: runs.Claim, pod_uid: uuid.UUID) -> None:
        """Takes note that the API server has the attempt's pod."""
        self._launched[claim.run_id] = Accepted(_key(claim), pod_uid, self._clock())
        self.wanted.set()

    def note_claim_end(self, claim: runs.Claim, end: verdict.AttemptEnd) -> None:
        """Takes note that an attempt ended without a pod of its own."""
        self._end(verdicts.Ended(_key(claim), end))

    def note_waits(self, claim: runs.Claim, reason: str, message: str | None) -> None:
        """Takes note of why an attempt has no pod yet."""
        self._waits[claim.run_id] = runs.Waits(claim.run_id, claim.token, reason, message, refused=True)
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
            await self._aftermath.follow(stored)
        if not (self._launched or self._started or self._ended or self._handed_back):
            self.wanted.clear()
        return batch.size

    async def _store(self, batch: _Batch, holder: runs.Holder, logs: dict[verdicts.Attempt, str]) -> verdicts.Stored:
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
            stored = await verdicts.store(connection, holder, ended, logs, now=now)
            refused = [run_id for run_id, waits in batch.waits.items() if waits.refused]
            await status.note_stuck(connection, refused, now=now)
            return stored

    async def _logs(self, ended: Sequence[verdicts.Ended] | Any) -> dict[verdicts.Attempt, str]:
        places = asyncio.Semaphore(_LOGS_AT_ONCE)
        tails: dict[verdicts.Attempt, str] = {}

        async def fetch(item: verdicts.Ended, pod: observed.Pod) -> None:
            where = (pod.metadata.namespace, pod.metadata.name, outcome.main_container_of(pod))
            # a log is a help, never a reason to lose an outcome
            with contextlib.suppress(errors.ClockhandError, TimeoutError):
                async with places, asyncio.timeout(_LOG_SECONDS):
                    tails[item.attempt] = await self._api.log_tail(*where)

        ill = [item for item in ended if item.pod and item.end.ending is not verdict.Ending.SUCCEEDED]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ALL_LOGS_SECONDS):
                await asyncio.gather(*(fetch(item, item.pod) for item in ill if item.pod))
        return tails

    def _drop(self, batch: _Batch, stored: verdicts.Stored) -> None:
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
        end = verdicts.end_of(pod)
        if identity is None or end is None:
            return False
        self.gated.pop(identity.run_id, None)
        if pod.metadata.uid in self._settled:
            return True
        self._end(verdicts.Ended(runs.Key(identity.run_id, identity.token, identity.shard), end, pod))
        return True

    def _end(self, item: verdicts.Ended) -> None:
        self._ended.setdefault(item.attempt, item)
        self.wanted.set()


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    launched: dict[uuid.UUID, Accepted]
    started: dict[uuid.UUID, runs.Started]
    waits: dict[uuid.UUID, runs.Waits]
    handed_back: dict[uuid.UUID, runs.Key]
    ended: dict[verdicts.Attempt, verdicts.Ended]

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
