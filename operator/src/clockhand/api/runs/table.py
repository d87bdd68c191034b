"""Runs as rows for people: the server renders the cells, so that every kubectl shows the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from clockhand.api.runs import negotiate, objects
from clockhand.domain import instants, spans
from clockhand.store import listing

Json = dict[str, Any]
_WIDE = 1
# as kubectl shows what is not there; an empty cell would shift the columns for whoever reads rows by words
_NOTHING = "<none>"
_COLUMNS: Sequence[tuple[str, str, str, int]] = (
    ("Name", "string", "The run: its job and its scheduled instant.", 0),
    ("Job", "string", "The ScheduledJob that it belongs to.", 0),
    ("State", "string", "Where it is in its life.", 0),
    ("Attempt", "integer", "How many attempts have been claimed.", 0),
    ("Scheduled", "string", "The instant for which it is due; the range of a backfill.", 0),
    ("Lateness", "string", "From that instant to the acceptance of the first pod.", 0),
    ("Duration", "string", "How long the newest attempt ran or has been running.", 0),
    ("Age", "string", "How long ago the run was made.", 0),
    ("Worker", "string", "The newest attempt's pod and its node.", _WIDE),
    ("Reason", "string", "Why it is in this state.", _WIDE),
)
COLUMN_DEFINITIONS: Sequence[Json] = [
    {"name": name, "type": kind, "format": "name" if name == "Name" else "", "description": text, "priority": priority}
    for name, kind, text, priority in _COLUMNS
]


def table(
    runs: Sequence[listing.Run], shape: negotiate.Shape, *, version: int, now: datetime, columns: bool = True
) -> Json:
    """A Table; its `metadata` is the caller's to fill."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{shape.version}",
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": COLUMN_DEFINITIONS if columns else None,
        "rows": [_row(run, shape, version=version, now=now) for run in runs],
    }


def _row(run: listing.Run, shape: negotiate.Shape, *, version: int, now: datetime) -> Json:
    row: Json = {"cells": cells(run, now)}
    if shape.include is negotiate.Include.METADATA:
        row["object"] = objects.metadata_object(run, version, api=shape.version)
    elif shape.include is negotiate.Include.OBJECT:
        row["object"] = objects.run_object(run, version)
    return row


def cells(run: listing.Run, now: datetime) -> list[Any]:
    """In the order of the columns."""
    late = objects.lateness(run)
    return [
        run.name,
        run.job_name,
        run.state,
        run.attempt,
        _scheduled(run),
        _NOTHING if late is None else spans.short(timedelta(seconds=late)),
        _duration(run, now),
        spans.human(now - run.created_at),
        _worker(run),
        _reason(run),
    ]


def _scheduled(run: listing.Run) -> str:
    if run.backfill is None:
        return instants.rfc3339_ms(run.scheduled_at)
    return f"{instants.rfc3339_ms(run.backfill.span.first)}/{instants.rfc3339_ms(run.backfill.span.last)}"


def _duration(run: listing.Run, now: datetime) -> str:
    if run.backfill is not None:
        return spans.short((run.finished_at or now) - run.created_at)
    if run.started_at is None or run.state == "Retrying":
        return _NOTHING
    return spans.short((run.finished_at or now) - run.started_at)


def _worker(run: listing.Run) -> str:
    pod = objects.pod_name(run)
    if pod is None:
        return run.worker or _NOTHING
    return f"{pod}/{run.node}" if run.node else pod


def _reason(run: listing.Run) -> str:
    if run.backfill is not None:
        done = f"{run.backfill.succeeded + run.backfill.failed + run.backfill.passed} of {run.backfill.slots} slots"
        return f"{run.reason} ({done})" if run.reason else done
    if run.count is None:
        return run.reason or _NOTHING
    return f"{run.reason} ({run.count} slot{'s' if run.count > 1 else ''})"
