"""Pods that nobody waits for: the operator and the doctor delete those of this installation, and nobody else's."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from tests.support import examined, jobs, sweeping

from clockhand.admin.doctor import contradictions
from clockhand.domain import observed, pods
from clockhand.kube import client as clients
from clockhand.kube import connection as connections
from clockhand.store import database

BORN = "2026-01-01T00:00:00Z"
Json = dict[str, Any]


class Server:
    """An API server with some pods, which refuses to delete one and says nothing of another in time."""

    def __init__(self, *found: Json) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in found}
        self.deleted: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("name", "")
        if not name:
            return web.json_response({"metadata": {}, "items": [*self.pods.values()]})
        if request.method == "GET":
            return web.json_response(self.pods[name])
        if name == "refused":
            return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)
        self.deleted.append(name)
        gone = self.pods.pop(name)
        return web.json_response(gone, status=504 if name == "late" else 200)


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[clients.Client]:
    application = web.Application()
    application.router.add_route("GET", "/api/v1/namespaces/a/pods", server.answer)
    application.router.add_route("*", "/api/v1/namespaces/a/pods/{name}", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with clients.connect(connections.Connection(f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
            yield client
    finally:
        await runner.cleanup()


def pod(name: str, job_id: uuid.UUID, *, phase: str = "Running") -> Json:
    """A pod of an attempt that no database has."""
    marks = {
        observed.RUN_ID: str(uuid.uuid4()),
        observed.JOB_UID: str(job_id),
        observed.ATTEMPT: "1",
        observed.TOKEN: "1",
        observed.SHARD: "0",
        observed.KEEP: "0/0",
    }
    meta = {
        "name": name,
        "namespace": "a",
        "uid": f"uid-of-{name}",
        "creationTimestamp": BORN,
        "labels": {pods.MANAGED_BY_LABEL: pods.MANAGED_BY},
        "annotations": marks,
    }
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": {"phase": phase}}


async def gone_job(db: database.Database) -> uuid.UUID:
    """A job that was deleted, and whose row is still there."""
    async with db.transaction() as connection:
        job = await jobs.make_job(connection)
        await connection.execute("UPDATE jobs SET deleted_at = %s", (datetime.now(UTC),))
        return job.job_id


async def test_the_operator_deletes_pods_of_jobs_that_its_database_knows(db: database.Database) -> None:
    job_id, theirs = await gone_job(db), uuid.uuid4()
    server = Server(
        pod("ours", job_id),
        pod("ours-over", job_id, phase="Succeeded"),
        pod("theirs", theirs),
        pod("theirs-over", theirs, phase="Succeeded"),
    )
    async with serving(server) as client:
        operator = sweeping.Sweeping(db, client)
        await operator.see("a", *server.pods)
        await operator.sweeper.clear_away()
        operator.time += 31
        await operator.sweeper.clear_away()
    assert {*server.deleted} == {"ours", "ours-over"}


async def test_one_pod_that_is_refused_keeps_the_doctor_from_no_other(db: database.Database, database_url: str) -> None:
    job_id = await gone_job(db)
    names = ("first", "refused", "late", "last")
    server = Server(*(pod(name, job_id) for name in names), pod("theirs", uuid.uuid4()))
    async with serving(server) as client:
        patient = await examined.patient_of(db, database_url, cluster=client, namespaces=("a",))
        found = await contradictions.pods_without_run(patient)
        assert "a/theirs, which names no run of this database" in found.samples
        first, refused, late, last = await contradictions.delete_pods(patient)
    assert refused.startswith("did not delete pod a/refused: ")
    assert (first, late, last) == ("deleted pod a/first", "perhaps deleted pod a/late", "deleted pod a/last")
    assert server.deleted == ["first", "late", "last"]
    async with db.transaction() as connection:
        detail = await jobs.query(
            connection, "SELECT detail ->> 'pod' FROM audit WHERE actor = %s", contradictions.ACTOR
        )
    assert {name for (name,) in detail} == {"first", "late", "last"}
