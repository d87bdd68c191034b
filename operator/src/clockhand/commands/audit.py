"""`clockhand audit`: who asked for what over REST, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clockhand.commands import oneline, remote, shown

if TYPE_CHECKING:
    from datetime import datetime

    from clockhand import client

_RECENT = 20
_EXAMPLES = """
\b
Examples:
  clockhand audit
  clockhand audit --job nightly-report -o wide
  clockhand audit --since 2026-11-30T00:00:00Z --limit 1000 -o json
"""


@click.command(cls=oneline.Command, epilog=_EXAMPLES)
@click.option(
    "--job",
    metavar="JOB",
    help="Only what was asked of this job: its name or its id, also once it is deleted.",
    shell_complete=remote.complete_job,
)
@remote.instant("--since", "Only what was asked at this instant or later.")
@remote.instant("--until", "Only what was asked at this instant or before.")
@click.option("--limit", type=click.IntRange(1), default=_RECENT, show_default=True, help="The newest so many.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print it.",
)
@remote.asks
async def audit(
    api: client.Clockhand, job: str | None, since: datetime | None, until: datetime | None, limit: int, output: str
) -> None:
    """Say who made, edited, paused, ran, backfilled, cancelled, retried and deleted what, newest first.

    What people do to objects of the cluster is in the audit of the cluster.
    """
    found = api.audit(job=job, since=since, until=until, page_size=min(limit, remote.PAGE))
    oneline.write(shown.many(await remote.first(found, limit), shown.AUDIT, output))
