"""Runs over REST."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from clockhand import calling, errors
from clockhand.client import calls, events, fields, jobs
from clockhand.domain import resources, states

PATH = "/v1/runs"
OVER = frozenset(str(state) for state in states.OVER)
"""The states of a run in which nothing more becomes of it."""
_LONGEST_LOOK = 2.0
_RUN, _RESET = "run", "reset"
_CHANGES = (_RUN, _RESET)
RunId = uuid.UUID | str | resources.Run
"""A run, or its id."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a run is now; None: changes may have been missed, list the runs again.

    `cursor` names the place in the stream, from which a watch may go on within 15 minutes.
    """

    run: resources.Run | None
    cursor: str | None


class Runs:
    """The runs of the caller's tenant or namespace."""

    def __init__(self, api: calls.Calls) -> None:
        self._calls = api

    def list(
        self,
        *,
        job: jobs.JobId | None = None,
        state: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = resources.PAGE,
    ) -> AsyncIterator[resources.Run]:
        """Runs, newest first, and slots that did not run; each page is asked for when it is reached.

        `job` may be a name as well: then runs of jobs that had it before are listed too.
        """
        query: calls.Query = {
            **_filters(job, state),
            "since": fields.text_of(since, "since"),
            "until": fields.text_of(until, "until"),
            "limit": page_size,
        }
        return self._calls.walk(PATH, resources.RunPage, query)

    async def get(self, run: RunId) -> resources.Run:
        """The run, with what its handler returned; raises NotFound."""
        return (await self._calls.get(path(run))).read(resources.Run)

    async def find(self, name: str) -> resources.Run:
        """The run of a name, of several the one that was made last; raises NotFound."""
        page = (await self._calls.get(PATH, {"name": name})).read(resources.RunPage)
        if not page.items:
            raise errors.NotFound(f"there is no run {name!r}")
        return page.items[0]

    async def attempts(self, run: RunId) -> Sequence[resources.Attempt]:
        """Its attempts that did not end well, newest first."""
        return (await self._calls.get(f"{path(run)}/attempts")).read(resources.Attempts).items

    async def payload(self, run: RunId) -> Any:
        """What its attempts are given."""
        return (await self._calls.get(f"{path(run)}/payload")).read(object)

    async def log(self, run: RunId, *, attempt: int | None = None) -> str:
        """The end of the log of an attempt that failed: the newest one, unless it is named."""
        answer = await self._calls.get(f"{path(run)}/log", {"attempt": attempt})
        return answer.body.decode("utf-8", "replace")

    async def cancel(self, run: RunId) -> resources.Run:
        """Ends a run that is not over; raises Conflict for one that is."""
        return (await self._calls.post(f"{path(run)}:cancel")).read(resources.Run)

    async def retry(self, run: RunId) -> resources.Run:
        """Tries a run again, under its own id: one that is Dead, Unknown or Cancelled, or waits as Retrying."""
        return (await self._calls.post(f"{path(run)}:retry")).read(resources.Run)

    async def retry_many(
        self,
        *,
        job: jobs.JobId | None = None,
        state: Literal["Dead", "Unknown", "Cancelled"] = "Dead",
        since: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
    ) -> AsyncIterator[resources.RetriedMany]:
        """Tries every such run again, the oldest first, and tells of each lot. It may be broken off and asked for again."""
        asked = resources.RetryManyRequest(
            job=None if job is None else calls.id_of(job), state=state, since=since, until=until, dry_run=dry_run
        )
        while True:
            done = (await self._calls.post(f"{PATH}:retry", asked)).read(resources.RetriedMany)
            yield done
            if done.next is None:
                return
            asked = msgspec.structs.replace(asked, cursor=done.next)

    async def follow(self, run: RunId, *, seconds: float | None = None) -> AsyncGenerator[resources.Run, None]:
        """The run each time that it is seen to have changed, until it is over; raises Unavailable after so many seconds."""
        ends, looks, last = None if seconds is None else time.monotonic() + seconds, 0, None
        while True:
            now = await self.get(run)
            if now != last:
                yield now
            if now.state in OVER:
                return
            looks, last = looks + 1 if now == last else 0, now
            wait = calling.pause(looks, longest=_LONGEST_LOOK)
            if ends is not None and time.monotonic() + wait > ends:
                raise errors.Unavailable(f"the run is {now.state}, and not over after {seconds:g} seconds")
            await asyncio.sleep(wait)

    async def wait(self, run: RunId, *, seconds: float | None = None) -> resources.Run:
        """The run once it is over, however it ended; raises Unavailable where it is not after so many seconds."""
        [*_, last] = [now async for now in self.follow(run, seconds=seconds)]
        return last

    async def watch(
        self, *, job: jobs.JobId | None = None, state: Sequence[str] = (), cursor: str | None = None
    ) -> AsyncGenerator[Change, None]:
        """Runs as they change, from now on or from a `cursor`, for ever: a stream that breaks off is taken up again.

        However long the API is away then; where it cannot be reached at all, the usual patience ends with `Unavailable`.
        """
        failed, patience = 0, None
        while True:
            headers = {} if cursor is None else {"Last-Event-ID": cursor}
            call = calls.Call(method="GET", path=f"{PATH}:stream", query=_filters(job, state), headers=headers)
            async with self._calls.listen(call, patience=patience) as lines:
                patience = math.inf
                async for event in events.read(lines, last_id=cursor):
                    cursor, failed = event.last_id, 0
                    if event.kind in _CHANGES:
                        yield Change(_changed(event), cursor)
            failed += 1
            await asyncio.sleep(calling.pause(failed))


def path(run: RunId) -> str:
    """Where a run is."""
    return f"{PATH}/{calls.id_of(run)}"


def _filters(job: jobs.JobId | None, state: Sequence[str]) -> calls.Query:
    return {**jobs.chosen(job), "state": state}


def _changed(event: events.Event) -> resources.Run | None:
    return None if event.kind == _RESET else calls.read(event.data.encode(), resources.Run)
