"""What a harness does to messages on Kafka: it says them again, and presents their tokens as somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import aiokafka
import msgspec
from tests.faults.pools import witness
from tests.faults.pools.plans import HANDLER, THREAD
from tests.faults.pools.stage import Stage

from clockhand.domain import protocol

_TOPICS = tuple(protocol.topic_of(handler) for handler in (HANDLER, THREAD))


def say_again(stage: Stage, stranger: str, *, seconds: float) -> int:
    """For so long, publishes each message twice more, and presents its token as well; returns how many there were.

    What the stranger gets by that it makes, as any worker would.
    """
    return asyncio.run(_say_again(stage, stranger, seconds))


async def _say_again(stage: Stage, stranger: str, seconds: float) -> int:
    seen: set[bytes] = set()
    until = time.monotonic() + seconds
    async with _connected(stage) as (consumer, producer):
        while time.monotonic() < until:
            read = await consumer.getmany(timeout_ms=200)
            new = {(topic.topic, one.value) for topic, several in read.items() for one in several}
            for topic, value in [one for one in new if one[1] not in seen]:
                for _ in range(2):
                    await producer.send_and_wait(topic, value)
                await asyncio.to_thread(_present, stage, stranger, value)
            seen.update(value for _, value in new)
    return len(seen)


@contextlib.asynccontextmanager
async def _connected(stage: Stage) -> AsyncIterator[tuple[aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer]]:
    assert stage.broker is not None
    servers = stage.broker.servers
    consumer = aiokafka.AIOKafkaConsumer(*_TOPICS, bootstrap_servers=servers, auto_offset_reset="latest")
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await consumer.start()
    try:
        await producer.start()
        try:
            yield consumer, producer
        finally:
            await producer.stop()
    finally:
        await consumer.stop()


def _present(stage: Stage, stranger: str, value: bytes) -> None:
    message = msgspec.json.decode(value, type=protocol.Dispatched)
    held = {"runId": str(message.run_id), "token": message.token}
    answer = stage.call("start", {"worker": stranger, "held": [held]})
    own, told = (witness.Witness(stage.witness, name) for name in (stranger, f"{stranger}.told"))
    for run in answer["runs"]:
        for what in (witness.BEGUN, witness.EFFECT):
            own.note(what, run["runId"], run["token"], attempt=run["attempt"])
        outcome = "Succeeded"
        reports = [{"runId": run["runId"], "token": run["token"], "outcome": outcome}]
        [got] = stage.call("report", {"worker": stranger, "reports": reports})["reports"]
        told.note(witness.TOLD, run["runId"], run["token"], outcome=outcome, accepted=got["accepted"])
    own.close()
    told.close()
