"""Who asked for what, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from clockhand.store import database
from clockhand.store.requests import Asked


async def add(connection: database.Connection, asked: Sequence[Asked], *, now: datetime) -> None:
    """Records what was asked for."""
    if asked:
        parameters = {
            "owners": [one.owner for one in asked],
            "actors": [one.actor for one in asked],
            "actions": [one.action for one in asked],
            "job_ids": [one.job_id for one in asked],
            "run_ids": [one.run_id for one in asked],
            "details": [None if one.detail is None else msgspec.json.encode(one.detail).decode() for one in asked],
            "now": now,
        }
        await database.execute(connection, "audits.add", parameters)


async def page(
    connection: database.Connection,
    owner: str,
    *,
    job_ids: Sequence[UUID] | None,
    oldest: datetime,
    before: tuple[datetime, int],
    size: int,
) -> Sequence[Any]:
    """Rows (audit_id, at, actor, action, job_id, run_id, detail, job_name), newest first, from `oldest` on and before a
    place; of `job_ids` alone, where there are any.
    """
    parameters = {"owner": owner, "oldest": oldest, "before_at": before[0], "before_id": before[1], "size": size}
    if job_ids is None:
        return await database.fetch(connection, "audits.of_owner", parameters)
    return await database.fetch(connection, "audits.of_jobs", {**parameters, "job_ids": list(job_ids)})
