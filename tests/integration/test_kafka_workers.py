"""Workers that take runs by messages, from a real Kafka through the real API: whatever comes twice, late or never, each run
is made once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiokafka
import aiokafka.admin
import msgspec
import pytest
from prometheus_client import REGISTRY
from tests.support import jobs, kafka, workers_api

from clockhand import config
from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.engine.pools import kafka as publishing
from clockhand.store import database
from clockhand.worker import Run, Worker, app, client
from clockhand.worker import config as worker_config

LONG, SHORT = 60, 6
"""Leases, in seconds: one that is not to end in a test, and one that is."""


@pytest.fixture
def handler() -> str:
    """A name that no other test has messages for."""
    return f"email.send.{uuid.uuid4().hex[:8]}"


class Scene:
    """A pool dispatched by messages, the API, and workers that note each effect."""

    def __init__(self, served: workers_api.Served, broker: kafka.Broker, handler: str, token: str) -> None:
        self.served = served
        self.broker = broker
        self.handler = handler
        self.token = token
        self.effects: Counter[uuid.UUID] = Counter()
        self.by: dict[uuid.UUID, str] = {}

    async def queue(self, count: int) -> set[uuid.UUID]:
        """That many runs in the queue."""
        async with self.served.db.transaction() as connection:
            plan = jobs.pooled(handler=self.handler)
            made = await jobs.make_jobs(connection, count, job=plan, name=f"j{uuid.uuid4().hex[:6]}")
            runs = {await jobs.make_run(connection, job, S.QUEUED) for job in made}
        self.served.pools.desk.queued([(jobs.POOL, self.handler)])
        return runs

    @contextlib.asynccontextmanager
    async def worker(self, name: str, *, seconds: float = 0.0, kafka: str | None = "") -> AsyncIterator[None]:
        """A worker for the length of the block; `kafka` None: one that only polls."""
        code = Worker()

        @code.handler(self.handler)
        async def note(run: Run) -> None:
            run_id = uuid.UUID(run.id)
            self.effects[run_id] += 1
            self.by[run_id] = name
            await asyncio.sleep(seconds)

        told = worker_config.Settings(
            api_url=self.served.url, pool=f"{workers_api.PLACE}/{workers_api.NAME}", token=self.token,
            worker_name=name, health_port=0, grace_seconds=10.0,
            kafka=self.broker.servers if kafka == "" else kafka,
        )  # fmt: skip
        stop = asyncio.Event()
        async with client.Api(told) as api, asyncio.TaskGroup() as tasks:
            tasks.create_task(app.Process(told, code, api).run(stop, asyncio.Event()))
            try:
                yield
            finally:
                stop.set()

    async def are_read(self) -> set[uuid.UUID]:
        """Runs until workers get some by messages: their group has come together then."""
        before, runs = counted("started"), set[uuid.UUID]()
        async with asyncio.timeout(120):
            while counted("started") == before:
                runs |= await self.queue(1)
                await until(functools.partial(self.ended, runs))
        return runs

    async def ended(self, runs: set[uuid.UUID]) -> bool:
        """Whether all of them have succeeded."""
        async with self.served.db.transaction() as connection:
            text = "SELECT run_id FROM run_history WHERE state = 'Succeeded' AND run_id = ANY(%s)"
            return len(await jobs.query(connection, text, list(runs))) == len(runs)

    async def error(self) -> str | None:
        async with self.served.db.transaction() as connection:
            found: str | None = await jobs.one(connection, "SELECT kafka_error FROM pools")
            return found

    async def is_well(self) -> bool:
        return await self.error() is None

    async def attempts(self, run: uuid.UUID) -> Any:
        """Of a run that is over: how many there were, and how often each counter rose."""
        async with self.served.db.transaction() as connection:
            text = "SELECT attempt, failures, disruptions, worker FROM run_history WHERE run_id = %s"
            [row] = await jobs.query(connection, text, run)
            return row

    @contextlib.asynccontextmanager
    async def reading(self, *, group: str | None = None) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
        """A consumer of the handler's topic, from its first message on."""
        consumer = aiokafka.AIOKafkaConsumer(
            protocol.topic_of(self.handler), bootstrap_servers=self.broker.servers, auto_offset_reset="earliest",
            group_id=group, enable_auto_commit=False, metadata_max_age_ms=300, retry_backoff_ms=50,
        )  # fmt: skip
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def publish(self, *values: bytes) -> None:
        """Whatever anybody may write to the topic, spread over its partitions."""
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.broker.servers, acks="all")
        await producer.start()
        try:
            for value in values:
                await producer.send_and_wait(protocol.topic_of(self.handler), value)
        finally:
            await producer.stop()

    async def delete_topic(self) -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self.broker.servers)
        await admin.start()
        try:
            await admin.delete_topics([protocol.topic_of(self.handler)])
        finally:
            await admin.close()


@pytest.fixture
def lease() -> int:
    return LONG


@pytest.fixture
async def scene(db: database.Database, broker: kafka.Broker, handler: str, lease: int) -> AsyncIterator[Scene]:
    async with db.transaction() as connection:
        await jobs.make_partitions(connection)
        text = """INSERT INTO pools (pool, owner, name, dispatch, handlers, lease_seconds, heartbeat_seconds)
                  VALUES (%s, %s, 'mailers', 'Kafka', %s, %s, 1) RETURNING 1"""
        await jobs.query(connection, text, jobs.POOL, jobs.OWNER, [handler], lease)
    publisher = publishing.Publisher(config.Settings(database_url="", replica="", kafka=broker.servers), partitions=4)
    async with workers_api.served(db, kafka=publisher) as served:
        yield Scene(served, broker, handler, await workers_api.make_token(db))


async def until(holds: Callable[[], Awaitable[object]], *, seconds: float = 60.0) -> None:
    """Returns once something holds that other tasks bring about."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 (it is rows that are waited for)
            await asyncio.sleep(0.05)


def counted(outcome: str) -> float:
    """How many messages workers of this process have had, with this outcome."""
    return REGISTRY.get_sample_value("clockhand_worker_messages_total", {"outcome": outcome}) or 0.0


async def test_runs_reach_workers_by_messages(scene: Scene) -> None:
    async with scene.worker("one"), scene.worker("two"):
        runs = await scene.are_read()
        before = counted("started")
        runs |= await scene.queue(100)
        await until(lambda: scene.ended(runs))
        await until(lambda: holds(counted("started") > before))
        await until(scene.is_well)
    assert scene.effects == dict.fromkeys(runs, 1)


async def test_a_message_that_comes_twice_is_started_once(scene: Scene) -> None:
    runs = await scene.queue(20)
    async with scene.reading() as consumer:
        values = [(await consumer.getone()).value for _ in runs]
    await scene.publish(*values, *values)
    before = counted("refused")
    async with scene.worker("one"), scene.worker("two"):
        await until(lambda: scene.ended(runs))
        # once it is over, to everybody
        await scene.publish(*values)
        await until(lambda: holds(counted("refused") - before >= 20))
    assert scene.effects == dict.fromkeys(runs, 1)


@pytest.mark.parametrize("lease", [SHORT])
async def test_what_a_worker_took_with_it_is_made_again(scene: Scene) -> None:
    """Killed between its start and its commit: the message comes again, and means nothing any more."""
    runs = await scene.queue(5)
    dead = scene.served.caller(scene.token)
    async with scene.reading(group="clockhand.team-a/mailers") as consumer:
        values = [(await consumer.getone()).value for _ in runs]
        held = [{"runId": one["runId"], "token": one["token"]} for one in map(msgspec.json.decode, values)]
        answer = await dead.post(workers_api.path_of("start"), {"worker": "dead", "held": held})
        assert {uuid.UUID(run["runId"]) for run in answer.json["runs"]} == runs
    before = counted("refused")
    async with scene.worker("one"):
        await until(lambda: holds(counted("refused") - before >= 5))
        await until(lambda: scene.ended(runs))
    assert scene.effects == dict.fromkeys(runs, 1)
    for run in runs:
        assert tuple(await scene.attempts(run)) == (2, 0, 1, "one")


async def test_messages_that_nobody_can_use_are_passed_over(scene: Scene) -> None:
    [first] = await scene.queue(1)
    async with scene.worker("one"):
        read = {first, *await scene.are_read()}
        await until(lambda: scene.ended(read))
        before = {outcome: counted(outcome) for outcome in ("unreadable", "refused")}
        unknown = protocol.Dispatched(run_id=uuid.uuid4(), token="1", pool=jobs.POOL, handler=scene.handler)
        changed: Sequence[Mapping[str, Any]] = (
            {"run_id": first, "token": "2"},
            {"pool": "k8s/team-b/mailers"},
            {"handler": "another"},
        )
        await scene.publish(
            b"", b"\xff\x00", b"{", b"[]", b"{}", b'{"runId": "x"}', b"1" * 100_000,
            msgspec.json.encode({**msgspec.to_builtins(unknown), "token": "-1"}),
            msgspec.json.encode(unknown),
            *(msgspec.json.encode(msgspec.structs.replace(unknown, **fields)) for fields in changed),
        )  # fmt: skip
        runs = await scene.queue(10)
        await until(lambda: scene.ended(runs))
        await until(lambda: holds(counted("refused") - before["refused"] >= 2))
        await until(lambda: holds(counted("unreadable") - before["unreadable"] >= 8))
    assert scene.effects == dict.fromkeys(read | runs, 1)


@pytest.mark.parametrize("lease", [SHORT])
async def test_brokers_that_die_under_load_cost_no_run(scene: Scene) -> None:
    async with scene.worker("one", seconds=0.02), scene.worker("two", seconds=0.02):
        runs = await scene.are_read()
        runs |= await scene.queue(400)
        await until(lambda: holds(len(scene.effects) > 50))
        scene.broker.kill()
        try:
            runs |= await scene.queue(200)
            await until(scene.error)
            await until(lambda: scene.ended(runs))
        finally:
            await asyncio.to_thread(scene.broker.start)
        runs |= await scene.are_read()
        await until(scene.is_well)
    assert scene.effects == dict.fromkeys(runs, 1)


@pytest.mark.parametrize("lease", [SHORT])
async def test_a_lost_message_costs_the_time_of_a_lease(scene: Scene) -> None:
    runs = await scene.queue(5)
    async with scene.reading() as consumer:
        for _ in runs:
            await consumer.getone()
    await scene.delete_topic()
    async with scene.worker("one"):
        await until(lambda: scene.ended(runs))
    assert scene.effects == dict.fromkeys(runs, 1)
    for run in runs:
        attempt, failures, disruptions, _ = await scene.attempts(run)
        assert (attempt > 1, failures, disruptions) == (True, 0, 0)


async def test_a_worker_that_stops_leaves_nothing_behind(scene: Scene) -> None:
    async with scene.worker("one", seconds=0.05):
        runs = await scene.queue(100)
        await until(lambda: holds(len(scene.effects) > 20))
    async with scene.worker("two"):
        await until(lambda: scene.ended(runs))
    assert scene.effects == dict.fromkeys(runs, 1)
    assert {scene.by[run] for run in runs} == {"one", "two"}


async def test_workers_without_kafka_poll_for_what_messages_do_not_bring(scene: Scene) -> None:
    scene.broker.kill()
    try:
        async with scene.worker("poller", kafka=None), scene.worker("reader"):
            runs = await scene.queue(30)
            await until(lambda: scene.ended(runs))
    finally:
        await asyncio.to_thread(scene.broker.start)
    assert scene.effects == dict.fromkeys(runs, 1)


async def holds(what: bool) -> bool:
    return what
