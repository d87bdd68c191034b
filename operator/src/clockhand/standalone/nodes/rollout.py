"""How many pods a Deployment has and which go: decided by what there is, with no look at a store or a clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the Deployment says; `surge` more pods than `replicas` may be there, and `missing` fewer ready."""

    replicas: int
    surge: int
    missing: int
    at_once: bool = False
    """Whether all old pods go before a new one comes."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of its pods. `current`: of the template as it is now. `over`: ended, so that another one is to come."""

    uid: str
    current: bool
    ready: bool
    created: str
    over: bool = False
    going: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    create: int
    delete: frozenset[str]


def read(spec: Json) -> Wanted:
    """Of a Deployment's spec, with Kubernetes' defaults."""
    replicas = int(1 if spec.get("replicas") is None else spec["replicas"])
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    surge = _share(rolling.get("maxSurge", "25%"), replicas, upwards=True)
    missing = _share(rolling.get("maxUnavailable", "25%"), replicas, upwards=False)
    if surge == 0 and missing == 0:
        missing = 1  # otherwise nothing could ever move
    return Wanted(replicas, surge, missing, strategy.get("type") == "Recreate")


def plan(wanted: Wanted, members: Sequence[Member]) -> Plan:
    """The next step towards what is wanted."""
    delete = {one.uid for one in members if one.over and not one.going}
    live = [one for one in members if not one.over and not one.going]
    new = [one for one in live if one.current]
    old = [one for one in live if not one.current]
    delete |= {one.uid for one in _least_missed(new)[: max(0, len(new) - wanted.replicas)]}
    if wanted.at_once:
        delete |= {one.uid for one in old}
        still_there = old or any(one.going and not one.current for one in members)
        return Plan(0 if still_there else max(0, wanted.replicas - len(new)), frozenset(delete))
    create = max(0, min(wanted.replicas - len(new), wanted.replicas + wanted.surge - len(live)))
    delete |= {one.uid for one in old if not one.ready}
    spare = sum(one.ready for one in live if one.uid not in delete) - (wanted.replicas - wanted.missing)
    ready_old = [one for one in _least_missed(old) if one.ready]
    delete |= {one.uid for one in ready_old[: max(0, spare)]}
    return Plan(create, frozenset(delete))


def status(deployment: Json, members: Sequence[Member], *, now: str) -> Json:
    """What the Deployment says of its pods."""
    wanted = read(deployment["spec"])
    live = [one for one in members if not one.over and not one.going]
    ready = sum(one.ready for one in live)
    updated = sum(one.current for one in live)
    counts = {
        "replicas": len(live),
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, wanted.replicas - ready),
    }
    enough = ready >= wanted.replicas - wanted.missing
    complete = updated == len(live) == wanted.replicas and ready >= wanted.replicas
    conditions = [
        _condition("Available", enough, "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"),
        _condition("Progressing", True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"),
    ]
    before = (deployment.get("status") or {}).get("conditions") or []
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **{name: count for name, count in counts.items() if count},
        "conditions": [_dated(one, before, now) for one in conditions],
    }


def _dated(condition: Json, before: Sequence[Json], now: str) -> Json:
    """A condition that stayed as it was keeps the times of its change."""
    same = next((one for one in before if all(one.get(key) == value for key, value in condition.items())), None)
    return same or {**condition, "lastTransitionTime": now, "lastUpdateTime": now}


def _least_missed(members: Sequence[Member]) -> list[Member]:
    """Those that are not ready first, and of the others the newest."""
    newest_first = sorted(members, key=lambda one: one.created, reverse=True)
    return sorted(newest_first, key=lambda one: one.ready)


def _condition(kind: str, good: bool, reason: str) -> Json:
    return {"type": kind, "status": "True" if good else "False", "reason": reason}


def _share(value: int | str, of: int, *, upwards: bool) -> int:
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    share = int(text[:-1]) * of / 100
    return math.ceil(share) if upwards else math.floor(share)
