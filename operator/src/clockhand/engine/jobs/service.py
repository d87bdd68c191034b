"""What REST can do with jobs. Each call is a transaction of its own."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from clockhand.domain import resources
from clockhand.engine import answers
from clockhand.engine import limits as limit_files
from clockhand.store import database

Document = Mapping[str, object]
"""A job as JSON that was decoded: as it was sent, or as it is shown (`resources.Job`)."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and for whom. `templates`: whether pods may be made there in his name."""

    owner: str
    actor: str
    templates: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A job as JSON, and its version: the ETag."""

    document: Document
    version: int


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs of an owner; None: whichever."""

    prefix: str | None = None
    """Of the name."""
    handler: str | None = None
    pool: str | None = None
    """As it is written in the job: a name, or namespace/name."""
    standing: resources.Standing | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends."""

    name: str
    job_id: UUID


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs, by name. Without `next` there are no more; with it there may be."""

    items: Sequence[Document]
    next: Place | None


class LiveRuns(enum.StrEnum):
    """What becomes of attempts that are under way when their job is deleted."""

    FINISH = "finish"
    CANCEL = "cancel"


class Jobs:
    """The jobs of every owner. `step` has to be run as a loop: single jobs are stored together."""

    def __init__(self, db: database.Database, limits: limit_files.LimitsFile) -> None: ...

    async def step(self) -> float:
        """Stores the single jobs that have come; waits for them."""

    def close(self) -> None:
        """Refuses what is not being stored yet, and whatever comes."""

    async def create(self, asker: Asker, wanted: Document, *, key: answers.Key | None = None) -> answers.Answer:
        """201, the job and its place. Raises InvalidInput, Conflict for a name that is taken or a key in use, Refused."""

    async def create_many(
        self, asker: Asker, wanted: Sequence[object], *, key: answers.Key | None = None
    ) -> answers.Answer:
        """200 and a `resources.BatchAnswer`: each by itself, in one transaction."""

    async def get(self, owner: str, job_id: UUID) -> Shown:
        """Raises NotFound."""

    async def page(self, owner: str, wanted: Filter, *, after: Place | None, size: int) -> Page:
        """Without payloads and templates."""

    async def replace(self, asker: Asker, job_id: UUID, wanted: Document, *, match: Collection[int] | None) -> Shown:
        """The job as `wanted` has it. `match`: the versions that it may have now, None for any; else raises Changed."""

    async def patch(self, asker: Asker, job_id: UUID, patch: Document, *, match: Collection[int] | None) -> Shown:
        """The job with a merge patch (RFC 7396) applied."""

    async def pause(self, asker: Asker, job_id: UUID, *, key: answers.Key | None = None) -> answers.Answer:
        """200 and the job, suspended."""

    async def resume(self, asker: Asker, job_id: UUID, *, key: answers.Key | None = None) -> answers.Answer:
        """200 and the job, neither suspended nor paused."""

    async def delete(
        self, asker: Asker, job_id: UUID, *, runs: LiveRuns | None = None, match: Collection[int] | None = None
    ) -> None:
        """Nothing of it fires any more. `runs`: what becomes of open attempts, None as the job says (`onDelete`)."""

    async def audit_page(
        self,
        owner: str,
        *,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: tuple[datetime, int] | None = None,
        size: int,
    ) -> resources.AuditPage:
        """Newest first. `after`: time and id of the last entry of the page before."""
