"""What the commands that ask the API have in common: whom they ask, and how they fail.

Nothing that takes long to import is imported before a command is called: `--help` and completion are asked for often.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from clockhand import errors
from clockhand.commands import oneline
from clockhand.domain import instants

if TYPE_CHECKING:
    from datetime import datetime

    from clockhand.client import Clockhand, Job, Run

PATIENCE_SECONDS = 3.0
"""Somebody is looking at the terminal."""
PAGE = 100
_INTERRUPTED = 130
_COMPLETION_SECONDS = 2.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--url", metavar="URL", help="The API; else CLOCKHAND_API_URL, else that of `clockhand dev`."),
    click.option(
        "--token-file", metavar="FILE", help="Your token; else CLOCKHAND_TOKEN_FILE or CLOCKHAND_TOKEN, else as above."
    ),
    click.option("-n", "--namespace", metavar="NAME", help="Where to act, with the token of a cluster's user."),
)
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="How to print what came of it.",
)


def instant(name: str, help_text: str) -> Callable[[F], F]:
    """An option whose value is an instant."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
        try:
            return None if text is None else instants.read(text, name)
        except errors.InvalidInput as error:
            raise oneline.Failure(str(error)) from None

    return click.option(name, metavar="T", help=help_text, callback=read)


class NotDone(oneline.Failure):
    """It was not done, and not for what was written: one sentence on stderr, exit code 1."""

    exit_code = 1


def asks(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command that asks the API: the options that say which one, and its errors as sentences."""

    @functools.wraps(work)
    def command(*, url: str | None, token_file: str | None, namespace: str | None, **given: Any) -> None:
        call(lambda api: work(api, **given), url=url, token_file=token_file, namespace=namespace)

    for option in reversed(_OPTIONS):
        option(command)
    return command


def call(
    work: Callable[[Clockhand], Awaitable[T]],
    *,
    url: str | None = None,
    token_file: str | None = None,
    namespace: str | None = None,
    patience: float = PATIENCE_SECONDS,
) -> T:
    """What `work` makes of the API; fails in one line."""
    from clockhand.client import Clockhand

    try:
        api = Clockhand(url, token_file=token_file, namespace=namespace, patience=patience)
    except errors.InvalidInput as error:
        raise oneline.Failure(str(error)) from None
    try:
        return asyncio.run(_within(api, work))
    except errors.InvalidInput as error:
        raise oneline.Failure(str(error)) from None
    except errors.ClockhandError as error:
        raise NotDone(_sentence(error, api)) from None
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


async def _within(api: Clockhand, work: Callable[[Clockhand], Awaitable[T]]) -> T:
    async with api:
        return await work(api)


def _sentence(error: errors.ClockhandError, api: Clockhand) -> str:
    if isinstance(error, errors.Unavailable) and not api.reached and urlsplit(api.url).hostname in _LOOPBACK:
        return f"cannot reach {api.url}: is `clockhand dev` running?"
    return str(error)


async def job_of(api: Clockhand, text: str) -> Job:
    """The job of this name or id; raises NotFound."""
    return await (api.jobs.get(text) if is_id(text) else api.jobs.find(text))


async def run_of(api: Clockhand, text: str) -> Run:
    """The run of this name or id; raises NotFound."""
    return await (api.runs.get(text) if is_id(text) else api.runs.find(text))


def is_id(text: str) -> bool:
    """Whether it is an id, and not a name."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def complete_job(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The names of jobs that begin so: for a shell, so that no answer is better than a late one."""
    target = {name: context.params.get(name) for name in ("url", "token_file", "namespace")}

    async def names(api: Clockhand) -> list[str]:
        async with asyncio.timeout(_COMPLETION_SECONDS):
            return [job.name for job in await first(api.jobs.list(prefix=begun or None), PAGE)]

    try:
        return call(names, **target, patience=0)
    except (click.ClickException, TimeoutError):
        return []


async def first(things: AsyncIterator[T], count: int) -> list[T]:
    """The first so many: no page is asked for in vain."""
    found: list[T] = []
    async for one in things:
        found.append(one)
        if len(found) == count:
            break
    return found
