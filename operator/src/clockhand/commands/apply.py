"""`clockhand apply`: the manifests of kubectl, over REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from clockhand import errors
from clockhand.commands import oneline, remote, shown, written

if TYPE_CHECKING:
    from clockhand.client import Clockhand, Job

_GROUP = "clockhand.dev/"
_KIND = "ScheduledJob"
_ELSEWHERE = {
    "WorkerPool": "REST has no pools: one exists once a worker claims from it",
    "JobClass": "REST has no classes: an administrator of the cluster makes them by kubectl",
}
_EXAMPLES = """
\b
Examples:
  clockhand apply -f job.yaml
  clockhand apply -f jobs/ -f more.yaml
  clockhand convert cronjob.yaml | clockhand apply -f -
  clockhand apply -f job.yaml --dry-run

A job is known by its metadata.name. What a manifest leaves out goes back to its default, but for suspend and for
ttlSecondsAfterFinished, which stay. A template
needs the token of a user of the cluster who may create pods there, and a run one of a user who may use its JobClass.
"""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A job as a manifest has it."""

    name: str
    namespace: str | None
    document: Mapping[str, Any]


@click.command(cls=oneline.Command, epilog=_EXAMPLES)
@click.option(
    "-f", "--filename", "files", metavar="FILE", multiple=True, required=True, help="A file, a directory, or -."
)
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml", "name"]), default="table", show_default=True
)
@remote.asks
async def apply(api: Clockhand, files: Sequence[str], dry_run: bool, output: str) -> None:
    """Make jobs, or change them, so that they are as manifests of ScheduledJob say.

    Exit code 1 if anything could not be applied; what could is applied nevertheless. Nothing is, where a file cannot
    be read (exit code 2).
    """
    found = [one for given in files for one in written.objects(given)]
    if not found:
        raise oneline.Failure(f"{', '.join(files)}: there is no manifest in it")
    done, failed = [], False
    for file, manifest in found:
        try:
            wanted = _wanted(manifest)
            job, what = await _apply(_place(api, wanted), wanted, dry_run=dry_run)
        except errors.Unavailable:
            raise
        except errors.ClockhandError as error:
            click.echo(f"clockhand: {oneline.printable(f'{file}: {written.label(manifest)}: {error}')}", err=True)
            failed = True
            continue
        done += [] if job is None else [job]
        if output == "table":
            oneline.write(f"{oneline.printable(wanted.name)} {what}{' (dry run)' if dry_run else ''}\n")
    if output != "table":
        oneline.write(shown.many(done, shown.JOBS, output))
    if failed:
        raise click.exceptions.Exit(remote.NotDone.exit_code)


async def _apply(api: Clockhand, wanted: _Wanted, *, dry_run: bool) -> tuple[Job | None, str]:
    """The job, None where it is not there, and what was done with it."""
    try:
        job = await api.jobs.find(wanted.name)
    except errors.NotFound:
        return (None if dry_run else await api.jobs.create(wanted.document)), "created"
    document = {**_kept(job, wanted.document), **wanted.document}
    if _is(job, document):
        return job, "unchanged"
    return (job if dry_run else await api.jobs.replace(job, document, etag=job.etag)), "configured"


def _place(api: Clockhand, wanted: _Wanted) -> Clockhand:
    if wanted.namespace is None or wanted.namespace == api.namespace:
        return api
    if api.namespace is not None:
        raise errors.InvalidInput("metadata.namespace", f"is {wanted.namespace}, and --namespace is {api.namespace}")
    return api.within(wanted.namespace)


def _kept(job: Job, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stays as it is where a manifest does not speak of it: others than its writer set it."""
    stays = job.one_shot and "at" in document and job.ttl_seconds_after_finished is not None
    return {"suspend": job.suspend, **({"ttlSecondsAfterFinished": job.ttl_seconds_after_finished} if stays else {})}


def _is(job: Job, document: Mapping[str, Any]) -> bool:
    """Whether a job is as it is wanted already; raises InvalidInput for what could not be stored."""
    from clockhand.domain import resources, spec

    wanted = spec.parse({name: value for name, value in document.items() if name not in resources.OWN_FIELDS})
    same = all(getattr(job, name) == getattr(wanted, name) for name in spec.JobSpec.__struct_fields__)
    return same and dict(job.labels) == document["labels"]


def _wanted(manifest: Mapping[str, object]) -> _Wanted:
    kind, version = manifest.get("kind"), str(manifest.get("apiVersion"))
    if kind in _ELSEWHERE and version.startswith(_GROUP):
        raise errors.InvalidInput("", _ELSEWHERE[str(kind)])
    if kind != _KIND or not version.startswith(_GROUP):
        raise errors.InvalidInput("", f"only {_KIND} objects of {_GROUP}v1alpha1 can be applied over REST")
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise errors.InvalidInput("spec", "is missing: write it")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise errors.InvalidInput("metadata.name", "is missing: a job is known by it")
    name, namespace = str(metadata["name"]), metadata.get("namespace")
    document = {**spec, "name": name, "labels": dict(metadata.get("labels") or {})}
    return _Wanted(name, None if namespace is None else str(namespace), document)
