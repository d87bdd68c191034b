"""A page of runs, newest first: live ones, ended ones and slots that did not run, as one list.

A run keeps its id when it ends, so the id at which a page ended is all that the next one has to know: what ends meanwhile
is neither listed twice nor left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from clockhand.store import database, listing

_SCANS = (500, 2_000, listing.SCAN_ROWS, listing.SCAN_ROWS, listing.SCAN_ROWS, listing.SCAN_ROWS)
"""Rows looked at in one go, where filters leave some out: few at first, for most often there are enough among them."""


class Page(msgspec.Struct, frozen=True):
    """Some runs; `edge` is the id below which the next page begins, None where there is nothing more."""

    runs: Sequence[listing.Run]
    edge: uuid.UUID | None


async def page(
    connection: database.Connection,
    sift: listing.Filter,
    span: listing.Span,
    *,
    jobs: Sequence[uuid.UUID],
    before: uuid.UUID,
    limit: int,
) -> Page:
    """The next `limit` runs below `before`; fewer, where the filters leave out too much of what was looked at.

    The caller holds the transaction still.
    """
    found: list[listing.Run] = []
    for scan in _SCANS:
        asked: dict[str, Any] = {"jobs": jobs, "before": before, "take": limit + 1 - len(found)}
        steps = (
            await listing.live(connection, sift, span, **asked, scan=scan),
            await listing.history(connection, sift, span, **asked, scan=scan),
            await listing.skips(connection, sift, span, **asked),
        )
        edges = [step.edge for step in steps if step.edge is not None]
        # above the highest edge every run is known; below it some may not have been looked at
        found += [run for run in _merged(steps) if not edges or run.run_id >= max(edges)]
        if len(found) > limit:
            return Page(found[:limit], found[limit - 1].run_id)
        if not edges:
            return Page(found, None)
        before = max(edges)
    return Page(found, before)


def _merged(steps: Sequence[listing.Step]) -> Sequence[listing.Run]:
    return sorted((run for step in steps for run in step.runs), key=lambda run: run.run_id, reverse=True)
