"""Conditions of an object's status, and how a new one replaces an old one.

A condition's time of transition moves only when its status changes, as Kubernetes has it: tools that wait for a
condition and people who ask "since when" read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from clockhand.domain import instants

READY = "Ready"
TEMPLATE_VALID = "TemplateValid"
PAUSED = "Paused"
POOL_READY = "PoolReady"
KAFKA_REACHABLE = "KafkaReachable"
WORKERS_NOT_READY = "WorkersNotReady"
"""The reason of a pool's Ready that passes by itself in most cases."""
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MESSAGE_LIMIT = 1_024

Stored = Sequence[Mapping[str, object]]


class Condition(msgspec.Struct, frozen=True):
    """One condition, before it is known since when it holds."""

    type: str
    status: str
    reason: str
    message: str


def merge(
    stored: Stored,
    new: Iterable[Condition],
    *,
    now: datetime,
    generation: int,
    dropped: Iterable[str] = (),
) -> list[dict[str, object]]:
    """The stored conditions with `new` ones in their place, less the types `dropped`; ordered by type."""
    gone = frozenset(dropped)
    result = {str(old["type"]): dict(old) for old in stored if old["type"] not in gone}
    for condition in new:
        old = result.get(condition.type, {})
        # what somebody else wrote need not have a time
        since = old.get("lastTransitionTime") if old.get("status") == condition.status else None
        result[condition.type] = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message[:MESSAGE_LIMIT],
            "observedGeneration": generation,
            "lastTransitionTime": since or instants.rfc3339(now),
        }
    return [result[kind] for kind in sorted(result)]


def of_type(stored: Stored, kind: str) -> Mapping[str, object]:
    """One condition, empty where it is absent."""
    return next((condition for condition in stored if condition["type"] == kind), {})


def status_of(stored: Stored, kind: str) -> str | None:
    """The status of one condition, None where it is absent."""
    return next((str(condition["status"]) for condition in stored if condition["type"] == kind), None)
