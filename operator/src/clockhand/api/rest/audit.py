"""`/v1/audit`: who asked for what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from clockhand.api.rest import asked, cursors, routes
from clockhand.domain import instants, resources, tokens
from clockhand.engine.jobs import service

_BYTES = 8


class Audit:
    """What can be read about requests."""

    def __init__(self, jobs: service.Jobs, sealed: cursors.Cursors) -> None:
        self._jobs = jobs
        self._cursors = sealed

    def all(self) -> Sequence[routes.Route]:
        """The one call."""
        return (
            routes.Route(
                method="GET",
                path="/v1/audit",
                name="listAudit",
                summary="Who asked for what, newest first.",
                role=tokens.Role.VIEWER,
                right=routes.Right("list"),
                handle=self.page,
                gives={200: resources.AuditPage},
                query=(asked.JOB, asked.SINCE, asked.UNTIL, asked.LIMIT, asked.CURSOR),
            ),
        )

    async def page(self, call: routes.Call) -> routes.Answer:
        """Some of the entries."""
        query, limit = call.query, call.query["limit"]
        since, until = asked.span_in(query)
        of = (call.owner, "audit", query["job"], since, until)
        after = None if query["cursor"] is None else _place(await self._cursors.read(of, query["cursor"]))
        page = await self._jobs.audit_page(
            call.owner,
            job=query["job"],
            since=since,
            until=until and until + until.resolution,
            after=after,
            size=limit + 1,
        )
        items, following = page.items[:limit], None
        if len(page.items) > limit:
            following = await self._cursors.write(of, _bytes(items[-1]))
        return routes.Answer(200, resources.AuditPage(items=items, next=following))


def _bytes(entry: resources.AuditEntry) -> bytes:
    microseconds = (entry.at - instants.EPOCH) // entry.at.resolution
    return microseconds.to_bytes(_BYTES, "big") + entry.id.to_bytes(_BYTES, "big")


def _place(place: bytes) -> tuple[datetime, int]:
    microseconds = int.from_bytes(place[:_BYTES], "big")
    return instants.EPOCH + microseconds * datetime.resolution, int.from_bytes(place[_BYTES:], "big")
