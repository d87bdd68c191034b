"""The first listing: a replica starts and finds a cluster full of ScheduledJobs. How fast they become rows, and what the
replica holds in memory afterwards, beside one that does not mirror.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time

from benchmarks import crowd, report, stage

_SECONDS = 600.0
_NAMESPACES = 10
_SCHEDULES = 100
_STORED = "SELECT count(*) = %(jobs)s FROM jobs WHERE deleted_at IS NULL"
_ANY = "SELECT count(*) > 0 FROM jobs"
_PARKED = "SELECT count(*) = 0 FROM jobs WHERE parked IS NOT NULL OR next_run_at IS NULL"
_OPERATORS = ("operator-0", "operator-1")


@dataclasses.dataclass(frozen=True)
class Settings:
    jobs: int = 5_000


async def run(settings: Settings) -> report.Report:
    """Objects first, then the operator."""
    made = report.Report("mirror", dataclasses.asdict(settings))
    async with stage.standing(operators=0) as ready:
        names = [f"bench-mirror-{number}" for number in range(_NAMESPACES)]
        await crowd.create_namespaces(ready.client, names)
        objects = (
            crowd.scheduled_job(
                f"job-{number}", names[number % _NAMESPACES], schedule=_schedule(number), value="mirror"
            )
            for number in range(settings.jobs)
        )
        made_a_second = await crowd.create_all(ready.client, crowd.SCHEDULED_JOBS, objects)
        began = time.monotonic()
        await asyncio.to_thread(ready.installed.start_part, _OPERATORS[0])
        meter = ready.meter(_OPERATORS[:1])
        meter.start()
        await ready.until("the first object to be stored", _ANY, seconds=_SECONDS)
        first = time.monotonic() - began
        await ready.until("every object to be stored", _STORED, {"jobs": settings.jobs}, seconds=_SECONDS)
        whole, spent = time.monotonic() - began, meter.spent()
        await ready.until("every job to have a next slot", _PARKED, seconds=_SECONDS)
        rows = [
            ("objects created a second (load)", made_a_second),
            ("seconds from start to the first row", first),
            ("seconds from start to the last row", whole),
            ("objects a second, from start", settings.jobs / whole),
            ("objects a second, from the first row", settings.jobs / max(whole - first, 0.25)),
        ]
        made.add("first listing", ("what", "value"), rows)
        made.add("CPU, ms an object", ("part", "ms"), [(k, 1000 * v / settings.jobs) for k, v in spent.items()])
        await asyncio.to_thread(ready.installed.start_part, _OPERATORS[1])
        await asyncio.to_thread(ready.installed.wait_until_ready)
        await asyncio.sleep(10)
        made.add("memory, MiB", ("replica", "held", "at most"), await ready.memory(_OPERATORS))
    return made


def _schedule(number: int) -> str:
    """Hourly to yearly, none due during the measurement more than once."""
    kind = number % _SCHEDULES
    return f"{kind % 60} {kind % 24} {1 + kind % 28} {1 + kind % 12} *"
