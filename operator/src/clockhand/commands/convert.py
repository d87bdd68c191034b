"""`clockhand convert`: CronJob manifests in, ScheduledJob manifests out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from clockhand import errors
from clockhand.commands import manifests, oneline
from clockhand.domain import conversion

_STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
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
    for name, objects in [(name, _read(name, data)) for given in files for name, data in _texts(given)]:
        for document in objects:
            _convert(name, document, outcome)
    oneline.write(_yaml(outcome.converted) if output == "yaml" else _json(outcome.converted))
    for sentence in outcome.said:
        click.echo(oneline.printable(sentence), err=True)
    if outcome.failed:
        raise click.exceptions.Exit(oneline.Failure.exit_code)


def _texts(given: str) -> Iterator[tuple[str, bytes]]:
    if given == _STDIN:
        yield "stdin", sys.stdin.buffer.read()
        return
    path = Path(given)
    try:
        paths = _inside(path) if path.is_dir() else [path]
        for one in paths:
            yield str(one), one.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise oneline.Failure(f"{given}: cannot be read: {reason}") from None


def _inside(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if not found:
        raise oneline.Failure(f"{folder}: holds no {', '.join(_SUFFIXES)} file: name one that does")
    return found


def _read(name: str, data: bytes) -> list[Mapping[str, object]]:
    try:
        return manifests.read(data)
    except errors.InvalidInput as error:
        raise oneline.Failure(f"{name}: {error.sentence}") from None


def _convert(file: str, document: Mapping[str, object], outcome: _Outcome) -> None:
    at = f"{file}: {_label(document)}"
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


def _label(document: Mapping[str, object]) -> str:
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    return f"{str(document.get('kind')).lower()}/{given.get('name') or given.get('generateName') or '(no name)'}"


def _yaml(converted: Sequence[conversion.Converted]) -> str:
    return "".join(manifests.write(one.document, [oneline.printable(note) for note in one.notes]) for one in converted)


def _json(converted: Sequence[conversion.Converted]) -> str:
    listed = {"apiVersion": "v1", "kind": "List", "items": [one.document for one in converted]}
    return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
