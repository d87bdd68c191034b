"""What a launch makes of templates that no pod can be made of: it ends their runs, and no others."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.support import jobs

from clockhand.domain import verdict
from clockhand.domain.states import RunState as S
from clockhand.engine import launch, shards
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.kube import pods
from clockhand.store import database, runs

NOBODY = connections.Connection(server="http://127.0.0.1:1")
FINE = {"spec": {"containers": [{"name": "main", "image": "any"}]}}
NO_NAME = {"spec": {"containers": [{"name": "main", "image": "any", "env": [{"name": ["A"]}]}]}}


def nothing(*told: object) -> None:
    """Of no matter here."""


async def claimed(connection: database.Connection, template: Any) -> str:
    """A Claimed run under this template, by its job's name."""
    job = await jobs.make_job(connection, name=f"job-{uuid.uuid4().hex[:6]}")
    text = "UPDATE job_specs SET template = %s WHERE spec_id = %s"
    await connection.execute(text.encode(), (json.dumps(template), job.spec_id))
    await jobs.make_run(connection, job, S.CLAIMED)
    return job.name


async def test_what_cannot_be_rendered_ends_its_own_run_alone(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        names = [await claimed(connection, template) for template in ([1], FINE, NO_NAME)]
        claims = await runs.open_of_shards(connection, shards=range(256), after=runs.NO_RUN, limit=10)
    ended: dict[str, verdict.AttemptEnd] = {}
    reports = launch.Reports(
        launched=nothing,
        ended=lambda claim, end: ended.update({claim.job_name: end}),
        waits=nothing,
        hand_back=nothing,
        seen=nothing,
    )
    async with clients.connect(NOBODY) as client:
        begun = launch.Launch(db, pods.Pods(client), held=shards.Shards(db, replica="one", lease=60), reports=reports)
        await begun.start(claims)
        assert {claim.job_name for claim in claims if begun.busy_with(claim.run_id)} == {names[1]}
        await begun.drain(0)
    assert {name: end.ending for name, end in ended.items()} == dict.fromkeys(
        (names[0], names[2]), verdict.Ending.REFUSED
    )
    assert (ended[names[0]].message or "").startswith("its pod cannot be made: ")
    assert ended[names[2]].message == "spec.template.spec.containers.env: must be a list of names and values"
