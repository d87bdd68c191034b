"""`clockhand jobs edit`: a job as YAML in an editor, as often as it takes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from clockhand import errors
from clockhand.commands import manifests, oneline, remote, shown

if TYPE_CHECKING:
    from clockhand.client import Clockhand, Job

EXAMPLES = """
\b
Examples:
  clockhand jobs edit report
  EDITOR="code --wait" clockhand jobs edit report
  clockhand jobs edit report --schedule "0 3 * * *"
  clockhand jobs edit report --set retry.maxAttempts=5 --set pauseAfterFailures=null
"""
_HEAD = (
    "Save it to change the job, or leave it as it is to change nothing. What is left out goes back to its default.",
    "Lines that begin with # are passed over.",
)


async def edit(api: Clockhand, job: Job) -> Job:
    """The job as somebody wants it; raises Changed where somebody else was faster."""
    before = _editable(job)
    text, said = manifests.text(before), list[str]()
    while True:
        text = _edited(text, said)
        try:
            wanted = _read(text)
            if wanted == before:
                raise remote.NotDone("nothing was changed")
            return await api.jobs.replace(job, wanted, etag=job.etag)
        except errors.InvalidInput as error:
            said = [oneline.printable(f"It was not stored: {error}.")]
        except errors.ClockhandError as error:
            raise remote.NotDone(f"{error}; what you wrote is kept in {_kept(text)}") from None


def _editable(job: Job) -> dict[str, Any]:
    from clockhand.domain import resources

    return {name: value for name, value in shown.JOBS.document(job).items() if name not in resources.SERVER_FIELDS}


def _edited(text: str, said: Sequence[str]) -> str:
    """What the editor leaves behind, without our own comments. Who saves a refused text as it is wants no more of it."""
    head = "".join(f"# {line}\n" for line in (*_HEAD, *said))
    found = click.edit(f"{head}{text}", extension=".yaml")
    body = None if found is None else "".join(line for line in found.splitlines(True) if not line.startswith("#"))
    if body is None or (said and body == text):
        raise remote.NotDone(f"{said[-1]} What you wrote is kept in {_kept(text)}" if said else "nothing was changed")
    return body


def _read(text: str) -> dict[str, Any]:
    documents = manifests.values(text.encode())
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, dict):
        raise errors.InvalidInput("", "it is no object: write the fields of the job")
    return document


def _kept(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="clockhand-edit-", suffix=".yaml", delete=False) as file:
        file.write(text)
    return file.name
