"""The command line: a command gets its settings from the environment, and starts what it names."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import click

from clockhand import config, errors, logs, tracing
from clockhand.commands import apply, audit, completion, convert, jobs, oneline, preview, runs

_EXAMPLES = """
\b
Examples:
  CLOCKHAND_DATABASE_URL=postgresql://localhost/clockhand clockhand migrate
  clockhand operator
  clockhand api
  clockhand api --runs
  clockhand tokens create --owner rest/acme --role editor --name laptop > token
  clockhand doctor
  clockhand redrive --owner k8s/team-a --dry-run
  clockhand preview "30 2 * * *" --time-zone Europe/Berlin
  clockhand convert cronjob.yaml | kubectl apply -f -
"""


_CLOCK_EXAMPLES = """
\b
Examples:
  clockhand clock
  clockhand clock -o json
  clockhand clock --confirm
  kubectl -n clockhand-system exec deploy/clockhand-operator -- clockhand clock
"""


_TOKENS_EXAMPLES = """
\b
Examples:
  clockhand tokens create --owner k8s/team-a --role worker --pool mailers --name "mail host" --expires-in 90d > token
  clockhand tokens create --owner rest/acme --role editor --name laptop > token
  clockhand tokens list --owner rest/acme
  clockhand tokens revoke 7b0c2c9e-5a3d-4f62-9d5e-0f6a5f0f6c11
  kubectl -n clockhand-system exec deploy/clockhand-api -- clockhand tokens list -o json
"""


_DOCTOR_EXAMPLES = """
\b
Examples:
  clockhand doctor
  clockhand doctor --no-cluster -o json
  clockhand doctor --only overdue --only replicas
  clockhand doctor --fix --dry-run
  kubectl -n clockhand-system exec deploy/clockhand-operator -- clockhand doctor
"""


_WORKER_EXAMPLES = """
\b
Examples:
  export CLOCKHAND_API_URL=http://localhost:8080 CLOCKHAND_POOL=team-a/mailers CLOCKHAND_TOKEN_FILE=token
  PYTHONPATH=. CLOCKHAND_HANDLERS=mailers:worker clockhand worker
  CLOCKHAND_EXEC_COMMANDS=commands.yaml clockhand worker
"""


_REDRIVE_EXAMPLES = """
\b
Examples:
  clockhand redrive --owner k8s/team-a --dry-run
  clockhand redrive --owner k8s/team-a --job nightly-report --since 2026-12-24T00:00:00Z
  clockhand redrive --owner rest/acme --state Unknown --limit 100 -o json
  kubectl -n clockhand-system exec deploy/clockhand-operator -- clockhand redrive --owner k8s/team-a
"""


class _Logs(Protocol):
    @property
    def log_format(self) -> str: ...


_DEV_EXAMPLES = """
\b
Examples:
  clockhand dev
  clockhand dev --ephemeral --port 9000
  clockhand dev --data-dir ./data --token-file ./token --kubeconfig ./kubeconfig
"""


S = TypeVar("S", bound=_Logs)
_path = click.Path(dir_okay=True, path_type=Path)
_output = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group(cls=oneline.Group, epilog=_EXAMPLES)
@click.version_option(package_name="clockhand")
def clockhand() -> None:
    """A job scheduler for Kubernetes and for everything that can speak HTTP.

    Settings come from the environment, as CLOCKHAND_* variables.
    """


@clockhand.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 unless the schema fits this release.")
@click.option("--after", is_flag=True, help="The previous release is gone: apply also what it could not work with.")
@click.option("--restored", is_flag=True, help="The database came out of a backup: raise its epoch, once.")
def migrate(check: bool, after: bool, restored: bool) -> None:
    """Bring the database's schema up to this release."""
    from clockhand.admin import migrate as migration

    _run(functools.partial(migration.run, check=check, after=after, restored=restored))


@clockhand.command(epilog=_CLOCK_EXAMPLES)
@click.option(
    "--confirm", is_flag=True, help="The clock is right: fire by it from now on, catching up as each job says."
)
@_output
def clock(confirm: bool, output: str) -> None:
    """Say whether the database's clock is trusted, or by how much it jumped and until when firing waits."""
    from clockhand.admin import clock as clocks

    _run(functools.partial(clocks.tell, confirm=confirm, output=output, write=oneline.write))


@clockhand.command()
def operator() -> None:
    """Mirror ScheduledJob objects, fire what is due, and look after the pods."""
    # kopf and what it brings are of no use to the other commands
    from clockhand.controller import app

    _run(app.serve, traced="clockhand-operator")


@clockhand.command()
@click.option("--runs", is_flag=True, help="Serve the aggregated Kubernetes API for runs instead.")
def api(runs: bool) -> None:
    """Fire the jobs of worker pools, and serve the REST API and that from which workers take their runs."""
    # each needs much that the other has no use for
    if runs:
        from clockhand.api.runs import app as runs_app

        _run(runs_app.serve)
    else:
        from clockhand.api import app

        _run(app.serve, traced="clockhand-api")


@clockhand.group(epilog=_TOKENS_EXAMPLES)
def tokens() -> None:
    """Make, list and revoke static credentials, for clients of the REST API and for workers.

    Who is known in the cluster needs none: workers of a WorkerPool, say, come with the token of their service account.
    """


@tokens.command("create", epilog=_TOKENS_EXAMPLES)
@click.option("--owner", required=True, help="k8s/NAMESPACE or rest/TENANT.")
@click.option(
    "--role", type=click.Choice(["viewer", "editor", "worker"]), required=True, help="What its holder may do."
)
@click.option("--pool", help="For a worker: the one pool of that owner whose runs it may take.")
@click.option("--name", required=True, help="Who holds it, for people.")
@click.option("--expires-in", help="Such as 90d or 12h; by default it does not expire.")
@_output
def create_token(output: str, **asked: Any) -> None:
    """Make a credential, and print its secret: the only time that it can be seen.

    A viewer reads what the owner has, an editor changes it as well; a worker takes the runs of one pool.
    """
    from clockhand.admin import tokens as credentials

    async def make(settings: config.Settings) -> None:
        wanted = credentials.Wanted.read(**asked)
        await credentials.tell_new(settings, wanted=wanted, output=output, write=oneline.write)

    _run(make)


@tokens.command("list", epilog=_TOKENS_EXAMPLES)
@click.option("--owner", help="Only those of k8s/NAMESPACE or rest/TENANT.")
@_output
def list_tokens(owner: str | None, output: str) -> None:
    """List credentials, without their secrets: nobody can tell those."""
    from clockhand.admin import tokens as credentials

    _run(functools.partial(credentials.tell_all, owner=owner, output=output, write=oneline.write))


@tokens.command("revoke", epilog=_TOKENS_EXAMPLES)
@click.argument("token_id", type=click.UUID)
@_output
def revoke_token(token_id: uuid.UUID, output: str) -> None:
    """End a credential. API processes that have just seen it take it for ten seconds more."""
    from clockhand.admin import tokens as credentials

    _run(functools.partial(credentials.tell_ended, token_id=token_id, output=output, write=oneline.write))


@clockhand.command(epilog=_REDRIVE_EXAMPLES)
@click.option("--owner", required=True, help="k8s/NAMESPACE or rest/TENANT.")
@click.option("--job", help="Only runs of this job.")
@click.option("--state", type=click.Choice(["Dead", "Unknown", "Cancelled"]), default="Dead", show_default=True)
@click.option("--since", help="Only runs scheduled at this instant or later, such as 2026-12-24T18:00:00Z.")
@click.option("--until", help="Only runs scheduled at this instant or before.")
@click.option("--limit", type=click.IntRange(1), default=1_000_000, show_default=True, help="The oldest so many.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say how many there are.")
@_output
def redrive(output: str, **asked: Any) -> None:
    """Try ended runs again, under their own ids: once what they died of has been mended.

    Each goes on with its next attempt, its failures forgotten. It may be broken off and called again.
    """
    from clockhand.admin import redrive as redriving

    _run(functools.partial(redriving.tell, asked=redriving.Wanted(**asked), output=output, write=oneline.write))


@clockhand.command(epilog=_DOCTOR_EXAMPLES)
@click.option("--only", multiple=True, metavar="CHECK", help="This check alone; may be repeated.")
@click.option("--no-cluster", is_flag=True, help="Look at the database alone.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option("--fix", is_flag=True, help="Mend what can be mended safely; asks before each thing.")
@click.option("--dry-run", is_flag=True, help="With --fix: change nothing; say what would be done.")
@click.option("--yes", is_flag=True, help="With --fix: ask nothing.")
@_output
def doctor(only: tuple[str, ...], **asked: Any) -> None:
    """Look at an installation: the database and its settings, the cluster, and what they say of each other.

    The exit code is 0 where nothing is wrong, 1 where something is, and 2 where nothing could be looked at.
    """
    from clockhand.admin.doctor import command

    async def look(settings: config.Settings) -> None:
        await command.tell(settings, wanted=command.Wanted(only=only, **asked), write=oneline.write)

    _run(look)


@clockhand.command(epilog=_WORKER_EXAMPLES)
def worker() -> None:
    """Take runs of a pool and call their handlers: your own, and the built-in exec and http."""
    from clockhand.worker import app
    from clockhand.worker import config as worker_config

    _run_with(worker_config.from_environment, app.serve, traced="clockhand-worker")


@clockhand.command(epilog=_DEV_EXAMPLES)
@click.option("--data-dir", type=_path, help="Where everything lies; by default ~/.local/share/clockhand.")
@click.option("--ephemeral", is_flag=True, help="Keep nothing: all data go at the end.")
@click.option(
    "--port",
    type=click.IntRange(1, 65533),
    default=8480,
    show_default=True,
    help="REST on loopback; the Kubernetes API is at the next port, health and metrics at the one after that.",
)
@click.option("--token-file", type=_path, help="The token of REST: read from there, or made and written there.")
@click.option("--kubeconfig", type=_path, help="Written for kubectl; by default in the data directory.")
def dev(data_dir: Path | None, ephemeral: bool, port: int, token_file: Path | None, kubeconfig: Path | None) -> None:
    """Run all of Clockhand on this machine, with a database of its own and no cluster."""
    from clockhand.standalone import app, home

    if ephemeral and data_dir is not None:
        raise oneline.Failure("--ephemeral keeps nothing, and --data-dir names where to keep it: give one of them")
    default = home.default(os.environ)
    asked = app.Asked(
        data_dir=None if ephemeral else data_dir or default,
        port=port,
        token_file=token_file,
        kubeconfig=kubeconfig,
        is_default=not ephemeral and (data_dir is None or data_dir.absolute() == default),
    )
    _start("text", functools.partial(app.serve, asked, environment=os.environ, write=oneline.write))


@clockhand.command("local-cluster", hidden=True)
@click.argument("settings", type=_path)
def local_cluster(settings: Path) -> None:
    """What stands in for a cluster, started by `clockhand dev`."""
    from clockhand.standalone import cluster, told

    _start("text", functools.partial(cluster.serve, told.read(settings), environment=os.environ))


@clockhand.command()
def crds() -> None:
    """Print the CustomResourceDefinitions that this release needs."""
    from clockhand.domain import crd, definition, jobclass_crd, workerpool_crd

    resources = (crd.RESOURCE, workerpool_crd.RESOURCE, jobclass_crd.RESOURCE)
    oneline.write("---\n".join(definition.text(one) for one in resources))


clockhand.add_command(preview.preview)
clockhand.add_command(convert.convert)
clockhand.add_command(jobs.jobs)
clockhand.add_command(runs.runs)
clockhand.add_command(apply.apply)
clockhand.add_command(audit.audit)
clockhand.add_command(completion.completion)


def _run(serve: Callable[[config.Settings], Coroutine[Any, Any, None]], *, traced: str | None = None) -> None:
    _run_with(config.from_environment, serve, traced=traced)


def _run_with(
    read: Callable[[Mapping[str, str]], S],
    serve: Callable[[S], Coroutine[Any, Any, None]],
    *,
    traced: str | None = None,
) -> None:
    try:
        settings = read(os.environ)
    except errors.InvalidInput as error:
        _fail(str(error), code=2)
    _start(settings.log_format, functools.partial(serve, settings), traced=traced)


def _start(log_format: str, serve: Callable[[], Coroutine[Any, Any, None]], *, traced: str | None = None) -> None:
    """Runs a process to its end; `traced` is what traces call it, where there are any."""
    logs.to_stderr(log_format)
    if traced is not None:
        tracing.begin(traced, os.environ)
    try:
        asyncio.run(serve())
    except errors.InvalidInput as error:
        _fail(str(error), code=2)
    except errors.ClockhandError as error:
        _fail(str(error), code=1)
    finally:
        tracing.end()


def _fail(sentence: str, *, code: int) -> NoReturn:
    click.echo(f"clockhand: {sentence}", err=True)
    sys.exit(code)
