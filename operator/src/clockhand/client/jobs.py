"""Jobs over REST."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

import msgspec

from clockhand import errors
from clockhand.client import calls, fields
from clockhand.domain import resources
from clockhand.domain.backfill import Order

PATH = "/v1/jobs"
_MERGE_PATCH = "application/merge-patch+json"


class Job(resources.Job, frozen=True, kw_only=True, rename="camel"):
    """A job that was read alone. `etag` names the version that was read: an edit with it changes no other one."""

    etag: str | None = None


ListedJob = resources.Job
"""A job as lists show it: without payload and template."""
JobId = uuid.UUID | str | resources.Job
"""A job, or its id."""


class Jobs:
    """The jobs of the caller's tenant or namespace."""

    def __init__(self, api: calls.Calls) -> None:
        self._calls = api

    async def create(
        self, job: fields.Json | None = None, /, *, key: str | None = None, **given: Unpack[fields.JobFields]
    ) -> Job:
        """Makes a job. Who calls again with the same `key` gets the same job; without one each call makes another."""
        return _job(await self._calls.post(PATH, fields.document(job, given), key=key))

    async def create_many(self, jobs: Sequence[fields.Json], *, key: str | None = None) -> resources.BatchAnswer:
        """Makes up to 1,000 jobs, written as JSON has them; one that is refused does not keep the others from being made."""
        return (await self._calls.post(f"{PATH}:batch", jobs, key=key)).read(resources.BatchAnswer)

    async def get(self, job: JobId) -> Job:
        """The job; raises NotFound."""
        return _job(await self._calls.get(path(job)))

    async def find(self, name: str) -> Job:
        """The job of a name; raises NotFound."""
        page = (await self._calls.get(PATH, {"name": name})).read(resources.JobPage)
        if not page.items:
            raise errors.NotFound(f"there is no job {name!r}")
        return await self.get(page.items[0])

    def list(
        self,
        *,
        prefix: str | None = None,
        handler: str | None = None,
        pool: str | None = None,
        standing: resources.Standing | None = None,
        labels: Mapping[str, str] | None = None,
        page_size: int = resources.PAGE,
    ) -> AsyncIterator[ListedJob]:
        """Jobs by name, without payloads and templates; each page is asked for when it is reached."""
        query: calls.Query = {
            "namePrefix": prefix,
            "handler": handler,
            "pool": pool,
            "standing": standing,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
            "limit": page_size,
        }
        return self._calls.walk(PATH, resources.JobPage, query)

    async def edit(
        self,
        job: JobId,
        patch: fields.Json | None = None,
        /,
        *,
        etag: str | None = None,
        **given: Unpack[fields.JobFields],
    ) -> Job:
        """Changes some fields, those of objects one by one (RFC 7396); what is None goes back to its default.

        With an `etag` only the version that was read is changed.
        """
        body = calls.encoded(fields.document(patch, given))
        return await self._put("PATCH", job, body, etag=etag, media_type=_MERGE_PATCH)

    async def replace(
        self,
        job: JobId,
        document: fields.Json | None = None,
        /,
        *,
        etag: str | None = None,
        **given: Unpack[fields.JobFields],
    ) -> Job:
        """Gives a job other fields: those that are left out go back to their defaults."""
        body = calls.encoded(fields.document(document, given))
        return await self._put("PUT", job, body, etag=etag, media_type=calls.JSON)

    async def pause(self, job: JobId) -> Job:
        """Lets no slot fall due until it is resumed."""
        return _job(await self._calls.post(f"{path(job)}:pause"))

    async def resume(self, job: JobId) -> Job:
        """Lets slots fall due from now on, also after too many dead runs."""
        return _job(await self._calls.post(f"{path(job)}:resume"))

    async def delete(
        self, job: JobId, *, runs: Literal["finish", "cancel"] | None = None, etag: str | None = None
    ) -> None:
        """Ends a job. What runs may finish or is cancelled: as `runs` says, else as the job's onDelete does."""
        headers = {} if etag is None else {"If-Match": etag}
        await self._calls.ask(calls.Call(method="DELETE", path=path(job), query={"runs": runs}, headers=headers))

    async def upcoming(self, job: JobId, *, count: int = 10) -> Sequence[resources.Slot]:
        """The next times at which it falls due."""
        answer = await self._calls.get(f"{path(job)}/upcoming", {"count": count})
        return answer.read(resources.Upcoming).items

    async def run(
        self, job: JobId, *, payload: Any = msgspec.UNSET, name: str | None = None, key: str | None = None
    ) -> resources.Run:
        """Asks for a run now, with another payload than the job's if one is given."""
        body = resources.RunRequest(payload=payload, name=name)
        return (await self._calls.post(f"{path(job)}:run", body, key=key)).read(resources.Run)

    async def backfill(
        self,
        job: JobId,
        *,
        since: datetime,
        until: datetime,
        name: str | None = None,
        newest_first: bool = False,
        concurrency: int = 1,
        key: str | None = None,
    ) -> resources.Run:
        """Asks for runs of past slots that have none, both ends included; what is answered stands for all of them."""
        body = resources.BackfillRequest(
            from_at=since,
            to_at=until,
            name=name,
            order=Order.NEWEST_FIRST if newest_first else Order.OLDEST_FIRST,
            concurrency=concurrency,
        )
        return (await self._calls.post(f"{path(job)}:backfill", body, key=key)).read(resources.Run)

    async def _put(self, method: str, job: JobId, body: bytes, *, etag: str | None, media_type: str) -> Job:
        headers = {"Content-Type": media_type, **({} if etag is None else {"If-Match": etag})}
        return _job(await self._calls.ask(calls.Call(method=method, path=path(job), body=body, headers=headers)))


def chosen(job: JobId | None) -> calls.Query:
    """What chooses, in a list, what belongs to a job, or to those of a name."""
    return {"job": job if job is None or isinstance(job, str) else str(calls.id_of(job))}


def path(job: JobId) -> str:
    """Where a job is."""
    return f"{PATH}/{calls.id_of(job)}"


def _job(answer: calls.Answer) -> Job:
    job = answer.read(Job)
    return msgspec.structs.replace(job, etag=answer.headers.get("ETag"))
