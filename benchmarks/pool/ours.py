"""Clockhand as a contender: `clockhand api`, `clockhand worker` and a watch on the runs, each a process of its own.

A recurring job is one by cron: to fire its slot is also to work out the next one, at clock changes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import psycopg
from benchmarks import schedule
from benchmarks.pool import drain
from tests.e2e.cluster import steps
from tests.support import ports

from clockhand.domain import schedule as schedules
from clockhand.domain import spec

_OWNER, _POOL = "rest/bench", "bench/jobs"
_GUEST, _GUESTS_SECONDS = "rest/guest", 10.0
_LIMITS = f'pools: {{"rest/{_POOL}": {{allowedOwners: [{_GUEST}]}}}}\n'
_PAYLOAD = json.dumps({"text": "x" * 189})
_READY_SECONDS = 30.0
_FILL = (
    "INSERT INTO owners (owner) VALUES (%(owner)s), (%(guest)s)",
    # neighbours in time are no neighbours in the tables
    """CREATE TEMPORARY TABLE due AS
       SELECT n, to_timestamp(%(due)s::float8 + floor(seconds * %(steps)s) / %(steps)s) AS at
       FROM generate_series(1, %(jobs)s + %(guests)s) AS n,
            LATERAL (SELECT CASE WHEN n > %(jobs)s THEN (n - %(jobs)s) * %(guests_seconds)s::float8 / %(guests)s
                                 ELSE n * 7919::bigint %% %(jobs)s * %(spread)s::float8 / %(jobs)s END AS seconds)
            AS place""",
    """INSERT INTO job_specs (job_id, generation, spec, payload, followed, stored_at)
       SELECT gen_random_uuid(), 1,
              kinds.spec || CASE WHEN %(once)s THEN jsonb_build_object('schedule', NULL, 'at', to_char(
                  due.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ELSE '{}' END,
              %(payload)s, false, now()
       FROM due
       JOIN unnest(%(specs)s::jsonb[]) WITH ORDINALITY AS kinds (spec, number) ON kinds.number = 1 + n %% %(distinct)s
       ORDER BY n""",
    """INSERT INTO jobs (job_id, owner, name, shard, pool, handler, declared, generation, resource_version, spec_id,
                         created_at, last_slot_at, next_slot_at, next_run_at)
       SELECT job_id, CASE WHEN n > %(jobs)s THEN %(guest)s ELSE %(owner)s END, 'job-' || n,
              CASE WHEN n > %(jobs)s THEN 256 ELSE 256 + n %% 256 END, %(pool)s, 'work', false, 1, n, spec_id,
              due.at - interval '1 day', due.at - interval '1 hour', due.at, due.at
       FROM job_specs JOIN due ON due.n = job_specs.spec_id""",
    "INSERT INTO job_status (job_id, shard) SELECT job_id, shard %% 256 FROM jobs",
)


class Serving(drain.Working):
    """Our processes at work; the API is at `url`."""

    def __init__(self, telling: drain.Telling, parts: Mapping[str, Sequence[int]], url: str) -> None:
        super().__init__(telling, parts)
        self.url = url


@dataclasses.dataclass(frozen=True)
class Clockhand:
    """Jobs that fall due over `spread` seconds from the instant on, or at its full seconds alone.

    `guests` of them are a second owner's, few enough to lie in one shard, and fall due one after another for ten seconds.
    """

    concurrency: int = 1_000
    spread: float = 1.0
    aligned: bool = False
    distinct: int = 1_000
    guests: int = 0
    name: str = "clockhand"

    async def prepare(self, url: str, mode: drain.Mode) -> None:
        await asyncio.to_thread(steps.run, command("migrate"), env=environment(url))

    async def fill(self, url: str, mode: drain.Mode, *, runs: int, due: float) -> None:
        kinds = _kinds(self.distinct, due=datetime.fromtimestamp(due, UTC))
        values = {
            "owner": _OWNER,
            "pool": f"rest/{_POOL}",
            "payload": _PAYLOAD,
            "specs": [spec.encode(kind).decode() for kind in kinds],
            "distinct": self.distinct,
            "jobs": runs - self.guests,
            "guest": _GUEST,
            "guests": self.guests,
            "guests_seconds": _GUESTS_SECONDS,
            "spread": self.spread,
            "steps": 1.0 if self.aligned else 1_000.0,
            "due": due,
            "once": mode is drain.Mode.SAME,
        }
        await asyncio.to_thread(_fill, url, values)

    @contextlib.asynccontextmanager
    async def working(self, url: str, mode: drain.Mode) -> AsyncIterator[Serving]:
        token = await asyncio.to_thread(_token, url)
        port, *health = ports.free(3)
        api = {"CLOCKHAND_API_PORT": str(port), "CLOCKHAND_HEALTH_PORT": str(health[0])}
        worker = {
            "CLOCKHAND_API_URL": f"http://127.0.0.1:{port}",
            "CLOCKHAND_POOL": _POOL,
            "CLOCKHAND_TOKEN": token,
            "CLOCKHAND_HANDLERS": "benchmarks.pool.handler:worker",
            "CLOCKHAND_CONCURRENCY": str(self.concurrency),
            "CLOCKHAND_HEALTH_PORT": str(health[1]),
        }
        async with (
            _limits() as limits,
            drain.at_work(command("api"), environment(url, {**api, "CLOCKHAND_LIMITS": limits})) as served,
            drain.at_work([sys.executable, "-m", "benchmarks.pool.watching", url]) as watching,
            drain.at_work(command("worker"), environment(None, worker)) as working,
        ):
            for one in health:
                await ready(one)
            parts = {"engine+API": served.pids, "worker": working.pids, "watch": watching.pids}
            yield Serving(working.telling, parts, f"http://127.0.0.1:{port}")

    def complete(self, mode: drain.Mode, *, runs: int) -> str:
        return "SELECT count(*) FROM run_history WHERE state = 'Succeeded' AND attempt = 1"


@contextlib.asynccontextmanager
async def _limits() -> AsyncIterator[str]:
    """A file that lets the guests into the pool."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(_LIMITS)
        file.flush()
        yield file.name


def _kinds(count: int, *, due: datetime) -> Sequence[spec.JobSpec]:
    """Of schedules that are not due a second time before the round must be over: its runs are counted."""
    over = due + timedelta(seconds=drain.PATIENCE_SECONDS)
    fitting = (
        spec.JobSpec(schedule=expression, time_zone=zone, handler="work", pool="jobs")
        for expression, zone in schedule.distinct(2 * count)
        if schedules.parse(expression, zone=zone).next_after(due) > over
    )
    return list(itertools.islice(fitting, count))


def command(*words: str) -> Sequence[str]:
    """A command of ours, as a process of its own."""
    return [sys.executable, "-m", "clockhand", *words]


def environment(url: str | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What such a process is told, and nothing that is set here by chance."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("CLOCKHAND_", "KUBE"))}
    return {**mine, **({"CLOCKHAND_DATABASE_URL": url} if url else {}), **(more or {})}


def _token(url: str) -> str:
    words = command(
        "tokens", "create", "--owner", _OWNER, "--role", "worker", "--pool", "jobs", "--name", "bench", "-o", "json"
    )
    token: str = json.loads(steps.run(words, env=environment(url)))["token"]
    return token


async def ready(port: int) -> None:
    """Returns once the process with these probes is ready."""
    async with asyncio.timeout(_READY_SECONDS):
        while not await asyncio.to_thread(_answers, port):  # noqa: ASYNC110 (it changes elsewhere)
            await asyncio.sleep(0.1)


def _answers(port: int) -> bool:
    with (
        contextlib.suppress(OSError, urllib.error.URLError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer,
    ):
        return bool(answer.status == 200)
    return False


def _fill(url: str, values: Mapping[str, object]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        for step in _FILL:
            connection.execute(step.encode(), values)
