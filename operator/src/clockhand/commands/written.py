"""Jobs as people write them on a command line and in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from clockhand import errors
from clockhand.commands import manifests, oneline

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
Json = dict[str, Any]
F = Callable[..., Any]

_OPTIONS = (
    click.option("--schedule", "schedules", metavar="EXPR", multiple=True, help='Such as "0 2 * * *"; several: each.'),
    click.option("--every", metavar="SPAN", help="A fixed interval, such as 90s or 2h."),
    click.option("--at", metavar="T", help="One instant, such as 2026-12-24T18:00:00Z."),
    click.option("--time-zone", metavar="ZONE", help="The IANA name of the schedule's zone; UTC by default."),
    click.option("--handler", metavar="NAME", help="The handler that takes each run, such as http or email.send."),
    click.option("--pool", metavar="NAME", help="The pool whose workers have it; default by default."),
    click.option("--payload", metavar="JSON", help="What each run is given; @FILE reads it from a file."),
    click.option("-l", "--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label; several: all of them."),
    click.option(
        "--set",
        "others",
        metavar="FIELD=VALUE",
        multiple=True,
        help="Any other field, such as retry.maxAttempts=5 (docs/fields.md).",
    ),
)


def fields(command: F) -> F:
    """The options that say what a job is."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def job_of(given: Mapping[str, Any]) -> Json:
    """The fields that options name, as the API takes them."""
    named = {"every": given["every"], "at": given["at"], "timeZone": given["time_zone"]}
    job: Json = {name: text for name, text in named.items() if text is not None}
    match given["schedules"]:
        case []:
            pass
        case [schedule]:
            job["schedule"] = schedule
        case several:
            job["schedules"] = list(several)
    job |= {name: given[name] for name in ("handler", "pool") if given[name] is not None}
    if given["payload"] is not None:
        job["payload"] = payload(given["payload"])
    if given["labels"]:
        job["labels"] = dict(pair(text, "--label") for text in given["labels"])
    for text in given["others"]:
        path, value = pair(text, "--set")
        _put(job, path.split("."), _value(value))
    return job


def payload(text: str) -> Any:
    """JSON that was written, or that is in the file behind an @."""
    try:
        return json.loads(Path(text[1:]).read_bytes() if text.startswith("@") else text)
    except OSError as error:
        raise oneline.Failure(f"--payload: {text[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise oneline.Failure(f"--payload: is not JSON: {error}") from None


def pair(text: str, option: str) -> tuple[str, str]:
    """The two sides of an equals sign."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise oneline.Failure(f"{option}: {text!r} has no name or no value: write {option} NAME=VALUE")
    return name, value


def _put(job: Json, path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        job = job.setdefault(name, {})
        if not isinstance(job, dict):
            raise oneline.Failure(f"--set: {'.'.join(path)}: {name} has no fields")
    job[last] = value


def _value(text: str) -> Any:
    """JSON where it is, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def texts(given: str) -> Iterator[tuple[str, bytes]]:
    """What is in a file, in those of a directory, or comes from standard input; each with its name."""
    if given == STDIN:
        yield "stdin", sys.stdin.buffer.read()
        return
    path = Path(given)
    try:
        for one in _inside(path) if path.is_dir() else [path]:
            yield str(one), one.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise oneline.Failure(f"{given}: cannot be read: {reason}") from None


def objects(given: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The Kubernetes objects in what `texts` reads, each with the name of its file."""
    for name, data in texts(given):
        try:
            found = manifests.read(data)
        except errors.InvalidInput as error:
            raise oneline.Failure(f"{name}: {error.sentence}") from None
        yield from ((name, one) for one in found)


def label(manifest: Mapping[str, object]) -> str:
    """What to call an object, as kubectl does."""
    metadata = manifest.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    return f"{str(manifest.get('kind')).lower()}/{given.get('name') or given.get('generateName') or '(no name)'}"


def _inside(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not found:
        raise oneline.Failure(f"{folder}: holds no {', '.join(SUFFIXES)} file: name one that does")
    return found
