"""A worker's process: what it is made of, how it starts, and how it ends without losing what it has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from clockhand import collector, errors, health, metrics
from clockhand.domain import protocol
from clockhand.worker import claims, client, commands, config, heart, kafka, reports, runner, tail, webhook, worker
from clockhand.worker.attempts import Attempts, Rhythm

_FLUSH_SECONDS = 5.0
log = structlog.get_logger(__name__)


class Process:
    """The parts of one worker, put together."""

    def __init__(self, settings: config.Settings, code: worker.Worker, api: client.Api) -> None:
        self._settings = settings
        self._code = code
        self._api = api
        self._attempts, self._rhythm = Attempts(), Rhythm()
        self._loop = asyncio.get_running_loop()
        self._heart = heart.Heart(settings, self._attempts, self._rhythm, self._given)
        self._reports = reports.Reports(api, self._attempts, worker=settings.worker_name)
        self._runner = runner.Runner(
            calls_of(settings, code),
            attempts=self._attempts,
            reports=self._reports,
            rhythm=self._rhythm,
            beat=self._heart.beat_now,
            concurrency=settings.concurrency,
        )
        polling = claims.Claims(
            api,
            self._runner,
            attempts=self._attempts,
            rhythm=self._rhythm,
            worker=settings.worker_name,
            beside=settings.kafka is not None,
        )
        self._ways_in: list[claims.Claims | kafka.Messages] = [polling]
        if settings.kafka is not None:
            self._ways_in.append(
                kafka.Messages(settings, api, self._runner, attempts=self._attempts, rhythm=self._rhythm)
            )

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Takes runs until `stop`, lets those that it has end, or ends them at `hurry`."""
        metrics.begin("worker")
        self._heart.start(health.Probes(alive=lambda: True, ready=self._ready))
        log.info(
            "worker_started",
            worker=self._settings.worker_name,
            pool=self._settings.pool,
            handlers=[*self._runner.calls],
        )
        reporting = asyncio.create_task(self._reports.run())
        coming = {asyncio.create_task(way.run()) for way in self._ways_in}
        ended = asyncio.create_task(stop.wait())
        beating = asyncio.wrap_future(self._heart.over)
        try:
            first: set[asyncio.Future[Any]] = {reporting, *coming, beating, ended}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            log.info("worker_stops", running=len(self._attempts))
            await self._drain(coming, hurry)
        finally:
            ended.cancel()
            reporting.cancel()
            self._code.threads.abandon()
            self._heart.stop()
            await self._code.children.close()
        for task in (*coming, reporting, beating):
            if task.done() and not task.cancelled():
                task.result()

    async def _drain(self, coming: set[asyncio.Task[None]], hurry: asyncio.Event) -> None:
        self._runner.draining = True
        until = self._loop.time() + self._settings.grace_seconds
        for task in coming:
            task.cancel()
        await asyncio.wait(coming, timeout=_FLUSH_SECONDS)  # one may wait for a broker that is gone
        for way in self._ways_in:
            await way.give_back()
        await self._runner.drain(grace=max(until - self._loop.time(), 0.0), hurry=hurry)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reports.all_answered(), _FLUSH_SECONDS)

    def _given(self, runs: Sequence[protocol.Run], sent: float) -> None:
        self._loop.call_soon_threadsafe(self._runner.take, runs, sent)

    def _ready(self) -> bool:
        return self._api.reached and not self._runner.draining


def calls_of(settings: config.Settings, code: worker.Worker) -> Mapping[str, runner.Call]:
    """The handlers of `code` and those built in that the settings ask for; raises InvalidInput where there is none."""
    calls = dict(code.calls)
    if settings.exec_commands is not None:
        calls["exec"] = commands.Exec(commands.read(settings.exec_commands))
    if settings.http_hosts is not None:
        calls["http"] = webhook.Webhook(webhook.read(settings.http_hosts), keys=settings.http_keys)
    if not calls:
        raise errors.InvalidInput("CLOCKHAND_HANDLERS", "no handlers: name your worker, such as mailers.app:worker")
    return calls


async def serve(settings: config.Settings, code: worker.Worker | None = None) -> None:
    """Runs until SIGTERM or SIGINT; a second one does not wait for what runs. Without `code`, what the settings name."""
    logging.root.setLevel(logging.INFO)  # before the code is loaded, which may say otherwise
    if code is None:
        code = worker.Worker() if settings.handlers is None else worker.load(settings.handlers)
    collector.rarely()
    if not worker.fits(settings.pool, code.pool):
        raise errors.InvalidInput("CLOCKHAND_POOL", f"is {settings.pool}, and the code is for the pool {code.pool}")
    stop, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    with tail.routed():
        async with client.Api(settings) as api:
            await Process(settings, code, api).run(stop, hurry)
