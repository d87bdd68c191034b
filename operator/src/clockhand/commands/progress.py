"""What happens to a run while somebody waits for it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from clockhand.commands import oneline, remote

if TYPE_CHECKING:
    from clockhand.client import Clockhand, Run

_SUCCEEDED = "Succeeded"


async def wait(api: Clockhand, run: Run, *, seconds: float | None) -> Run:
    """The run once it is over; until then stderr says how it stands."""
    with _told() as tell:
        async for now in api.runs.follow(run, seconds=seconds):
            tell(oneline.printable(_standing(now)))
    return now


def fail_unless_succeeded(run: Run) -> None:
    """Exit code 1 and a sentence for a run that ended otherwise."""
    if run.state != _SUCCEEDED:
        why = ": ".join(part for part in (run.reason, run.message) if part)
        raise remote.NotDone(f"{run.name} is {run.state}{f': {why}' if why else ''}")


def _standing(run: Run) -> str:
    if run.backfill is not None:
        done = run.backfill["succeeded"] + run.backfill["failed"] + run.backfill["passed"]
        return f"{run.name}: {run.state}, {done} of {run.backfill['slots']} slots"
    attempt = f", attempt {run.attempt}" if run.attempt else ""
    reason = f" ({run.reason})" if run.reason else ""
    return f"{run.name}: {run.state}{attempt}{reason}"


@contextlib.contextmanager
def _told() -> Iterator[Callable[[str], None]]:
    """A line that changes in its place on a terminal, a line for each change elsewhere."""
    if not (sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")):
        yield lambda text: click.echo(f"clockhand: {text}", err=True)
        return
    from rich import console, markup

    with console.Console(stderr=True).status("") as status:
        yield lambda text: status.update(markup.escape(text))
