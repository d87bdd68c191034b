"""`/v1/runs:stream` over real HTTP: what comes, what does not, how one goes on, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from tests.support import history, jobs, worker_process, workers_api
from tests.support.workers_api import Served

from clockhand import metrics
from clockhand.api import problems
from clockhand.api.rest import routes, stream
from clockhand.api.runs import feed
from clockhand.domain import instants, tokens
from clockhand.domain.states import RunState as S
from clockhand.store import changes, database

OWNER = "rest/acme"
PATIENCE = 30.0


@dataclass(frozen=True)
class Event:
    """As a client has it: its name, its data, and the id that holds after it."""

    name: str
    data: Any
    last: str | None


class Listener:
    """Reads server-sent events as the HTML standard says."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last: str | None = None

    async def next(self) -> Event:
        """The next event; `last` moves also without one."""
        name, data = "message", None
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self.response.content.readline()).decode()
                assert line, "the stream has ended"
                field, _, value = line.rstrip("\n").partition(": ")
                match field:
                    case "id":
                        self.last = value
                    case "event":
                        name = value
                    case "data":
                        data = json.loads(value)
                    case "" if not value and data is not None:
                        return Event(name, data, self.last)

    async def standing(self) -> str:
        """Where the stream stands: the first id that comes."""
        async with asyncio.timeout(PATIENCE):
            while self.last is None:
                field, _, value = (await self.response.content.readline()).decode().rstrip("\n").partition(": ")
                if field == "id":
                    self.last = value
        return self.last


@dataclass(frozen=True)
class Reader:
    """Somebody who may look at the runs of an owner."""

    api: Served
    secret: str

    @contextlib.asynccontextmanager
    async def listens(self, query: str = "", *, last: str | None = None) -> AsyncIterator[Listener]:
        headers = {"Authorization": f"Bearer {self.secret}", **({} if last is None else {"Last-Event-ID": last})}
        url = f"{self.api.url}/v1/runs:stream{query}"
        async with self.api.session.get(url, headers=headers) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            yield Listener(response)


@pytest.fixture
async def api(db: database.Database) -> AsyncIterator[Served]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    async with workers_api.served(db) as running:
        yield running


@pytest.fixture
async def reader(api: Served) -> Reader:
    return await reader_of(api, OWNER)


async def reader_of(api: Served, owner: str) -> Reader:
    return Reader(api, await workers_api.make_token(api.db, owner=owner, role=tokens.Role.VIEWER))


async def make_job(db: database.Database, owner: str = OWNER, name: str = "blue") -> jobs.Job:
    async with db.transaction() as connection:
        return await jobs.make_job(connection, owner=owner, name=name)


async def add(db: database.Database, job: jobs.Job, name: str) -> uuid.UUID:
    """A Queued run, with its row in the change log."""
    async with db.transaction() as connection:
        return await history.add_live(connection, job.job_id, job.name, at=await database.now(connection), name=name)


async def move(db: database.Database, run_id: uuid.UUID, state: S) -> None:
    async with db.transaction() as connection:
        if state.is_over:
            await history.end(connection, run_id, state=state)
        else:
            await history.move(connection, run_id, state=state)


async def test_runs_as_they_are_and_only_ones_own(db: database.Database, api: Served, reader: Reader) -> None:
    own, foreign = await make_job(db), await make_job(db, "rest/other")
    other = await reader_of(api, "rest/other")
    async with reader.listens() as listener, other.listens() as others:
        await listener.standing()
        await others.standing()
        await add(db, foreign, "theirs")
        run_id = await add(db, own, "ours")
        seen = [await listener.next()]
        await move(db, run_id, S.RUNNING)
        seen.append(await listener.next())
        await move(db, run_id, S.SUCCEEDED)
        seen.append(await listener.next())
        assert [(one.name, one.data["name"], one.data["state"]) for one in seen] == [
            ("run", "ours", "Queued"),
            ("run", "ours", "Running"),
            ("run", "ours", "Succeeded"),
        ]
        assert [int(one.last or 0) for one in seen] == sorted({int(one.last or 0) for one in seen})
        assert (await others.next()).data["name"] == "theirs"


async def test_many_moves_at_once_are_one_event(db: database.Database, reader: Reader) -> None:
    job = await make_job(db)
    async with reader.listens() as listener:
        await listener.standing()
        async with db.transaction() as connection:
            now = await database.now(connection)
            run_id = await history.add_live(connection, job.job_id, job.name, at=now, name="quick")
            await history.move(connection, run_id, state="Running")
            await history.end(connection, run_id)
        await add(db, job, "next")
        assert [(one.data["name"], one.data["state"]) for one in [await listener.next(), await listener.next()]] == [
            ("quick", "Succeeded"),
            ("next", "Queued"),
        ]


@pytest.mark.parametrize("query", ["?job=red-00000&state=Dead&state=Running", "?job={job}&state=Running&state=Dead"])
async def test_what_was_not_asked_for_does_not_come(db: database.Database, reader: Reader, query: str) -> None:
    blue, red = await make_job(db), await make_job(db, name="red")
    async with reader.listens(query.format(job=red.job_id)) as listener:
        await listener.standing()
        for job, name in ((blue, "blue"), (red, "red")):
            run_id = await add(db, job, name)
            await move(db, run_id, S.RUNNING)
            assert name == "blue" or (await listener.next()).data["state"] == "Running"
            await move(db, run_id, S.SUCCEEDED)
        await move(db, await add(db, red, "last"), S.DEAD)
        assert (await listener.next()).data["name"] == "last"


async def test_going_on_behind_the_last_event(db: database.Database, reader: Reader) -> None:
    job = await make_job(db)
    async with reader.listens() as listener:
        await add(db, job, "seen")
        first = await listener.next()
        assert first.data["name"] == "seen"
    run_id = await add(db, job, "missed")
    await move(db, run_id, S.RUNNING)
    await changes.number_pending(db)
    async with reader.listens(last=first.last) as listener:
        missed = await listener.next()
        assert (missed.name, missed.data["name"], missed.data["state"]) == ("run", "missed", "Running")
        await add(db, job, "after")
        assert (await listener.next()).data["name"] == "after"
    async with reader.listens(last=missed.last) as listener:
        assert (await listener.next()).data["name"] == "after"


@pytest.mark.parametrize("last", ["0", "99", "9999999999999999999", "nonsense", "-1"])
async def test_who_is_too_late_is_told_to_begin_anew(db: database.Database, reader: Reader, last: str) -> None:
    job = await make_job(db)
    async with reader.listens(last=last) as listener:
        reset = await listener.next()
        assert (reset.name, reset.data) == ("reset", {})
        await add(db, job, "new")
        event = await listener.next()
        assert event.data["name"] == "new"
        assert int(event.last or 0) > int(reset.last or 0)


async def test_a_log_that_was_cut_is_no_gap_that_nobody_sees(db: database.Database, reader: Reader) -> None:
    job = await make_job(db)
    async with reader.listens() as listener:
        await add(db, job, "seen")
        seen = await listener.next()
    for name in ("lost", "kept"):
        await add(db, job, name)
        await changes.number_pending(db)
    async with db.transaction() as connection:
        await connection.execute(
            b"DELETE FROM run_changes WHERE first_number < (SELECT max(first_number) FROM run_changes)"
        )
    async with reader.listens(last=seen.last) as listener:
        assert (await listener.next()).name == "reset"


def call(*, allowed: bool = True) -> routes.Call:
    """A request for a stream, as it is let in."""

    async def still_allowed() -> bool:
        return allowed

    async def may(right: routes.Right) -> bool:
        return False

    token = tokens.Token(uuid.uuid4(), OWNER, tokens.Role.VIEWER, None, "a test", instants.EPOCH)
    return routes.Call(
        owner=OWNER,
        actor="somebody",
        role=tokens.Role.VIEWER,
        caller=token,
        path={},
        query={"job": None, "state": ()},
        headers={},
        still_allowed=still_allowed,
        may=may,
    )


async def test_it_beats_and_ends_with_the_right_to_look(db: database.Database) -> None:
    shared = feed.Feed(db)
    streams = stream.Streams(db, shared, heartbeat_seconds=0.05)
    beating = (await streams.stream(call())).chunks
    chunks = [await anext(beating) for _ in range(4)]
    assert chunks[0].startswith(b"retry: ")
    assert [chunk.startswith(b": ") for chunk in chunks[2:]] == [True, True]
    await beating.aclose()
    ended = [chunk async for chunk in (await streams.stream(call(allowed=False))).chunks]
    assert len(ended) == 2
    assert shared.watchers == 0


async def test_it_ends_with_the_process(db: database.Database) -> None:
    shared = feed.Feed(db)
    chunks = (await stream.Streams(db, shared).stream(call())).chunks
    await anext(chunks)
    await anext(chunks)
    shared.close()
    assert [chunk async for chunk in chunks] == []
    assert shared.watchers == 0


async def test_who_does_not_keep_up_is_left(db: database.Database) -> None:
    shared = feed.Feed(db)
    chunks = (await stream.Streams(db, shared).stream(call())).chunks
    await anext(chunks)
    await anext(chunks)
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    job = await make_job(db)
    await add(db, job, "one")
    [subscription] = shared._subscriptions
    subscription.end(feed.Lagging)
    assert [chunk async for chunk in chunks] == []


_MANY = """
WITH made AS (
    INSERT INTO live_runs (run_id, job_id, owner, job_name, name, kind, key, scheduled_at, created_at, shard, spec_id, state,
                           queue_at, ready_at, pending_timeout, message)
    SELECT (lpad(to_hex((extract(epoch FROM created_at) * 1000)::bigint), 12, '0') || '8' || substr(md5(n::text), 1, 3)
            || '8' || substr(md5(n::text), 4, 15))::uuid,
           job_id, owner, name, name || '-' || n, 'Manual', n::text, created_at, created_at, shard, spec_id, 'Queued',
           created_at, created_at, 900, repeat('x', 1000)
    FROM jobs, generate_series(1, 15000) AS n WHERE job_id = %s
    RETURNING run_id, state)
INSERT INTO run_changes (runs, states) SELECT array_agg(run_id), array_agg(state) FROM made
"""


async def test_a_client_that_takes_nothing_is_left(db: database.Database) -> None:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
    job = await make_job(db)
    async with workers_api.served(db, body_seconds=0.5) as api:
        secret = (await reader_of(api, OWNER)).secret
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            lines = ["GET /v1/runs:stream HTTP/1.1", "Host: here", f"Authorization: Bearer {secret}", "", ""]
            client.sendall("\r\n".join(lines).encode())
            left = metrics.REST_ABANDONED._value.get()
            await worker_process.until(lambda: metrics.RUNS_WATCHES._value.get() == 1)
            async with db.transaction() as connection:
                await connection.execute(_MANY.encode(), (job.job_id,))
            await worker_process.until(lambda: metrics.REST_ABANDONED._value.get() == left + 1)
            await worker_process.until(lambda: metrics.RUNS_WATCHES._value.get() == 0)


async def test_there_are_so_many_at_most(db: database.Database) -> None:
    streams = stream.Streams(db, feed.Feed(db), most_of_owner=1)
    first = (await streams.stream(call())).chunks
    await anext(first)
    with pytest.raises(problems.Problem, match="too many streams"):
        await streams.stream(call())
    await first.aclose()
    await streams.stream(call())
