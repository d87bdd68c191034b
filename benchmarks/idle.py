"""What a replica costs while nothing is due: statements and CPU, the price of being there."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta

from benchmarks import crowd, report, stage, statements, usage

_SETTLE_SECONDS = 300.0
_NAMESPACE = "bench-idle"
_SETTLED = """
SELECT (SELECT count(*) FROM jobs) = %(jobs)s AND NOT EXISTS (SELECT FROM job_status WHERE dirty_at IS NOT NULL)
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    jobs: int = 1_000
    replicas: int = 3
    seconds: float = 60.0


async def run(settings: Settings) -> report.Report:
    """Jobs that are due in half a year, every status written, and then nothing."""
    made = report.Report("idle", dataclasses.asdict(settings))
    operators = [f"operator-{number}" for number in range(settings.replicas)]
    async with stage.standing(operators=settings.replicas) as ready:
        await crowd.create_namespaces(ready.client, (_NAMESPACE,))
        far = (await ready.now() + timedelta(days=180)).strftime("%M %H %d %m *")
        objects = (
            crowd.scheduled_job(f"job-{number}", _NAMESPACE, schedule=far, value="idle")
            for number in range(settings.jobs)
        )
        await crowd.create_all(ready.client, crowd.SCHEDULED_JOBS, objects)
        await ready.until("every status to be written", _SETTLED, {"jobs": settings.jobs}, seconds=_SETTLE_SECONDS)
        await asyncio.sleep(5)
        pids = {name: ready.installed.pid(name) for name in operators}
        meter = usage.Meter({**{name: (pid,) for name, pid in pids.items()}, "postgres": (ready.server.pid,)})
        meter.start()
        ready.statements.reset()
        await asyncio.sleep(settings.seconds)
        spent, counted = meter.spent(), ready.statements.read()
        made.add("CPU, % of a core", ("part", "%"), [(part, 100 * s / settings.seconds) for part, s in spent.items()])
        made.add("statements a second and replica", ("calls", "statement"), _rates(counted, settings))
        made.add("memory, MiB", ("replica", "held", "at most"), await ready.memory(operators))
    return made


def _rates(counted: Sequence[statements.Statement], settings: Settings) -> list[Sequence[report.Value]]:
    share = settings.seconds * settings.replicas
    rows: list[Sequence[report.Value]] = [(statements.calls(counted) / share, "all")]
    return rows + [(one.calls / share, one.words) for one in counted]
