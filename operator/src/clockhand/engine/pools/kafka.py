"""Runs as messages on Kafka: one topic a handler, one message an attempt, the only place in the engine that knows aiokafka.

A message says which token may be presented, and nothing else: whoever presents it first has the run. So one that comes
twice is harmless, and one that is lost costs the time of a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from clockhand import brokers, errors
from clockhand.domain import protocol
from clockhand.store import assigned

try:
    import aiokafka
    import aiokafka.admin
    import aiokafka.errors
except ImportError:  # an extra of the package: most installations have no Kafka
    aiokafka = None

_TIMEOUT_MS = 5_000
"""After which a message that no broker has acknowledged counts as not sent."""
_RETRY_MS = 250
_LINGER_MS = 2
_BATCH_BYTES = 262_144
_THERE_ALREADY, _FORBIDDEN = 36, 29
_BROKERS_DEFAULT = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Unsent:
    """An attempt whose message no broker has acknowledged; it may be on the topic all the same."""

    run: assigned.Assigned
    error: str
    passing: bool
    """Whether the brokers are to be reached anew; else it is this topic that they refuse."""


class Publisher:
    """A connection that publishes. `partitions` is for topics that it has to make; without settings it never opens."""

    def __init__(self, settings: brokers.Brokers | None = None, *, partitions: int = 1) -> None:
        self._settings = settings
        self._partitions = partitions
        self._encode = msgspec.json.Encoder().encode
        self._connection: contextlib.AsyncExitStack | None = None
        self._producer: Any = None
        self._admin: Any = None

    @property
    def has_brokers(self) -> bool:
        """Whether it was told of any."""
        return self._settings is not None and self._settings.kafka is not None

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._connection is not None

    async def open(self) -> None:
        """Connects. Raises Unavailable with the reason, for people."""
        if aiokafka is None:
            raise errors.Unavailable("this process is without aiokafka: install clockhand[kafka]")
        if self._settings is None or self._settings.kafka is None:
            raise errors.Unavailable("this process has been told of no brokers: set CLOCKHAND_KAFKA")
        logging.getLogger("aiokafka").setLevel(logging.ERROR)
        common = {
            **brokers.options(self._settings),
            "client_id": "clockhand",
            "request_timeout_ms": _TIMEOUT_MS,
            "retry_backoff_ms": _RETRY_MS,
        }
        # Not idempotent: such a producer repeats a message for ever, and what it gives up may block those after it. One
        # that is on a topic twice is harmless here.
        async with contextlib.AsyncExitStack() as connection:
            try:
                producer = aiokafka.AIOKafkaProducer(
                    acks="all", linger_ms=_LINGER_MS, max_batch_size=_BATCH_BYTES, **common
                )
                connection.push_async_callback(producer.stop)
                await producer.start()
                admin = aiokafka.admin.AIOKafkaAdminClient(**common)
                connection.push_async_callback(admin.close)
                await admin.start()
            except (aiokafka.errors.KafkaError, OSError) as error:
                raise errors.Unavailable(f"the brokers at {self._settings.kafka} cannot be used: {error}") from error
            self._producer, self._admin, self._connection = producer, admin, connection.pop_all()

    async def close(self) -> None:
        """Ends the connection; what was handed over is sent before, or given up as at any other time."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def prepare(self, topics: Collection[str]) -> Mapping[str, str]:
        """Makes those of `topics` that are missing; returns what is wrong with any that cannot be used.

        Raises Unavailable where the brokers do not answer.
        """
        wanted = [aiokafka.admin.NewTopic(topic, self._partitions, _BROKERS_DEFAULT, {}) for topic in topics]
        try:
            answer = await self._admin.create_topics(wanted, timeout_ms=_TIMEOUT_MS)
        # the attribute is of the controller's address, while the brokers have not told it
        except (aiokafka.errors.KafkaError, TimeoutError, OSError, AttributeError) as error:
            raise errors.Unavailable(f"the brokers do not answer: {error!r}") from error
        wrong = {}
        for topic, code, message in answer.topic_errors:
            if code not in (0, _THERE_ALREADY) and not (code == _FORBIDDEN and await self._is_there(topic)):
                wrong[topic] = f"{topic} cannot be used: {message or aiokafka.errors.for_code(code).__name__}"
        return wrong

    async def send(self, pool: str, runs: Sequence[assigned.Assigned]) -> Sequence[Unsent]:
        """Publishes attempts of `pool`; returns those whose messages were not acknowledged."""
        if self._connection is None:
            return [Unsent(run, "the connection was closed", passing=True) for run in runs]
        outcomes = await asyncio.gather(
            *[self._send(self._producer, pool, run) for run in runs], return_exceptions=True
        )
        return [_unsent(run, outcome) for run, outcome in zip(runs, outcomes, strict=True) if outcome is not None]

    async def _send(self, producer: Any, pool: str, run: assigned.Assigned) -> None:
        topic = protocol.topic_of(run.handler)
        message = protocol.Dispatched(run_id=run.run_id, token=str(run.token), pool=pool, handler=run.handler)
        partitions = await producer.partitions_for(topic)
        sent = await producer.send(
            topic,
            self._encode(message),
            key=str(run.run_id).encode(),
            # by the attempt and not by its run: after a rescue it is not again left with a consumer that is stuck
            partition=run.token % len(partitions),
        )
        await sent

    async def _is_there(self, topic: str) -> bool:
        """Whether somebody else has made a topic that this user may not make."""
        try:
            return bool(await self._producer.partitions_for(topic))
        except aiokafka.errors.KafkaError:
            return False


def _unsent(run: assigned.Assigned, outcome: BaseException) -> Unsent:
    if not isinstance(outcome, aiokafka.errors.KafkaError):
        raise outcome
    return Unsent(run, f"{protocol.topic_of(run.handler)}: {outcome!r}", passing=outcome.retriable)
