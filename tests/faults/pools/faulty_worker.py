"""`clockhand worker` with handlers that do as their payload says, and a record of what they did.

A separate program, as `faulty_operator` is. With CLOCKHAND_TEST_WORKERS it is that many workers in one process.

    python -m tests.faults.pools.faulty_worker REPORT [MUTATION ...]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
from tests.faults.pools import mutations
from tests.faults.pools.plans import HANDLER, THREAD
from tests.faults.pools.witness import BEGUN, EFFECT, TOLD, Witness
from tests.faults.trigger import Trigger, armed_from_outside

from clockhand import logs
from clockhand.domain import protocol
from clockhand.worker import Fail, RetryAfter, Run, Worker, app, client, config


def main() -> None:
    trigger = Trigger(Path(sys.argv[1]))
    _record_answers(trigger)
    mutations.install(sys.argv[2:])
    if not armed_from_outside(trigger):
        return
    logs.to_stderr("json")
    asyncio.run(_serve(int(os.environ.get("CLOCKHAND_TEST_WORKERS", "1"))))


async def _serve(count: int) -> None:
    settings = config.from_environment({**os.environ, "CLOCKHAND_WORKER_NAME": os.environ["CLOCKHAND_REPLICA"]})
    if count == 1:
        await app.serve(settings, _code(settings.worker_name))
        return
    names = [f"{settings.worker_name}-{number}" for number in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_work(msgspec.structs.replace(settings, worker_name=name)))


async def _work(settings: config.Settings) -> None:
    async with client.Api(settings) as api:
        await app.Process(settings, _code(settings.worker_name), api).run(asyncio.Event(), asyncio.Event())


def _code(name: str) -> Worker:
    witness = Witness(_folder(), name)
    worker = Worker()

    @worker.handler(HANDLER)
    async def work(run: Run) -> str:
        witness.saw(BEGUN, run)
        await asyncio.sleep(run.payload["seconds"])
        return _end(run, witness)

    @worker.handler(THREAD)
    def work_in_thread(run: Run) -> str:
        witness.saw(BEGUN, run)
        time.sleep(run.payload["seconds"])
        run.heartbeat_sync()  # nobody can end a thread from outside: it asks before its effect
        return _end(run, witness)

    return worker


def _end(run: Run, witness: Witness) -> str:
    ends = run.payload["ends"]
    match ends[min(run.attempt, len(ends)) - 1]:
        case "fail":
            raise LookupError("nothing there")
        case "later":
            raise RetryAfter(0.5)
        case "fatal":
            raise Fail("no use")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    witness.saw(EFFECT, run)
    return "done"


def _record_answers(trigger: Trigger) -> None:
    report = client.Api.report

    async def recorded(self: client.Api, request: protocol.ReportRequest) -> protocol.ReportAnswer:
        trigger.passed("reporting")
        answer = await report(self, request)
        witness = Witness(_folder(), f"{request.worker}.told")
        for sent, got in zip(request.reports, answer.reports, strict=True):
            witness.note(TOLD, str(sent.run_id), sent.token, outcome=sent.outcome.value, accepted=got.accepted)
        witness.close()
        return answer

    client.Api.report = recorded  # type: ignore[method-assign]


def _folder() -> Path:
    return Path(os.environ["CLOCKHAND_TEST_WITNESS"])


if __name__ == "__main__":
    main()
