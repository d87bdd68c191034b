"""The API for workers on a free port, and callers of it with all kinds of credentials."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
from tests.support import answers, jobs

from clockhand import config
from clockhand.api import auth, bodies, pools, reviews, server
from clockhand.api.rest import app as rest
from clockhand.domain import tokens
from clockhand.engine import limits as limit_files
from clockhand.engine.pools import kafka as publishing
from clockhand.engine.pools import service
from clockhand.store import database
from clockhand.store import tokens as token_rows

LEASE = 10.0
PLACE, NAME = "team-a", "mailers"
ACCOUNT = "clockhand-pool-mailers"


@dataclass(frozen=True)
class Caller:
    """Somebody with a credential, or with none."""

    session: aiohttp.ClientSession
    url: str
    secret: str | None = None

    async def post(self, path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> answers.Answer:
        """`body` as it is where it is bytes, else as JSON."""
        return await self.send("POST", path, body, headers=headers)

    async def send(
        self, method: str, path: str, body: Any = b"", *, headers: Mapping[str, str] | None = None
    ) -> answers.Answer:
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        bearer = {"Authorization": f"Bearer {self.secret}"} if self.secret is not None else {}
        async with self.session.request(
            method, self.url + path, data=data, headers={**bearer, **(headers or {})}
        ) as got:
            return await answers.answer_of(got)

    async def call(self, what: str, *, place: str = PLACE, pool: str = NAME, **fields: Any) -> answers.Answer:
        """One of the four calls, with a body that is right but for `fields`."""
        return await self.post(path_of(what, place=place, pool=pool), {**right(what), **fields})


@dataclass(frozen=True)
class Rest:
    """What the REST API has of its own: connections, of the same database where it has none, and limits."""

    connections: int = 4
    db: database.Database | None = None
    limits: limit_files.LimitsFile | None = None


@dataclass(frozen=True)
class Served:
    """A running API. `pools` is the engine below it."""

    db: database.Database
    pools: service.Pools
    rest: rest.Rest
    session: aiohttp.ClientSession
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def caller(self, secret: str | None = None) -> Caller:
        return Caller(self.session, self.url, secret)

    async def worker(self, **fields: Any) -> Caller:
        """A worker of the pool of `jobs.POOL` with a static token."""
        return self.caller(await make_token(self.db, **fields))


@contextlib.asynccontextmanager
async def served(
    db: database.Database,
    *,
    asked: reviews.Reviews | None = None,
    most_waiting: int = pools.MOST_WAITING,
    body_seconds: float = bodies.READ_SECONDS,
    kafka: publishing.Publisher | None = None,
    over: Rest | None = None,
) -> AsyncIterator[Served]:
    """The API over `db` for the length of the block, with the loops of its engine; REST as `over` has it."""
    engine = service.Pools(db, replica="api-1", lease=LEASE, kafka=kafka)
    calls = pools.PoolCalls(engine, most_waiting=most_waiting)
    gate = auth.Gate(db, asked)
    has = over or Rest()
    settings = config.Settings(database_url="", replica="api-1", rest_pool=has.connections)
    api = rest.Rest(
        settings,
        has.db or db,
        gate=gate if has.db is None else auth.Gate(has.db, asked),
        asked=asked,
        limits=has.limits or limit_files.LimitsFile(None),
        changed=engine.changed,
        body_seconds=body_seconds,
    )
    stop = asyncio.Event()
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        api.running() as front,
        asyncio.TaskGroup() as tasks,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        face = server.Server(gate, calls, front, body_seconds=body_seconds)
        tasks.create_task(engine.run(stop))
        try:
            async with server.served(face, port=0, host="127.0.0.1") as port:
                yield Served(db, engine, api, session, port)
                engine.desk.close()
        finally:
            stop.set()


async def make_pool(db: database.Database, pool: str = jobs.POOL, service_account: str | None = ACCOUNT) -> None:
    """The row of a WorkerPool."""
    kind, place, name = pool.split("/")
    async with db.transaction() as connection:
        await connection.execute(
            "INSERT INTO pools (pool, owner, name, service_account) VALUES (%s, %s, %s, %s)",
            (pool, f"{kind}/{place}", name, service_account),
        )


async def make_token(
    db: database.Database,
    *,
    owner: str = jobs.OWNER,
    pool: str = NAME,
    role: tokens.Role = tokens.Role.WORKER,
    lasts: timedelta | None = None,
    revoked: bool = False,
) -> str:
    """The secret of a new static credential."""
    secret = tokens.secret_of(secrets.token_bytes(tokens.SECRET_BYTES))
    async with db.transaction() as connection:
        now = await database.now(connection)
        token = tokens.Token(
            token_id=uuid.uuid4(),
            owner=owner,
            role=role,
            pool=f"{owner}/{pool}" if role is tokens.Role.WORKER else None,
            name="a test",
            created_at=now,
            expires_at=None if lasts is None else now + lasts,
        )
        await token_rows.add(connection, token, digest=tokens.hash_of(secret))
        if revoked:
            await token_rows.revoke(connection, token.token_id, now=now)
    return secret


def path_of(what: str, *, place: str = PLACE, pool: str = NAME) -> str:
    return f"/v1/pools/{place}/{pool}/{what}"


def right(what: str) -> dict[str, Any]:
    """A body that is right, and asks for nothing that is there."""
    held = {"runId": "019a0000-0000-8000-8000-000000000001", "token": "1"}
    match what:
        case "claim":
            return {"requestId": str(uuid.uuid4()), "worker": jobs.WORKER, "handlers": [jobs.HANDLER], "waitSeconds": 0}
        case "report":
            return {"worker": jobs.WORKER, "reports": [{**held, "outcome": "Succeeded"}]}
    return {"worker": jobs.WORKER, "held": [held]}
