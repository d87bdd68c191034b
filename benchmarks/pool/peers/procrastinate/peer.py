"""procrastinate: `prepare URL MODE`, `fill URL MODE COUNT DUE`, `work URL MODE`. Runs in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

import procrastinate

_IN_ONE_CALL = 1_000
_TELL_EVERY_SECONDS = 0.05
_TEXT = "x" * 189


class Telling:
    """Prints when the first job was handled, and how many were, whenever that has changed."""

    def __init__(self) -> None:
        self.handled = 0
        self._first = 0.0

    def note(self) -> None:
        self._first = self._first or time.time()
        self.handled += 1

    async def run(self) -> None:
        told = 0
        while True:
            await asyncio.sleep(_TELL_EVERY_SECONDS)
            if self.handled != told:
                told = self.handled
                print(json.dumps({"at": time.time(), "first": self._first, "handled": told}), flush=True)


async def main(step: str, url: str, mode: str, count: str = "0", due: str = "0") -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20))
    telling = Telling()

    async def work(text: str) -> None:
        telling.note()
        if mode == "recurring":
            await task.configure(schedule_at=datetime.now(UTC) + timedelta(hours=1)).defer_async(text=text)

    task = app.task(name="work", queue="work")(work)
    async with app.open_async():
        if step == "prepare":
            await app.schema_manager.apply_schema_async()
        elif step == "fill":
            await _fill(task, int(count), None if mode == "raw" else datetime.fromtimestamp(float(due), UTC))
        else:
            await _work(app, telling, mode)


async def _fill(task: procrastinate.tasks.Task, count: int, due: datetime | None) -> None:
    deferrer = task.configure(schedule_at=due)
    for left in range(count, 0, -_IN_ONE_CALL):
        await deferrer.batch_defer_async(*({"text": _TEXT} for _ in range(min(left, _IN_ONE_CALL))))


async def _work(app: procrastinate.App, telling: Telling, mode: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(telling.run())
        await app.run_worker_async(
            queues=["work"],
            concurrency=20,
            fetch_job_polling_interval=0.5,
            delete_jobs="always" if mode == "raw" else "never",
        )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
