"""The workers of pools in the cluster: applied when a pool or its scale changes, put right when somebody else changed them.

What was applied is remembered by this process alone. One that begins applies everything once, which changes nothing where
nothing differs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec
import structlog

from clockhand import errors
from clockhand.domain import conditions, observed, outcome, workerpool_scale, workloads
from clockhand.domain.workerpool import Pool, PoolSpec
from clockhand.domain.workerpool_scale import Load, Scale
from clockhand.kube import failures
from clockhand.kube import workloads as calls

log = structlog.get_logger(__name__)

AGAIN_SECONDS, AGAIN_IN_TROUBLE_SECONDS = 600.0, 15.0


@dataclass(frozen=True, slots=True)
class Staff:
    """The workers of a pool: how many there should be and are ready, and what is to be said of them."""

    wanted: int
    ready: int
    condition: conditions.Condition


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was applied for a pool, when, and what the Deployment looked like after it."""

    scale: Scale
    digest: bytes = b""
    generation: int = 0
    at: float = float("-inf")
    trouble: conditions.Condition | None = None


class Workforce:
    """Deployments and what belongs to them. Whoever holds the mirror duty calls it."""

    def __init__(
        self,
        api: calls.Workloads,
        defaults: workloads.Defaults,
        *,
        namespaces: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._defaults = defaults
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._applied: dict[UUID, _Applied] = {}

    async def look(self) -> Mapping[UUID, calls.Deployment]:
        """The Deployments of pools by the uid of the pool."""
        found: dict[UUID, calls.Deployment] = {}
        for namespace in self._namespaces or (None,):
            for one in await self._api.deployments(namespace, selector=workloads.POOL_LABEL):
                if one.metadata.controller:
                    found[UUID(one.metadata.controller)] = one
        return found

    def forget_others(self, uids: Collection[UUID]) -> None:
        """What is known of pools beside these is not needed any more, or not to be trusted."""
        self._applied = {uid: one for uid, one in self._applied.items() if uid in uids}

    async def settle(self, pool: Pool, spec: PoolSpec, seen: calls.Deployment | None, load: Load | None) -> Staff:
        """Makes the workers of `pool` what they should be; with `load` None their number stays as it is."""
        if spec.external:
            return await self._let_go(pool, seen)
        now = self._clock()
        known = self._applied.get(pool.uid) or _Applied(Scale(spec.fewest if seen is None else seen.spec.replicas))
        scale = known.scale if load is None else workerpool_scale.next_scale(spec, known.scale, load, now=now)
        if scale.wanted != known.scale.wanted:
            log.info("pool_scaled", pool=pool.key, workers=scale.wanted, before=known.scale.wanted)
        known = replace(known, scale=scale)
        bodies = workloads.render(pool, spec, self._defaults, replicas=scale.wanted)
        digest = hashlib.sha256(msgspec.json.encode(bodies)).digest()
        if _is_stale(known, seen, digest, now=now):
            known = replace(await self._apply(pool, bodies, known), digest=digest, at=now)
        self._applied[pool.uid] = known
        if known.trouble is None and _ready(seen) < scale.wanted:
            return Staff(scale.wanted, _ready(seen), await self._late(pool, scale.wanted, seen))
        return Staff(scale.wanted, _ready(seen), known.trouble or _at_work(scale.wanted, _ready(seen)))

    async def _apply(self, pool: Pool, bodies: Sequence[calls.Json], known: _Applied) -> _Applied:
        """A pool of which the API server takes nothing says so; whether it was reached at all is the caller's."""
        generation = 0
        try:
            for body in bodies:
                applied = await self._api.apply(body)
                generation = applied if body["kind"] == "Deployment" else generation
        except failures.ApiRefused as error:
            return replace(known, trouble=_not_ready(error.refusal.value, str(error)))
        except errors.Conflict as error:
            return replace(known, trouble=_not_ready("NameTaken", str(error)))
        except errors.InvalidInput as error:
            return replace(known, trouble=_not_ready("TemplateInvalid", str(error)))
        log.info("pool_applied", pool=pool.key, workers=known.scale.wanted)
        return replace(known, generation=generation, trouble=None)

    async def _late(self, pool: Pool, wanted: int, seen: calls.Deployment | None) -> conditions.Condition:
        """Why workers are not ready, as far as their Deployment or one of them says so."""
        told = () if seen is None else seen.status.conditions
        why = next((one.message for one in told if one.type == "ReplicaFailure" and one.status == "True"), "")
        if not why and seen is not None:
            why = _trouble(await self._api.pods(pool.namespace, selector=workloads.selector_of(pool)))
        said = f"{_ready(seen)} of {wanted} workers are ready" + (f": {why}" if why else "")
        return _not_ready(conditions.WORKERS_NOT_READY, said)

    async def _let_go(self, pool: Pool, seen: calls.Deployment | None) -> Staff:
        """An external pool: what the operator kept for it before goes."""
        if seen is not None:
            for kind in calls.KINDS:
                await self._api.delete(kind, pool.namespace, workloads.name_of(pool), owner=str(pool.uid))
        self._applied.pop(pool.uid, None)
        said = "somebody else runs the workers: spec.external is true"
        return Staff(0, 0, conditions.Condition(conditions.READY, conditions.TRUE, "External", said))


def faulty(seen: calls.Deployment | None, fault: str) -> Staff:
    """A pool whose spec cannot be used: its workers stay as they are."""
    return Staff(0 if seen is None else seen.spec.replicas, _ready(seen), _not_ready("InvalidSpec", fault))


def _is_stale(known: _Applied, seen: calls.Deployment | None, digest: bytes, *, now: float) -> bool:
    changed = seen is None or seen.metadata.generation != known.generation
    again = AGAIN_SECONDS if known.trouble is None else AGAIN_IN_TROUBLE_SECONDS
    return digest != known.digest or now - known.at > again or (changed and known.trouble is None)


def _ready(seen: calls.Deployment | None) -> int:
    return 0 if seen is None else seen.status.ready_replicas


def _at_work(wanted: int, ready: int) -> conditions.Condition:
    said = f"{ready} of {wanted} workers are ready" if wanted else "no worker is wanted"
    return conditions.Condition(conditions.READY, conditions.TRUE, "WorkersReady", said)


def _trouble(pods: Sequence[observed.Pod]) -> str:
    """What the first of the pods that cannot start waits for."""
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        seen = outcome.classify(pod)
        if isinstance(seen, outcome.Pending) and seen.reason:
            return f"pod {pod.metadata.name} waits: {seen.reason}" + (f", {seen.message}" if seen.message else "")
    return ""


def _not_ready(reason: str, sentence: str) -> conditions.Condition:
    return conditions.Condition(conditions.READY, conditions.FALSE, reason, sentence)
