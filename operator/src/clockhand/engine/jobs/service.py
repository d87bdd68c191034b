"""What REST can do with jobs. Each call is a transaction of its own, but for single jobs that are made: those share one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from clockhand import errors
from clockhand.domain import ids, instants, pointers, resources
from clockhand.engine import answers, steps
from clockhand.engine import limits as limit_files
from clockhand.engine.jobs import begins, creating, editing, showing
from clockhand.engine.jobs.asking import Asker, Document, Filter, LiveRuns, Page, Place, Shown
from clockhand.engine.pools import intake
from clockhand.store import audits, database, listing

MOST_AT_ONCE = 500
_FAR = instants.END, 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Single:
    wanted: creating.Wanted
    key: answers.Key | None


_Outcome = answers.Answer | errors.ClockhandError


class Jobs:
    """The jobs of every owner. `step` has to be run as a loop: single jobs are stored together."""

    def __init__(self, db: database.Database, limits: limit_files.LimitsFile) -> None:
        self._db = db
        self._limits = limits
        self._begins = begins.Begins()
        self._singles: intake.Intake[_Single, _Outcome] = intake.Intake(self._store, most=MOST_AT_ONCE)

    async def step(self) -> float:
        """Stores the single jobs that have come; waits for them."""
        return await self._singles.step()

    def close(self) -> None:
        """Refuses what is not being stored yet, and whatever comes."""
        self._singles.close()

    async def create(self, asker: Asker, wanted: object, *, key: answers.Key | None = None) -> answers.Answer:
        """201, the job and its place. Raises InvalidInput, Conflict for a name that is taken or a key in use, Refused."""
        [outcome] = await self._singles.submit([_Single(creating.read(asker, wanted), key)])
        if isinstance(outcome, errors.ClockhandError):
            raise outcome
        return outcome

    async def create_many(
        self, asker: Asker, wanted: Sequence[object], *, key: answers.Key | None = None
    ) -> answers.Answer:
        """200 and a `resources.BatchAnswer`: each by itself, in one transaction."""
        read = await steps.gathered(_read(asker, wanted))

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            good = [one for one in read if isinstance(one, creating.Wanted)]
            outcomes = iter(await self._add(connection, good, now=now))
            everything = [one if isinstance(one, errors.ClockhandError) else next(outcomes) for one in read]
            return _many(everything)

        return await answers.once(self._db, owner=asker.owner, key=key, act=act)

    async def get(self, owner: str, job_id: UUID) -> Shown:
        """Raises NotFound."""
        async with self._db.transaction() as connection:
            return await showing.one(connection, self._limits.current, owner=owner, job_id=job_id)

    async def page(self, owner: str, wanted: Filter, *, after: Place | None, size: int) -> Page:
        """By name, without payloads and templates."""
        async with self._db.transaction() as connection:
            return await showing.page(connection, self._limits.current, owner, wanted, after=after, size=size)

    async def replace(
        self, asker: Asker, job_id: UUID, wanted: object, *, match: Collection[int] | None = None
    ) -> Shown:
        """The job as `wanted` has it. `match`: the versions that it may have now, None for any; else raises Changed."""
        change = editing.Change(asker, job_id, match)
        async with self._db.transaction() as connection:
            await editing.replace(connection, change, wanted, now=await database.now(connection))
            return await self._shown(connection, change)

    async def patch(self, asker: Asker, job_id: UUID, patch: object, *, match: Collection[int] | None = None) -> Shown:
        """The job with a merge patch (RFC 7396) applied."""
        change = editing.Change(asker, job_id, match)
        async with self._db.transaction() as connection:
            await editing.patch(connection, change, patch, now=await database.now(connection))
            return await self._shown(connection, change)

    async def pause(self, asker: Asker, job_id: UUID, *, key: answers.Key | None = None) -> answers.Answer:
        """200 and the job, suspended."""

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            change = editing.Change(asker, job_id)
            await editing.pause(connection, change, now=now)
            return _answer(await self._shown(connection, change))

        return await answers.once(self._db, owner=asker.owner, key=key, act=act)

    async def resume(self, asker: Asker, job_id: UUID, *, key: answers.Key | None = None) -> answers.Answer:
        """200 and the job, neither suspended nor paused."""

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            change = editing.Change(asker, job_id)
            await editing.resume(connection, change, now=now)
            return _answer(await self._shown(connection, change))

        return await answers.once(self._db, owner=asker.owner, key=key, act=act)

    async def delete(
        self, asker: Asker, job_id: UUID, *, runs: LiveRuns | None = None, match: Collection[int] | None = None
    ) -> None:
        """Nothing of it fires any more. `runs`: what becomes of open attempts, None as the job says (`onDelete`)."""
        async with self._db.transaction() as connection:
            change = editing.Change(asker, job_id, match)
            await editing.delete(connection, change, runs, now=await database.now(connection))

    async def audit_page(
        self,
        owner: str,
        *,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: tuple[datetime, int] | None = None,
        size: int,
    ) -> resources.AuditPage:
        """Newest first, from `since` on and before `until`; about a job by its id, or those that have or had a name.

        `after`: time and id of the last entry of the page before.
        """
        before = min(after or _FAR, (until or instants.END, 0))
        async with self._db.transaction() as connection:
            meant = None if job is None else await _meant(connection, owner, job)
            found = await audits.page(
                connection, owner, job_ids=meant, oldest=since or instants.EPOCH, before=before, size=size
            )
        items = [
            resources.AuditEntry(
                id=row.audit_id,
                at=row.at,
                actor=row.actor,
                action=row.action,
                job=row.job_id,
                job_name=row.job_name,
                run=row.run_id,
                detail=msgspec.UNSET if row.detail is None else row.detail,
            )
            for row in found
        ]
        return resources.AuditPage(items=items)

    async def _shown(self, connection: database.Connection, change: editing.Change) -> Shown:
        owner, job_id = change.asker.owner, change.job_id
        return await showing.one(connection, self._limits.current, owner=owner, job_id=job_id)

    async def _store(self, singles: Sequence[_Single]) -> Sequence[_Outcome]:
        """Jobs that came one by one, and what each of them gets for an answer."""
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            keyed = [place for place, one in enumerate(singles) if one.key is not None]
            owned = [(one.wanted.asker.owner, one.key) for one in singles if one.key is not None]
            recalled = await answers.recall(connection, owned, now=now)
            known = {place: said for place, said in zip(keyed, recalled, strict=True) if said is not None}
            fresh = [place for place in range(len(singles)) if place not in known]
            wanted = [singles[place].wanted for place in fresh]
            outcomes = await self._add(connection, wanted, now=now)
            new = dict(zip(fresh, await self._answers(connection, outcomes), strict=True))
            await answers.keep(connection, _to_keep(singles, new), now=now)
        return [known.get(place) or new[place] for place in range(len(singles))]

    async def _add(
        self, connection: database.Connection, wanted: Sequence[creating.Wanted], *, now: datetime
    ) -> Sequence[creating.Outcome]:
        return await creating.add(connection, self._limits.current, wanted, begun=self._begins, now=now)

    async def _answers(
        self, connection: database.Connection, outcomes: Sequence[creating.Outcome]
    ) -> Sequence[_Outcome]:
        made = [one.row() for one in outcomes if isinstance(one, creating.Made)]
        documents = iter(await showing.just_made(connection, self._limits.current, made))
        return [one if isinstance(one, errors.ClockhandError) else _made(one, next(documents)) for one in outcomes]


def _to_keep(singles: Sequence[_Single], new: Mapping[int, _Outcome]) -> Sequence[tuple[answers.Owned, answers.Answer]]:
    found: list[tuple[answers.Owned, answers.Answer]] = []
    for place, outcome in new.items():
        key = singles[place].key
        if key is not None and isinstance(outcome, answers.Answer):
            found.append(((singles[place].wanted.asker.owner, key), outcome))
    return found


def _read(asker: Asker, wanted: Iterable[object]) -> Iterator[creating.Wanted | errors.ClockhandError]:
    for document in wanted:
        try:
            yield creating.read(asker, document)
        except (errors.InvalidInput, errors.Refused) as error:
            yield error


def _made(made: creating.Made, document: Document) -> answers.Answer:
    return answers.Answer(201, _json(document), f"/v1/jobs/{made.job_id}", creating.FIRST_VERSION)


async def _meant(connection: database.Connection, owner: str, job: str) -> Sequence[UUID]:
    """The jobs that are, have or had what somebody wrote. One of an id may be gone, and is told of all the same."""
    job_id = ids.of_text(job)
    named = await listing.job_ids(connection, owner=owner, name=job)
    return named if job_id is None else [job_id, *named]


def _answer(shown: Shown) -> answers.Answer:
    return answers.Answer(200, _json(shown.document), version=shown.version)


def _many(outcomes: Sequence[creating.Outcome]) -> answers.Answer:
    items = [
        resources.BatchItem(error=_item_error(one))
        if isinstance(one, errors.ClockhandError)
        else resources.BatchItem(id=one.job_id, name=one.name)
        for one in outcomes
    ]
    created = sum(item.error is None for item in items)
    answer = resources.BatchAnswer(items=items, created=created, refused=len(items) - created)
    return answers.Answer(200, _json(answer))


def _item_error(error: errors.ClockhandError) -> resources.ItemError:
    match error:
        case errors.InvalidInput():
            pointer = pointers.of_path(error.field) or None
            return resources.ItemError(status=422, detail=error.sentence, pointer=pointer)
        case errors.Refused():
            return resources.ItemError(status=403, detail=str(error))
    return resources.ItemError(status=409, detail=str(error))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
