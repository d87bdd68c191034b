"""Rows to messages."""

from __future__ import annotations

import msgspec

from clockhand.domain import protocol
from clockhand.store import assigned


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
    )
