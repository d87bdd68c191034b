"""What people ask for beside the schedule, for every API alike: run now, run past slots, cancel, retry.

Each function works in the caller's transaction and writes its audit row there, so that an answer "done" and the record of
who asked cannot part.
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import backfill as backfill_domain
from clockhand.domain import documents, firing, ids, spec, states, times
from clockhand.engine import admit, backfill, fire, redrive, specs
from clockhand.store import backfills, database, requests, runs
from clockhand.store import firing as rows


async def request_run(
    connection: database.Connection,
    *,
    owner: str,
    job_id: uuid.UUID,
    name: str,
    payload: object = msgspec.UNSET,
    actor: str,
    now: datetime,
) -> uuid.UUID:
    """Makes a manual run called `name` of a job; returns its id.

    It takes its turn where the job runs one at a time. Raises NotFound without such a job, Conflict where the name is
    taken or the job cannot run, InvalidInput for a payload that cannot be stored.
    """
    job = await _lock_job(connection, owner=owner, job_id=job_id, name=name)
    if payload is not msgspec.UNSET:
        documents.check_text(payload, at="spec.payload")
        spec.check_payload(payload)
    plan = specs.of(await requests.spec_of(connection, job.spec_id))
    run = fire.new_run(
        job_id=job.job_id,
        name=name,
        plan=plan,
        slot=firing.Slot(now, states.RunState.BLOCKED, states.Reason.JOB_LIMIT),
        kind=states.RunKind.MANUAL,
        key=name,
        payload=payload,
    )
    if await requests.claim_key(connection, scope=str(job.job_id), key=name, run_id=run.run_id, now=now) != run.run_id:
        raise errors.Conflict(f"a run named {name!r} exists already")
    await rows.insert_runs(connection, [run], now=now)
    await admit.promote_for(connection, [job.job_id], now=now)
    asked = requests.Asked(owner, actor, "run", job_id=job.job_id, run_id=run.run_id)
    await requests.audit(connection, asked, now=now)
    return run.run_id


async def request_backfill(
    connection: database.Connection,
    *,
    owner: str,
    job_id: uuid.UUID,
    name: str,
    wanted: backfill_domain.Wanted,
    actor: str,
    now: datetime,
) -> uuid.UUID:
    """Stores a backfill called `name` of a job; returns its id. Its runs are made by whoever holds the job's shard.

    Raises NotFound without such a job, Conflict where the name is taken or the job cannot run, InvalidInput for a range
    that cannot be gone through or has no slot in it.
    """
    wanted.check(now)
    job = await _lock_job(connection, owner=owner, job_id=job_id, name=name)
    if job.next_slot_at is not None and job.next_slot_at <= wanted.span.last:
        # what is due is the schedule's: fired later, it would be a second run of a slot that the backfill made
        await fire.settle_due(connection, [job.job_id], now=now)
    plan = specs.of(await requests.spec_of(connection, job.spec_id))
    slots = await backfill.slots_of(wanted.span, plan.due(times.Origin(job.job_id, job.created_at)))
    if slots == 0:
        sentence = f"no slot of {job.name!r} lies in this range: choose another one"
        raise errors.InvalidInput(backfill_domain.FIELD, sentence)
    backfill_id = ids.run_id(job_id=job.job_id, scheduled_at=now, kind=states.RunKind.BACKFILL, key=name)
    stored = await backfills.add(
        connection, backfill_id=backfill_id, job_id=job.job_id, name=name, wanted=wanted, slots=slots, now=now
    )
    if not stored:
        raise errors.Conflict(f"a run named {name!r} exists already")
    detail = {"name": name, "from": wanted.span.first.isoformat(), "to": wanted.span.last.isoformat()}
    asked = requests.Asked(owner, actor, "backfill", job_id=job.job_id, detail=detail)
    await requests.audit(connection, asked, now=now)
    return backfill_id


async def _lock_job(connection: database.Connection, *, owner: str, job_id: uuid.UUID, name: str) -> Any:
    """The job's row, locked, if it can run and nothing has this name."""
    job = await requests.lock_job(connection, owner=owner, job_id=job_id)
    if job is None:
        raise errors.NotFound("no such job")
    if job.parked is not None:
        raise errors.Conflict(f"the job {job.name!r} cannot run: {job.parked}")
    if await requests.name_taken(connection, owner=owner, name=name):
        raise errors.Conflict(f"a run named {name!r} exists already")
    return job


async def cancel_backfill(
    connection: database.Connection, *, owner: str, backfill_id: uuid.UUID, actor: str, now: datetime
) -> None:
    """Ends a backfill: nothing more is made, and its live runs are cancelled or stopped.

    Raises NotFound without such a backfill, Conflict where it is over.
    """
    found = await backfills.wait_for(connection, owner=owner, backfill_id=backfill_id)
    if found is None:
        raise errors.NotFound("no such backfill")
    row = found.row
    if row.ended_at is not None:
        raise errors.Conflict("the backfill is over")
    own = [row.run_id(slot) for slot in row.open_at]
    await runs.cancel_waiting(connection, run_ids=own, reason=states.Reason.CANCELLED, now=now)
    await runs.stop_open(connection, run_ids=own, reason=states.Reason.CANCELLED)
    stopped = dataclasses.replace(row, stop_reason=row.stop_reason or states.Reason.CANCELLED.value)
    await backfill.advance(connection, dataclasses.replace(found, row=stopped), now=now)
    detail = {"backfill": str(backfill_id)}
    asked = requests.Asked(owner, actor, "cancel", job_id=row.job_id, detail=detail)
    await requests.audit(connection, asked, now=now)


async def cancel(
    connection: database.Connection, *, owner: str, run_id: uuid.UUID, actor: str, now: datetime
) -> states.RunState:
    """Cancels a live run; returns Cancelled, or Stopping where an attempt has to end first.

    Raises NotFound without such a run, Conflict where it is over.
    """
    found = await requests.lock_live(connection, owner=owner, run_id=run_id)
    if found is None:
        await _refuse_ended(connection, owner=owner, run_id=run_id)
        raise errors.NotFound("no such run")
    state = states.RunState(found.state)
    if state in states.WAITING:
        await runs.cancel_waiting(connection, run_ids=[run_id], reason=states.Reason.CANCELLED, now=now)
        state = states.RunState.CANCELLED
    else:
        await runs.stop_open(connection, run_ids=[run_id], reason=states.Reason.CANCELLED)
        state = states.RunState.STOPPING
    asked = requests.Asked(owner, actor, "cancel", job_id=found.job_id, run_id=run_id)
    await requests.audit(connection, asked, now=now)
    return state


async def retry(connection: database.Connection, *, owner: str, run_id: uuid.UUID, actor: str, now: datetime) -> None:
    """Runs a Dead, Unknown or Cancelled run again under its own id; a Retrying one goes on at once.

    Raises NotFound without such a run, Conflict for any other state.
    """
    if not await requests.lock_job_of_run(connection, owner=owner, run_id=run_id):
        if await requests.ended(connection, owner=owner, run_id=run_id) is None:
            raise errors.NotFound("no such run")
        raise errors.Conflict("the run's job is gone, and with it what would have to run")
    found = await requests.lock_live(connection, owner=owner, run_id=run_id)
    if found is not None:
        if found.state != states.RunState.RETRYING:
            raise errors.Conflict(f"the run is {found.state}: only a Retrying or an ended run can be retried")
        await requests.retry_now(connection, run_id=run_id, now=now)
        asked = requests.Asked(owner, actor, "retry", job_id=found.job_id, run_id=run_id)
        await requests.audit(connection, asked, now=now)
        job_id = found.job_id
    else:
        job_id = await _redrive(connection, owner=owner, run_id=run_id, actor=actor, now=now)
    await admit.promote_for(connection, [job_id], now=now)


async def _redrive(
    connection: database.Connection, *, owner: str, run_id: uuid.UUID, actor: str, now: datetime
) -> uuid.UUID:
    ended = await requests.ended(connection, owner=owner, run_id=run_id)
    if ended is None:
        raise errors.NotFound("no such run")
    if ended.state not in redrive.STATES:
        raise errors.Conflict(f"the run is {ended.state}: make a new run of the job instead")
    job_id: uuid.UUID = ended.job_id
    if not await redrive.take_back(connection, [run_id], owner=owner, job_ids=[job_id], actor=actor, now=now):
        raise errors.Conflict(
            "the run's spec cannot be read by this release, or its JobClass has changed since: "
            "make a new run of the job instead"
        )
    return job_id


async def _refuse_ended(connection: database.Connection, *, owner: str, run_id: uuid.UUID) -> None:
    ended = await requests.ended(connection, owner=owner, run_id=run_id)
    if ended is not None:
        raise errors.Conflict(f"the run is over: {ended.state}")
