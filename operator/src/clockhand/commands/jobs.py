"""`clockhand jobs`: jobs over REST, for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from clockhand.commands import editing, oneline, progress, remote, shown, written
from clockhand.domain import instants

if TYPE_CHECKING:
    from clockhand import client

_LOOK_SECONDS = 2.0
_MOST = 1_000_000
_EXAMPLES = """
\b
Examples:
  clockhand jobs create hello --every 10s --handler echo --payload '{"to": "world"}'
  clockhand jobs list
  clockhand jobs run hello --wait
  clockhand jobs pause hello
  clockhand jobs edit hello --schedule "0 9 * * 1-5" --time-zone Europe/Berlin
  clockhand jobs delete hello
"""
_CREATE_EXAMPLES = """
\b
Examples:
  clockhand jobs create hello --every 10s --handler echo
  clockhand jobs create report --schedule "0 2 * * *" --time-zone Europe/Berlin --handler report.build --pool reports
  clockhand jobs create greeting --at 2026-12-24T18:00:00Z --handler email.send --payload '{"to": "all"}'
  clockhand jobs create ping --every 1m --handler http --payload @ping.json --set retry.maxAttempts=5 -l team=web
"""
_LIST_EXAMPLES = """
\b
Examples:
  clockhand jobs list -o wide
  clockhand jobs list --standing Paused -l team=web
  clockhand jobs list nightly- -o name
  clockhand jobs list --watch
"""
_RUN_EXAMPLES = """
\b
Examples:
  clockhand jobs run report
  clockhand jobs run report --payload '{"month": "2026-11"}' --wait --timeout 600
  clockhand jobs run report --key invoice-4711 -o json

With --wait the exit code is 0 only where the run succeeded. A call with the same --key is the same run.
"""
_BACKFILL_EXAMPLES = """
\b
Examples:
  clockhand jobs backfill report --from 2026-11-01T00:00:00Z --to 2026-11-30T00:00:00Z
  clockhand jobs backfill report --from 2026-11-01T00:00:00Z --to 2026-11-30T00:00:00Z --concurrency 4 --wait
"""


@click.group(cls=oneline.Group, epilog=_EXAMPLES)
def jobs() -> None:
    """Jobs over REST: make, see, change, run and delete them.

    JOB is a job's name or its id.
    """


_job = click.argument("job", metavar="JOB", shell_complete=remote.complete_job)
_jobs = click.argument("names", metavar="JOB...", nargs=-1, required=True, shell_complete=remote.complete_job)
_wait = click.option("--wait", is_flag=True, help="Wait until it is over, and fail where it did not succeed.")
_timeout = click.option(
    "--timeout", "seconds", type=click.FloatRange(0, min_open=True), help="Seconds to wait at most."
)


@jobs.command(epilog=_CREATE_EXAMPLES)
@click.argument("name", required=False)
@written.fields
@click.option("--key", help="Whoever creates with the same key gets the same job.")
@remote.output
@remote.asks
async def create(api: client.Clockhand, name: str | None, key: str | None, output: str, **given: Any) -> None:
    """Make a job. Without a NAME it gets one."""
    named = {} if name is None else {"name": name}
    made = await api.jobs.create({**named, **written.job_of(given)}, key=key)
    oneline.write(shown.one(made, shown.JOBS, output))


@jobs.command("list", epilog=_LIST_EXAMPLES)
@click.argument("prefix", required=False)
@click.option("--handler", help="Only those of this handler.")
@click.option("--pool", help="Only those of this pool.")
@click.option(
    "--standing",
    type=click.Choice(["Active", "Suspended", "Paused", "Finished", "Invalid"]),
    help="Only those that stand so.",
)
@click.option("-l", "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only those with this label.")
@click.option("--limit", type=click.IntRange(1), default=_MOST, help="The first so many.")
@click.option("-w", "--watch", is_flag=True, help="Go on, with a line for each job that changes.")
@remote.output
@remote.asks
async def list_jobs(
    api: client.Clockhand,
    prefix: str | None,
    labels: Sequence[str],
    limit: int,
    watch: bool,
    output: str,
    **filters: Any,
) -> None:
    """List jobs by name, those whose names begin with PREFIX."""
    having = dict(written.pair(text, "--label") for text in labels)

    async def look() -> list[client.ListedJob]:
        found = api.jobs.list(prefix=prefix, labels=having, page_size=min(limit, remote.PAGE), **filters)
        return await remote.first(found, limit)

    if watch:
        await _watch(look, output)
    oneline.write(shown.many(await look(), shown.LISTED, output))


async def _watch(look: Callable[[], Awaitable[list[client.ListedJob]]], output: str) -> NoReturn:
    lines, known = shown.Lines(shown.LISTED, output), list[client.ListedJob]()
    while True:
        now = await look()
        for job in now:
            if job not in known:
                oneline.write(lines.text(job))
        known = now
        await asyncio.sleep(_LOOK_SECONDS)


@jobs.command()
@_job
@remote.output
@remote.asks
async def get(api: client.Clockhand, job: str, output: str) -> None:
    """Show a job."""
    oneline.write(shown.one(await remote.job_of(api, job), shown.JOBS, output))


@jobs.command(epilog=editing.EXAMPLES)
@_job
@written.fields
@remote.output
@remote.asks
async def edit(api: client.Clockhand, job: str, output: str, **given: Any) -> None:
    """Change a job: the fields that options name, or in your editor where there are none.

    The editor is that of VISUAL or EDITOR.
    """
    found, patch = await remote.job_of(api, job), written.job_of(given)
    changed = await (api.jobs.edit(found, patch) if patch else editing.edit(api, found))
    oneline.write(shown.one(changed, shown.JOBS, output))


@jobs.command()
@_jobs
@remote.output
@remote.asks
async def pause(api: client.Clockhand, names: Sequence[str], output: str) -> None:
    """Let no slot fall due until a job is resumed."""
    done = [await api.jobs.pause(await remote.job_of(api, name)) for name in names]
    oneline.write(shown.many(done, shown.JOBS, output))


@jobs.command()
@_jobs
@remote.output
@remote.asks
async def resume(api: client.Clockhand, names: Sequence[str], output: str) -> None:
    """Let slots fall due again, from now on; also after too many dead runs in a row."""
    done = [await api.jobs.resume(await remote.job_of(api, name)) for name in names]
    oneline.write(shown.many(done, shown.JOBS, output))


@jobs.command()
@_jobs
@click.option(
    "--runs",
    type=click.Choice(["finish", "cancel"]),
    help="What becomes of attempts that are under way; by default as the job's onDelete says.",
)
@remote.asks
async def delete(api: client.Clockhand, names: Sequence[str], runs: Any) -> None:
    """End jobs: nothing of them fires any more, and runs that have not begun are cancelled."""
    for name in names:
        found = await remote.job_of(api, name)
        await api.jobs.delete(found, runs=runs)
        oneline.write(f"{oneline.printable(found.name)} deleted\n")


@jobs.command()
@_job
@click.option("--count", type=click.IntRange(1, 100), default=10, show_default=True, help="How many.")
@remote.output
@remote.asks
async def upcoming(api: client.Clockhand, job: str, count: int, output: str) -> None:
    """Show the next times at which a job falls due, with what happens where clocks change."""
    slots = await api.jobs.upcoming(await remote.job_of(api, job), count=count)
    oneline.write(shown.many(slots, shown.SLOTS, output))


@jobs.command(epilog=_RUN_EXAMPLES)
@_job
@click.option("--payload", metavar="JSON", help="In place of the job's; @FILE reads it from a file.")
@click.option("--name", help="Of the run; by default it gets one.")
@click.option("--key", help="Whoever asks with the same key gets the same run.")
@_wait
@_timeout
@remote.output
@remote.asks
async def run(
    api: client.Clockhand, job: str, payload: str | None, wait: bool, seconds: float | None, output: str, **given: Any
) -> None:
    """Run a job now."""
    if payload is not None:
        given["payload"] = written.payload(payload)
    asked = await api.jobs.run(await remote.job_of(api, job), **given)
    await _asked(api, asked, wait=wait, seconds=seconds, output=output)


@jobs.command(epilog=_BACKFILL_EXAMPLES)
@_job
@click.option("--from", "since", required=True, metavar="T", help="From this slot on, such as 2026-11-01T00:00:00Z.")
@click.option("--to", "until", required=True, metavar="T", help="Up to this slot, itself included.")
@click.option("--name", help="Of the backfill; by default it gets one.")
@click.option("--newest-first", is_flag=True, help="Begin at the end.")
@click.option("--concurrency", type=click.IntRange(1, 100), default=1, show_default=True, help="Runs at a time.")
@_wait
@_timeout
@remote.output
@remote.asks
async def backfill(
    api: client.Clockhand,
    job: str,
    since: str,
    until: str,
    wait: bool,
    seconds: float | None,
    output: str,
    **given: Any,
) -> None:
    """Run past slots that have no run."""
    first, last = instants.read(since, "--from"), instants.read(until, "--to")
    asked = await api.jobs.backfill(await remote.job_of(api, job), since=first, until=last, **given)
    await _asked(api, asked, wait=wait, seconds=seconds, output=output)


async def _asked(api: client.Clockhand, run: client.Run, *, wait: bool, seconds: float | None, output: str) -> None:
    if wait:
        run = await progress.wait(api, run, seconds=seconds)
    oneline.write(shown.one(run, shown.RUNS, output))
    if wait:
        progress.fail_unless_succeeded(run)
