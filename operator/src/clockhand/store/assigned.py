"""An attempt as its worker gets it: the columns that every statement returns which gives a run to a worker.

Such a statement joins live_runs `r` with its job_specs row `s`.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import msgspec


class Assigned(msgspec.Struct, frozen=True, gc=False):
    """An open attempt of a pool run. `payload` is JSON text; `worker` is None where a message carries the attempt."""

    run_id: uuid.UUID
    token: int
    name: str
    job_name: str
    owner: str
    handler: str
    kind: str
    scheduled_at: datetime
    attempt: int
    fencing: int
    attempt_timeout: int | None
    payload: str
    worker: str | None


def assigned(row: Any) -> Assigned:
    """From a row with these columns, in this order, and `coalesce(r.payload, s.payload, 'null')::text` as the payload."""
    return Assigned(*row)
