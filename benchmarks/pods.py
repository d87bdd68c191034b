"""Many jobs due at one minute: how late their pods are, beside as many CronJobs on the same cluster, and what it costs.

The due minute is the worst case that people make every day: everything at once, from an idle system.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta

from benchmarks import crowd, report, stage, statements
from tests.support import light

DEFAULT_LIMITS: tuple[str, ...] = ()
_BASELINES = {"default": DEFAULT_LIMITS, "raised": light.RAISED_LIMITS}
_PROBES = 100
_SLACK = 2.0
_MARGIN_SECONDS = 20
_WAIT_SECONDS = 300.0
_BASELINE_SECONDS = 900.0
_QUIET = "SELECT count(*) = 0 FROM jobs WHERE deleted_at IS NULL"
_STORED = "SELECT count(*) = %(jobs)s FROM jobs WHERE deleted_at IS NULL AND next_run_at = %(due)s"
_OVER = """
SELECT (SELECT count(*) FROM run_history WHERE scheduled_at = %(due)s) = %(jobs)s
   AND NOT EXISTS (SELECT FROM run_changes WHERE first_number IS NULL)
"""
_OUTCOME = """
SELECT count(*) AS runs, count(DISTINCT job_id) AS jobs, count(*) FILTER (WHERE state = 'Succeeded') AS succeeded,
       count(*) FILTER (WHERE attempt > 1) AS repeated, (SELECT count(*) FROM live_runs) AS live
FROM run_history WHERE scheduled_at = %(due)s
"""
_LATENESS = """
SELECT extract(epoch FROM created_at - scheduled_at)::float AS fired,
       extract(epoch FROM claimed_at - scheduled_at)::float AS claimed,
       extract(epoch FROM launched_at - scheduled_at)::float AS launched,
       extract(epoch FROM finished_at - scheduled_at)::float AS finished
FROM run_history WHERE scheduled_at = %(due)s
"""
MEMORY = ("replica", "held", "at most")
_COLUMNS = ("what", "pods", "p50 s", "p99 s", "max s")


@dataclasses.dataclass(frozen=True)
class Settings:
    """`namespaces`: one variant for each number of namespaces that the jobs are spread over."""

    jobs: int = 1_000
    replicas: int = 3
    namespaces: Sequence[int] = (1, 10)
    baselines: Sequence[str] = ("default", "raised")


@dataclasses.dataclass(frozen=True)
class Round:
    """One set of objects, in namespaces of its own."""

    name: str
    namespaces: Sequence[str]
    due: datetime
    jobs: int

    @property
    def schedule(self) -> str:
        return f"{self.due.minute} {self.due.hour} * * *"

    def places(self) -> Iterator[tuple[str, str]]:
        """Name and namespace of each object."""
        spread = itertools.cycle(self.namespaces)
        return ((f"job-{number}", next(spread)) for number in range(self.jobs))


async def run(settings: Settings) -> report.Report:
    """All variants, then the baselines, on one cluster."""
    made = report.Report("pods", dataclasses.asdict(settings))
    operators = [f"operator-{number}" for number in range(settings.replicas)]
    async with stage.standing(operators=settings.replicas) as ready:
        made.add("memory before, MiB", MEMORY, await ready.memory(operators))
        for namespaces in settings.namespaces:
            await _variant(ready, made, operators, jobs=settings.jobs, namespaces=namespaces)
        for name in operators:
            await asyncio.to_thread(ready.installed.stop_part, name)
        for baseline in settings.baselines:
            await _baseline(ready, made, baseline, jobs=settings.jobs)
    return made


async def _variant(
    ready: stage.Stage, made: report.Report, operators: Sequence[str], *, jobs: int, namespaces: int
) -> None:
    one = await _round(ready, f"spread-{namespaces}", jobs=jobs, namespaces=namespaces)
    objects = (crowd.scheduled_job(*place, schedule=one.schedule, value=one.name) for place in one.places())
    await crowd.create_all(ready.client, crowd.SCHEDULED_JOBS, objects)
    parameters = {"jobs": jobs, "due": one.due}
    await ready.until("all jobs to be stored", _STORED, parameters, seconds=_seconds_to(one.due))
    pods = crowd.Sightings(ready.client, one.name)
    meter = ready.meter(operators)
    async with pods.watching():
        async with _calm_until(one.due):
            meter.start()
            ready.statements.reset()
        await ready.until("all runs to be over", _OVER, parameters, seconds=_WAIT_SECONDS)
        spent, counted = meter.spent(), ready.statements.read()
    await _check(ready, one, pods)
    _note_interruptions(made, pods)
    title = f"{jobs} ScheduledJobs in {namespaces} namespace(s)"
    made.add(f"{title}: seconds after the due minute", _COLUMNS, await _lateness(ready, one, pods))
    made.add(f"{title}: CPU, ms a run", ("part", "ms"), [(part, 1000 * s / jobs) for part, s in spent.items()])
    made.add(f"{title}: statements", ("what", "count"), _counts(counted, jobs))
    made.add(f"{title}: the most frequent statements", ("calls", "ms", "rows", "statement"), _frequent(counted))
    made.add(f"{title}: memory, MiB", MEMORY, await ready.memory(operators))
    await crowd.delete_all(ready.client, (crowd.SCHEDULED_JOBS, crowd.PODS), one.namespaces)
    await ready.until("all jobs to be forgotten", _QUIET, seconds=_WAIT_SECONDS)


async def _baseline(ready: stage.Stage, made: report.Report, limits: str, *, jobs: int) -> None:
    """CronJobs with the built-in controllers, at their own limits or at ones that do not hold them back."""
    ready.cluster.restart_controller_manager(_BASELINES[limits])
    one = await _round(ready, f"cron-{limits}", jobs=jobs, namespaces=1)
    objects = (crowd.cron_job(*place, schedule=one.schedule, value=one.name) for place in one.places())
    await crowd.create_all(ready.client, crowd.CRON_JOBS, objects)
    pods = crowd.Sightings(ready.client, one.name)
    meter = ready.meter(())
    async with pods.watching():
        async with _calm_until(one.due):
            meter.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BASELINE_SECONDS):
                while len(pods.seen) < jobs:  # noqa: ASYNC110 (it changes elsewhere)
                    await asyncio.sleep(0.5)
        spent = meter.spent()
    _note_interruptions(made, pods)
    late = pods.lateness(one.due)
    if len(late) < jobs:
        made.notes.append(
            f"only {len(late)} of {jobs} CronJobs had their pod {_BASELINE_SECONDS:.0f} s after the minute"
        )
    title = f"{jobs} CronJobs, controller manager with {limits} limits"
    made.add(f"{title}: seconds after the due minute", _COLUMNS, [("pod seen", len(late), *report.spread(late))])
    made.add(f"{title}: CPU, ms a pod", ("part", "ms"), [(part, 1000 * s / jobs) for part, s in spent.items()])
    await crowd.delete_all(ready.client, (crowd.CRON_JOBS, crowd.PODS), one.namespaces)


async def _round(ready: stage.Stage, name: str, *, jobs: int, namespaces: int) -> Round:
    """Due at the first minute by which all objects are sure to be there, as fast as the API server takes them now."""
    names = [f"bench-{name}-{number}" for number in range(namespaces)]
    await crowd.create_namespaces(ready.client, names)
    probes = [crowd.cron_job(f"probe-{n}", names[0], schedule="0 0 1 1 *", value="probe") for n in range(_PROBES)]
    a_second = await crowd.create_all(ready.client, crowd.CRON_JOBS, probes)
    await crowd.delete_all(ready.client, (crowd.CRON_JOBS,), names[:1])
    earliest = await ready.now() + timedelta(seconds=_MARGIN_SECONDS + _SLACK * jobs / a_second)
    due = earliest.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return Round(name, names, due, jobs)


@contextlib.asynccontextmanager
async def _calm_until(due: datetime) -> AsyncIterator[None]:
    """The block runs two seconds before `due`, and what follows it right after `due`."""
    await asyncio.sleep(max(0.0, _seconds_to(due) - 2))
    yield
    await asyncio.sleep(max(0.0, _seconds_to(due)))


async def _check(ready: stage.Stage, one: Round, pods: crowd.Sightings) -> None:
    """A fast answer that is wrong counts for nothing."""
    found = (await ready.ask(_OUTCOME, {"due": one.due}))[0]
    expected = (one.jobs, one.jobs, one.jobs, 0, 0)
    if tuple(found) != expected or len(pods.seen) != one.jobs:
        raise AssertionError(f"expected {one.jobs} runs and pods, found {found} and {len(pods.seen)} pods")


def _note_interruptions(made: report.Report, pods: crowd.Sightings) -> None:
    if pods.broken_off:
        made.notes.append(
            f"the API server broke the counting watch off {pods.broken_off} time(s): sightings may be late"
        )


async def _lateness(ready: stage.Stage, one: Round, pods: crowd.Sightings) -> list[Sequence[report.Value]]:
    found = await ready.ask(_LATENESS, {"due": one.due})
    steps = {
        "run made": [row.fired for row in found],
        "run claimed": [row.claimed for row in found],
        "pod seen": pods.lateness(one.due),
        "pod stored as launched": [row.launched for row in found],
        "run over": [row.finished for row in found],
    }
    return [(step, len(late), *report.spread(late)) for step, late in steps.items()]


def _counts(counted: Sequence[statements.Statement], jobs: int) -> list[Sequence[report.Value]]:
    total = statements.calls(counted)
    milliseconds = sum(one.milliseconds for one in counted)
    return [("statements", total), ("a run", total / jobs), ("ms in them a run", milliseconds / jobs)]


def _frequent(counted: Sequence[statements.Statement]) -> list[Sequence[report.Value]]:
    return [(one.calls, one.milliseconds, one.rows, one.words) for one in counted[:12]]


def _seconds_to(due: datetime) -> float:
    return due.timestamp() - time.time()
