"""Who may do what over REST: every route, for every role, on what is one's own and on what is somebody else's."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.support import jobs, workers_api
from tests.support.answers import Answer
from tests.support.workers_api import Caller, Served

from clockhand.api.rest import routes
from clockhand.domain import tokens
from clockhand.domain.states import RunState as S
from clockhand.kube import access
from clockhand.store import database

OWN, FOREIGN, NAMESPACE = "rest/acme", "rest/other", "k8s/team-a"
HOUR = timedelta(hours=1)
STREAM = "streamRuns"
DOCUMENT = {"schedule": "0 0 1 1 *", "handler": jobs.HANDLER}
BODIES: Mapping[str, Any] = {
    "createJob": DOCUMENT,
    "createJobs": [DOCUMENT],
    "replaceJob": DOCUMENT,
    "editJob": {"priority": 7},
}
_TABLES = {"jobs": "owner", "live_runs": "owner", "run_history": "owner", "backfills": "owner", "audit": "owner"}


@dataclasses.dataclass(frozen=True)
class Things:
    """What a tenant has, each known by ids that nobody else has."""

    owner: str
    job: jobs.Job
    runs: Mapping[S, uuid.UUID]
    since: str
    until: str

    @property
    def marks(self) -> Sequence[str]:
        """By which it is known when somebody sees it."""
        return [self.owner, self.job.name, str(self.job.job_id), *map(str, self.runs.values())]

    def path(self, route: routes.Route) -> str:
        """The route's path, to one of these where it is about one."""
        if "/runs/" not in route.path:
            return route.path.replace("{id}", str(self.job.job_id))
        wanted = {"cancelRun": S.QUEUED}.get(route.name, S.DEAD)
        return route.path.replace("{id}", str(self.runs[wanted]))

    def body(self, route: routes.Route) -> Any:
        """What the route takes."""
        if route.name == "backfillJob":
            return {"from": self.since, "to": self.until}
        return BODIES.get(route.name, b"")


class Cluster:
    """An API server whose users have one right each: the token is its name."""

    def __init__(self) -> None:
        self.asked: list[access.Action] = []

    async def user_of(self, token: str) -> access.User | None:
        return access.User(f"system:serviceaccount:team-a:{token}")

    async def decide(self, user: access.User, action: access.Action) -> access.Decision:
        self.asked.append(action)
        return access.Decision(user.username.endswith(":allowed"), "")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(db: database.Database, cluster: Cluster) -> AsyncIterator[Served]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    async with workers_api.served(db, asked=cluster) as running:
        yield running


async def things(db: database.Database, owner: str) -> Things:
    async with db.transaction() as connection:
        now = await database.now(connection)
        # every hour, so that there are slots to run again
        plan = jobs.pooled("0 * * * *")
        job = await jobs.make_job(connection, plan, owner=owner, name=f"of-{uuid.uuid4().hex[:8]}")
        await connection.execute("UPDATE jobs SET declared = false WHERE job_id = %s", (job.job_id,))
        await connection.execute("UPDATE job_specs SET template = NULL WHERE job_id = %s", (job.job_id,))
        runs = {}
        for number, state in enumerate((S.QUEUED, S.DEAD, S.SUCCEEDED)):
            runs[state] = await jobs.make_run(connection, job, state, at=now - number * HOUR)
        dead = runs[S.DEAD]
        await connection.execute(
            "INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, ended_at, outcome, reason, log_tail) "
            "SELECT run_id, scheduled_at, 1, now(), now(), 'Failed', 'Error', 'a log' FROM run_history WHERE run_id = %s",
            (dead,),
        )
        await connection.execute(
            "INSERT INTO skips (job_id, owner, job_name, first_at, last_at, count, reason, recorded_at) "
            "VALUES (%s, %s, %s, now(), now(), 1, 'Forbid', now())",
            (job.job_id, owner, job.name),
        )
        await connection.execute(
            "INSERT INTO audit (at, owner, actor, action, job_id) VALUES (now(), %s, %s, 'edit', %s)",
            (owner, f"{owner} by hand", job.job_id),
        )
    return Things(owner, job, runs, (now - 3 * HOUR).isoformat(), now.isoformat())


async def rows_of(db: database.Database, owner: str) -> Mapping[str, Sequence[Any]]:
    """All that an owner has, to the last column."""
    async with db.transaction() as connection:
        return {
            table: [
                tuple(row)
                for row in await jobs.query(
                    connection, f"SELECT t::text FROM {table} t WHERE {column} = %s ORDER BY 1", owner
                )
            ]
            for table, column in _TABLES.items()
        }


async def send(who: Caller, route: routes.Route, at: Things, query: str = "") -> Answer:
    return await who.send(route.method, at.path(route) + query, at.body(route))


async def holder(api: Served, owner: str, role: tokens.Role) -> Caller:
    return api.caller(await workers_api.make_token(api.db, owner=owner, role=role))


def plain(api: Served) -> Sequence[routes.Route]:
    """Every route but the one whose answer has no end."""
    return [route for route in api.rest.table.routes if route.name != STREAM]


def test_the_table_is_one(api: Served) -> None:
    assert len(api.rest.table.routes) > 20
    assert {STREAM, *BODIES} < {route.name for route in api.rest.table.routes}


async def test_nobody_gets_in_without_a_token(api: Served) -> None:
    own = await things(api.db, OWN)
    before = await rows_of(api.db, OWN)
    revoked = await workers_api.make_token(api.db, owner=OWN, role=tokens.Role.EDITOR, revoked=True)
    late = await workers_api.make_token(api.db, owner=OWN, role=tokens.Role.EDITOR, lasts=-HOUR)
    for route in api.rest.table.routes:
        for secret in (None, "clockhand_nonsense", revoked, late):
            answer = await send(api.caller(secret), route, own)
            assert answer.status == 401, (route.name, answer.text)
            assert "WWW-Authenticate" in answer.headers
    assert await rows_of(api.db, OWN) == before


async def test_a_role_that_is_too_small_does_nothing(api: Served) -> None:
    own = await things(api.db, OWN)
    before = await rows_of(api.db, OWN)
    viewer, worker = [await holder(api, OWN, role) for role in (tokens.Role.VIEWER, tokens.Role.WORKER)]
    for route in api.rest.table.routes:
        assert (await send(worker, route, own)).status == 403, route.name
        if route.role is tokens.Role.EDITOR:
            assert (await send(viewer, route, own)).status == 403, route.name
        elif route.name != STREAM:
            assert (await send(viewer, route, own)).status in route.gives, route.name
    assert await rows_of(api.db, OWN) == before


@pytest.mark.parametrize("owner", [OWN, NAMESPACE])
async def test_an_editor_does_everything_with_what_is_his(api: Served, owner: str) -> None:
    editor = await holder(api, owner, tokens.Role.EDITOR)
    for route in plain(api):
        answer = await send(editor, route, await things(api.db, owner))
        assert answer.status in route.gives, (route.name, answer.text)


@pytest.mark.parametrize("owner", [FOREIGN, NAMESPACE])
async def test_what_is_somebody_elses_is_not_there(api: Served, owner: str) -> None:
    await things(api.db, OWN)
    foreign = await things(api.db, owner)
    before = await rows_of(api.db, owner)
    editor = await holder(api, OWN, tokens.Role.EDITOR)
    about_one = [route for route in api.rest.table.routes if "{id}" in route.path]
    assert len(about_one) > 10
    for route in about_one:
        answer = await send(editor, route, foreign)
        assert answer.status == 404, (route.name, answer.text)
        # nor does it look different from what never was
        nothing = dataclasses.replace(
            foreign,
            job=dataclasses.replace(foreign.job, job_id=uuid.uuid4()),
            runs={state: uuid.UUID(int=run.int ^ 1) for state, run in foreign.runs.items()},
        )
        never = await send(editor, route, nothing)
        assert (never.status, _said(never, nothing)) == (404, _said(answer, foreign)), route.name
    assert await rows_of(api.db, owner) == before


async def test_no_list_shows_anything_of_others(api: Served) -> None:
    own, foreign = await things(api.db, OWN), await things(api.db, FOREIGN)
    others = [*foreign.marks, *(await things(api.db, NAMESPACE)).marks]
    viewer = await holder(api, OWN, tokens.Role.VIEWER)
    lists = [route for route in plain(api) if route.method == "GET" and "{id}" not in route.path]
    assert len(lists) > 2
    for route in lists:
        # also where somebody asks for it
        for query in ("", f"?job={foreign.job.job_id}", f"?job={foreign.job.name}", f"?name={foreign.job.name}"):
            answer = await send(viewer, route, own, query)
            assert answer.status in (200, 422), (route.name, answer.text)
            assert not [mark for mark in others if mark in answer.text and mark not in query], route.name
        assert own.job.name in answer.text or str(own.job.job_id) in (await send(viewer, route, own)).text, route.name


async def test_what_is_done_to_many_is_done_to_ones_own(api: Served) -> None:
    own, foreign = await things(api.db, OWN), await things(api.db, FOREIGN)
    before = await rows_of(api.db, FOREIGN)
    editor = await holder(api, OWN, tokens.Role.EDITOR)
    for body in ({}, {"job": str(foreign.job.job_id)}, {"job": str(own.job.job_id)}):
        assert (await editor.post("/v1/runs:retry", body)).status == 200
    made = await editor.post("/v1/jobs", {**DOCUMENT, "name": foreign.job.name})
    assert made.status == 201, "a name that somebody else has is free"
    assert await rows_of(api.db, FOREIGN) == before


async def test_a_key_of_somebody_else_is_no_key(api: Served) -> None:
    key = {"Idempotency-Key": "the same"}
    answers = []
    for owner in (OWN, FOREIGN):
        editor = await holder(api, owner, tokens.Role.EDITOR)
        answers.append(await editor.post("/v1/jobs", DOCUMENT, headers=key))
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json["id"] != answers[1].json["id"]


async def test_a_namespace_that_is_named_is_not_somebody_elses(api: Served) -> None:
    editor = await holder(api, OWN, tokens.Role.EDITOR)
    bound = await holder(api, NAMESPACE, tokens.Role.EDITOR)
    own, of_namespace = await things(api.db, OWN), await things(api.db, NAMESPACE)
    for route in plain(api):
        assert (await send(editor, route, own, "?namespace=team-a")).status == 403, route.name
        assert (await send(bound, route, of_namespace, "?namespace=team-b")).status == 403, route.name
        fresh = await things(api.db, NAMESPACE)
        assert (await send(bound, route, fresh, "?namespace=team-a")).status in route.gives, route.name


async def test_a_user_of_the_cluster_needs_the_right_of_the_route(api: Served, cluster: Cluster) -> None:
    allowed, refused = api.caller("allowed"), api.caller("refused")
    for route in plain(api):
        at = await things(api.db, NAMESPACE)
        before = await rows_of(api.db, NAMESPACE)
        assert (await send(refused, route, at)).status == 403, route.name
        assert await rows_of(api.db, NAMESPACE) == before
        cluster.asked.clear()
        answer = await send(allowed, route, at)
        assert answer.status in route.gives, (route.name, answer.text)
        first = cluster.asked[0]
        asked = routes.Right(first.verb, first.resource, first.group, first.subresource)
        assert (asked, first.namespace) == (route.right, "team-a")
        foreign = await things(api.db, OWN)
        if "{id}" in route.path:
            assert (await send(allowed, route, foreign)).status == 404, route.name


async def test_workers_calls_are_for_the_pool_alone(api: Served) -> None:
    async with api.db.transaction() as connection:
        await connection.execute(
            b"INSERT INTO owners (owner) VALUES ('rest/acme'), ('rest/other') ON CONFLICT DO NOTHING"
        )
    worker = await holder(api, OWN, tokens.Role.WORKER)
    editor = await holder(api, OWN, tokens.Role.EDITOR)
    for call in ("claim", "heartbeat", "report", "start"):
        assert (await worker.call(call, place="other")).status == 403
        assert (await worker.call(call, place="acme", pool="another")).status == 403
        assert (await editor.call(call, place="acme")).status == 403
        assert (await api.caller().call(call, place="acme")).status == 401


def _said(answer: Answer, about: Things) -> str:
    """The problem document without the ids that were asked for."""
    text = answer.text
    for mark in about.marks:
        text = text.replace(mark, "")
    return text
