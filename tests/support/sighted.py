"""Sightings of ScheduledJobs, built here so that each test shows only what it is about."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from clockhand.domain import sightings

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = "0 0 1 1 *"
EVERY_MINUTE = "* * * * *"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
_versions = itertools.count(1_000)


def spec(**fields: Any) -> dict[str, Any]:
    """A good spec, but for the fields given; None takes one away."""
    body = {"schedule": NEVER, "template": TEMPLATE, **fields}
    return {name: value for name, value in body.items() if value is not None}


def job(
    name: str = "sample", *, namespace: str = "team-a", created_at: datetime | None = None, **fields: Any
) -> sightings.Sighting:
    """A new object; created a second ago unless said otherwise."""
    return sightings.Sighting(
        uid=uuid.uuid4(),
        owner=f"k8s/{namespace}",
        name=name,
        generation=1,
        resource_version=next(_versions),
        created_at=created_at or datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1),
        labels=None,
        spec=spec(**fields),
    )


def edited(seen: sightings.Sighting, **fields: Any) -> sightings.Sighting:
    """The object after its spec became another one."""
    return replaced(seen, generation=seen.generation + 1, spec=spec(**fields))


def deleted(seen: sightings.Sighting) -> sightings.Sighting:
    """The object as its deletion shows it."""
    return replaced(seen, deleted=True, spec={})


def replaced(seen: sightings.Sighting, **fields: Any) -> sightings.Sighting:
    """The object at its next resource version, with other `fields`."""
    return sightings.Sighting(
        **{
            "uid": seen.uid,
            "owner": seen.owner,
            "name": seen.name,
            "generation": seen.generation,
            "resource_version": next(_versions),
            "created_at": seen.created_at,
            "labels": seen.labels,
            "spec": seen.spec,
            "deleted": seen.deleted,
            **fields,
        }
    )
