"""Jobs that are made over REST, many in one transaction: what is wrong with one of them is nothing to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from clockhand import errors
from clockhand.domain import declared, drafts, ids
from clockhand.domain import limits as limits_domain
from clockhand.engine import classes, edits, steps
from clockhand.engine.jobs import begins
from clockhand.engine.jobs.asking import Asker
from clockhand.store import database
from clockhand.store import jobs as rows

FIRST_VERSION = 1


class Wanted(msgspec.Struct, frozen=True):
    """A job that somebody wants made."""

    asker: Asker
    draft: drafts.Draft


class Made(msgspec.Struct, frozen=True):
    """A job that was made, as it was wanted and as it is. `reading` is of the first of all that are made alike."""

    wanted: Wanted
    job_id: UUID
    name: str
    reading: declared.Reading

    @property
    def owner(self) -> str:
        return self.wanted.asker.owner

    def row(self) -> rows.Job:
        """As it is stored."""
        draft, job = self.wanted.draft, self.reading.job
        assert job is not None
        return rows.Job(
            job_id=self.job_id,
            owner=self.owner,
            name=self.name,
            declared=False,
            generation=FIRST_VERSION,
            resource_version=FIRST_VERSION,
            labels=draft.labels,
            created_at=self.reading.declared.created_at,
            next_run_at=_next_run_at(self.reading),
            suspended=self.reading.suspended,
            paused=False,
            parked=None,
            pool=job.pool_of(self.owner),
            handler=job.handler,
            spec=self.reading.spec_json,
            payload=draft.spec.payload_json,
            template=self.reading.template_json,
            of_class=job.run is not None,
        )


Outcome = Made | errors.ClockhandError


def read(asker: Asker, document: object) -> Wanted:
    """What somebody wants, read; raises InvalidInput, or Refused for a template or class that is not his to use."""
    draft = drafts.read(document, new=True)
    check_template(asker, draft.spec)
    check_class(asker, draft.spec)
    return Wanted(asker, draft)


def check_template(asker: Asker, spec: declared.Written) -> None:
    """Nobody gains rights through a template."""
    if spec.template_json is not None and not asker.templates:
        raise errors.Refused("a job with template needs a Kubernetes token whose user may create pods in the namespace")


def check_class(asker: Asker, spec: declared.Written) -> None:
    """The same for what administrators let some people run."""
    run = spec.job.run
    if run is not None and run.class_name not in asker.classes:
        raise errors.Refused(
            f"a job with run needs a Kubernetes token whose user may use the JobClass {run.class_name} in the namespace"
        )


async def add(
    connection: database.Connection,
    limits: limits_domain.Limits,
    wanted: Sequence[Wanted],
    *,
    begun: begins.Begins,
    now: datetime,
) -> Sequence[Outcome]:
    """Makes jobs; what became of each, in their order."""
    outcomes = await _of_classes(connection, await steps.gathered(_made(wanted, begun, now)))
    new = [one for one in outcomes if isinstance(one, Made)]
    if not new:
        return outcomes
    # whoever makes jobs of an owner holds its row from here on: names and quotas cannot be raced for
    shards = await edits.place(connection, {one.job_id: one.owner for one in new})
    admit = await _admission(connection, limits, new)
    outcomes = [admit(one) if isinstance(one, Made) else one for one in outcomes]
    await _store(connection, [one for one in outcomes if isinstance(one, Made)], shards, now=now)
    return outcomes


def _made(wanted: Sequence[Wanted], begun: begins.Begins, now: datetime) -> Iterator[Outcome]:
    """Each as it would be stored."""
    readings = _Readings(begun, now)
    for one, job_id in zip(wanted, ids.new_jobs(now, len(wanted)), strict=True):
        name = one.draft.name or f"job-{job_id}"
        try:
            yield Made(one, job_id, name, readings.of(one, job_id, name))
        except errors.InvalidInput as error:
            yield drafts.flat(error)


class _Readings:
    """Those of jobs that are made `now`: most share few specs."""

    def __init__(self, begun: begins.Begins, now: datetime) -> None:
        self._begun = begun
        self._now = now
        self._known: dict[tuple[str, str, str, bytes | None], declared.Reading] = {}

    def of(self, wanted: Wanted, job_id: UUID, name: str) -> declared.Reading:
        """Raises InvalidInput for a schedule that cannot be followed."""
        asker, spec = wanted.asker, wanted.draft.spec
        key = asker.owner, asker.actor, spec.spec_json, spec.template_hash
        reading = self._known.get(key)
        if reading is None:
            who = declared.Declared(
                uid=job_id,
                owner=asker.owner,
                name=name,
                generation=FIRST_VERSION,
                resource_version=FIRST_VERSION,
                created_at=self._now,
            )
            reading = declared.read(who, spec, self._begun.of(spec, who.origin, now=self._now))
            if not spec.job.spreads:
                self._known[key] = reading
        return reading


async def _of_classes(connection: database.Connection, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """The same with the templates that JobClasses make, or with why there is none."""
    if not any(isinstance(one, Made) and one.reading.run is not None for one in outcomes):
        return outcomes
    rendered = await classes.rendered(connection, [one.reading for one in outcomes if isinstance(one, Made)])
    readings = iter(rendered)
    return [_of_class(one, next(readings)) if isinstance(one, Made) else one for one in outcomes]


def _of_class(made: Made, rendered: declared.Reading) -> Outcome:
    if rendered.barred is not None:
        return classes.refusal(rendered.barred)
    return msgspec.structs.replace(made, reading=rendered)


async def _admission(
    connection: database.Connection, limits: limits_domain.Limits, new: Sequence[Made]
) -> Callable[[Made], Outcome]:
    """Says of one job after the other whether there is room for its name and its number."""
    # a name that was made from an id is nobody else's
    named = {(one.owner, one.name) for one in new if one.wanted.draft.name is not None}
    taken = set(await rows.taken(connection, named))
    caps = {owner: limits.job_cap(owner) for owner in {one.owner for one in new}}
    room = {
        owner: cap - await rows.count(connection, owner, limit=cap) for owner, cap in caps.items() if cap is not None
    }

    def admit(one: Made) -> Outcome:
        owner = one.owner
        if (owner, one.name) in taken:
            return errors.Conflict(f"a job named {one.name!r} exists already")
        if owner in room:
            if room[owner] <= 0:
                return errors.Refused(
                    f"{owner} has as many jobs as its limit maxJobs allows, {caps[owner]}: delete some first"
                )
            room[owner] -= 1
        if one.wanted.draft.name is not None:
            taken.add((owner, one.name))
        return one

    return admit


async def _store(
    connection: database.Connection, made: Sequence[Made], shards: Mapping[UUID, int], *, now: datetime
) -> None:
    kinds = {place: _kind(one) for place, one in {id(one.reading): one for one in made}.items()}
    new = []
    for one in made:
        kind, draft = kinds[id(one.reading)], one.wanted.draft
        shard = ids.twin(shards[one.job_id], pooled=kind.handler is not None)
        new.append(rows.New(one.job_id, one.name, draft.labels, draft.spec.payload_json, shard, kind))
    if new:
        await rows.make(connection, new, now=now)


def _kind(made: Made) -> rows.Kind:
    reading, job = made.reading, made.reading.job
    assert job is not None
    return rows.Kind(
        owner=made.owner,
        actor=made.wanted.asker.actor,
        pool=job.pool_of(made.owner),
        handler=job.handler,
        concurrency_group=job.concurrency_group,
        spec=reading.spec_json,
        template=reading.template_json,
        template_hash=reading.template_hash,
        class_name=None if reading.run is None else reading.run.class_name,
        class_hash=reading.class_hash,
        followed=job.followed,
        suspended=reading.suspended,
        zone=reading.zone,
        ttl_seconds=reading.ttl_seconds,
        counts_from=reading.counts_from,
        next_slot_at=None if reading.suspended else reading.first_slot_at,
        next_run_at=_next_run_at(reading),
    )


def _next_run_at(reading: declared.Reading) -> datetime | None:
    first = None if reading.suspended else reading.first_slot_at
    return None if first is None else first + reading.delay
