"""What people ask for beside the schedule: run a job now, run past slots, cancel a run, try one or many again."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from clockhand import errors
from clockhand.api import problems
from clockhand.api.rest import asked, cursors, routes, runs, shown
from clockhand.domain import backfill, ids, instants, names, resources, states, tokens
from clockhand.engine import answers, limits, redrive, requests
from clockhand.store import database, listing, redrives
from clockhand.store import runs as run_rows

_SUFFIX_BYTES = 5
_PREFIXES = (f"{backfill.FIELD}.", backfill.FIELD, "spec.")
_ID_BYTES = 16
_MILLISECONDS_BYTES = 8
_BACKFILL_ENDED = "a backfill cannot be retried: retry those of its runs that did not succeed"
_encode = msgspec.json.Encoder().encode


class Orders:
    """Each call is a transaction with its audit row and, where it has a key, its answer.

    `changed` is called when runs have changed, for whoever gives them to workers or shows them.
    """

    def __init__(
        self,
        db: database.Database,
        marks: cursors.Cursors,
        file: limits.LimitsFile,
        *,
        kept_days: int,
        changed: Callable[[], None],
    ) -> None:
        self._db = db
        self._cursors = marks
        self._file = file
        self._kept_days = kept_days
        self._changed = changed

    def all(self) -> Sequence[routes.Route]:
        """What can be asked for."""
        return (
            _route(
                "/v1/jobs/{id}:run",
                "runJob",
                "Makes a run of the job now.",
                self.run,
                takes=resources.RunRequest,
                gives={202: resources.Run},
            ),
            _route(
                "/v1/jobs/{id}:backfill",
                "backfillJob",
                "Makes runs of past slots that have none.",
                self.backfill,
                takes=resources.BackfillRequest,
                gives={202: resources.Run},
            ),
            _route(
                "/v1/runs/{id}:cancel",
                "cancelRun",
                "Ends a run, or a backfill with its runs.",
                self.cancel,
                subresource="cancel",
            ),
            _route(
                "/v1/runs/{id}:retry",
                "retryRun",
                "Tries an ended run again, under its own id; one that waits for its next attempt, at once.",
                self.retry,
                subresource="retry",
            ),
            _route(
                "/v1/runs:retry",
                "retryRuns",
                "Tries many ended runs again, oldest first.",
                self.retry_many,
                takes=resources.RetryManyRequest,
                gives={200: resources.RetriedMany},
                subresource="retry",
            ),
        )

    async def run(self, call: routes.Call) -> routes.Answer:
        """202 and the run. The same key stands for the same run, also when its answer is kept no longer."""
        job_id, sent = routes.id_of(call, "job"), call.sent

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            name = await _name(connection, call, job_id, sent.name)
            if call.key is not None and sent.name is None:
                made = await listing.by_name(connection, owner=call.owner, name=name)
                if made is not None and made.job_id == job_id:
                    return _accepted(made)
            run_id = await requests.request_run(
                connection,
                owner=call.owner,
                job_id=job_id,
                name=name,
                payload=sent.payload,
                actor=call.actor,
                now=now,
            )
            return _accepted(await _shown(connection, call, run_id))

        return await self._once(call, act)

    async def backfill(self, call: routes.Call) -> routes.Answer:
        """202 and the backfill."""
        job_id, sent = routes.id_of(call, "job"), call.sent
        span = backfill.Span(_exact(sent.from_at, "from"), _exact(sent.to_at, "to"), sent.order)

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            backfill_id = await requests.request_backfill(
                connection,
                owner=call.owner,
                job_id=job_id,
                name=await _name(connection, call, job_id, sent.name),
                wanted=backfill.Wanted(span, sent.concurrency, self._kept_days),
                actor=call.actor,
                now=now,
            )
            return _accepted(await _shown(connection, call, backfill_id))

        return await self._once(call, act)

    async def cancel(self, call: routes.Call) -> routes.Answer:
        """The run as it is now: Cancelled, or Stopping until its attempt has ended."""

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            run = await runs.found(connection, call)
            about: dict[str, Any] = {"owner": call.owner, "actor": call.actor, "now": now}
            if run.state == listing.SKIPPED:
                raise errors.Conflict("it stands for slots that did not run: there is nothing to cancel")
            if run.backfill is not None:
                await requests.cancel_backfill(connection, backfill_id=run.run_id, **about)
            else:
                await requests.cancel(connection, run_id=run.run_id, **about)
            return _done(shown.run(await _shown(connection, call, run.run_id)))

        return await self._once(call, act)

    async def retry(self, call: routes.Call) -> routes.Answer:
        """The run as it is now."""

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            run = await runs.found(connection, call)
            if run.state == listing.SKIPPED:
                raise errors.Conflict("slots that did not run have no run to retry: make a run of the job instead")
            if run.backfill is not None:
                raise errors.Conflict(_BACKFILL_ENDED)
            await requests.retry(connection, owner=call.owner, run_id=run.run_id, actor=call.actor, now=now)
            return _done(shown.run(await _shown(connection, call, run.run_id)))

        return await self._once(call, act)

    async def retry_many(self, call: routes.Call) -> routes.Answer:
        """How many are tried again. A run that dies again meanwhile is not taken twice by the calls that follow."""
        sent: resources.RetryManyRequest = call.sent
        of = (call.owner, "retry", sent.job, sent.state, sent.since, sent.until)
        await self._cursors.ready()
        place = None if sent.cursor is None else await self._place(of, sent.cursor)

        async def act(connection: database.Connection, now: datetime) -> answers.Answer:
            ended_before, after = (now, run_rows.NO_RUN) if place is None else _unpacked(place)
            selection = redrives.Selection(
                owner=call.owner,
                state=states.RunState(sent.state),
                ended_before=ended_before,
                job_id=sent.job,
                since=sent.since and asked.instant(sent.since, "since"),
                until=sent.until and asked.instant(sent.until, "until"),
            )
            done, last = await self._retry(connection, selection, call, after)
            following = None if last is None else await self._cursors.write(of, _packed(ended_before, last))
            return _done(msgspec.structs.replace(done, next=following))

        return await self._once(call, act)

    async def _place(self, of: tuple[object, ...], cursor: str) -> bytes:
        try:
            return await self._cursors.read(of, cursor)
        except problems.Problem:
            raise errors.InvalidInput(cursors.PARAMETER, cursors.SENTENCE) from None

    async def _retry(
        self, connection: database.Connection, selection: redrives.Selection, call: routes.Call, after: uuid.UUID
    ) -> tuple[resources.RetriedMany, uuid.UUID | None]:
        """What came of it, and the run that was looked at last, where there may be more behind it."""
        limit = call.sent.limit
        if call.sent.dry_run:
            step = await redrive.count(connection, selection, after=after, most=limit)
        else:
            caps = self._file.current
            step = await redrive.step(connection, selection, after=after, most=limit, actor=call.actor, caps=caps)
        done = resources.RetriedMany(retried=step.redriven, passed=step.passed_over)
        return done, step.last if step.redriven + step.passed_over == limit else None

    async def _once(
        self, call: routes.Call, act: Callable[[database.Connection, datetime], Awaitable[answers.Answer]]
    ) -> routes.Answer:
        with _of_the_body():
            answer = await answers.once(self._db, owner=call.owner, key=call.key, act=act)
        self._changed()
        return routes.kept(answer)


def _route(path: str, name: str, summary: str, handle: routes.Handle, **more: Any) -> routes.Route:
    subresource = more.pop("subresource", "")
    return routes.Route(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        role=tokens.Role.EDITOR,
        right=runs.right("create", subresource),
        handle=handle,
        fails=(404, 409) if "{id}" in path else (409,),
        **{"gives": {200: resources.Run}, **more},
    )


def _accepted(run: listing.Run) -> answers.Answer:
    return answers.Answer(202, _encode(shown.run(run)).decode(), location=f"/v1/runs/{run.run_id}")


def _done(body: object) -> answers.Answer:
    return answers.Answer(200, _encode(body).decode())


async def _name(connection: database.Connection, call: routes.Call, job_id: uuid.UUID, given: str | None) -> str:
    """The name that is asked for, else one of its own; the same for the same key."""
    if given is not None:
        if (mistake := names.mistake(given)) is not None:
            raise errors.InvalidInput("name", mistake)
        return given
    job = await listing.job(connection, owner=call.owner, job_id=job_id)
    if job is None:
        raise errors.NotFound("no such job")
    if call.key is None:
        return f"{job.name}-{secrets.token_hex(_SUFFIX_BYTES)}"
    return f"{job.name}-{hashlib.sha256(call.key.text.encode()).hexdigest()[: 2 * _SUFFIX_BYTES]}"


async def _shown(connection: database.Connection, call: routes.Call, run_id: uuid.UUID) -> listing.Run:
    run = await listing.by_id(connection, owner=call.owner, run_id=run_id)
    assert run is not None
    return run


def _exact(value: datetime, field: str) -> datetime:
    """An instant that a slot may have."""
    instant = asked.instant(value, field)
    if instant != ids.whole_ms(instant):
        raise errors.InvalidInput(field, instants.SENTENCE)
    return instant


def _packed(ended_before: datetime, after: uuid.UUID) -> bytes:
    return after.bytes + ((ended_before - instants.EPOCH) // instants.MILLISECOND).to_bytes(_MILLISECONDS_BYTES, "big")


def _unpacked(place: bytes) -> tuple[datetime, uuid.UUID]:
    milliseconds = int.from_bytes(place[_ID_BYTES:], "big")
    return instants.EPOCH + milliseconds * instants.MILLISECOND, uuid.UUID(bytes=place[:_ID_BYTES])


@contextlib.contextmanager
def _of_the_body() -> Iterator[None]:
    """Names of fields as they are in the body, not as they are in an object of the cluster."""
    try:
        yield
    except errors.InvalidInput as error:
        for prefix in _PREFIXES:
            if error.field.startswith(prefix):
                raise errors.InvalidInput(error.field.removeprefix(prefix), error.sentence) from None
        raise
