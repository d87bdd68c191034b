"""The commands that pages and helps show exist, with the options that they are shown with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click
import pytest
from tests.support import generated

from clockhand import cli

PAGES = sorted([*generated.ROOT.glob("*.md"), *generated.ROOT.glob("docs/*.md")])
_COMMAND = re.compile(r"(?:^|\| |-- |^\s+)(?:[.]venv/bin/)?clockhand (?P<words>[a-z][^\n|>`]*)", re.MULTILINE)
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def shown() -> Iterator[str]:
    """Every command line in the blocks of pages, and in the examples of commands."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            yield from lines(block)
    for command in commands(cli.clockhand):
        yield from lines(command.epilog or "")


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from commands(one)


def lines(text: str) -> Iterator[str]:
    for found in _COMMAND.finditer(text):
        yield found["words"].strip()


@pytest.mark.parametrize("line", sorted(set(shown())))
def test_it_can_be_called_so(line: str) -> None:
    words = shlex.split(line, comments=True)
    check(cli.clockhand, words)


def check(command: click.Command, words: Sequence[str], parent: click.Context | None = None) -> None:
    with command.make_context(command.name, list(words), parent=parent) as context:
        if isinstance(command, click.Group):
            name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert name is not None
            assert found is not None
            check(found, rest, context)


def test_every_command_for_people_has_examples_of_its_own() -> None:
    for name in ("jobs", "runs", "apply", "completion"):
        assert f"clockhand {name}" in (cli.clockhand.commands[name].epilog or "")
