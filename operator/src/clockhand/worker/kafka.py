"""A second way in: tokens that come as messages on Kafka, and are presented to the API for their runs.

A message is done with once the API has answered: only then is its offset committed. Whatever comes twice is refused or
known, so that neither a broker nor another worker of the group has to be believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import structlog

from clockhand import brokers, calling, errors, metrics
from clockhand.domain import protocol
from clockhand.worker import client, config, runner
from clockhand.worker.attempts import Attempts, Rhythm

try:
    import aiokafka
    import aiokafka.errors
except ImportError:  # an extra of the package: most workers have no Kafka
    aiokafka = None

_WAIT_MS = 1_000
_REQUEST_MS = 15_000
_NEW_TOPICS_MS = 10_000
_RETRY_MS = 1_000
_LONGEST_PAUSE = 30.0
_LAST_SECONDS = 5.0
log = structlog.get_logger(__name__)


class Messages:
    """Reads the topics of the worker's handlers until it is cancelled; `give_back` then settles what was presented last."""

    def __init__(
        self,
        settings: config.Settings,
        api: client.Api,
        runner: runner.Runner,
        *,
        attempts: Attempts,
        rhythm: Rhythm,
    ) -> None:
        if aiokafka is None:
            raise errors.InvalidInput("CLOCKHAND_KAFKA", "this worker is without aiokafka: install clockhand[kafka]")
        logging.getLogger("aiokafka").setLevel(logging.ERROR)
        self._settings = settings
        self._api = api
        self._runner = runner
        self._attempts = attempts
        self._rhythm = rhythm
        self._decode = msgspec.json.Decoder(protocol.Dispatched).decode
        self._open: protocol.StartRequest | None = None

    async def run(self) -> None:
        """Reads, presents, and takes what it gets; connects anew whenever something is wrong with Kafka."""
        failed = 0
        while True:
            try:
                async with self._connected() as consumer:
                    while True:
                        await self._step(consumer)
                        failed = 0
            except (aiokafka.errors.KafkaError, errors.Unavailable, OSError, TimeoutError) as error:
                failed += 1
                wait = calling.pause(failed, longest=_LONGEST_PAUSE)
                log.warning(
                    "kafka_not_reached", error=str(error) or repr(error), failed=failed, again_in=round(wait, 2)
                )
                await asyncio.sleep(wait)

    async def give_back(self) -> None:
        """Presents again what was cut off: nobody here will run what that brings, and others need not wait for it."""
        if self._open is not None:
            with contextlib.suppress(errors.ClockhandError, TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    answer = await self._api.start(self._open)
                    self._runner.take(answer.runs, self._attempts.clock())

    @contextlib.asynccontextmanager
    async def _connected(self) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            **brokers.options(self._settings),
            client_id=self._settings.worker_name,
            group_id=f"clockhand.{self._settings.pool}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # of a group that is new: what is too old is refused
            request_timeout_ms=_REQUEST_MS,
            retry_backoff_ms=_RETRY_MS,
            metadata_max_age_ms=_NEW_TOPICS_MS,
        )
        try:
            # by a pattern: a topic need not be there yet
            topics = "|".join(re.escape(protocol.topic_of(handler)) for handler in self._runner.calls)
            consumer.subscribe(pattern=f"^(?:{topics})$")
            await consumer.start()
            yield consumer
        finally:
            with contextlib.suppress(aiokafka.errors.KafkaError, OSError, TimeoutError):
                await consumer.stop()

    async def _step(self, consumer: Any) -> None:
        """As many messages as there are free places, from the topic to their runs."""
        free = await self._runner.places()
        read = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=free)
        if not read:
            return
        held = self._own(record.value for records in read.values() for record in records)
        if held:
            await self._present(held)
        await consumer.commit()

    def _own(self, values: Iterable[bytes | None]) -> Sequence[protocol.Held]:
        """The tokens that are for this worker; a message that nobody can use is counted and passed over."""
        held = []
        for value in values:
            try:
                message = self._decode(value or b"")
            except msgspec.DecodeError as error:
                metrics.WORKER_MESSAGES.labels(outcome="unreadable").inc()
                log.warning("message_not_understood", error=str(error))
                continue
            # pools that have a handler of the same name share its topic
            if message.pool.partition("/")[2] == self._settings.pool and message.handler in self._runner.calls:
                held.append(protocol.Held(run_id=message.run_id, token=message.token))
        return held

    async def _present(self, held: Sequence[protocol.Held]) -> None:
        clock = self._attempts.clock
        tries = []

        async def ask() -> protocol.StartAnswer:
            tries.append(clock())
            return await self._api.start(request)

        self._open = request = protocol.StartRequest(worker=self._settings.worker_name, held=tuple(held))
        answer = await client.persist("start", ask)
        self._open = None
        self._rhythm.follow(answer)
        metrics.WORKER_MESSAGES.labels(outcome="started").inc(len(answer.runs))
        metrics.WORKER_MESSAGES.labels(outcome="refused").inc(len(answer.refused))
        self._runner.take(answer.runs, tries[-1], unsure=len(tries) > 1)
