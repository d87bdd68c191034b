"""Rows to messages, and what is in messages to what rows have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from clockhand import tracing
from clockhand.domain import protocol
from clockhand.store import assigned, leases, pools

_LARGEST_TOKEN = 2**63 - 1
_NO_TOKEN = -1


def read_token(text: str) -> int:
    """The token that a message names; one that no row can have becomes one that no row has."""
    token = int(text)
    return token if token <= _LARGEST_TOKEN else _NO_TOKEN


def beat_of(settings: pools.Settings, worker: str, held: Iterable[protocol.Held]) -> leases.Beat:
    """What a worker of a pool says that it has."""
    listed = [(one.run_id, read_token(one.token)) for one in held]
    return leases.Beat(settings.pool, worker, settings.lease_seconds, listed)


def by_pool(beats: Iterable[leases.Beat]) -> Mapping[str, Sequence[leases.Beat]]:
    """The same by pool: two pools may have workers of one name."""
    groups: dict[str, list[leases.Beat]] = {}
    for beat in beats:
        groups.setdefault(beat.pool, []).append(beat)
    return groups


def run_of(row: assigned.Assigned) -> protocol.Run:
    """What a worker is told of an attempt that it has been given."""
    return protocol.Run(
        run_id=row.run_id,
        token=str(row.token),
        name=row.name,
        job=row.job_name,
        owner=row.owner,
        handler=row.handler,
        kind=row.kind,
        scheduled_at=row.scheduled_at,
        attempt=row.attempt,
        fencing_token=row.fencing,
        timeout_seconds=row.attempt_timeout,
        payload=msgspec.Raw(row.payload.encode()),
        traceparent=tracing.traceparent(row.run_id, row.attempt),
    )
