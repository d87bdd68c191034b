"""Everything real that the faults of pools need: PostgreSQL, two API processes behind one port, and workers.

The API processes are behind a wire that leads to any of them, as a Service does, and that can be cut and clogged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import ground, wires
from tests.faults.arena import migrate
from tests.faults.pools.plans import HANDLER, POOL, THREAD, Plan
from tests.faults.replicas import Crew, Replica, clean_environment, wait_for
from tests.support import jobs, kafka, pgbouncer, ports, postgres, workers_api

from clockhand.domain import ids
from clockhand.store import database

LEASE, HEARTBEAT = 5, 1
APIS, WORKERS, PLACES = 2, 3, 5
SHARD_LEASE = 3.0

_ADD_POOL = """
INSERT INTO pools (pool, owner, name, lease_seconds, heartbeat_seconds, dispatch, handlers)
VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING pool
"""
_SET_UP = """
WITH plans AS (UPDATE job_specs SET payload = %s WHERE job_id = %s)
UPDATE jobs SET last_slot_at = now() - interval '1 hour' WHERE job_id = %s RETURNING job_id
"""
_HELD = "SELECT count(*) FROM shard_leases WHERE shard = ANY(%s) AND expires_at > now() AND holder = ANY(%s)"

Fleet = ground.Fleet[Plan]


@dataclass(frozen=True)
class Setting:
    """What a fault has around it. Faults with the same one share a database."""

    pooler: bool = False
    kafka: bool = False
    lease: int = LEASE
    limits: str = ""
    api_mutations: Sequence[str] = ()
    worker_mutations: Sequence[str] = ()


@dataclass
class Seat:
    """A port on which an API process is, or was before it was killed."""

    port: int
    api: Replica | None = None


class Stage(ground.Ground):
    """A database with API processes, as `setting` says, and workers that come and go."""

    shards = ids.POOL_SHARDS

    def __init__(
        self,
        server: postgres.PostgresServer,
        broker: kafka.Broker | None,
        setting: Setting,
        *,
        url: str,
        directory: Path,
    ) -> None:
        super().__init__()
        self.url = url
        self.server = server
        self.broker = broker
        self.setting = setting
        self.directory = directory
        self.known_crashes: set[str] = set()
        self.seats = [Seat(port) for port in ports.free(APIS)]
        self.wire = wires.Wire("127.0.0.1", *(seat.port for seat in self.seats))
        self.secret = ""
        self._api_crew: Crew
        self._worker_crew: Crew
        self.witness = directory / "witness"
        self._made = 0

    @property
    def crews(self) -> Sequence[Crew]:
        return self._api_crew, self._worker_crew

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """API processes for the length of the block."""
        self.secret = asyncio.run(self._set_up())
        with contextlib.ExitStack() as stack:
            stack.callback(self.wire.close)
            through = stack.enter_context(pgbouncer.before(self.url)) if self.setting.pooler else self.url
            self._api_crew = Crew(
                self._api_environment(through),
                self.directory,
                program="tests.faults.pools.faulty_api",
                kind="api",
                mutations=self.setting.api_mutations,
            )
            stack.callback(self._api_crew.close)
            self._worker_crew = Crew(
                self._worker_environment(),
                self.directory,
                program="tests.faults.pools.faulty_worker",
                kind="worker",
                mutations=self.setting.worker_mutations,
            )
            stack.callback(self._worker_crew.close)
            self.start_apis()
            yield

    def start_apis(self) -> None:
        """Starts those that are not there; returns once the API processes hold every shard of pools."""
        for seat in self.seats:
            if seat.api is None or not seat.api.alive():
                seat.api = self._api_crew.join(CLOCKHAND_API_PORT=str(seat.port))
        alive = [seat.api.name for seat in self.seats if seat.api is not None]
        held = len(ids.POOL_SHARDS)
        wait_for("the API", lambda: self.query(_HELD, list(ids.POOL_SHARDS), alive)[0].count == held)

    def kill_api(self, seat: Seat) -> None:
        """Ends an API process at once; `start_apis` starts another one on its port."""
        if seat.api is not None:
            self._api_crew.leave(seat.api)
            seat.api = None

    def worker(self, **settings: str) -> Replica:
        """A worker that begins its work now."""
        return self._worker_crew.join(**settings)

    def dismiss(self, worker: Replica) -> None:
        """Ends a worker at once."""
        self._worker_crew.leave(worker)

    @contextlib.contextmanager
    def fleet(self, plans: Sequence[Plan]) -> Iterator[Fleet]:
        """Jobs, and a fresh record of what workers do; afterwards nothing of them falls due."""
        shutil.rmtree(self.witness, ignore_errors=True)
        self.witness.mkdir()
        made = asyncio.run(self._make(plans))
        self._spread(list(made.plans))
        yield made

    def call(self, what: str, body: Mapping[str, Any]) -> Any:
        """The API's answer to a worker that is not one of ours."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.wire.port}{workers_api.path_of(what, place=self.namespace, pool=POOL)}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def restart_postgres(self) -> None:
        """kill -9, and a start on the same data."""
        self.server.kill()
        self.server.start()

    def _api_environment(self, url: str) -> dict[str, str]:
        settings = {
            "CLOCKHAND_DATABASE_URL": url,
            "CLOCKHAND_DATABASE_POOL": "6",
            "CLOCKHAND_SHARD_LEASE": f"{SHARD_LEASE:g}",
            "CLOCKHAND_HEALTH_PORT": "0",
        }
        if self.setting.pooler:
            settings["CLOCKHAND_DATABASE_SESSION_OPTIONS"] = "false"
        if self.setting.limits:
            file = self.directory / "limits.yaml"
            file.write_text(self.setting.limits)
            settings["CLOCKHAND_LIMITS"] = str(file)
        return {**clean_environment(), **settings, **self._kafka()}

    def _worker_environment(self) -> dict[str, str]:
        settings = {
            "CLOCKHAND_API_URL": f"http://127.0.0.1:{self.wire.port}",
            "CLOCKHAND_POOL": f"{self.namespace}/{POOL}",
            "CLOCKHAND_TOKEN": self.secret,
            "CLOCKHAND_CONCURRENCY": str(PLACES),
            "CLOCKHAND_HEALTH_PORT": "0",
            "CLOCKHAND_TEST_WITNESS": str(self.witness),
        }
        return {**clean_environment(), **settings, **self._kafka()}

    def _kafka(self) -> Mapping[str, str]:
        return {"CLOCKHAND_KAFKA": self.broker.servers} if self.setting.kafka and self.broker else {}

    async def _set_up(self) -> str:
        """A pool, and the secret of its workers."""
        db = database.Database(self.url, size=2, name="faults")
        await db.open()
        try:
            async with db.transaction() as connection:
                await jobs.make_partitions(connection)
                dispatch = "Kafka" if self.setting.kafka else "Poll"
                key = f"{self.owner}/{POOL}"
                named = (key, self.owner, POOL, self.setting.lease, HEARTBEAT, dispatch, [HANDLER, THREAD])
                await jobs.query(connection, _ADD_POOL, *named)
            return await workers_api.make_token(db, owner=self.owner, pool=POOL)
        finally:
            await db.close()

    async def _make(self, plans: Sequence[Plan]) -> Fleet:
        db = database.Database(self.url, size=2, name="faults")
        await db.open()
        fleet = Fleet({})
        try:
            async with db.transaction() as connection:
                now = await database.now(connection)
                coming = now.replace(year=now.year + 5)
                for plan in plans:
                    name = f"{plan.name}-{self._made}"
                    job = await jobs.make_job(connection, plan.job(), next_slot_at=coming, owner=self.owner, name=name)
                    await jobs.query(connection, _SET_UP, json.dumps(plan.payload), job.job_id, job.job_id)
                    fleet.plans[job.job_id] = dataclasses.replace(plan, name=job.name)
        finally:
            await db.close()
        self._made += 1
        return fleet


class Arena:
    """The servers below the stages."""

    def __init__(self, server: postgres.PostgresServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._broker: kafka.Broker | None = None

    @contextlib.contextmanager
    def stage(self, setting: Setting) -> Iterator[Stage]:
        """A new database with API processes of its own; all are gone afterwards."""
        if setting.kafka and self._broker is None:
            self._broker = kafka.Broker()
        name = self._server.new_database()
        url = self._server.url(name)
        migrate(url)
        directory = self._directory / name
        directory.mkdir()
        made = Stage(self._server, self._broker, setting, url=url, directory=directory)
        try:
            with made.running():
                yield made
        finally:
            self._server.drop_database(name)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.stop()


@contextlib.contextmanager
def arena(logs: Path | None = None) -> Iterator[Arena]:
    """From nothing, and nothing afterwards but logs in `logs`."""
    with tempfile.TemporaryDirectory(prefix="clockhand-faults-") as directory, postgres.server() as server:
        made = Arena(server, Path(directory))
        try:
            yield made
        finally:
            made.close()
            if logs is not None:
                shutil.copytree(directory, logs, dirs_exist_ok=True)
