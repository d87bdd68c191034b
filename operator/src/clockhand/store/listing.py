"""Lists of runs for people: live ones, ended ones and slots that did not run, a page at a time and without payloads.

A run id begins with its scheduled instant, so ids are the order of a list and its cursor. Every page walks one index
downwards from the cursor and looks at a bounded number of rows, however few of them the selectors let through.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from psycopg.types import json as json_types

from clockhand.domain import backfill as backfill_domain
from clockhand.domain import ids, instants, names, states
from clockhand.store import backfills, database

SKIPPED = "Skipped"
SCAN_ROWS = 5_000
TOP = names.lowest(datetime(9999, 12, 31, tzinfo=UTC))
_FEW_JOBS = 100
_SECOND = timedelta(seconds=1)
_OVER = frozenset(str(state) for state in states.OVER)
_ALL = frozenset(str(state) for state in states.RunState)
_STABLE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and how many slots and runs have come of it."""

    span: backfill_domain.Span
    concurrency: int
    reached_at: datetime | None
    slots: int
    made: int
    passed: int
    succeeded: int
    failed: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as lists show it, or (state Skipped) slots that did not run, or a backfill, which no list shows."""

    run_id: uuid.UUID
    job_id: uuid.UUID
    owner: str
    job_name: str
    name: str
    labels: Mapping[str, str]
    kind: str
    scheduled_at: datetime
    created_at: datetime
    state: str
    reason: str | None = None
    message: str | None = None
    attempt: int = 0
    failures: int = 0
    disruptions: int = 0
    claimed_at: datetime | None = None
    launched_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    node: str | None = None
    worker: str | None = None
    pooled: bool = False
    """Its attempts are made by workers of a pool, not as pods."""
    first_at: datetime | None = None
    count: int | None = None
    backfill: Backfill | None = None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What SQL can sift by; label sets are as in a selector."""

    owner: str | None = None
    job: str | None = None
    states: frozenset[str]
    equal: Mapping[str, str] = {}
    present: Sequence[str] = ()
    absent: Sequence[str] = ()
    within: Mapping[str, Sequence[str]] = {}
    outside: Mapping[str, Sequence[str]] = {}

    @property
    def picks(self) -> bool:
        """Whether a row in a state that is wanted may be left out."""
        labels = self.equal or self.present or self.absent or self.within or self.outside
        return bool(labels) or self.job is not None

    @property
    def sifts(self) -> bool:
        """Whether a row that was looked at may be left out."""
        return self.picks or not self.states >= _ALL

    @property
    def unwell(self) -> bool:
        """Whether only states are wanted that have an index of their own."""
        ended = self.states & _OVER
        return "Succeeded" not in ended and bool(ended)


class Span(msgspec.Struct, frozen=True):
    """Scheduled instants from `oldest` to `newest`, both included; ended runs only if they ended by `asof`."""

    oldest: datetime
    newest: datetime
    asof: datetime


class Step(msgspec.Struct, frozen=True):
    """What one look gave: the runs, and the id from which the next one goes on (None: that was the end)."""

    runs: Sequence[Run]
    edge: uuid.UUID | None


async def hold_still(connection: database.Connection) -> None:
    """First in a transaction: every statement sees the same moment, so a run that ends meanwhile is seen once."""
    await connection.execute(_STABLE)


async def job(connection: database.Connection, *, owner: str, job_id: uuid.UUID) -> Any | None:
    """Row (name, deleted_at) of the owner's job, also of a deleted one, as far as it is kept."""
    return await database.fetch_one(connection, "listing.job", {"owner": owner, "job_id": job_id})


async def job_ids(connection: database.Connection, *, owner: str | None, name: str) -> Sequence[uuid.UUID]:
    """The jobs that have or had this name, as far as their rows are kept; none where they are too many to go through."""
    if owner is None:
        rows = await database.fetch(connection, "listing.job_ids_anywhere", {"name": name})
        return [row.job_id for row in rows] if len(rows) <= _FEW_JOBS else []
    rows = await database.fetch(connection, "listing.job_ids", {"owner": owner, "name": name})
    return [row.job_id for row in rows]


async def live(
    connection: database.Connection,
    sift: Filter,
    span: Span,
    *,
    jobs: Sequence[uuid.UUID],
    before: uuid.UUID,
    take: int,
    scan: int = SCAN_ROWS,
) -> Step:
    """The next runs that are not over, newest first. At most `scan` rows are looked at, where some may be left out."""
    wanted = sift.states - _OVER - {SKIPPED}
    if not wanted:
        return Step((), None)
    name = "live_by_job" if jobs else "live_by_owner" if sift.owner else "live_by_time"
    looked_at = {"states": sorted(wanted), "scan": scan if sift.sifts else take}
    return await _look(connection, name, _parameters(sift, span, jobs, before, take) | looked_at)


async def history(
    connection: database.Connection,
    sift: Filter,
    span: Span,
    *,
    jobs: Sequence[uuid.UUID],
    before: uuid.UUID,
    take: int,
    scan: int = SCAN_ROWS,
) -> Step:
    """The next runs that are over, newest first; `scan` as above."""
    wanted = sift.states & _OVER
    if not wanted:
        return Step((), None)
    driver = "by_job" if jobs else _driver(sift)
    sifts = sift.picks if driver.endswith("state") else sift.sifts
    looked_at = {"states": sorted(wanted), "scan": scan if sifts else take}
    return await _look(connection, f"history_{driver}", _parameters(sift, span, jobs, before, take) | looked_at)


async def skips(
    connection: database.Connection,
    sift: Filter,
    span: Span,
    *,
    jobs: Sequence[uuid.UUID],
    before: uuid.UUID,
    take: int,
) -> Step:
    """The next slots that did not run, newest first. The caller sifts them by labels and job."""
    if SKIPPED not in sift.states:
        return Step((), None)
    driver = "by_job" if jobs else "by_owner" if sift.owner else "by_time"
    parameters = {
        "before_at": min(ids.scheduled_at_of(before), span.newest + instants.MILLISECOND),
        "before_id": names.skip_id_of(before),
        "oldest": span.oldest,
        "newest": span.newest,
        "owner": sift.owner,
        "jobs": list(jobs),
        "scan": take,
    }
    found = [_skip(row) for row in await database.fetch(connection, f"listing.skips_{driver}", parameters)]
    return Step(found, found[-1].run_id if len(found) == take else None)


async def by_name(connection: database.Connection, *, owner: str, name: str) -> Run | None:
    """What this owner has under `name`: where several runs are called so, the one that was made last."""
    found = await all_named(connection, owner=owner, name=name)
    return found[0] if found else None


async def all_named(connection: database.Connection, *, owner: str, name: str) -> Sequence[Run]:
    """The runs, the row about skipped slots, or the backfill, that this owner has under `name`; the newest run first.

    Runs share a name where a job is deleted and made again, or its `at` is moved within the second that the name says.
    """
    parsed = names.parse(name)
    if parsed is not None and parsed.skip_id is not None:
        bounds = {"from_at": parsed.instant, "to_at": parsed.instant + _SECOND}
        parameters = {"skip_id": parsed.skip_id, "owner": owner, **bounds}
        skips = map(_skip, await database.fetch(connection, "listing.skip_named", parameters))
        return [skip for skip in skips if skip.name == name]
    rows = await _slots(connection, owner, name, parsed) if parsed is not None else ()
    rows = rows or await database.fetch(connection, "listing.named", {"owner": owner, "name": name})
    if rows or parsed is not None:
        return [_run(row) for row in rows]
    backfill = _backfill(await backfills.named(connection, owner=owner, name=name))
    return [backfill] if backfill else []


async def by_ids(connection: database.Connection, run_ids: Sequence[uuid.UUID]) -> Sequence[Run]:
    """What these runs look like now; one that is gone is left out."""
    parameters = {"runs": list(run_ids), "instants": [ids.scheduled_at_of(run_id) for run_id in run_ids]}
    return [_run(row) for row in await database.fetch(connection, "listing.by_ids", parameters)]


async def by_id(connection: database.Connection, *, owner: str, run_id: uuid.UUID) -> Run | None:
    """The run, the row about skipped slots, or the backfill, of this owner that has this id."""
    found = [run for run in await by_ids(connection, [run_id]) if run.owner == owner]
    if found:
        return found[0]
    at = ids.scheduled_at_of(run_id)
    bounds = {"from_at": at, "to_at": at + instants.MILLISECOND}
    parameters = {"skip_id": names.skip_id_of(run_id), "owner": owner, **bounds}
    for skip in map(_skip, await database.fetch(connection, "listing.skip_named", parameters)):
        if skip.run_id == run_id:
            return skip
    return _backfill(await backfills.shown(connection, owner=owner, backfill_id=run_id))


async def contents(connection: database.Connection, run_id: uuid.UUID) -> tuple[Any, Any]:
    """The run's payload and what its handler returned; None where there is none."""
    row = await database.fetch_one(connection, "listing.contents", _key(run_id))
    return (row.payload, row.result) if row else (None, None)


async def attempts(connection: database.Connection, run_id: uuid.UUID) -> Sequence[Any]:
    """The attempts that did not end well, newest first."""
    return await database.fetch(connection, "listing.attempts", _key(run_id))


async def log_tail(connection: database.Connection, run_id: uuid.UUID, attempt: int | None) -> str | None:
    """The stored end of the log of `attempt`, or of the newest attempt that has one."""
    row = await database.fetch_one(connection, "listing.log_tail", {**_key(run_id), "attempt": attempt})
    return row.log_tail if row else None


def _driver(sift: Filter) -> str:
    if sift.unwell:
        return "by_owner_and_state" if sift.owner else "by_state"
    return "by_owner" if sift.owner else "by_time"


async def _slots(connection: database.Connection, owner: str, name: str, parsed: names.SlotName) -> Sequence[Any]:
    about = {"name": name, "from_at": parsed.instant, "to_at": parsed.instant + _SECOND}
    jobs = await job_ids(connection, owner=owner, name=parsed.job_name)
    if jobs and (rows := await database.fetch(connection, "listing.slot_of_jobs", {"jobs": jobs, **about})):
        return rows
    keys = {"floor": names.lowest(parsed.instant), "before": names.lowest(parsed.instant + _SECOND)}
    return await database.fetch(connection, "listing.slot_of_owner", {"owner": owner, **about, **keys})


async def _look(connection: database.Connection, name: str, parameters: Mapping[str, Any]) -> Step:
    found: list[Run] = []
    last: Any = None
    async for rows in database.parts(connection, f"listing.{name}", parameters):
        found += [_run(row) for row in rows if row.run_id is not None]
        last = rows[-1]
    if len(found) == parameters["take"]:
        return Step(found, found[-1].run_id)  # before the edge of what was looked at, perhaps
    return Step(found, last.edge if last is not None and last.looked == parameters["scan"] else None)


def _parameters(sift: Filter, span: Span, jobs: Sequence[uuid.UUID], before: uuid.UUID, take: int) -> dict[str, Any]:
    return {
        "owner": sift.owner,
        "job": sift.job,
        "jobs": list(jobs),
        "equal": json_types.Jsonb(dict(sift.equal)),
        "present": list(sift.present),
        "absent": list(sift.absent),
        "within": json_types.Jsonb({key: list(values) for key, values in sift.within.items()}),
        "outside": json_types.Jsonb({key: list(values) for key, values in sift.outside.items()}),
        "before": before,
        "floor": names.lowest(span.oldest),
        "oldest": span.oldest,
        "newest": min(span.newest, ids.scheduled_at_of(before)),
        "asof": span.asof,
        "take": take,
    }


def _key(run_id: uuid.UUID) -> dict[str, Any]:
    return {"run_id": run_id, "scheduled_at": ids.scheduled_at_of(run_id)}


def _run(row: Any) -> Run:
    return Run(
        run_id=row.run_id,
        job_id=row.job_id,
        owner=row.owner,
        job_name=row.job_name,
        name=row.name,
        labels=row.labels or {},
        kind=row.kind,
        scheduled_at=row.scheduled_at,
        created_at=row.created_at,
        state=row.state,
        reason=row.reason,
        message=row.message,
        attempt=row.attempt,
        failures=row.failures,
        disruptions=row.disruptions,
        claimed_at=row.claimed_at,
        launched_at=row.launched_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        node=row.node,
        worker=row.worker,
        pooled=row.shard in ids.POOL_SHARDS,
    )


def _skip(row: Any) -> Run:
    return Run(
        run_id=names.skip_uuid(row.last_at, row.skip_id),
        job_id=row.job_id,
        owner=row.owner,
        job_name=row.job_name,
        name=names.of_skip(row.job_name, row.last_at, row.skip_id),
        labels=row.labels or {},
        kind=str(states.RunKind.SLOT),
        scheduled_at=row.last_at,
        created_at=row.recorded_at,
        state=SKIPPED,
        reason=row.reason,
        finished_at=row.recorded_at,
        first_at=row.first_at,
        count=row.count,
    )


def _backfill(row: Any | None) -> Run | None:
    if row is None:
        return None
    state = backfill_domain.state(
        stop_reason=row.stop_reason,
        begun=row.reached_at is not None,
        over=row.ended_at is not None,
        failed=row.failed,
    )
    return Run(
        run_id=row.backfill_id,
        job_id=row.job_id,
        owner=row.owner,
        job_name=row.job_name,
        name=row.name,
        labels={},
        kind=str(states.RunKind.BACKFILL),
        scheduled_at=row.from_at,
        created_at=row.created_at,
        state=str(state),
        reason=backfill_domain.RUNS_FAILED if state is states.RunState.DEAD else row.stop_reason,
        message=f"{row.failed} of its {row.made} runs did not succeed" if row.failed else None,
        finished_at=row.ended_at,
        backfill=Backfill(
            span=backfills.span_of(row),
            concurrency=row.concurrency,
            reached_at=row.reached_at,
            slots=row.slots,
            made=row.made,
            passed=row.passed,
            succeeded=row.succeeded,
            failed=row.failed,
        ),
    )
