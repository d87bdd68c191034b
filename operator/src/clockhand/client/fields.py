"""The fields of a job as arguments: those of a ScheduledJob's spec in Python's spelling, and its name and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from clockhand import errors
from clockhand.domain import classrun, instants, spec

Json = Mapping[str, Any]


class JobFields(TypedDict, total=False):
    """None stands for the default. What they mean: docs/fields.md."""

    name: str
    labels: Mapping[str, str]
    schedule: str | None
    schedules: Sequence[str] | None
    every: str | None
    at: str | datetime | None
    time_zone: str | None
    dst: spec.Dst | Json | None
    start_at: str | datetime | None
    end_at: str | datetime | None
    jitter_seconds: int | None
    suspend: bool | None
    starting_deadline_seconds: int | None
    catch_up: spec.CatchUp | Json | None
    concurrency_policy: str | None
    queue_limit: int | None
    max_concurrent_runs: int | None
    concurrency_group: str | None
    priority: int | None
    delivery: str | None
    on_delete: str | None
    retry: spec.Retry | Json | None
    attempt_timeout_seconds: int | None
    run_timeout_seconds: int | None
    pending_timeout_seconds: int | None
    pause_after_failures: int | None
    ttl_seconds_after_finished: int | None
    payload: object
    pod_retention: spec.PodRetention | Json | None
    template: Json | None
    run: classrun.Run | Json | None
    handler: str | None
    pool: str | None


_SPELLED = {one.name: one.encode_name for one in msgspec.structs.fields(spec.JobSpec)}


def document(job: Json | None, given: JobFields) -> dict[str, object]:
    """The job as the API takes it: `job`, which is in its spelling already, and above it what is `given`."""
    spelled = {_SPELLED.get(name, name): _plain(name, value) for name, value in given.items()}
    return {**(job or {}), **spelled}


def text_of(instant: datetime | None, name: str) -> str | None:
    """An instant as the API reads it, in whole milliseconds; raises InvalidInput where it has no time zone."""
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise errors.InvalidInput(name, "has no time zone: write datetime(..., tzinfo=UTC)")
    return instants.rfc3339_ms(instant)


def _plain(name: str, value: object) -> object:
    return text_of(value, name) if isinstance(value, datetime) else value
