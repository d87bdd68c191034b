"""The facts compared, whatever events were missed: every open run has its pod, every pod its open run.

A replica that gains a shard goes through it here first. The same pass, every few seconds and whenever something is to
stop, launches what a dead replica left unlaunched, looks up pods that left the watch, stops what is Stopping, and clears
pods away once their outcome is stored.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable

import structlog

from clockhand import errors
from clockhand.domain import observed, outcome, pods, states, verdict
from clockhand.engine import launch, observe, shards
from clockhand.kube import pods as kube_pods
from clockhand.store import database, mirroring, runs

log = structlog.get_logger(__name__)

BATCH = 1000
_ORPHAN_SECONDS = 30.0
LOST_SECONDS = 60.0
"""A pod still there this long after its grace period is on a node that answers no more: it will never report an end."""


class Sweep:
    """Brings pods and open runs of the held shards together."""

    def __init__(
        self,
        db: database.Database,
        api: kube_pods.Pods,
        *,
        held: shards.Shards,
        launcher: launch.Launch,
        observer: observe.Observe,
        namespaces: Namespaces,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._api = api
        self._held = held
        self._launcher = launcher
        self._observer = observer
        self._namespaces = namespaces
        self._clock = clock
        self._first_seen: dict[str, float] = {}
        self._going_since: dict[str, float] = {}

    async def run_once(self, *, synced: bool) -> None:
        """One pass over the open runs of the held shards. `synced`: a listing has covered all of them."""
        await self._look_up_vanished()
        after = runs.NO_RUN
        while held := self._held.holder().generations:
            async with self._db.transaction() as connection:
                claims = await runs.open_of_shards(connection, shards=held, after=after, limit=BATCH)
            await self._compare(claims, synced=synced)
            if len(claims) < BATCH:
                return
            after = claims[-1].run_id

    async def clear_away(self) -> None:
        """Deletes pods whose outcome is stored and whose time is over, and pods of no open attempt."""
        now = self._clock()
        known = dict(self._observer.pods)
        there = {pod.metadata.uid for pod in known.values()}
        self._going_since = {uid: since for uid, since in self._going_since.items() if uid in there}
        self._first_seen = {
            pod.metadata.uid: self._first_seen.get(pod.metadata.uid, now)
            for pod in known.values()
            if _is_over(pod) or now - self._first_seen.get(pod.metadata.uid, now) < _ORPHAN_SECONDS * 4
        }
        attempts = {(i.run_id, i.attempt) for pod in known.values() if (i := pods.identity_of(pod))}
        if not attempts:
            return
        async with self._db.transaction() as connection:
            still_open = await runs.still_open(connection, attempts)
        closed = [pod for pod in known.values() if not _is_open(pod, still_open)]
        for pod in await self._ours((*self._expired(closed, now), *self._orphans(closed, now))):
            await self._delete(pod)

    async def _compare(self, claims: Collection[runs.Claim], *, synced: bool) -> None:
        unlaunched = []
        for claim in claims:
            name = pods.pod_name(claim.job_name, claim.run_id, claim.attempt)
            pod = self._observer.pods.get((claim.namespace, name))
            if pod is not None and self._is_lost(pod):
                message = "its pod was to be gone by now: the node does not answer"
                self._observer.note_gone(pod, verdict.Ending.GONE, message)
            elif claim.state is states.RunState.STOPPING:
                await self._stop(claim, pod, name)
            elif pod is None and synced and not self._launcher.busy_with(claim.run_id):
                if claim.pod_uid is None and claim.state is states.RunState.CLAIMED:
                    unlaunched.append(claim)
                else:
                    await self._look_up(claim, name)
        if unlaunched:
            await self._launcher.start(unlaunched, taken_over=True)

    def _is_lost(self, pod: observed.Pod) -> bool:
        """By this process's own clock, since it first saw that the pod is being deleted."""
        meta = pod.metadata
        if meta.deletion_timestamp is None or _is_over(pod):
            return False
        since = self._going_since.setdefault(meta.uid, self._clock())
        return self._clock() - since > (meta.deletion_grace_period_seconds or 0) + LOST_SECONDS

    async def _stop(self, claim: runs.Claim, pod: observed.Pod | None, name: str) -> None:
        await self._launcher.abandon(claim.run_id)
        if pod is None:
            await self._look_up(claim, name)
            pod = self._observer.pods.get((claim.namespace, name))
        if pod is not None and not _is_over(pod) and pod.metadata.deletion_timestamp is None:
            await self._delete(pod)

    async def _look_up(self, claim: runs.Claim, name: str) -> None:
        """Asks for one pod by name: the watch does not know it, and that alone proves nothing."""
        try:
            found: observed.Pod | None = await self._api.get(claim.namespace, name)
        except errors.NotFound:
            found = None
        except (errors.Unavailable, errors.Refused):
            return
        identity = found and pods.identity_of(found)
        if found and identity and (identity.run_id, identity.token) == (claim.run_id, claim.token):
            self._observer.note_pod(found)
            return
        if claim.pod_uid is None and claim.state is states.RunState.STOPPING:
            end = verdict.AttemptEnd(verdict.Ending.NEVER_STARTED, reason=claim.stop_reason or "", asked=True)
            self._observer.note_claim_end(claim, end)
            return
        ending = await self._why_gone(claim.namespace)
        end = verdict.AttemptEnd(
            ending, reason=states.Reason.POD_LOST, message=f"pod {name} is not there any more", asked=True
        )
        self._observer.note_claim_end(claim, end)

    async def _look_up_vanished(self) -> None:
        """Pods that the watch lost sight of: deleted, or only without their label."""
        for key, last in list(self._observer.vanished.items()):
            try:
                found: observed.Pod | None = await self._api.get(*key)
            except errors.NotFound:
                found = None
            except (errors.Unavailable, errors.Refused):
                continue
            if found is not None and found.metadata.uid == last.metadata.uid:
                self._observer.note_pod(found)
                if not _is_over(found):
                    continue
            else:
                message = f"pod {key[1]} was deleted before its outcome was seen"
                self._observer.note_gone(last, await self._why_gone(key[0]), message)
            self._observer.vanished.pop(key, None)

    async def _why_gone(self, namespace: str) -> verdict.Ending:
        if await self._namespaces.is_going(namespace):
            return verdict.Ending.NAMESPACE_DELETED
        return verdict.Ending.GONE

    def _expired(self, closed: Iterable[observed.Pod], now: float) -> list[observed.Pod]:
        over = [pod for pod in closed if _is_over(pod)]
        expired = []
        failed: dict[tuple[str, str], list[observed.Pod]] = {}
        for pod in over:
            if isinstance(outcome.classify(pod), outcome.Succeeded):
                if now - self._first_seen.get(pod.metadata.uid, now) >= pods.keep_of(pod).succeeded_seconds:
                    expired.append(pod)
            else:
                failed.setdefault((pod.metadata.namespace, pod.metadata.marks.job_uid), []).append(pod)
        for group in failed.values():
            group.sort(key=_age, reverse=True)
            expired.extend(group[pods.keep_of(group[0]).failed_count :])
        return expired

    def _orphans(self, closed: Iterable[observed.Pod], now: float) -> list[observed.Pod]:
        """Pods that still run although their attempt is closed: nobody waits for them."""
        return [
            pod
            for pod in closed
            if not _is_over(pod)
            and pod.metadata.deletion_timestamp is None
            and now - self._first_seen.get(pod.metadata.uid, now) >= _ORPHAN_SECONDS
        ]

    async def _ours(self, doomed: Iterable[observed.Pod]) -> list[observed.Pod]:
        """Those of the held shards whose job this database has or had.

        Any other belongs to another installation in this cluster, and only that one knows whether it is still needed.
        """
        held = [(pod, i.job_uid) for pod in doomed if (i := pods.identity_of(pod)) and self._held.holds(i.shard)]
        if not held:
            return []
        async with self._db.transaction() as connection:
            known = await mirroring.known(connection, {job_id for _, job_id in held})
        return [pod for pod, job_id in held if job_id in known]

    async def _delete(self, pod: observed.Pod) -> None:
        identity = pods.identity_of(pod)
        if identity is None or not self._held.holds(identity.shard):
            return
        meta = pod.metadata
        try:
            await self._api.delete(meta.namespace, meta.name, uid=meta.uid)
        except (errors.Unavailable, errors.Uncertain, errors.Refused) as error:
            log.warning("pod_not_deleted", namespace=meta.namespace, pod=meta.name, error=str(error))


@dataclasses.dataclass(slots=True)
class Namespaces:
    """Answers whether a namespace is going or gone."""

    phase: Callable[[str], Awaitable[str]]

    async def is_going(self, namespace: str) -> bool:
        """True where it is Terminating or not there; False also where nobody can tell now."""
        try:
            found = await self.phase(namespace)
        except errors.NotFound:
            return True
        except errors.ClockhandError:
            return False
        return found != "Active"


def _is_over(pod: observed.Pod) -> bool:
    return isinstance(outcome.classify(pod), outcome.Succeeded | outcome.Failed | outcome.Disrupted)


def _is_open(pod: observed.Pod, still_open: Collection[tuple[uuid.UUID, int]]) -> bool:
    identity = pods.identity_of(pod)
    return identity is None or (identity.run_id, identity.attempt) in still_open


def _age(pod: observed.Pod) -> str:
    created = pod.metadata.creation_timestamp
    return created.isoformat() if created else ""
