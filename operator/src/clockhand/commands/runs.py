"""`clockhand runs`: runs over REST, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from clockhand.commands import oneline, remote, shown
from clockhand.domain import states

if TYPE_CHECKING:
    from clockhand import client

_SKIPPED = "Skipped"
_RECENT = 20
_EXAMPLES = """
\b
Examples:
  clockhand runs list --job report
  clockhand runs watch
  clockhand runs get report-20261130t020000z -o yaml
  clockhand runs logs report-20261130t020000z
  clockhand runs retry report-20261130t020000z
  clockhand runs cancel report-20261130t020000z
"""
_LIST_EXAMPLES = """
\b
Examples:
  clockhand runs list
  clockhand runs list --state Dead --since 2026-11-01T00:00:00Z -o wide
  clockhand runs list --job report --limit 1 -o json
"""
_WATCH_EXAMPLES = """
\b
Examples:
  clockhand runs watch
  clockhand runs watch --job report -o json
  clockhand runs watch --state Dead
"""
_RETRY_EXAMPLES = """
\b
Examples:
  clockhand runs retry report-20261130t020000z
  clockhand runs retry --all --job report --since 2026-11-01T00:00:00Z --dry-run
  clockhand runs retry --all --state Unknown
"""


@click.group(cls=oneline.Group, epilog=_EXAMPLES)
def runs() -> None:
    """Runs over REST: see, follow, cancel and retry them.

    RUN is a run's name or its id.
    """


_run = click.argument("run", metavar="RUN")
_job = click.option("--job", metavar="JOB", help="Only those of this job.", shell_complete=remote.complete_job)
_states = click.option(
    "--state",
    "state",
    type=click.Choice([*map(str, states.RunState), _SKIPPED]),
    multiple=True,
    help="Only those in this state; several: in any of them.",
)
_since = remote.instant("--since", "Only those scheduled at this instant or later.")
_until = remote.instant("--until", "Only those scheduled at this instant or before.")


@runs.command("list", epilog=_LIST_EXAMPLES)
@_job
@_states
@_since
@_until
@click.option("--limit", type=click.IntRange(1), default=_RECENT, show_default=True, help="The newest so many.")
@click.option("-w", "--watch", is_flag=True, help="Go on, with a line for each run that changes.")
@remote.output
@remote.asks
async def list_runs(api: client.Clockhand, limit: int, watch: bool, output: str, **filters: Any) -> None:
    """List runs, newest first, and slots that did not run."""
    if watch:
        await _watch(api, filters["job"], filters["state"], output=output, known=limit)
    found = api.runs.list(**filters, page_size=min(limit, remote.PAGE))
    oneline.write(shown.many(await remote.first(found, limit), shown.RUNS, output))


@runs.command(epilog=_WATCH_EXAMPLES)
@_job
@_states
@remote.output
@remote.asks
async def watch(api: client.Clockhand, job: str | None, state: Sequence[str], output: str) -> None:
    """Show runs as they change, from now on."""
    await _watch(api, job, state, output=output, known=0)


async def _watch(api: client.Clockhand, job: str | None, state: Sequence[str], *, output: str, known: int) -> None:
    """First those that are known already, the oldest of them first."""
    lines = shown.Lines(shown.RUNS, output)

    async def catch_up(count: int) -> None:
        for run in reversed(await remote.first(api.runs.list(job=job, state=state), count)):
            oneline.write(lines.text(run))

    if known:
        await catch_up(known)
    async for change in api.runs.watch(job=job, state=state):
        if change.run is None:
            await catch_up(remote.PAGE)
        else:
            oneline.write(lines.text(change.run))


@runs.command()
@_run
@remote.output
@remote.asks
async def get(api: client.Clockhand, run: str, output: str) -> None:
    """Show a run, and in a table the attempts that did not end well."""
    found = await remote.run_of(api, run)
    oneline.write(shown.one(found, shown.RUNS, output))
    if output in ("table", "wide") and found.failures + found.disruptions:
        attempts = await api.runs.attempts(found)
        oneline.write("\n" + shown.many(attempts, shown.ATTEMPTS, output))


@runs.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@remote.output
@remote.asks
async def cancel(api: client.Clockhand, names: Sequence[str], output: str) -> None:
    """End runs that are not over."""
    done = [await api.runs.cancel(await remote.run_of(api, name)) for name in names]
    oneline.write(shown.many(done, shown.RUNS, output))


@runs.command(epilog=_RETRY_EXAMPLES)
@click.argument("names", metavar="[RUN...]", nargs=-1)
@click.option("--all", "every", is_flag=True, help="In place of names: all that fit the options behind it.")
@_job
@click.option("--state", type=click.Choice(["Dead", "Unknown", "Cancelled"]), help="With --all; Dead by default.")
@_since
@_until
@click.option("--dry-run", is_flag=True, help="With --all: change nothing, say how many there are.")
@remote.output
@remote.asks
async def retry(api: client.Clockhand, names: Sequence[str], every: bool, output: str, **about: Any) -> None:
    """Try ended runs again, under their own ids, or at once where they wait for their next attempt."""
    if every == bool(names) or (names and any(about.values())):
        raise oneline.Failure("name the runs, or write --all, which alone may have further options")
    if every:
        await _retry_all(api, output, **about)
        return
    done = [await api.runs.retry(await remote.run_of(api, name)) for name in names]
    oneline.write(shown.many(done, shown.RUNS, output))


async def _retry_all(
    api: client.Clockhand, output: str, *, job: str | None, state: Any, since: Any, until: Any, dry_run: bool
) -> None:
    retried = passed = 0
    async for done in api.runs.retry_many(
        job=None if job is None else await remote.job_of(api, job),
        state=state or "Dead",
        since=since,
        until=until,
        dry_run=dry_run,
    ):
        retried, passed = retried + done.retried, passed + done.passed
    if output in ("json", "yaml"):
        oneline.write(shown.plain({"retried": retried, "passed": passed, "dryRun": dry_run}, output))
        return
    did = "would try" if dry_run else "trying"
    tail = f"; {passed} cannot be, as their job is gone" if passed else ""
    oneline.write(f"{did} {retried} {'run' if retried == 1 else 'runs'} again{tail}\n")


@runs.command()
@_run
@click.option("--attempt", type=click.IntRange(1), help="That one; by default the newest that has a log.")
@remote.asks
async def logs(api: client.Clockhand, run: str, attempt: int | None) -> None:
    """Print the end of the log of an attempt that failed."""
    oneline.write(await api.runs.log(await remote.run_of(api, run), attempt=attempt))
