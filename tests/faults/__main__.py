"""The command line of the fault tests: `run` them, or take guards away and see that the checks notice (`mutants`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich import console, table
from tests.faults import arena as arenas
from tests.faults import catalogue, runner
from tests.faults import mutants as mutant_trials
from tests.faults.pools import catalogue as pools
from tests.faults.pools import mutants as pool_mutants
from tests.faults.pools import runner as pool_runner
from tests.faults.pools import stage


@click.group()
def faults() -> None:
    """Real processes, a real PostgreSQL and a real API server, hurt on purpose."""


@faults.command()
@click.option("--times", default=1, show_default=True, help="Hits of each fault.")
@click.option("--only", multiple=True, help="A part of a fault's name; several are allowed.")
@click.option("--long", is_flag=True, help="Also those that take minutes, once each.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--logs", type=click.Path(path_type=Path), help="Where to copy the logs of replicas to.")
def run(times: int, only: Sequence[str], long: bool, output: str, logs: Path | None) -> None:
    """Hit with every fault, and check what became of every slot, run, pod and effect."""
    of_pods = [one for one in catalogue.FAULTS if _is_chosen(one.name, only)]
    of_pools = [one for one in pools.FAULTS if _is_chosen(one.name, only) and (long or not one.long)]
    results: list[runner.Result] = []
    if of_pods:
        with arenas.arena(logs) as arena, arena.database():
            runner.start_crew(arena)
            results += [runner.execute(arena, one, times=times, say=_say) for one in of_pods]
    if of_pools:
        with stage.arena(logs) as pool_arena:
            results += pool_runner.run(pool_arena, of_pools, times=times, say=_say)
    if output == "json":
        click.echo(json.dumps([result.row() for result in results], indent=1))
    else:
        _print(results)
    sys.exit(0 if results and all(result.good for result in results) else 1)


@faults.command()
@click.option("--only", multiple=True, help="A part of the harm's name; several are allowed.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--logs", type=click.Path(path_type=Path), help="Where to copy the logs of replicas to.")
def mutants(only: Sequence[str], output: str, logs: Path | None) -> None:
    """Take guards away and see harm done; put each back alone and see none."""
    outcomes: list[mutant_trials.Outcome] = []
    if of_pods := [one for one in mutant_trials.TRIALS if _is_chosen(one.harm, only)]:
        with arenas.arena(logs) as arena:
            outcomes += mutant_trials.run(arena, of_pods, say=_say)
    if of_pools := [one for one in pool_mutants.TRIALS if _is_chosen(one.harm, only)]:
        with stage.arena(logs) as pool_arena:
            outcomes += pool_mutants.run(pool_arena, of_pools, say=_say)
    if output == "json":
        click.echo(json.dumps([one.row() for one in outcomes], indent=1))
    else:
        _print_mutants(outcomes)
    sys.exit(0 if all(one.good for one in outcomes) else 1)


def _is_chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(part in name for part in only)


def _print_mutants(outcomes: Sequence[mutant_trials.Outcome]) -> None:
    shown = table.Table("HARM", "GUARD LEFT ON", "HITS", "COUNT", "EXPECTED", "VERDICT")
    for one in outcomes:
        expected = "0" if one.trial.on else "> 0"
        verdict = "as it should be" if one.good else "WRONG"
        row = (one.trial.harm, one.trial.on or "none", str(one.hits), str(one.harm), expected, verdict)
        shown.add_row(*row)
    console.Console(width=110).print(shown)
    for one in outcomes:
        for line in one.crashes:
            click.echo(f"{one.trial.harm}, {one.trial.on or 'none'}: {line}")


def _print(results: Sequence[runner.Result]) -> None:
    shown = table.Table("FAULT", "HITS", "SLOTS", "RUNS", "ATTEMPTS", "VIOLATIONS", "95 % BOUND")
    for one in results:
        numbers = (one.slots, one.runs, one.attempts, len(one.violations))
        bound = f"{one.bound:.3f}" if one.good else "unknown"
        shown.add_row(one.fault, f"{one.hits}/{one.wanted}", *map(str, numbers), bound)
    out = console.Console(width=110)
    out.print(shown)
    for one in results:
        for violation in one.violations[:20]:
            click.echo(f"{one.fault}: {violation}")


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    faults()
