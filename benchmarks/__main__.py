"""`python -m benchmarks SUITE`: which suites there are, and what may be set.

Each suite starts what it needs and takes it away again; nothing is measured on a system that somebody prepared.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click
from benchmarks import firing, idle, listing, mirror, pods, pool, report, rest, schedule

Options = Mapping[str, Any]
_SUITES: Mapping[str, Callable[[Options], Awaitable[report.Report]]] = {
    "schedule": lambda given: schedule.run(_settings(schedule.Settings, given)),
    "firing": lambda given: firing.run(_settings(firing.Settings, given)),
    "list": lambda given: listing.run(_settings(listing.Settings, given)),
    "mirror": lambda given: mirror.run(_settings(mirror.Settings, given)),
    "idle": lambda given: idle.run(_settings(idle.Settings, given)),
    "pods": lambda given: pods.run(_settings(pods.Settings, given)),
    "pool": lambda given: pool.run(_settings(pool.Settings, given)),
    "rest": lambda given: rest.run(_settings(rest.Settings, given)),
}


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(int(part) for part in text.split(","))


def _words(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part for part in text.split(",") if part not in ("", "none"))


@click.command()
@click.argument("suite", type=click.Choice([*_SUITES, "all"]))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--jobs", type=int, help="pods, idle, mirror, firing: ScheduledJobs.")
@click.option("--replicas", type=int, help="pods, idle: operator replicas.")
@click.option("--namespaces", callback=_numbers, help="pods: one variant each, such as 1,10.")
@click.option("--baselines", callback=_words, help="pods: default,raised or none.")
@click.option("--rows", type=int, help="list, rest: rows of history.")
@click.option("--seconds", type=float, help="idle, pool, rest: how long to count.")
@click.option("--runs", type=int, help="pool: runs of a round.")
@click.option("--rounds", type=int, help="pool: how often each is measured; the middle one is shown.")
@click.option("--peers", callback=_words, help="pool: graphile-worker,river,pg-boss,procrastinate or none.")
@click.option("--quick", is_flag=True, default=None, help="pool: short rounds, to see that all of it works.")
def main(suite: str, output: str, **given: Any) -> None:
    """Measure SUITE and print what was seen."""
    reports = []
    for name in _SUITES if suite == "all" else (suite,):
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        made = asyncio.run(_awaited(_SUITES[name](given)))
        reports.append(made)
        if output == "table":
            click.echo(f"{made}\n")
    if output == "json":
        click.echo(report.as_json(reports))
    else:
        click.echo(", ".join(f"{key} {value}" for key, value in report.machine().items()))


async def _awaited(work: Awaitable[report.Report]) -> report.Report:
    return await work


def _settings(kind: Any, given: Options) -> Any:
    """The suite's own defaults, but for what was given."""
    chosen = {key: value for key, value in given.items() if value is not None and key in kind.__dataclass_fields__}
    return kind(**chosen)


if __name__ == "__main__":
    main()
