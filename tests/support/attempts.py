"""Attempts as a worker has them, for calling a handler without a worker around it."""

from __future__ import annotations

import concurrent.futures
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from clockhand.domain import protocol
from clockhand.worker import attempts, sdk

RUN_ID = uuid.UUID("019a0000-0000-8000-8000-000000000001")


def run(payload: Any = None, **fields: Any) -> protocol.Run:
    """A run for a handler, with its payload."""
    return protocol.Run(
        **{
            "run_id": RUN_ID,
            "token": "7",
            "name": "mail-20260301t080000z",
            "job": "mail",
            "owner": "k8s/team-a",
            "handler": "email.send",
            "kind": "Slot",
            "scheduled_at": datetime(2026, 3, 1, 8, tzinfo=UTC),
            "attempt": 2,
            "fencing_token": 9,
            "payload": msgspec.Raw(msgspec.json.encode({} if payload is None else payload)),
            **fields,
        }
    )


def attempt(payload: Any = None, **fields: Any) -> attempts.Attempt:
    """The attempt of such a run, with a lease that goes on."""
    return attempts.Attempt(run(payload, **fields), now=attempts.boot_time(), trusted_until=float("inf"))


def seen(made: attempts.Attempt) -> sdk.Run:
    """The run as its handler sees it."""
    return sdk.Run(made.run, is_ours=lambda: made.ending is None, beat=beat)


def beat() -> concurrent.futures.Future[None]:
    """A heartbeat that is answered at once."""
    answered: concurrent.futures.Future[None] = concurrent.futures.Future()
    answered.set_result(None)
    return answered
