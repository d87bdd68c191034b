"""Runs as REST shows them: lists, one by its id, and what belongs to one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from clockhand import errors
from clockhand.api.rest import asked, cursors, pages, routes, shown
from clockhand.domain import ids, instants, names, resources, states, tokens
from clockhand.engine import steps
from clockhand.store import database, listing

_EVERY_STATE = frozenset({*map(str, states.RunState), listing.SKIPPED})
_DISTANT_PAST = instants.EPOCH
_DISTANT_FUTURE = datetime(9998, 12, 31, tzinfo=UTC)
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_ATTEMPT = routes.Parameter("attempt", _Number | None, "Of this attempt; by default of the newest that has a log.")
_TEXT = "text/plain; charset=utf-8"
_NO_LOG = "no log is kept of it: only attempts that failed leave one"
_encode = msgspec.json.Encoder().encode
_FILTERS = (asked.STATE, asked.SINCE, asked.UNTIL, asked.LIMIT, asked.CURSOR)


class Runs:
    """What can be read about runs."""

    def __init__(self, db: database.Database, marks: cursors.Cursors) -> None:
        self._db = db
        self._cursors = marks
        self._showing = asyncio.Lock()
        """One long page at a time is written, a step of it in each round of the loop."""

    def all(self) -> Sequence[routes.Route]:
        """What there is under `/v1/runs` to be read, and the runs of a job."""
        return (
            routes.Route(
                method="GET",
                path="/v1/runs",
                name="listRuns",
                summary="Runs, newest first: those under way, those that are over, and slots that did not run.",
                role=tokens.Role.VIEWER,
                right=right("list"),
                handle=self.list_all,
                gives={200: resources.RunPage},
                query=(asked.NAME, asked.JOB, *_FILTERS),
            ),
            routes.Route(
                method="GET",
                path="/v1/jobs/{id}/runs",
                name="listRunsOfJob",
                summary="The runs of a job, newest first.",
                role=tokens.Role.VIEWER,
                right=right("list"),
                handle=self.list_of_job,
                gives={200: resources.RunPage},
                query=_FILTERS,
                fails=(404,),
            ),
            _of_one("", "getRun", "A run, with what its handler returned.", self.get, resources.Run),
            _of_one(
                "/attempts",
                "listAttempts",
                "Attempts that did not end well, newest first.",
                self.attempts,
                resources.Attempts,
            ),
            _of_one("/payload", "getPayload", "What the run's handler or pod is given.", self.payload, Any),
            _of_one("/log", "getLog", "The end of a failed attempt's log, as text.", self.log, str),
        )

    async def list_all(self, call: routes.Call) -> routes.Answer:
        """A page, of all jobs or of one; or what has a name."""
        if (name := call.query["name"]) is None:
            return await self._page(call, call.query["job"])
        if call.query["cursor"] is not None:
            raise cursors.wrong()
        since, until = asked.span_in(call.query)
        async with self._db.transaction() as connection:
            found = await listing.all_named(connection, owner=call.owner, name=name)
        first, last = since or _DISTANT_PAST, until or _DISTANT_FUTURE
        wanted = [run for run in found if asked.concerns(call.query, run) and first <= run.scheduled_at <= last]
        return routes.Answer(200, resources.RunPage(items=[shown.run(run) for run in wanted[: call.query["limit"]]]))

    async def list_of_job(self, call: routes.Call) -> routes.Answer:
        """A page of the job in the path, also of one that is deleted, for as long as its row is kept."""
        job_id = routes.id_of(call, "job")
        async with self._db.transaction() as connection:
            if await listing.job(connection, owner=call.owner, job_id=job_id) is None:
                raise errors.NotFound("no such job")
        return await self._page(call, str(job_id))

    async def _page(self, call: routes.Call, job: str | None) -> routes.Answer:
        query = call.query
        since, until = asked.span_in(query)
        of = (call.owner, "runs", job, sorted(query["state"]), since, until)
        before = names.lowest(until + instants.MILLISECOND) if until else listing.TOP
        if query["cursor"] is not None:
            before = uuid.UUID(bytes=await self._cursors.read(of, query["cursor"]))
        sift = listing.Filter(owner=call.owner, states=frozenset(query["state"]) or _EVERY_STATE)
        span = listing.Span(since or _DISTANT_PAST, until or _DISTANT_FUTURE, _DISTANT_FUTURE)
        async with self._db.transaction() as connection:
            await listing.hold_still(connection)
            jobs = await _jobs(connection, call.owner, job) if job is not None else ()
            if job is not None and not jobs:
                return routes.Answer(200, resources.RunPage(items=()))
            page = await pages.page(connection, sift, span, jobs=jobs, before=before, limit=query["limit"])
        following = None if page.edge is None else await self._cursors.write(of, page.edge.bytes)
        async with self._showing:
            items = await steps.gathered(map(_encoded, page.runs))
        return routes.Answer(200, {"items": items, **({} if following is None else {"next": following})})

    async def get(self, call: routes.Call) -> routes.Answer:
        """One run."""
        async with self._db.transaction() as connection:
            run = await found(connection, call)
            _, result = await listing.contents(connection, run.run_id)
        return routes.Answer(200, shown.run(run, result=result))

    async def attempts(self, call: routes.Call) -> routes.Answer:
        """Those that did not end well."""
        async with self._db.transaction() as connection:
            run = await found(connection, call)
            rows = await listing.attempts(connection, run.run_id)
        return routes.Answer(200, resources.Attempts(items=[shown.attempt(row) for row in rows]))

    async def payload(self, call: routes.Call) -> routes.Answer:
        """As it is JSON, by itself."""
        async with self._db.transaction() as connection:
            run = await found(connection, call)
            if run.backfill is not None or run.state == listing.SKIPPED:
                raise errors.NotFound("no such run: slots that did not run and backfills have no payload")
            payload, _ = await listing.contents(connection, run.run_id)
        return routes.Answer(200, msgspec.Raw(msgspec.json.encode(payload)))

    async def log(self, call: routes.Call) -> routes.Stream:
        """What is kept of a log."""
        async with self._db.transaction() as connection:
            run = await found(connection, call)
            text = await listing.log_tail(connection, run.run_id, call.query["attempt"])
        if text is None:
            raise errors.NotFound(_NO_LOG)
        return routes.Stream(_whole(text.encode()), _TEXT)


def _of_one(what: str, name: str, summary: str, handle: routes.Handle, gives: Any) -> routes.Route:
    return routes.Route(
        method="GET",
        path=f"/v1/runs/{{id}}{what}",
        name=name,
        summary=summary,
        role=tokens.Role.VIEWER,
        right=right("get", "log" if what == "/log" else ""),
        handle=handle,
        gives={200: gives},
        answers_as=_TEXT if gives is str else routes.JSON,
        query=(_ATTEMPT,) if what == "/log" else (),
        fails=(404,),
    )


def right(verb: str, subresource: str = "") -> routes.Right:
    """What a user of the cluster has to be allowed with runs."""
    return routes.Right(verb, "runs", routes.RUNS_GROUP, subresource)


async def found(connection: database.Connection, call: routes.Call) -> listing.Run:
    """The run in the path, if it is the caller's; NotFound else."""
    run = await listing.by_id(connection, owner=call.owner, run_id=asked.run_in(call))
    if run is None:
        raise errors.NotFound("no such run")
    return run


async def _jobs(connection: database.Connection, owner: str, text: str) -> Sequence[uuid.UUID]:
    """The jobs that a filter means: one by its id, or those that have or had a name."""
    job_id = ids.of_text(text)
    if job_id is not None and await listing.job(connection, owner=owner, job_id=job_id) is not None:
        return [job_id]
    return await listing.job_ids(connection, owner=owner, name=text)


def _encoded(run: listing.Run) -> msgspec.Raw:
    return msgspec.Raw(_encode(shown.run(run)))


async def _whole(text: bytes) -> AsyncGenerator[bytes, None]:
    yield text
