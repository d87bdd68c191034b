"""Jobs that are made over REST, many in one transaction: what is wrong with one of them is nothing to the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from clockhand import errors
from clockhand.domain import declared, drafts, ids
from clockhand.domain import limits as limits_domain
from clockhand.engine import edits, steps
from clockhand.engine.jobs import begins
from clockhand.engine.jobs.asking import Asker
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
    """A job that was made, as it was wanted and as it is."""

    wanted: Wanted
    reading: declared.Reading

    @property
    def job_id(self) -> UUID:
        return self.reading.declared.uid

    @property
    def name(self) -> str:
        return self.reading.declared.name

    def row(self) -> rows.Job:
        """As it is stored."""
        who, job = self.reading.declared, self.reading.job
        assert job is not None
        first = None if self.reading.suspended else self.reading.first_slot_at
        return rows.Job(
            job_id=who.uid,
            owner=who.owner,
            name=who.name,
            declared=False,
            generation=who.generation,
            resource_version=who.resource_version,
            labels=who.labels,
            created_at=who.created_at,
            next_run_at=None if first is None else first + self.reading.delay,
            suspended=self.reading.suspended,
            paused=False,
            parked=None,
            pool=job.pool_of(who.owner),
            handler=job.handler,
            spec=self.reading.spec_json,
            payload=self.reading.payload_json,
            template=self.reading.template_json,
        )


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
    connection: database.Connection,
    limits: limits_domain.Limits,
    wanted: Sequence[Wanted],
    *,
    begun: begins.Begins,
    now: datetime,
) -> Sequence[Outcome]:
    """Makes jobs; what became of each, in their order."""
    outcomes = await steps.gathered(_made(wanted, begun, now))
    new = [one for one in outcomes if isinstance(one, Made)]
    if not new:
        return outcomes
    # whoever makes jobs of an owner holds its row from here on: names and quotas cannot be raced for
    shards = await edits.place(connection, [one.reading.declared for one in new])
    admit = await _admission(connection, limits, new)
    outcomes = [admit(one) if isinstance(one, Made) else one for one in outcomes]
    if made := [one for one in outcomes if isinstance(one, Made)]:
        await _store(connection, [one.reading for one in made], shards, now=now)
        await audits.add(connection, [_asked(one) for one in made], now=now)
    return outcomes


def _made(wanted: Sequence[Wanted], begun: begins.Begins, now: datetime) -> Iterator[Outcome]:
    """Each as it would be stored."""
    for one, job_id in zip(wanted, ids.new_jobs(now, len(wanted)), strict=True):
        draft = one.draft
        who = declared.Declared(
            uid=job_id,
            owner=one.asker.owner,
            name=draft.name or f"job-{job_id}",
            generation=1,
            resource_version=FIRST_VERSION,
            created_at=now,
            labels=draft.labels,
        )
        try:
            begin = begun.of(draft.spec, who.origin, now=now)
        except errors.InvalidInput as error:
            yield drafts.flat(error)
        else:
            yield Made(one, declared.read(who, draft.spec, begin))


async def _admission(
    connection: database.Connection, limits: limits_domain.Limits, new: Sequence[Made]
) -> Callable[[Made], Outcome]:
    """Says of one job after the other whether there is room for its name and its number."""
    # a name that was made from an id is nobody else's
    named = {(one.wanted.asker.owner, one.name) for one in new if one.wanted.draft.name is not None}
    taken = set(await rows.taken(connection, named))
    caps = {owner: limits.job_cap(owner) for owner in {one.wanted.asker.owner for one in new}}
    room = {
        owner: cap - await rows.count(connection, owner, limit=cap) for owner, cap in caps.items() if cap is not None
    }

    def admit(one: Made) -> Outcome:
        who = one.reading.declared
        if (who.owner, who.name) in taken:
            return errors.Conflict(f"a job named {who.name!r} exists already")
        if who.owner in room:
            if room[who.owner] <= 0:
                return errors.Refused(
                    f"{who.owner} has as many jobs as its limit maxJobs allows, {caps[who.owner]}: delete some first"
                )
            room[who.owner] -= 1
        taken.add((who.owner, who.name))
        return one

    return admit


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


def _asked(made: Made) -> requests.Asked:
    asker = made.wanted.asker
    return requests.Asked(asker.owner, asker.actor, "create", job_id=made.job_id, detail={"name": made.name})
