"""`clockhand convert`: CronJob manifests in, ScheduledJob manifests out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from clockhand import errors
from clockhand.commands import manifests, oneline, written
from clockhand.domain import conversion

_EXAMPLES = """
\b
Examples:
  clockhand convert cronjob.yaml
  clockhand convert manifests/ > scheduledjobs.yaml
  kubectl get cronjobs -A -o yaml | clockhand convert - | kubectl apply --dry-run=server -f -

Suspend or delete a CronJob before its ScheduledJob is applied, or both run. What has no equal is told on stderr, and
in comments above each object.
"""


@dataclass(slots=True)
class _Outcome:
    converted: list[conversion.Converted] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    failed: bool = False


@click.command(cls=oneline.Command, epilog=_EXAMPLES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def convert(files: tuple[str, ...], output: str) -> None:
    """Turn CronJob manifests into ScheduledJob manifests.

    FILE is a manifest, a directory of them, or - for standard input. Other objects are passed over. Exit code 2 if
    something could not be read, and then nothing is printed, or if a CronJob has no equal, and then it is left out.
    """
    outcome = _Outcome()
    for name, document in [found for given in files for found in written.objects(given)]:
        _convert(name, document, outcome)
    oneline.write(_yaml(outcome.converted) if output == "yaml" else _json(outcome.converted))
    for sentence in outcome.said:
        click.echo(oneline.printable(sentence), err=True)
    if outcome.failed:
        raise click.exceptions.Exit(oneline.Failure.exit_code)


def _convert(file: str, document: Mapping[str, object], outcome: _Outcome) -> None:
    at = f"{file}: {written.label(document)}"
    if not conversion.is_cronjob(document):
        outcome.said.append(f"{at}: is no CronJob of batch/v1: passed over")
        return
    try:
        found = conversion.convert(document)
    except errors.InvalidInput as error:
        outcome.said.append(f"{at}: cannot be converted: {error}")
        outcome.failed = True
        return
    outcome.converted.append(found)
    outcome.said.extend(f"{at}: {note}" for note in found.notes)


def _yaml(converted: Sequence[conversion.Converted]) -> str:
    return "".join(manifests.write(one.document, [oneline.printable(note) for note in one.notes]) for one in converted)


def _json(converted: Sequence[conversion.Converted]) -> str:
    listed = {"apiVersion": "v1", "kind": "List", "items": [one.document for one in converted]}
    return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
