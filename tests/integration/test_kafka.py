"""Runs go out as messages, on a real Kafka; whatever happens to messages or brokers, each run is started once."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import aiokafka
import aiokafka.admin
import msgspec
import pytest
from tests.support import jobs, kafka

from clockhand import brokers, config
from clockhand.domain import protocol
from clockhand.domain.states import RunState as S
from clockhand.engine import loops
from clockhand.engine.pools import dispatch, service
from clockhand.engine.pools import kafka as kafkas
from clockhand.store import assigned, database, leases
from clockhand.store import kafka as rows
from clockhand.store import pools as pool_rows

HANDLED = pool_rows.Settings(jobs.POOL, jobs.OWNER, dispatch="Kafka", lease_seconds=60, heartbeat_seconds=3)


@pytest.fixture
def handler() -> str:
    """A name that no other test has messages for."""
    return f"email.send.{uuid.uuid4().hex[:8]}"


def settings(**fields: Any) -> config.Settings:
    return config.Settings(database_url="", replica="one", **fields)


async def make_pool(connection: database.Connection, *handlers: str, pool: str = jobs.POOL) -> None:
    text = """INSERT INTO pools (pool, owner, name, dispatch, handlers, lease_seconds, heartbeat_seconds)
              VALUES (%s, %s, %s, 'Kafka', %s, 60, 3)"""
    await jobs.query(connection, f"{text} RETURNING 1", pool, jobs.OWNER, pool.rpartition("/")[2], list(handlers))


async def queue(connection: database.Connection, count: int, *, handler: str) -> Sequence[uuid.UUID]:
    """That many runs in the queue of `POOL`, each a second younger than the one before."""
    made = await jobs.make_jobs(connection, count, job=jobs.pooled(handler=handler), name=f"j{uuid.uuid4().hex[:6]}")
    now = await database.now(connection)
    return [
        await jobs.make_run(connection, job, S.QUEUED, queue_at=now - timedelta(seconds=count - number))
        for number, job in enumerate(made)
    ]


class Api:
    """The pools of one API process, with its loops."""

    def __init__(self, db: database.Database, told: brokers.Brokers, *, window: int, replica: str) -> None:
        self._db = db
        self.pools = service.Pools(db, replica=replica, lease=jobs.LONG)
        self.publisher = kafkas.Publisher(told, partitions=3)
        # in place of its own, with a window of the test's
        self.dispatch = dispatch.Dispatch(db, self.pools.desk, self.publisher, replica=replica, window=window)
        steps = {**self.pools.steps(), **self.dispatch.steps()}
        self._tasks = [asyncio.create_task(loops.forever(name, step), name=name) for name, step in steps.items()]

    async def stop(self) -> None:
        self.pools.desk.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.dispatch.close()

    async def claim(self, handler: str, *, worker: str = "poller", most: int = 100) -> Sequence[protocol.Run]:
        """What a worker that polls is given."""
        asked = protocol.ClaimRequest(
            request_id=uuid.uuid4(), worker=worker, handlers=(handler,), max=most, wait_seconds=0.0
        )
        return (await self.pools.claim(jobs.POOL, asked)).runs

    async def start(self, worker: str, messages: Sequence[protocol.Dispatched]) -> set[uuid.UUID]:
        """The runs that a worker gets for the tokens of messages."""
        held = [(message.run_id, int(message.token)) for message in messages]
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            runs = await leases.start(connection, [leases.Beat(jobs.POOL, worker, 90, held)], now=now)
        return {run.run_id for run in runs}


@contextlib.asynccontextmanager
async def api(
    db: database.Database, told: brokers.Brokers, *, window: int = dispatch.WINDOW, replica: str = "one"
) -> AsyncIterator[Api]:
    process = Api(db, told, window=window, replica=replica)
    try:
        yield process
    finally:
        await process.stop()


@contextlib.asynccontextmanager
async def reading(broker: kafka.Broker, handler: str) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    """A consumer of a handler's topic, from its first message on."""
    consumer = aiokafka.AIOKafkaConsumer(
        protocol.topic_of(handler), bootstrap_servers=broker.servers, auto_offset_reset="earliest",
        metadata_max_age_ms=300, retry_backoff_ms=50,
    )  # fmt: skip
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def messages_of(consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[protocol.Dispatched]:
    """The next `count` messages."""
    async with asyncio.timeout(30):
        return [msgspec.json.decode((await consumer.getone()).value, type=protocol.Dispatched) for _ in range(count)]


@contextlib.asynccontextmanager
async def administering(broker: kafka.Broker) -> AsyncIterator[aiokafka.admin.AIOKafkaAdminClient]:
    client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.servers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def states(db: database.Database) -> Mapping[str, int]:
    """How many runs there are of each state."""
    async with db.transaction() as connection:
        found = await jobs.query(connection, "SELECT state::text, count(*) FROM runs GROUP BY 1")
        return {state: count for state, count in found}


async def error_of(db: database.Database) -> str | None:
    async with db.transaction() as connection:
        found: str | None = await jobs.one(connection, "SELECT kafka_error FROM pools WHERE pool = %s", jobs.POOL)
        return found


async def test_a_run_goes_out_as_a_message_that_is_started_once(
    db: database.Database, broker: kafka.Broker, handler: str
) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        [run] = await queue(connection, 1, handler=handler)
    async with api(db, settings(kafka=broker.servers)) as process, reading(broker, handler) as consumer:
        record = await consumer.getone()
        message = msgspec.json.decode(record.value, type=protocol.Dispatched)
        assert record.key == str(run).encode()
        assert (message.run_id, message.pool, message.handler) == (run, jobs.POOL, handler)
        async with db.transaction() as connection:
            text = "SELECT state::text, token, worker FROM live_runs WHERE run_id = %s"
            assert await jobs.query(connection, text, run) == [("Claimed", int(message.token), None)]
        assert await process.start("first", [message]) == {run}
        assert await process.start("second", [message]) == set()
        assert await process.start("first", [message]) == {run}
    assert await error_of(db) is None


async def test_no_more_is_on_its_way_than_the_window(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        made = await queue(connection, 10, handler=handler)
    async with api(db, settings(kafka=broker.servers), window=4) as process, reading(broker, handler) as consumer:
        first = await messages_of(consumer, 4)
        assert {message.run_id for message in first} == set(made[:4])
        for _ in range(3):  # of counts, that is
            await process.dispatch.count()
        assert await states(db) == {"Claimed": 4, "Queued": 6}
        assert len(await process.start("one", first[:3])) == 3
        assert {message.run_id for message in await messages_of(consumer, 3)} == set(made[4:7])


async def test_messages_come_before_workers_that_wait(
    db: database.Database, broker: kafka.Broker, handler: str
) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
    async with api(db, settings(kafka=broker.servers), window=2) as process, reading(broker, handler) as consumer:
        await until(lambda: standing(process))
        seats = [process.pools.desk.sit(HANDLED, worker=name, handlers=(handler,), room=1) for name in ("a", "b")]
        async with db.transaction() as connection:
            made = await queue(connection, 3, handler=handler)
        process.pools.desk.queued([(jobs.POOL, handler)])
        assert {message.run_id for message in await messages_of(consumer, 2)} == set(made[:2])
        # what is beyond the window is for them
        done, waits = await asyncio.wait([seat.done for seat in seats], return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waits)) == (1, 1)
        assert [run.run_id for run in done.pop().result()] == [made[2]]


async def test_messages_of_several_pools_share_a_topic(
    db: database.Database, broker: kafka.Broker, handler: str
) -> None:
    async with db.transaction() as connection:
        for name in ("mailers", "others"):
            await make_pool(connection, handler, pool=f"k8s/team-a/{name}")
            plan = jobs.pooled(handler=handler, pool=name)
            await jobs.make_run(connection, await jobs.make_job(connection, plan, name=name), S.QUEUED)
    async with api(db, settings(kafka=broker.servers)) as process, reading(broker, handler) as consumer:
        found = await messages_of(consumer, 2)
        assert {message.pool for message in found} == {jobs.POOL, "k8s/team-a/others"}
        # a token counts in its own pool alone
        assert await process.start("one", found) == {one.run_id for one in found if one.pool == jobs.POOL}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_brokers_are_reached_by_tls_and_a_password(
    db: database.Database, broker: kafka.Broker, handler: str, mechanism: str, tmp_path: pathlib.Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{kafka.PASSWORD}\n")
    told = settings(
        kafka=broker.secure_servers, kafka_security_protocol="SASL_SSL", kafka_ca=str(broker.ca),
        kafka_sasl_mechanism=mechanism, kafka_username=kafka.USER, kafka_password_file=str(secret),
    )  # fmt: skip
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        [run] = await queue(connection, 1, handler=handler)
    async with api(db, told), reading(broker, handler) as consumer:
        [message] = await messages_of(consumer, 1)
        assert message.run_id == run


async def test_a_wrong_password_is_told_of_and_runs_are_polled_for(
    db: database.Database, broker: kafka.Broker, handler: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "password"
    secret.write_text("never to be seen")
    told = settings(
        kafka=broker.secure_servers, kafka_security_protocol="SASL_SSL", kafka_ca=str(broker.ca),
        kafka_username=kafka.USER, kafka_password_file=str(secret),
    )  # fmt: skip
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        made = await queue(connection, 3, handler=handler)
    async with api(db, told) as process:
        await until(lambda: error_of(db))
        assert {run.run_id for run in await process.claim(handler)} == set(made)
        found = await error_of(db)
        assert found is not None
        assert found.startswith(f"one: the brokers at {broker.secure_servers} cannot be used: ")
        assert "never to be seen" not in found + caplog.text


@pytest.mark.parametrize("servers", [None, "127.0.0.1:1"])
async def test_without_brokers_runs_are_polled_for(db: database.Database, handler: str, servers: str | None) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        made = await queue(connection, 3, handler=handler)
    async with api(db, settings(kafka=servers)) as process:
        await until(lambda: error_of(db))
        assert {run.run_id for run in await process.claim(handler)} == set(made)


def test_without_the_extra_a_pool_says_what_to_install() -> None:
    code = """
import asyncio, sys
sys.modules["aiokafka"] = None
from clockhand import errors
from clockhand.engine.pools import kafka
try:
    asyncio.run(kafka.Publisher().open())
except errors.Unavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "this process is without aiokafka: install clockhand[kafka]\n"


async def test_what_another_process_says_stays_while_it_lives(db: database.Database, handler: str) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        await jobs.query(
            connection,
            """INSERT INTO replicas (replica, role, started_at, last_seen)
               VALUES ('other', 'api', now(), now()), ('gone', 'api', now(), now() - interval '2 minutes') RETURNING 1""",
        )
        now = await database.now(connection)
        told: list[tuple[str, str | None, str | None]] = [
            ("other", "mine", "other: mine"),
            ("one", None, "other: mine"),
            ("one", "as well", "other: mine"),
            ("other", None, None),
            ("gone", "mine", "gone: mine"),
            ("one", "no", "one: no"),
            ("one", None, None),
        ]
        for replica, error, shown in told:
            await rows.show(connection, {jobs.POOL: error}, replica=replica, now=now)
            assert await jobs.one(connection, "SELECT kafka_error FROM pools") == shown, (replica, error)


async def test_one_topic_that_cannot_be_is_no_matter_for_the_others(
    db: database.Database, broker: kafka.Broker, handler: str
) -> None:
    twin = handler.replace(".", "_")  # brokers take the topics of both for one in their metrics, and refuse the second
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        await queue(connection, 1, handler=handler)
    async with api(db, settings(kafka=broker.servers)) as process, reading(broker, handler) as consumer:
        await messages_of(consumer, 1)
        async with db.transaction() as connection:
            await jobs.query(connection, "UPDATE pools SET handlers = %s RETURNING 1", [handler, twin])
            [refused], [sent] = [await queue(connection, 1, handler=name) for name in (twin, handler)]
        await until(lambda: error_of(db))
        assert str(await error_of(db)).startswith(
            f"one: clockhand.{twin} cannot be used: Topic 'clockhand.{twin}' collides"
        )
        process.pools.desk.mark(jobs.POOL)
        [message] = await messages_of(consumer, 1)
        assert message.run_id == sent
        assert [run.run_id for run in await process.claim(twin)] == [refused]


async def test_brokers_that_die_cost_no_run(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        made = set(await queue(connection, 5, handler=handler))
    async with api(db, settings(kafka=broker.servers)) as process:
        async with reading(broker, handler) as consumer:
            assert await process.start("one", await messages_of(consumer, 5)) == made
        broker.kill()
        try:
            async with db.transaction() as connection:
                later = set(await queue(connection, 50, handler=handler))
            process.pools.desk.queued([(jobs.POOL, handler)])
            await until(lambda: error_of(db))
            # what was handed over for messages is back in the queue, and workers find it there
            polled: list[protocol.Run] = []
            await until(lambda: poll(process, handler, polled, count=50))
            assert {run.run_id for run in polled} == later
        finally:
            await asyncio.to_thread(broker.start)
        await until(lambda: cleared(db))
        async with db.transaction() as connection:
            [last] = await queue(connection, 1, handler=handler)
        process.pools.desk.queued([(jobs.POOL, handler)])
        async with reading(broker, handler) as consumer:
            assert last in {message.run_id for message in await messages_of(consumer, 6)}


async def test_brokers_that_hang_cost_no_run(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        await queue(connection, 1, handler=handler)
    async with api(db, settings(kafka=broker.servers)) as process:
        async with reading(broker, handler) as consumer:
            await process.start("one", await messages_of(consumer, 1))
        broker.pause()
        try:
            async with db.transaction() as connection:
                [later] = await queue(connection, 1, handler=handler)
            process.pools.desk.queued([(jobs.POOL, handler)])
            await until(lambda: error_of(db))
            polled: list[protocol.Run] = []
            await until(lambda: poll(process, handler, polled))
        finally:
            broker.resume()
        assert [run.run_id for run in polled] == [later]
        await until(lambda: cleared(db))
        async with reading(broker, handler) as consumer:
            # it may have arrived after all: nobody gets anything for its token
            for message in await messages_of(consumer, 2):
                if message.run_id == later:
                    assert message.token != polled[0].token
                    assert await process.start("late", [message]) == set()


async def test_a_topic_that_was_deleted_is_made_anew(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        await queue(connection, 2, handler=handler)
    async with api(db, settings(kafka=broker.servers)) as process:
        async with reading(broker, handler) as consumer:
            await messages_of(consumer, 2)
        async with administering(broker) as client:
            await client.delete_topics([protocol.topic_of(handler)])
        async with db.transaction() as connection:
            made = set(await queue(connection, 3, handler=handler))
        process.pools.desk.queued([(jobs.POOL, handler)])
        # they come back to the queue, and wait there for the topic
        async with reading(broker, handler) as consumer:
            assert {message.run_id for message in await messages_of(consumer, 3)} == made
        await until(lambda: cleared(db))


async def test_what_no_worker_reads_is_polled_for(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    """Brokers that take messages are not enough: workers must get them."""
    async with db.transaction() as connection:
        await make_pool(connection, handler)
        unread = await queue(connection, 20, handler=handler)
    async with api(db, settings(kafka=broker.servers)) as process, reading(broker, handler) as consumer:
        assert {message.run_id for message in await messages_of(consumer, 20)} == set(unread)
        async with db.transaction() as connection:
            await connection.execute("UPDATE live_runs SET claimed_at = claimed_at - interval '25 seconds'")
        await until(lambda: error_of(db))
        assert "are not read in time" in str(await error_of(db))
        assert not await standing(process)
        async with db.transaction() as connection:
            later = await queue(connection, 3, handler=handler)
        process.pools.desk.mark(jobs.POOL)
        polled: list[protocol.Run] = []
        await until(lambda: poll(process, handler, polled, count=3))
        assert {run.run_id for run in polled} == set(later)


async def test_twenty_thousand_messages(db: database.Database, broker: kafka.Broker, handler: str) -> None:
    count = 20_000
    publisher = kafkas.Publisher(settings(kafka=broker.servers), partitions=12)
    await publisher.open()
    topic = protocol.topic_of(handler)
    assert await publisher.prepare([topic]) == {}
    async with db.transaction() as connection:
        [pattern] = await assigned_rows(connection, handler)
    runs = [msgspec.structs.replace(pattern, run_id=uuid.uuid4(), token=secrets.randbits(63)) for _ in range(count)]
    async with reading(broker, handler) as consumer:
        began, used = time.monotonic(), time.process_time()
        for first in range(0, count, 500):
            assert not await publisher.send(jobs.POOL, runs[first : first + 500])
        took, spent = time.monotonic() - began, time.process_time() - used
        await publisher.close()
        began = time.monotonic()
        found = {(message.run_id, int(message.token)) for message in await messages_of(consumer, count)}
        print(f"\n{count} messages: {count / took:,.0f}/s, {spent / count * 1e6:.0f} us of CPU each to send,"
              f" {count / (time.monotonic() - began):,.0f}/s to read")  # fmt: skip
    assert found == {(run.run_id, run.token) for run in runs}


async def assigned_rows(connection: database.Connection, handler: str) -> Sequence[assigned.Assigned]:
    """An attempt for a message, as the desk gives it."""
    [run] = await queue(connection, 1, handler=handler)
    now = await database.now(connection)
    return await pool_rows.assign(connection, [pool_rows.Assignment(run, None)], lease=90, now=now)


async def standing(process: Api) -> bool:
    """Whether a claim waits for messages."""
    return any(seat.worker is None for seat in process.pools.desk.sitting(jobs.POOL))


async def poll(process: Api, handler: str, found: list[protocol.Run], *, count: int = 1) -> bool:
    """Adds what a worker that polls is given; whether that makes `count`."""
    found += await process.claim(handler)
    return len(found) >= count


async def cleared(db: database.Database) -> bool:
    return await error_of(db) is None


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Returns once something holds that other tasks bring about."""
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 (it is rows that are waited for)
            await asyncio.sleep(0.05)
