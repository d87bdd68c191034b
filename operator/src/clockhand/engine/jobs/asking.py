"""Who asks for jobs, and what is shown of them: the values of this package."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clockhand.domain import resources
from clockhand.store.jobs import Place as Place

Document = Mapping[str, object]
"""A job as JSON that was decoded, or is to be encoded: as it was sent, or as it is shown (`resources.Job`)."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and for whom. `templates`: whether pods may be made there in his name; `classes`: those he may use."""

    owner: str
    actor: str
    templates: bool = False
    classes: Collection[str] = ()


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
class Page:
    """Some of the jobs, by name. Without `next` there are no more; with it there may be."""

    items: Sequence[Document]
    next: Place | None


class LiveRuns(enum.StrEnum):
    """What becomes of attempts that are under way when their job is deleted."""

    FINISH = "finish"
    CANCEL = "cancel"
