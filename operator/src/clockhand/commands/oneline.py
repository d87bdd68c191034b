"""Commands that say what is wrong in one line: they are called by scripts, and their input is other people's text."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import IO, Any

import click


class Failure(click.ClickException):
    """The input is wrong: one sentence on stderr, nothing on stdout, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"clockhand: {printable(self.message)}", err=True, file=file)


class Command(click.Command):
    """A command that takes a text beginning with `-`, such as a schedule, for what it is, and fails in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, _set_apart(args, self._valued()))
        except click.UsageError as error:
            raise Failure(_sentence(self.wording(error), ctx)) from None

    def wording(self, error: click.UsageError) -> str:
        """What to say of arguments that do not fit."""
        return error.format_message()

    def _valued(self) -> set[str]:
        options = [one for one in self.params if isinstance(one, click.Option) and not one.is_flag]
        return {name for option in options for name in option.opts}


class Group(click.Group):
    """A group of commands that fail in one line. Called without any of them it shows its help."""

    command_class = Command
    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise Failure(_sentence(error.format_message(), ctx)) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise Failure(_sentence(error.format_message(), ctx)) from None


class Unwritten(Failure):
    """What was asked for could not be written: not the input is wrong, so that it is worth trying again."""

    exit_code = 1


def write(text: str) -> None:
    """Writes the answer to stdout, or fails in one line where it cannot; who closed a pipe has read enough."""
    try:
        if sys.stdout is None:  # closed before the start, as by `>&-`
            raise OSError(errno.EBADF, "it is closed")
        click.echo(text, nl=False)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise Unwritten(f"stdout: cannot be written to: {error.strerror}") from None


def printable(text: str) -> str:
    """The text on one line, with what a terminal might act on written out."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _sentence(said: str, context: click.Context) -> str:
    """What is wrong with what was written, and where to read what would be right."""
    return f"{said}{'' if said.endswith(('.', '?')) else '.'} See `{context.command_path} --help`."


def _set_apart(args: Sequence[str], valued: set[str]) -> list[str]:
    for index, text in enumerate(args):
        if text == "--":
            break
        if _is_no_option(text) and not (index and args[index - 1] in valued):
            return [*args[:index], *args[index + 1 :], "--", text]
    return list(args)


def _is_no_option(text: str) -> bool:
    if len(text) < 2 or not text.startswith("-") or text.startswith("--"):
        return False
    return not text[1].isalpha() or any(one.isspace() for one in text)
