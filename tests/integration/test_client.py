"""The Python client against a real API process, its database and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.support import generated, tcpproxy, tenants

from clockhand import client
from clockhand.client import Clockhand
from clockhand.domain import instants

FAR = "0 0 1 1 *"


@pytest.fixture
async def api(tenant: tenants.Tenant) -> AsyncIterator[Clockhand]:
    async with Clockhand(tenant.url, token_file=str(tenant.token_file)) as connected:
        yield connected


def name() -> str:
    return f"job-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def through(
    tenant: tenants.Tenant, *, patience: float = 30.0
) -> AsyncIterator[tuple[tcpproxy.TcpProxy, Clockhand]]:
    """A client behind a wire that can be cut."""
    async with tcpproxy.TcpProxy("127.0.0.1", tenant.port) as wire:
        url = f"http://127.0.0.1:{wire.port}"
        async with Clockhand(url, token_file=str(tenant.token_file), patience=patience) as api:
            yield wire, api


async def test_a_job_from_its_creation_to_its_end(api: Clockhand) -> None:
    called = name()
    made = await api.jobs.create(
        name=called,
        labels={"team": "web"},
        schedule=FAR,
        time_zone="Europe/Berlin",
        handler="email.send",
        pool=tenants.POOL,
        payload={"to": "a"},
        retry=client.Retry(max_attempts=7),
    )
    assert (made.name, made.schedule, made.time_zone, made.handler) == (called, FAR, "Europe/Berlin", "email.send")
    assert (made.labels, made.payload, made.retry.max_attempts) == ({"team": "web"}, {"to": "a"}, 7)
    assert await api.jobs.get(made) == await api.jobs.get(str(made.id)) == await api.jobs.find(called) == made

    edited = await api.jobs.edit(made, priority=5, payload={"cc": "b"})
    assert (edited.priority, edited.payload, edited.retry) == (5, {"to": "a", "cc": "b"}, made.retry)
    assert edited.generation > made.generation
    assert (await api.jobs.edit(made, priority=None)).priority == 0

    replaced = await api.jobs.replace(made, every="1h", handler="email.send", pool=tenants.POOL)
    assert (replaced.name, replaced.every, replaced.schedule) == (called, "1h", None)
    assert replaced.retry == client.Retry()

    assert (await api.jobs.pause(made)).status.standing is client.Standing.SUSPENDED
    assert (await api.jobs.resume(made)).status.standing is client.Standing.ACTIVE
    await api.jobs.delete(made)
    with pytest.raises(client.NotFound):
        await api.jobs.get(made)
    with pytest.raises(client.NotFound, match=f"there is no job '{called}'"):
        await api.jobs.find(called)
    did = [entry.action async for entry in api.audit(job=made)]
    assert did == ["delete", "resume", "pause", "edit", "edit", "edit", "create"]


async def test_what_is_wrong_is_named(api: Clockhand) -> None:
    with pytest.raises(client.InvalidInput) as refused:
        await api.jobs.create(schedule="61 * * * *", handler="echo")
    assert refused.value.field == "/schedule"
    with pytest.raises(client.InvalidInput, match="did you mean handler"):
        await api.jobs.create({"schedule": FAR, "handlr": "echo"})
    taken = await api.jobs.create(name=name(), schedule=FAR, handler="echo")
    with pytest.raises(client.Conflict):
        await api.jobs.create(name=taken.name, schedule=FAR, handler="echo")
    with pytest.raises(client.InvalidInput, match="'hello' is no id"):
        await api.jobs.get("hello")


async def test_an_edit_of_another_version_is_not_made(api: Clockhand) -> None:
    made = await api.jobs.create(name=name(), schedule=FAR, handler="echo")
    changed = await api.jobs.edit(made, priority=1, etag=made.etag)
    with pytest.raises(client.Changed):
        await api.jobs.edit(made, priority=2, etag=made.etag)
    with pytest.raises(client.Changed):
        await api.jobs.delete(made, etag=made.etag)
    assert await api.jobs.get(made) == changed


async def test_many_jobs_are_made_and_listed_page_by_page(api: Clockhand) -> None:
    stem = name()
    wanted = [{"name": f"{stem}-{n:02}", "schedule": FAR, "handler": "echo", "labels": {"of": stem}} for n in range(25)]
    wanted[3] = {**wanted[3], "schedule": "nonsense"}
    answer = await api.jobs.create_many(wanted)
    assert (answer.created, answer.refused) == (24, 1)
    assert answer.items[3].error is not None
    assert answer.items[3].error.status == 422
    listed = [job.name async for job in api.jobs.list(prefix=stem, page_size=10)]
    assert listed == [str(job["name"]) for job in wanted if job is not wanted[3]]
    assert len([job async for job in api.jobs.list(labels={"of": stem}, handler="echo", page_size=7)]) == 24
    assert [job async for job in api.jobs.list(labels={"of": stem}, standing=client.Standing.PAUSED)] == []


async def test_one_key_makes_one_job(api: Clockhand) -> None:
    key = uuid.uuid4().hex
    first = await api.jobs.create(schedule=FAR, handler="echo", key=key)
    assert (await api.jobs.create(schedule=FAR, handler="echo", key=key)).id == first.id
    with pytest.raises(client.InvalidInput):
        await api.jobs.create(schedule=FAR, handler="other", key=key)


async def test_an_answer_that_is_lost_makes_no_second_job(tenant: tenants.Tenant, api: Clockhand) -> None:
    called = name()
    async with through(tenant) as (wire, cut_off):
        wire.clog()
        creating = asyncio.create_task(cut_off.jobs.create(name=called, schedule=FAR, handler="echo"))
        await until_listed(api, called, 1)
        wire.cut()
        wire.clear()
        wire.mend()
        made = await creating
        assert made.id == (await api.jobs.find(called)).id

        wire.clog()
        deleting = asyncio.create_task(cut_off.jobs.delete(made))
        await until_listed(api, called, 0)
        wire.cut()
        wire.clear()
        wire.mend()
        await deleting


async def until_listed(api: Clockhand, called: str, count: int) -> None:
    while True:
        if len([job async for job in api.jobs.list(prefix=called)]) == count:
            return
        await asyncio.sleep(0.02)


async def test_who_does_not_answer_is_not_waited_for_for_ever(tenant: tenants.Tenant) -> None:
    async with through(tenant) as (wire, _):
        wire.cut()
        url = f"http://127.0.0.1:{wire.port}"
        async with Clockhand(url, token_file=str(tenant.token_file), patience=0.5) as api:
            with pytest.raises(client.Unavailable, match=f"cannot reach {url}"):
                await api.jobs.get(uuid.uuid4())
            wire.mend()
            with pytest.raises(client.NotFound):
                await api.jobs.get(uuid.uuid4())


async def test_a_token_that_is_not_good_is_refused_at_once(tenant: tenants.Tenant) -> None:
    async with Clockhand(tenant.url, token="none") as stranger:
        with pytest.raises(client.Refused):
            await stranger.jobs.get(uuid.uuid4())
    async with Clockhand(tenant.url, token_file=str(tenant.folder / "viewer")) as viewer:
        with pytest.raises(client.Refused, match="viewer"):
            await viewer.jobs.create(schedule=FAR, handler="echo")
        assert [job async for job in viewer.jobs.list(prefix="no-such-job")] == []


async def test_a_run_is_asked_for_waited_for_and_read(api: Clockhand) -> None:
    job = await api.jobs.create(name=name(), schedule=FAR, handler="email.send", pool=tenants.POOL, payload={"to": "a"})
    run = await api.jobs.run(job)
    done = await api.runs.wait(run, seconds=60)
    assert (done.id, done.state, done.job, done.job_id) == (run.id, "Succeeded", job.name, job.id)
    assert done.result == {"to": "a", "attempt": 1}
    assert await api.runs.payload(run) == {"to": "a"}
    assert (await api.runs.find(run.name)).id == run.id
    other = await api.runs.wait(await api.jobs.run(job, payload={"to": "b"}, name=name()), seconds=60)
    assert other.result == {"to": "b", "attempt": 1}
    assert [one.id async for one in api.runs.list(job=job, page_size=1)] == [other.id, run.id]
    assert [one.id async for one in api.runs.list(job=job, state=["Dead"])] == []
    assert [one.id async for one in api.runs.list(job=job, since=datetime.now(UTC) + timedelta(days=1))] == []
    with pytest.raises(client.Conflict):
        await api.runs.cancel(run)


async def test_a_run_that_fails_says_why_and_can_be_tried_again(api: Clockhand) -> None:
    job = await api.jobs.create(name=name(), schedule=FAR, handler="fail", pool=tenants.POOL, payload={"as": "fatal"})
    dead = await api.runs.wait(await api.jobs.run(job), seconds=60)
    assert dead.state == "Dead"
    [attempt] = await api.runs.attempts(dead)
    assert (attempt.attempt, attempt.message) == (1, "no such user")
    assert "not found" in await api.runs.log(dead)
    assert "not found" in await api.runs.log(dead, attempt=1)
    await api.runs.retry(dead)
    assert (await api.runs.wait(dead, seconds=60)).attempt == 2
    counted = [lot async for lot in api.runs.retry_many(job=job, dry_run=True)]
    assert sum(lot.retried for lot in counted) == 1
    assert sum([lot.retried async for lot in api.runs.retry_many(job=job)]) == 1
    assert (await api.runs.wait(dead, seconds=60)).attempt == 3


async def test_a_run_that_waits_is_cancelled(api: Clockhand) -> None:
    job = await api.jobs.create(name=name(), schedule=FAR, handler="nobody.has.it", pool=tenants.POOL)
    run = await api.jobs.run(job)
    assert (await api.runs.cancel(run)).state == "Cancelled"
    with pytest.raises(client.Unavailable, match="and not over after"):
        await api.runs.wait(await api.jobs.run(job), seconds=0.2)


async def test_a_watch_tells_of_runs_and_goes_on_after_a_break(tenant: tenants.Tenant, api: Clockhand) -> None:
    job = await api.jobs.create(name=name(), schedule=FAR, handler="email.send", pool=tenants.POOL)
    impatient = through(tenant, patience=0.5)
    async with impatient as (wire, watcher), contextlib.aclosing(watcher.runs.watch(job=job)) as changes:
        told = asyncio.create_task(over(changes))
        await asyncio.sleep(1)
        first = await api.jobs.run(job)
        assert await told == first.id
        wire.cut()
        told = asyncio.create_task(over(changes))
        second = await api.jobs.run(job)
        with pytest.raises(client.Unavailable):
            await watcher.runs.get(first)
        wire.mend()
        assert await told == second.id


async def over(changes: AsyncIterator[client.Change]) -> uuid.UUID:
    """The next run of which is told that it succeeded."""
    async for change in changes:
        if change.run is not None and change.run.state == "Succeeded":
            return change.run.id
    raise AssertionError


async def test_past_slots_are_run_and_coming_ones_shown(api: Clockhand) -> None:
    job = await api.jobs.create(
        name=name(), schedule="0 * * * *", handler="email.send", pool=tenants.POOL, payload={"to": "a"}
    )
    now = datetime.now(UTC)
    hours = [instants.EPOCH + timedelta(hours=(now - instants.EPOCH) // timedelta(hours=1) - n) for n in range(4)]
    backfill = await api.jobs.backfill(job, since=hours[3], until=hours[1], concurrency=3)
    done = await api.runs.wait(backfill, seconds=60)
    assert done.state == "Succeeded"
    assert done.backfill is not None
    assert (done.backfill["slots"], done.backfill["succeeded"]) == (3, 3)
    ran = [run.scheduled_at async for run in api.runs.list(job=job)]
    assert ran == hours[1:]
    upcoming = await api.jobs.upcoming(job, count=3)
    assert [slot.at for slot in upcoming] == [upcoming[0].at + timedelta(hours=n) for n in range(3)]
    with pytest.raises(client.InvalidInput):
        await api.jobs.backfill(job, since=hours[1], until=hours[3])


async def test_only_the_own_namespace_is_there_for_a_tenant(tenant: tenants.Tenant, api: Clockhand) -> None:
    with pytest.raises(client.Refused, match="leave out the namespace"):
        await api.within("team-a").jobs.find("any")
    assert api.namespace is None


async def test_the_environment_says_whom_to_ask(tenant: tenants.Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in tenant.environment().items():
        monkeypatch.setenv(variable, value)
    async with Clockhand() as api:
        assert api.url == tenant.url
        assert [job async for job in api.jobs.list(prefix="no-such-job")] == []
    async with Clockhand(token_file=str(tenant.folder / "gone")) as api:
        with pytest.raises(client.Refused, match="the token file cannot be read"):
            await api.jobs.get(uuid.uuid4())


def test_the_page_shows_what_works(tenant: tenants.Tenant) -> None:
    page = (generated.ROOT / "docs/python-client.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    said = [run_script(script, tenant) for script in scripts]
    assert said[0] == "Succeeded {'to': 'everybody@example.com', 'attempt': 1}\n"
    assert re.fullmatch(r"\S+z \d+\.\d+\n", said[1])


def run_script(text: str, tenant: tenants.Tenant) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=tenant.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
