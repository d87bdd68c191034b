"""Jobs that are made over REST, many in one transaction: what is wrong with one of them is nothing to the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from clockhand import errors
from clockhand.domain import declared, drafts, ids
from clockhand.domain import limits as limits_domain
from clockhand.engine import edits
from clockhand.engine.jobs import showing
from clockhand.engine.jobs.asking import Asker, Document
from clockhand.store import audits, database, mirroring, requests
from clockhand.store import jobs as rows

FIRST_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A job that somebody wants made."""

    asker: Asker
    draft: drafts.Draft


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A job that was made."""

    job_id: UUID
    name: str
    document: Document


Outcome = Made | errors.ClockhandError


def read(asker: Asker, document: object) -> Wanted:
    """What somebody wants, read; raises InvalidInput, or Refused for a template that is not his to use."""
    draft = drafts.read(document, new=True)
    check_template(asker, draft.spec)
    return Wanted(asker, draft)


def check_template(asker: Asker, spec: declared.Written) -> None:
    """Nobody gains rights through a template."""
    if spec.template_json is not None and not asker.templates:
        raise errors.Refused("a job with template needs a Kubernetes token whose user may create pods in the namespace")


async def add(
    connection: database.Connection, limits: limits_domain.Limits, wanted: Sequence[Wanted], *, now: datetime
) -> Sequence[Outcome]:
    """Makes jobs; what became of each, in their order."""
    read_all = [_reading(one, now) for one in wanted]
    readings = [one for one in read_all if isinstance(one, declared.Reading)]
    refused: Mapping[UUID, errors.ClockhandError] = {}
    if readings:
        # whoever makes jobs of an owner holds its row from here on: names and quotas cannot be raced for
        shards = await edits.place(connection, [one.declared for one in readings])
        refused = await _refused(connection, limits, readings)
        readings = [one for one in readings if one.declared.uid not in refused]
    if readings:
        await _store(connection, readings, shards, now=now)
    askers = {
        one.declared.uid: given.asker
        for one, given in zip(read_all, wanted, strict=True)
        if isinstance(one, declared.Reading)
    }
    await _record(connection, readings, askers, now=now)
    made = await _made(connection, limits, readings)
    return [
        one if isinstance(one, errors.ClockhandError) else refused.get(one.declared.uid) or made[one.declared.uid]
        for one in read_all
    ]


def _reading(wanted: Wanted, now: datetime) -> declared.Reading | errors.InvalidInput:
    draft = wanted.draft
    job_id = ids.new_job(now)
    who = declared.Declared(
        uid=job_id,
        owner=wanted.asker.owner,
        name=draft.name or f"job-{job_id}",
        generation=1,
        resource_version=FIRST_VERSION,
        created_at=now,
        labels=draft.labels,
    )
    try:
        return declared.read(who, draft.spec, after=now, new=True)
    except errors.InvalidInput as error:
        return drafts.flat(error)


async def _refused(
    connection: database.Connection, limits: limits_domain.Limits, readings: Sequence[declared.Reading]
) -> Mapping[UUID, errors.ClockhandError]:
    """Those for whose name or number there is no room."""
    named = {(one.declared.owner, one.declared.name) for one in readings if not _own_name(one)}
    taken = set(await rows.taken(connection, named))
    caps = {owner: limits.job_cap(owner) for owner in {one.declared.owner for one in readings}}
    room = {
        owner: cap - await rows.count(connection, owner, limit=cap) for owner, cap in caps.items() if cap is not None
    }
    refused: dict[UUID, errors.ClockhandError] = {}
    for one in readings:
        who = one.declared
        if (who.owner, who.name) in taken:
            refused[who.uid] = errors.Conflict(f"a job named {who.name!r} exists already")
            continue
        left = room.get(who.owner)
        if left is not None and left <= 0:
            sentence = f"{who.owner} has {caps[who.owner]} jobs, as many as its limit maxJobs allows: delete some first"
            refused[who.uid] = errors.Refused(sentence)
            continue
        if left is not None:
            room[who.owner] = left - 1
        taken.add((who.owner, who.name))
    return refused


def _own_name(reading: declared.Reading) -> bool:
    """Whether the name was made from the id, so that nobody else can have it."""
    return reading.declared.name.endswith(str(reading.declared.uid))


async def _store(
    connection: database.Connection,
    readings: Sequence[declared.Reading],
    shards: Mapping[UUID, int],
    *,
    now: datetime,
) -> None:
    stored = [edits.row(one, None, shard=shards[one.declared.uid]) for one in readings]
    spec_ids = await mirroring.add_specs(connection, [edits.stored_spec(one) for one in readings], now=now)
    await mirroring.add_jobs(connection, stored, spec_ids, declared=False)
    await rows.add_status(connection, {row.job_id: row.shard for row in stored})


async def _record(
    connection: database.Connection,
    readings: Sequence[declared.Reading],
    askers: Mapping[UUID, Asker],
    *,
    now: datetime,
) -> None:
    asked = [
        requests.Asked(who.owner, askers[who.uid].actor, "create", job_id=who.uid, detail={"name": who.name})
        for who in (one.declared for one in readings)
    ]
    await audits.add(connection, asked, now=now)


async def _made(
    connection: database.Connection, limits: limits_domain.Limits, readings: Sequence[declared.Reading]
) -> Mapping[UUID, Made]:
    jobs = [_as_stored(one) for one in readings]
    messages = await showing.pool_messages(connection, limits, jobs)
    return {job.job_id: Made(job.job_id, job.name, showing.just_made(job, messages.get(job.job_id))) for job in jobs}


def _as_stored(reading: declared.Reading) -> rows.Job:
    who, job = reading.declared, reading.job
    assert job is not None
    first = None if reading.suspended else reading.first_slot_at
    return rows.Job(
        job_id=who.uid,
        owner=who.owner,
        name=who.name,
        declared=False,
        generation=who.generation,
        resource_version=who.resource_version,
        labels=who.labels,
        created_at=who.created_at,
        next_run_at=None if first is None else first + reading.delay,
        suspended=reading.suspended,
        paused=False,
        parked=None,
        pool=job.pool_of(who.owner),
        handler=job.handler,
        spec=reading.spec_json,
        payload=reading.payload_json,
        template=reading.template_json,
    )
